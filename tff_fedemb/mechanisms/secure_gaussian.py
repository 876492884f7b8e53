"""Gaussian mechanism on a secure sum: fixed point, and the server's noise.

The server sees only the sum of the updates (Bonawitz et al. 2017, "Practical
Secure Aggregation for Privacy-Preserving Machine Learning"), to which it adds
the noise of McMahan et al. 2018. A simulation computes the secure sum in the
clear: see `runtime.secure_sums`.
"""

from __future__ import annotations

import dataclasses

from etils import epy

from tff_fedemb.mechanisms import gaussian

with epy.lazy_imports():
  from tff_fedemb.mechanisms import exact_sums


@dataclasses.dataclass(frozen=True, kw_only=True)
class SecureGaussianConfig(gaussian.GaussianConfig):
  """The Gaussian mechanism on a secure sum.

  Each update is clipped to L2 norm C = `clip_norm`, and each of its numbers is
  rounded to 32 bits, so that the secure sum is exact (`exact_sums`). The rest
  is as in `gaussian`: the server adds N(0, (z C)^2) with z = `noise_multiplier`
  and divides the result by the *expected* number of virtual clients.

  Privacy:
    Unit: one virtual client's update.
    Neighbouring relation: zero-out of one update, by which the sum changes by
      at most C.
    Sensitivity: C, for updates as they are after rounding. 2 C where one user
      changes one update into another, as in `gaussian`.
    DpEvent: `GaussianDpEvent(noise_multiplier)` per round, before
      amplification; `NonPrivateDpEvent` at noise multiplier 0. The server is
      trusted with the noise. It sees no single update, but epsilon does not
      count on that. Losses and measurements of a round are summed in the clear.

  Examples:
    >>> mechanism = fe.SecureGaussian(noise_multiplier=1.0, clip_norm=0.1)
    >>> users = fe.Poisson(users_per_round=50)
    >>> cost = fe.epsilon(mechanism, users, num_users=10_000, rounds=20)
    >>> round(cost, 2)
    0.15
  """

  sums_securely = True
  noise_in_words = None
  is_compared = False

  def build_factory(self, made):
    """As in the base class, with TFF's secure sum of steps.

    Args:
      made: The mechanism of the run.

    Returns:
      A factory whose clients send whole numbers.
    """
    return dataclasses.replace(
      super().build_factory(made),
      sum_factory=exact_sums.SecureStepsFactory(),
    )
