"""A mechanism: an aggregator, together with what it costs."""

from __future__ import annotations

import abc
from collections.abc import Callable
import dataclasses
from typing import Any

import dp_accounting
from etils import epy
import numpy as np

from tff_fedemb import checks
from tff_fedemb import config
from tff_fedemb import errors
from tff_fedemb.strategies import strategy as strategy_lib

with epy.lazy_imports():
  import tensorflow as tf
  import tensorflow_federated as tff
  import tensorflow_privacy as tfp

  from tff_fedemb.aggregators import measurements


@dataclasses.dataclass(frozen=True)
class Mechanism:
  """An aggregator and its privacy.

  Attributes:
    factory: The aggregation itself.
    noise_multiplier: Noise that is accounted for, over the clip norm; 0 for
      none.
    strategy: Ties the noise of the rounds together; None for independent noise.
    clip_norm: L2 norm to which an update is clipped, of an adaptive one at the
      start; None if it is not.
    noise_multiplier_of_sum: Noise on the sum, over the clip norm; more than
      what is accounted for where a part is on a count.
    sums_securely: Whether updates are summed by what a deployment would run as
      secure aggregation.
  """

  factory: tff.aggregators.UnweightedAggregationFactory
  noise_multiplier: float = 0.0
  strategy: strategy_lib.Strategy | None = None
  clip_norm: float | None = None
  noise_multiplier_of_sum: float = 0.0
  sums_securely: bool = False

  @property
  def round_event(self) -> dp_accounting.DpEvent:
    """What one round releases, for a sensitivity of one clip norm.

    Whoever accounts rescales it to the sensitivity that the participation has
    (`privacy.composition.composed_events`).
    """
    if not self.noise_multiplier:
      return dp_accounting.NonPrivateDpEvent()
    if self.strategy is None:
      return dp_accounting.GaussianDpEvent(self.noise_multiplier)
    return strategy_lib.CorrelatedGaussianDpEvent(
      self.noise_multiplier, self.strategy
    )


# What correlated noise is made for, and a run decides.
Schedule = strategy_lib.Schedule
ONE_ROUND = Schedule()


@dataclasses.dataclass(frozen=True, kw_only=True)
class MechanismConfig(config.Config, abc.ABC):
  """What every mechanism is made from; each has a class of its own.

  Attributes:
    clients_per_round: Expected number of virtual clients in a round: the
      divisor of the sum, whatever number takes part.
    clip_norm: L2 norm to which a virtual client's update is clipped.
    noise_multiplier: Standard deviation of the noise on the sum of updates /
      clip norm; 0 or in [1e-6, 1e6].
  """

  clients_per_round: float = config.field(None, above=0, settled_later=True)
  clip_norm: float = config.field(1.0, above=0)
  noise_multiplier: float = 0.0

  def __post_init__(self):
    super().__post_init__()
    checks.check_noise_multiplier(self.noise_multiplier)

  @abc.abstractmethod
  def create(self, schedule: Schedule = ONE_ROUND) -> Mechanism:
    """Creates the mechanism.

    Args:
      schedule: What the run decides; independent noise needs none.

    Raises:
      errors.FieldError: If the schedule and the configuration contradict each
        other.
    """

  def measure(
    self,
    factory: tff.aggregators.UnweightedAggregationFactory,
    *,
    schedule: Schedule = ONE_ROUND,
    strategy: strategy_lib.Strategy | None = None,
    noise_multiplier_of_sum: float | None = None,
    next_clip_norm_fn: Callable[[Any], tf.Tensor] | None = None,
  ) -> Mechanism:
    """Makes the mechanism of a factory, which reports `measurements` as well.

    Args:
      factory: Clips to `clip_norm` and adds the noise.
      schedule: Of correlated noise.
      strategy: Of correlated noise.
      noise_multiplier_of_sum: Where only a part of the noise that is accounted
        for is on the sum; `noise_multiplier` if None.
      next_clip_norm_fn: As in `measurements.MeasuredFactory`.
    """
    if noise_multiplier_of_sum is None:
      noise_multiplier_of_sum = self.noise_multiplier
    stddevs = (
      np.ones(1)
      if strategy is None
      else strategy.round_stddevs(schedule.rounds)
    )
    return Mechanism(
      measurements.MeasuredFactory(
        factory,
        clip_norm=self.clip_norm,
        noise_per_clip_norm=stddevs
        * (noise_multiplier_of_sum / self.clients_per_round),
        next_clip_norm_fn=next_clip_norm_fn,
      ),
      self.noise_multiplier,
      strategy,
      self.clip_norm,
      noise_multiplier_of_sum,
    )


def build_mean(
  query: tfp.DPQuery, clients_per_round: float, **options: Any
) -> tff.aggregators.UnweightedAggregationFactory:
  """Builds TFF's factory of a query's sum / expected number of clients.

  Privacy:
    That of the query: the division by a constant is post-processing.

  Args:
    query: Clips, sums and adds the noise.
    clients_per_round: Expected number of virtual clients.
    **options: Of `tff.aggregators.DifferentiallyPrivateFactory`.
  """
  return tff.aggregators.DifferentiallyPrivateFactory(
    tfp.NormalizedQuery(query, denominator=float(clients_per_round)), **options
  )


def check_no_noise(name: str, config: MechanismConfig) -> None:
  """Refuses a noise multiplier that an aggregator, named so, would ignore."""
  if config.noise_multiplier != 0.0:
    raise errors.FieldError(
      "noise_multiplier",
      f"be 0 with aggregator {name}",
      config.noise_multiplier,
    )
