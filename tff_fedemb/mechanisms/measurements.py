"""TFF's aggregation by a query of tensorflow-privacy, and its measurements.

The measurements are the number of clients, the share of them whose update was
clipped, the median norm of their updates before clipping, the standard
deviation of the noise on the mean, and the ratio of signal to noise.

The first three are computed from unprotected updates. They are for simulation:
no differential privacy guarantee covers them. The signal-to-noise ratio is
computed from the noised result alone and costs no privacy.
"""

import collections
from collections.abc import Callable
import dataclasses
import math
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff
import tensorflow_privacy as tfp

from tff_fedemb import errors
from tff_fedemb.mechanisms import exact_sums

# Norms are counted in bins of equal width on a logarithmic scale, because a
# histogram can be summed over clients in any order and in bounded memory.
_BINS_PER_DECADE = 400
_LOWEST_EXPONENT = -8
_HIGHEST_EXPONENT = 8
_NUM_BINS = _BINS_PER_DECADE * (_HIGHEST_EXPONENT - _LOWEST_EXPONENT)


def _norm_bin(norm: tf.Tensor) -> tf.Tensor:
  """The bin of a norm; bin 0 holds all norms below the lowest exponent.

  Norms beyond the highest exponent, and those that are not finite, are in the
  last bin.

  Args:
    norm: Scalar float32.
  """
  norm = tf.where(tf.math.is_nan(norm), np.inf, norm)
  exponent = tf.math.log(tf.maximum(norm, 1e-30)) / math.log(10.0)
  position = tf.math.floor((exponent - _LOWEST_EXPONENT) * _BINS_PER_DECADE)
  return tf.cast(tf.clip_by_value(position, -1, _NUM_BINS - 1), tf.int32) + 1


def _median(histogram: tf.Tensor) -> tf.Tensor:
  """Centre of the bin of the lower median; 0 for bin 0 or without clients.

  Args:
    histogram: Int32 `[_NUM_BINS + 1]`, number of norms in each bin.
  """
  cumulative = tf.cumsum(histogram)
  rank = (cumulative[-1] + 1) // 2
  position = tf.searchsorted(cumulative, tf.reshape(rank, [1]))[0] - 1
  bins = tf.cast(position, tf.float32) + 0.5
  centre = tf.pow(10.0, bins / _BINS_PER_DECADE + _LOWEST_EXPONENT)
  return tf.where(position < 0, 0.0, centre)


