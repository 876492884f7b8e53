"""A mechanism: an aggregator, together with what it costs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
import dataclasses
import functools
import math
from typing import Any, ClassVar

import dp_accounting
from etils import epy
import numpy as np

from tff_fedemb import checks
from tff_fedemb import config
from tff_fedemb import errors
from tff_fedemb.participation import participation
from tff_fedemb.strategies import strategy as strategy_lib

with epy.lazy_imports():
  import tensorflow as tf
  import tensorflow_federated as tff
  import tensorflow_privacy as tfp

  from tff_fedemb.aggregators import measurements
  from tff_fedemb.aggregators import query_mean


@dataclasses.dataclass(frozen=True)
class Mechanism:
  """An aggregator and its privacy.

  Attributes:
    config: What it is made from.
    strategy: Ties the noise of the rounds together; None for independent noise.
    rounds: Rounds of the run.
  """

  config: MechanismConfig
  strategy: strategy_lib.Strategy | None
  rounds: int

  @functools.cached_property
  def factory(self) -> tff.aggregators.UnweightedAggregationFactory:
    """The aggregation itself, which reports `measurements` as well."""
    config, strategy = self.config, self.strategy
    stddevs = strategy.round_stddevs(self.rounds) if strategy else np.ones(1)
    noise = config.noise_multiplier_of_sum / config.clients_per_round
    return measurements.MeasuredFactory(
      config.build_factory(strategy),
      clip_norm=config.clip_norm if config.clips else math.inf,
      noise_per_clip_norm=stddevs * noise,
      next_clip_norm_fn=config.next_clip_norm_fn,
    )

  @property
  def round_event(self) -> dp_accounting.DpEvent:
    """What one round releases, for a sensitivity of one clip norm.

    Whoever accounts rescales it to the sensitivity that the participation has
    (`privacy.composition.composed_events`).
    """
    if not self.config.noise_multiplier:
      return dp_accounting.NonPrivateDpEvent()
    return strategy_lib.round_event(self.config.noise_multiplier, self.strategy)


# What correlated noise is made for, and a run decides.
Schedule = strategy_lib.Schedule
ONE_ROUND = Schedule()


@dataclasses.dataclass(frozen=True, kw_only=True)
class MechanismConfig(config.Config):
  """What every mechanism is made from; each has a class of its own.

  A class says of itself what accounting, searches and tables ask of it.

  Attributes:
    clients_per_round: Expected number of virtual clients in a round: the
      divisor of the sum, whatever number takes part.
    clip_norm: L2 norm to which a virtual client's update is clipped.
    noise_multiplier: Standard deviation of the noise on the sum of updates /
      clip norm; 0 or in [1e-6, 1e6].
    clips: Whether it clips; adaptive clipping starts at `clip_norm`.
    adds_noise: Whether it adds noise.
    sums_securely: Whether updates are summed by what a deployment would run as
      secure aggregation.
    next_clip_norm_fn: As in `measurements.MeasuredFactory`.
    strategy_class: Of the matrix that ties the noise of the rounds together;
      None for independent noise.
    noise_in_words: What a table calls its noise; None for its name.
    is_compared: Whether a search for the least noise tries it unasked.
    size_field: The field of which it tries several values, for example
      "num_bands"; None without one.
  """

  clients_per_round: float = config.field(None, above=0, settled_later=True)
  clip_norm: float = config.field(1.0, above=0, searchable=True)
  noise_multiplier: float = 0.0

  clips: ClassVar[bool] = True
  adds_noise: ClassVar[bool] = True
  sums_securely: ClassVar[bool] = False
  next_clip_norm_fn: ClassVar[Callable[[Any], Any] | None] = None
  strategy_class: ClassVar[type[strategy_lib.Strategy] | None] = None
  noise_in_words: ClassVar[str | None] = None
  is_compared: ClassVar[bool] = False
  size_field: ClassVar[str | None] = None

  def __post_init__(self):
    super().__post_init__()
    checks.check_noise_multiplier(self.noise_multiplier)
    if self.noise_multiplier and not self.adds_noise:
      raise errors.FieldError(
        "noise_multiplier",
        "be 0 with an aggregator that adds no noise",
        self.noise_multiplier,
      )

  @classmethod
  def sizes_to_try(
    cls, claim: participation.Participation
  ) -> Sequence[int | None]:
    """Values of `size_field` to try for a participation, ascending.

    Args:
      claim: Who takes part; where users are as far apart as a matrix has bands,
        as far as can be.
    """
    del claim
    return (None,)

  @property
  def noise_multiplier_of_sum(self) -> float:
    """Noise on the sum, over the clip norm.

    More than what is accounted for where a part is on a count.
    """
    return self.noise_multiplier

  def create_strategy(self, schedule: Schedule) -> strategy_lib.Strategy | None:
    """Creates the matrix of correlated noise; None for independent noise.

    Args:
      schedule: What the run decides.

    Raises:
      errors.FieldError: If the schedule and the configuration contradict each
        other.
    """
    del schedule
    return None

  def build_query(
    self, specs: tuple[tf.TensorSpec, ...], strategy: Any
  ) -> tfp.DPQuery:
    """Builds what clips, sums up and adds noise, unless there is a factory.

    Args:
      specs: Shapes of an update, nested.
      strategy: What `create_strategy` has returned.
    """
    raise NotImplementedError

  def build_factory(
    self, strategy: strategy_lib.Strategy | None
  ) -> tff.aggregators.UnweightedAggregationFactory:
    """Builds the aggregation: the query's sum / expected number of clients.

    Args:
      strategy: What `create_strategy` has returned.
    """
    return query_mean.QueryMeanFactory(
      lambda specs: self.build_query(specs, strategy), self.clients_per_round
    )

  def create(self, schedule: Schedule = ONE_ROUND) -> Mechanism:
    """Creates the mechanism.

    Args:
      schedule: What the run decides; independent noise needs none.

    Raises:
      errors.FieldError: As `create_strategy`.
    """
    return Mechanism(self, self.create_strategy(schedule), schedule.rounds)
