"""Gaussian mechanism with a fixed clip norm.

McMahan et al. 2018 ("Learning Differentially Private Recurrent Language
Models", algorithm 1, fixed-denominator estimator); Xu et al. 2023, section 3.
"""

from __future__ import annotations

import dataclasses
from typing import ClassVar

from etils import epy

from tff_fedemb.mechanisms import mechanism

with epy.lazy_imports():
  from tff_fedemb.mechanisms import secret_noise


@dataclasses.dataclass(frozen=True, kw_only=True)
class GaussianConfig(mechanism.MechanismConfig):
  """The Gaussian mechanism.

  Each update is clipped to L2 norm C = `clip_norm` (all tensors together), and
  the clipped updates are summed. N(0, (z C)^2) with z = `noise_multiplier` is
  added to every number of the sum, fresh for each tensor and round. The result
  is divided by the *expected* number of virtual clients.

  Privacy:
    Unit: one virtual client's update.
    Neighbouring relation: zero-out of one update, by which the sum changes by
      at most C.
    Sensitivity: C. With several users in a virtual client, or with fixed-size
      sampling, one *user* changes one clipped update into another, which is
      2 C. The participation says which of the two holds, and the accountant
      divides the noise multiplier by it.
    DpEvent: `GaussianDpEvent(noise_multiplier)` per round, before
      amplification; `NonPrivateDpEvent` at noise multiplier 0.

  Examples:
    >>> mechanism = fe.Gaussian(noise_multiplier=1.0, clip_norm=0.1)
    >>> users = fe.Poisson(users_per_round=50)
    >>> cost = fe.epsilon(mechanism, users, num_users=10_000, rounds=20)
    >>> round(cost, 2)
    0.15
  """

  noise_in_words: ClassVar[str | None] = "independent"
  is_compared = True

  def build_query(self, specs, made):
    """Builds the query with independent noise in every round.

    This noise depends neither on the shapes of an update nor on the run.
    """
    return secret_noise.SecretGaussianSumQuery(
      self.clip_norm, self.clip_norm * self.noise_multiplier
    )
