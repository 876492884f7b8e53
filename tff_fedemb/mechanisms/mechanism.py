"""A mechanism: an aggregator, together with its privacy cost.

A `MechanismConfig` has the settings of a mechanism, and says what accounting
and searches need to know without building anything. Its `create` makes the
`Mechanism` of a run, whose `factory` is the aggregation for TFF. Mechanisms
whose noise depends on earlier rounds derive from `CorrelatedConfig`.
"""

from __future__ import annotations

from collections.abc import Sequence
import dataclasses
import functools
import math
from typing import Any, ClassVar

from etils import epy
import numpy as np

from tff_fedemb import checks
from tff_fedemb import config
from tff_fedemb import errors
from tff_fedemb.mechanisms import strategy as strategy_lib
from tff_fedemb.participation import participation

with epy.lazy_imports():
  import tensorflow as tf
  import tensorflow_federated as tff
  import tensorflow_privacy as tfp

  from tff_fedemb.mechanisms import correlated_query
  from tff_fedemb.mechanisms import measurements


@dataclasses.dataclass(frozen=True)
class Mechanism:
  """An aggregator and its privacy.

  Attributes:
    config: Its configuration.
    clients_per_round: Expected number of virtual clients in a round: the
      divisor of the sum, however many take part.
    strategy: The matrix of correlated noise; None for independent noise.
    rounds: Number of rounds of the run.
  """

  config: MechanismConfig
  clients_per_round: float
  strategy: strategy_lib.Strategy | None
  rounds: int

  @functools.cached_property
  def factory(self) -> tff.aggregators.UnweightedAggregationFactory:
    """The aggregation itself, which reports `measurements` as well.

    It is built on first use, because TensorFlow Federated takes seconds to
    load.
    """
    stddevs = np.ones(1)
    if self.strategy is not None:
      stddevs = self.strategy.round_stddevs(self.rounds)
    clients = self.clients_per_round
    noise = self.config.noise_multiplier_of_sum(clients) / clients
    clip_norm = self.config.clip_norm if self.config.clips else math.inf
    return measurements.MeasuredFactory(
      factory=self.config.build_factory(self),
      clip_norm=clip_norm,
      noise_per_clip_norm=stddevs * noise,
      next_clip_norm_fn=self.config.next_clip_norm_fn,
    )


Schedule = strategy_lib.Schedule