def _signal_to_noise(
  mean: tf.Tensor | tuple[tf.Tensor, ...], noise_stddev: tf.Tensor
) -> tf.Tensor:
  """Estimates |true mean| / expected |noise| from the noised mean.

  Args:
    mean: The noised mean, nested.
    noise_stddev: Standard deviation of the noise on each of its numbers.

  Returns:
    Scalar float32, at least 0; infinity without noise.
  """
  tensors = tf.nest.flatten(mean)
  num_elements = sum(tensor.shape.num_elements() for tensor in tensors)
  squared_norm = tf.add_n([tf.reduce_sum(tf.square(t)) for t in tensors])
  squared_noise = num_elements * tf.square(noise_stddev)
  ratio = tf.math.divide_no_nan(squared_norm, squared_noise)
  signal = tf.sqrt(tf.maximum(ratio - 1.0, 0.0))
  return tf.where(noise_stddev > 0.0, signal, math.inf)


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class QueryMeanFactory(tff.aggregators.UnweightedAggregationFactory):
  """TFF's aggregation by a query: its sum / expected number of clients.

  Privacy:
    As the query: the division by a constant is post-processing.

  Attributes:
    build_query: Maps the nested shapes of a value, which correlated noise
      needs, to the query, which clips, sums and adds the noise.
    clients_per_round: Expected number of virtual clients in a round.
    sum_factory: Sums the clipped updates; None for a sum in the query's types.
  """

  build_query: Callable[[tuple[tf.TensorSpec, ...]], tfp.DPQuery]
  clients_per_round: float
  sum_factory: tff.aggregators.UnweightedAggregationFactory | None = None

  def create(
    self, value_type: tff.types.Type
  ) -> tff.templates.AggregationProcess:
    """Creates the aggregation of values of a type.

    Args:
      value_type: Type of an update.

    Returns:
      The process of `tff.aggregators.DifferentiallyPrivateFactory`, whose state
      has the query's.
    """
    specs = tff.types.type_to_tf_tensor_specs(value_type)
    query = self.build_query(specs)
    sum_factory = self.sum_factory or exact_sums.TypedSumFactory(
      lambda: query.initial_sample_state(specs)
    )
    return tff.aggregators.DifferentiallyPrivateFactory(
      tfp.NormalizedQuery(query, float(self.clients_per_round)),
      record_aggregation_factory=sum_factory,
    ).create(value_type)


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class MeasuredFactory(tff.aggregators.UnweightedAggregationFactory):
  """A factory with the same result, which also measures every round.

  The measurements are `num_clients`, `clipped_share`, `median_update_norm`
  (within 0.3 %), `clip_norm`, `noise_stddev_of_mean` and `signal_to_noise`,
  beside the factory's own. If x is the noised mean of d numbers and s the
  noise's standard deviation, the last one is sqrt(max(|x|^2 / (d s^2) - 1, 0)),
  because the expectation of |x|^2 is the squared norm of the true mean plus
  d s^2. Values below about (2 / d)^(1/4) cannot be told from 0.

  Attributes:
    factory: The aggregation.
    clip_norm: L2 norm above which an update counts as clipped, may be infinite;
      if it changes, that of the first round.
    noise_per_clip_norm: Float `[rounds]`, standard deviation of the noise on
      each number of the mean over the clip norm, by round; later rounds have
      the last one.
    next_clip_norm_fn: Maps the factory's own measurements in a round to the
      clip norm of the next; None if it never changes.
  """

  factory: tff.aggregators.UnweightedAggregationFactory
  clip_norm: float
  noise_per_clip_norm: np.ndarray
  next_clip_norm_fn: Callable[[Any], tf.Tensor] | None

  def create(
    self, value_type: tff.types.Type
  ) -> tff.templates.AggregationProcess:
    """Creates the aggregation of values of a type.

    Args:
      value_type: Type of an update, all tensors float32.

    Returns:
      A process with the factory's result, whose measurements are those of the
      class beside the factory's own. The server sends the clip norm of the
      round to the clients, who say whether their update exceeds it.

    Raises:
      errors.FieldError: If a tensor's type is not float32.
    """
    for leaf in tff.structure.flatten(value_type):
      if leaf.dtype != np.float32:
        raise errors.FieldError(
          "value_type",
          "be of float32, as clip norm and noise are",
          leaf.dtype.name,
          "Clients may tf.cast their updates.",
        )
    process = self.factory.create(value_type)
    measurements_type = process.next.type_signature.result.measurements.member
    result_type = process.next.type_signature.result.result.member

    first = collections.OrderedDict(
      round_num=np.int32(0), clip_norm=np.float32(self.clip_norm)
    )
    schedule_type = tff.to_type(
      collections.OrderedDict(round_num=np.int32, clip_norm=np.float32)
    )

    @tff.tensorflow.computation(value_type, schedule_type)
    def measure_client(update: Any, schedule: Any):
      """Whether a client's update exceeds the clip norm, and its norm's bin."""
      # Clipping computes this norm too; TensorFlow merges the two.
      norm = tf.cast(exact_sums.bound_norm(update), tf.float32)
      return collections.OrderedDict(
        clipped=tf.cast(norm > schedule["clip_norm"], tf.int32),
        histogram=tf.one_hot(_norm_bin(norm), _NUM_BINS + 1, dtype=tf.int32),
      )

    @tff.tensorflow.computation(
      measure_client.type_signature.result,
      result_type,
      schedule_type,
      measurements_type,
    )
    def summarise(sums: Any, mean: Any, schedule: Any, inner: Any):
      """The schedule of the next round, and the measurements of this one."""
      following = collections.OrderedDict(
        round_num=schedule["round_num"] + 1, clip_norm=schedule["clip_norm"]
      )
      if self.next_clip_norm_fn:
        following["clip_norm"] = self.next_clip_norm_fn(inner)
      # A factory that measures nothing has an empty tuple.
      measured = collections.OrderedDict(inner)
      return following, measured | self._summarise(sums, mean, schedule)

    @tff.federated_computation
    def initialize():
      return tff.federated_zip(
        (process.initialize(), tff.federated_value(first, tff.SERVER))
      )

    @tff.federated_computation(
      initialize.type_signature.result,
      tff.types.FederatedType(value_type, tff.CLIENTS),
    )
    def next_round(state: Any, value: Any):
      inner_state, schedule = state
      measured_clients = tff.federated_map(
        measure_client, (value, tff.federated_broadcast(schedule))
      )
      sums = tff.federated_sum(measured_clients)
      output = process.next(inner_state, value)
      next_schedule, measured = tff.federated_map(
        summarise, (sums, output.result, schedule, output.measurements)
      )
      return tff.templates.MeasuredProcessOutput(
        tff.federated_zip((output.state, next_schedule)),
        output.result,
        measured,
      )

    return tff.templates.AggregationProcess(initialize, next_round)

  def _summarise(
    self, sums: Any, mean: Any, schedule: Any
  ) -> dict[str, tf.Tensor]:
    """The measurements of a round, without the factory's own.

    Args:
      sums: Sums over the clients: clipped ones, and the histogram of norms.
      mean: The noised mean, nested.
      schedule: Number of the round, from 0, and its clip norm.
    """
    num_clients = tf.reduce_sum(sums["histogram"])
    noise = tf.constant(self.noise_per_clip_norm, tf.float32)
    # Rounds after the last planned one have about the noise of that one.
    position = tf.minimum(schedule["round_num"], noise.shape[0] - 1)
    noise_stddev = tf.math.multiply_no_nan(
      schedule["clip_norm"], noise[position]
    )
    clipped_share = tf.math.divide_no_nan(
      tf.cast(sums["clipped"], tf.float32), tf.cast(num_clients, tf.float32)
    )
    return collections.OrderedDict(
      num_clients=num_clients,
      clipped_share=clipped_share,
      median_update_norm=_median(sums["histogram"]),
      clip_norm=schedule["clip_norm"],
      noise_stddev_of_mean=noise_stddev,
      signal_to_noise=_signal_to_noise(mean, noise_stddev),
    )
