"""Sums with Gaussian noise that follows a linear recurrence over the rounds.

Denisov et al. 2022, section 4; the noise of round t is row t of C^-1 Z, made
from a fresh row of Z and from buffers that sum up the noise so far.
"""

import abc
from collections.abc import Callable
import dataclasses
from typing import Any, NamedTuple

import dp_accounting
import tensorflow as tf
import tensorflow_federated as tff
import tensorflow_privacy as tfp

from tff_fedemb.aggregators import mechanism
from tff_fedemb.aggregators import secret_noise
from tff_fedemb.strategies import strategy as strategy_lib

BuildQueryFn = Callable[[tuple[tf.TensorSpec, ...]], tfp.SumAggregationDPQuery]


class Recurrence(abc.ABC):
  """How the noise of a round follows from the rounds before it.

  Attributes:
    num_buffers: Tensors of the model's size that it remembers.
  """

  num_buffers: int

  @abc.abstractmethod
  def next(
    self, buffers: tf.Tensor, fresh: tf.Tensor
  ) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns the noise of a round and the buffers of the next.

    Args:
      buffers: `[num_buffers, ...]`, zeros in the first round.
      fresh: `[...]`, independent noise.
    """


class CorrelatedSumQuery(tfp.SumAggregationDPQuery):
  """Clips each record, sums, and adds the round's row of C^-1 Z.

  Privacy:
    Unit: one record, here a virtual client's update.
    Neighbouring relation: zero-out of one record.
    Sensitivity: `clip_norm` in a round.
    DpEvent: of a single result there is none, the rounds' noise is not
      independent; see `strategies.strategy.CorrelatedGaussianDpEvent`.
  """

  class GlobalState(NamedTuple):
    """State between rounds.

    Attributes:
      buffers: One tensor `[num_buffers, ...]` per tensor of a record.
      generator_state: Seed and counter of the fresh noise; secret.
    """

    buffers: Any
    generator_state: Any

  def __init__(
    self,
    recurrence: Recurrence,
    *,
    clip_norm: float,
    noise_multiplier: float,
    specs: tuple[tf.TensorSpec, ...],
    noise_seed: int | None = None,
  ):
    """Creates the query.

    Args:
      recurrence: Ties the noise of the rounds together.
      clip_norm: L2 norm to which a record is clipped.
      noise_multiplier: Standard deviation of Z over the clip norm.
      specs: Shapes of a record, nested.
      noise_seed: For tests, see `secret_noise`.
    """
    self._recurrence = recurrence
    self._clip_norm = clip_norm
    self._noise_multiplier = noise_multiplier
    self._specs = specs
    self._generator = secret_noise.SecretNoiseGenerator(
      clip_norm * noise_multiplier, specs, seed=noise_seed
    )

  def initial_global_state(self):
    """Buffers of zeros and the seed of a new run."""
    return self.GlobalState(
      tf.nest.map_structure(
        lambda spec: tf.zeros([self._recurrence.num_buffers, *spec.shape]),
        self._specs,
      ),
      self._generator.initialize(),
    )

  def preprocess_record(self, params, record):
    """Clips a record to the clip norm, all tensors together."""
    del params
    clipped, _ = tf.clip_by_global_norm(
      tf.nest.flatten(record), self._clip_norm
    )
    return tf.nest.pack_sequence_as(record, clipped)

  def get_noised_result(self, sample_state, global_state):
    """Adds the noise of the round to the sum of its records."""
    fresh, generator_state = self._generator.next(global_state.generator_state)
    pairs = [
      self._recurrence.next(buffers, noise)
      for buffers, noise in zip(
        tf.nest.flatten(global_state.buffers),
        tf.nest.flatten(fresh),
        strict=True,
      )
    ]
    noise, buffers = (
      tf.nest.pack_sequence_as(self._specs, part)
      for part in zip(*pairs, strict=True)
    )
    if self._noise_multiplier:
      sample_state = secret_noise.add_on_grid(
        sample_state, noise, self._clip_norm
      )
    return (
      sample_state,
      self.GlobalState(buffers, generator_state),
      dp_accounting.UnsupportedDpEvent(),
    )


class _DeferredQueryFactory(tff.aggregators.UnweightedAggregationFactory):
  """TFF's DP factory around the mean of a query that is built for the shapes.

  Correlated noise keeps state of the model's size. A factory learns the shapes
  when a process is created, tensorflow-privacy's queries want them before.
  """

  def __init__(self, build_query: BuildQueryFn, clients_per_round: float):
    self._build_query = build_query
    self._clients_per_round = clients_per_round

  def create(
    self, value_type: tff.types.Type
  ) -> tff.templates.AggregationProcess:
    query = self._build_query(tff.types.type_to_tf_tensor_specs(value_type))
    return mechanism.build_mean(query, self._clients_per_round).create(
      value_type
    )


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
    build_query: BuildQueryFn,
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
      _DeferredQueryFactory(build_query, self.clients_per_round),
      schedule=schedule,
      strategy=strategy,
      **options,
    )

  def measure_recurrence(
    self,
    recurrence: Recurrence,
    schedule: mechanism.Schedule,
    strategy: strategy_lib.Strategy,
  ) -> mechanism.Mechanism:
    """Makes the mechanism of a strategy whose noise follows a recurrence.

    Privacy:
      As `CorrelatedSumQuery`, over a run as
      `strategies.strategy.CorrelatedGaussianDpEvent`.

    Args:
      recurrence: Makes rows of C^-1 Z.
      schedule: As in `create`.
      strategy: The matrix C.
    """
    return self.measure_query(
      lambda specs: CorrelatedSumQuery(
        recurrence,
        clip_norm=self.clip_norm,
        noise_multiplier=self.noise_multiplier,
        specs=specs,
        noise_seed=self.noise_seed,
      ),
      schedule,
      strategy,
    )
