"""Sums with Gaussian noise that follows a linear recurrence over the rounds.

Denisov et al. 2022, section 4; the noise of round t is row t of C^-1 Z, made
from a fresh row of Z and from buffers that sum up the noise so far.
"""

from __future__ import annotations

from collections.abc import Callable
import dataclasses
import functools
from typing import Any, ClassVar

from etils import epy

from tff_fedemb.aggregators import mechanism

with epy.lazy_imports():
  from tff_fedemb.aggregators import correlated_query


@dataclasses.dataclass(frozen=True, kw_only=True)
class CorrelatedConfig(mechanism.MechanismConfig):
  """Fields of mechanisms of correlated noise.

  Attributes:
    noise_seed: For tests: seed of the noise, shared by all runs, which voids
      privacy. None: from the operating system, secret.
    next_noise_fn: Function of the matrix C and the arguments of a
      `correlated_query.NextNoise`.
  """

  next_noise_fn: ClassVar[Callable[..., Any]]

  noise_seed: int | None = None

  def build_query(self, specs, strategy):
    """As in the base class, for noise that follows a recurrence.

    Privacy:
      As `correlated_query.CorrelatedSumQuery`, over a run as
      `strategies.strategy.CorrelatedGaussianDpEvent`.

    Args:
      specs: As in the base class.
      strategy: The matrix C.
    """
    return correlated_query.CorrelatedSumQuery(
      functools.partial(self.next_noise_fn, strategy),
      specs,
      # As many whatever the number of rounds.
      num_buffers=strategy.model_copies(rounds=1),
      clip_norm=self.clip_norm,
      stddev=self.clip_norm * self.noise_multiplier,
      noise_seed=self.noise_seed,
    )