@dataclasses.dataclass(frozen=True, kw_only=True)
class MechanismConfig(config.Config):
  """Fields of every mechanism; each mechanism has a class of its own.

  The class attributes say what accounting, searches and tables need to know.

  Attributes:
    clip_norm: L2 norm to which a virtual client's update is clipped.
    noise_multiplier: Standard deviation of the noise on the sum of updates /
      clip norm; 0 or in [1e-6, 1e6].
    clips: Whether it clips; adaptive clipping starts at `clip_norm`.
    adds_noise: Whether it adds noise.
    sums_securely: Whether updates are summed as a deployment would sum them by
      secure aggregation.
    next_clip_norm_fn: As in `measurements.MeasuredFactory`.
    strategy_class: Class of the matrix of correlated noise; None for
      independent noise.
    noise_in_words: Name of its noise in tables; None for the mechanism's name.
    is_compared: Whether a search for the least noise tries it by default.
    follows_workload: Whether its matrix depends on the server's optimizer, and
      so does its cost at a given noise multiplier.
    size_field: The field for which a search tries several values, for example
      "num_bands"; None without one.

  Examples:
    >>> issubclass(fe.Gaussian, fe.MechanismConfig)
    True
  """

  clip_norm: float = config.field(1.0, above=0, searchable=True)
  noise_multiplier: float = 0.0

  clips: ClassVar[bool] = True
  adds_noise: ClassVar[bool] = True
  sums_securely: ClassVar[bool] = False
  next_clip_norm_fn: ClassVar[Any] = None
  strategy_class: ClassVar[type[strategy_lib.Strategy] | None] = None
  noise_in_words: ClassVar[str | None] = None
  is_compared: ClassVar[bool] = False
  follows_workload: ClassVar[bool] = False
  size_field: ClassVar[str | None] = None

  def __post_init__(self):
    super().__post_init__()
    checks.check_noise_multiplier(self.noise_multiplier)
    checks.check_number(
      "clip_norm",
      self.clip_norm,
      minimum=checks.MIN_CLIP_NORM,
      maximum=checks.MAX_CLIP_NORM,
    )
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
      claim: Who takes part. If the number of bands sets how far apart a user's
        rounds are, they are as far apart as possible.

    Returns:
      The values; a single None for a mechanism without such a field.
    """
    return (None,)

  def check_clients(self, clients_per_round: float) -> None:
    """Refuses a number of clients that is too small for the noise.

    Args:
      clients_per_round: Expected number of virtual clients in a round.

    Raises:
      errors.FieldError: If it is not positive, or too small.
    """
    checks.check_number("clients_per_round", clients_per_round, above=0)

  def noise_multiplier_of_sum(self, clients_per_round: float) -> float:
    """Standard deviation of the noise on the sum, over the clip norm.

    Larger than the noise multiplier that is accounted for if a count has noise
    as well.

    Args:
      clients_per_round: Expected number of virtual clients in a round.

    Returns:
      The noise multiplier of the sum alone, 0 without noise.
    """
    return self.noise_multiplier

  def noise_multiplier_of_count(self, clients_per_round: float) -> float | None:
    """Standard deviation of the noise on a count of clients.

    Args:
      clients_per_round: Expected number of virtual clients in a round.

    Returns:
      It, over the most by which a client changes the count; None if the
      mechanism counts nothing.
    """
    del clients_per_round  # By default there is no count.
    return None

  @property
  def secret_noise_multiplier(self) -> float:
    """Noise multiplier of what nobody can draw again; 0 for a known seed."""
    return self.noise_multiplier

  def create_strategy(
    self,
    schedule: Schedule,
    workload: strategy_lib.Workload = strategy_lib.PREFIX_SUMS,
  ) -> strategy_lib.Strategy | None:
    """Creates the matrix of correlated noise; None for independent noise.

    Args:
      schedule: The rounds of the run, and which of them a user may be in.
      workload: How the run makes its models of the rounds' sums.

    Returns:
      A strategy of `strategy_class`; None in this class.

    Raises:
      errors.FieldError: If the schedule and the configuration contradict each
        other.
    """
    return None

  def build_query(
    self, specs: tuple[tf.TensorSpec, ...], made: Mechanism
  ) -> tfp.DPQuery:
    """Builds the query, which clips, sums up and adds noise.

    A mechanism overrides this method, or `build_factory`.

    Args:
      specs: Shapes of an update, nested.
      made: The mechanism of the run, with its clients per round and its matrix.

    Returns:
      A query whose result is the noised sum, not yet divided.

    Raises:
      errors.DataError: If the class overrides neither.
    """
    raise errors.DataError(
      f"{type(self).__qualname__} must have a method build_query or"
      " build_factory."
    )

  def build_factory(
    self, made: Mechanism
  ) -> tff.aggregators.UnweightedAggregationFactory:
    """Builds the aggregation: the query's sum / expected number of clients.

    Args:
      made: The mechanism of the run, as in `build_query`.

    Returns:
      A factory of the noised mean, without `measurements`.
    """
    return measurements.QueryMeanFactory(
      build_query=functools.partial(self.build_query, made=made),
      clients_per_round=made.clients_per_round,
    )

  def create(
    self,
    clients_per_round: float,
    schedule: Schedule | None = None,
    workload: strategy_lib.Workload = strategy_lib.PREFIX_SUMS,
  ) -> Mechanism:
    """Creates the mechanism of a run.

    Args:
      clients_per_round: Expected number of virtual clients in a round: the
        divisor of the sum.
      schedule: The rounds of the run, and which of them a user may be in;
        independent noise needs none.
      workload: How the run makes its models of the rounds' sums.

    Returns:
      The mechanism, with its matrix if its noise is correlated.

    Raises:
      errors.FieldError: As `create_strategy` and `check_clients`; or if a
        schedule is needed and not given.
    """
    self.check_clients(clients_per_round)
    if schedule is None:
      # A class of yours need not say which matrix it makes.
      own = type(self)
      if own.create_strategy is not MechanismConfig.create_strategy:
        name = own.strategy_class.name if own.strategy_class else own.__name__
        must = (
          f"be given, with its rounds: noise of {name} is made for the rounds"
          " of a run"
        )
        raise errors.FieldError("schedule", must, "nothing")
      schedule = Schedule()
    strategy = self.create_strategy(schedule, workload)
    return Mechanism(self, clients_per_round, strategy, schedule.rounds)


@dataclasses.dataclass(frozen=True, kw_only=True)
class CorrelatedConfig(MechanismConfig):
  """Fields of mechanisms whose noise depends on earlier rounds.

  The noise follows a linear recurrence over the rounds (Denisov et al. 2022,
  section 4): the noise of round t is row t of C^-1 Z, made from a fresh row of
  Z and from buffers that sum up the noise so far. Only the noise of trees is
  made in another way (`tree`).

  Attributes:
    noise_seed: For tests: seed of the noise, shared by all runs, which voids
      privacy. None: from the operating system, secret.
  """

  noise_seed: int | None = config.field(None, minimum=0, maximum=2**62)

  @property
  def secret_noise_multiplier(self) -> float:
    """As in the base class; 0 for a given seed: anyone may draw its noise."""
    return self.noise_multiplier if self.noise_seed is None else 0.0

  @staticmethod
  def next_noise(
    strategy: Any, buffers: tf.Tensor, fresh: tf.Tensor
  ) -> tuple[tf.Tensor, tf.Tensor]:
    """Makes the noise of a round, as a `correlated_query.NextNoise`.

    Args:
      strategy: The matrix C.
      buffers: `[num_buffers, n]`, what is remembered of earlier noise; zeros in
        the first round, float64. It is rounded to float32 between rounds.
      fresh: The round's row of Z for n numbers of the model, `[n]`, float64.

    Returns:
      The noise of the round, `[n]`, and the buffers of the next round, both
      float64.

    Raises:
      NotImplementedError: In this class.
    """
    raise NotImplementedError

  def build_query(self, specs, made):
    """As in the base class, for noise that follows a recurrence.

    Privacy:
      As `correlated_query.CorrelatedSumQuery`, over a run as
      `accounting.composition.composed_events`.

    Args:
      specs: Shapes of an update, nested.
      made: The mechanism, whose strategy is the matrix C.

    Returns:
      A query whose state has the buffers of the recurrence.

    Raises:
      errors.DataError: If the class has no `next_noise` of its own.
    """
    own = type(self)
    if own.next_noise is CorrelatedConfig.next_noise:
      raise errors.DataError(
        f"{own.__qualname__} must have a method next_noise or build_query."
      )
    return correlated_query.CorrelatedSumQuery(
      functools.partial(self.next_noise, made.strategy),
      specs,
      # The number of buffers does not depend on the number of rounds.
      num_buffers=made.strategy.model_copies(rounds=1),
      clip_norm=self.clip_norm,
      stddev=self.clip_norm * self.noise_multiplier,
      noise_seed=self.noise_seed,
    )
