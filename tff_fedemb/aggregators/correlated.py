"""Sums with Gaussian noise that follows a linear recurrence over the rounds.

Denisov et al. 2022, section 4; the noise of round t is row t of C^-1 Z, made
from a fresh row of Z and from buffers that sum up the noise so far.
"""

from __future__ import annotations

import dataclasses
from typing import Any

from etils import epy

from tff_fedemb.aggregators import mechanism
from tff_fedemb.aggregators import recurrence as recurrence_lib
from tff_fedemb.strategies import strategy as strategy_lib

with epy.lazy_imports():
  from tff_fedemb.aggregators import correlated_query


@dataclasses.dataclass(frozen=True, kw_only=True)
class CorrelatedConfig(mechanism.MechanismConfig):
  """What mechanisms of correlated noise are made from.

  Attributes:
    noise_seed: For tests: seed of the noise, shared by all runs, which voids
      privacy. None: from the operating system, secret.
  """

  noise_seed: int | None = None

  def measure_query(
    self,
    build_query: correlated_query.BuildQueryFn,
    schedule: mechanism.Schedule,
    strategy: strategy_lib.Strategy,
    **options: Any,
  ) -> mechanism.Mechanism:
    """Makes the mechanism of a query.

    Args:
      build_query: From the nested shapes of a value to the query, which clips,
        sums and adds the noise of the strategy.
      schedule: As in `create`.
      strategy: The matrix C.
      **options: Of `mechanism.MechanismConfig.measure`.
    """
    return self.measure(
      correlated_query.DeferredQueryFactory(
        build_query, self.clients_per_round
      ),
      schedule=schedule,
      strategy=strategy,
      **options,
    )

  def measure_recurrence(
    self,
    recurrence: recurrence_lib.Recurrence,
    schedule: mechanism.Schedule,
    strategy: strategy_lib.Strategy,
  ) -> mechanism.Mechanism:
    """Makes the mechanism of a strategy whose noise follows a recurrence.

    Privacy:
      As `correlated_query.CorrelatedSumQuery`, over a run as
      `strategies.strategy.CorrelatedGaussianDpEvent`.

    Args:
      recurrence: Makes rows of C^-1 Z.
      schedule: As in `create`.
      strategy: The matrix C.
    """
    return self.measure_query(
      lambda specs: correlated_query.CorrelatedSumQuery(
        recurrence,
        clip_norm=self.clip_norm,
        noise_multiplier=self.noise_multiplier,
        specs=specs,
        noise_seed=self.noise_seed,
      ),
      schedule,
      strategy,
    )
