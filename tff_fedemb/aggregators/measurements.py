"""What every aggregator reports in every round, beside its result.

The number and the share of clients whose update was clipped, the median norm
of their updates before clipping, the standard deviation of the noise on the
mean, and the ratio of signal to noise.

The first three are computed from unprotected updates. They are for simulation:
no differential privacy guarantee covers them. The signal-to-noise ratio is
computed from the noised result alone and costs no privacy.
"""

import collections
import math

import tensorflow as tf
import tensorflow_federated as tff

# Norms are counted in bins of equal width on a logarithmic scale, because a
# histogram can be summed over clients in any order and in bounded memory.
_BINS_PER_DECADE = 400
_LOWEST_EXPONENT = -8
_HIGHEST_EXPONENT = 8
_NUM_BINS = _BINS_PER_DECADE * (_HIGHEST_EXPONENT - _LOWEST_EXPONENT)


def _norm_bin(norm: tf.Tensor) -> tf.Tensor:
  """Bin 0 holds zeros and all that is below the lowest exponent."""
  exponent = tf.math.log(tf.maximum(norm, 1e-30)) / math.log(10.0)
  position = tf.math.floor((exponent - _LOWEST_EXPONENT) * _BINS_PER_DECADE)
  return tf.cast(tf.clip_by_value(position, -1, _NUM_BINS - 1), tf.int32) + 1


def _median(histogram: tf.Tensor) -> tf.Tensor:
  """Centre of the bin where the lower median lies; 0 for bin 0 or no client."""
  cumulative = tf.cumsum(histogram)
  rank = (cumulative[-1] + 1) // 2
  position = tf.searchsorted(cumulative, tf.reshape(rank, [1]))[0] - 1
  centre = tf.pow(
      10.0,
      (tf.cast(position, tf.float32) + 0.5) / _BINS_PER_DECADE
      + _LOWEST_EXPONENT,
  )
  return tf.where(position < 0, 0.0, centre)


def _signal_to_noise(
    mean: tf.Tensor | tuple[tf.Tensor, ...], noise_stddev: float
) -> tf.Tensor:
  """Estimates |true mean| / expected |noise| from the noised mean."""
  tensors = tf.nest.flatten(mean)
  if noise_stddev == 0.0:
    return tf.constant(math.inf)
  num_elements = sum(tensor.shape.num_elements() for tensor in tensors)
  squared_norm = tf.add_n([tf.reduce_sum(tf.square(t)) for t in tensors])
  squared_noise = num_elements * noise_stddev**2
  return tf.sqrt(tf.maximum(squared_norm / squared_noise - 1.0, 0.0))


def add_round_measurements(
    factory: tff.aggregators.UnweightedAggregationFactory,
    *,
    clip_norm: float,
    noise_stddev_of_mean: float,
) -> tff.aggregators.UnweightedAggregationFactory:
  """Makes a factory report the measurements of this module.

  The added measurements are `num_clients`, `clipped_share`,
  `median_update_norm` (within 0.3 %), `noise_stddev_of_mean` and
  `signal_to_noise`. With x the noised mean of d numbers and s the noise's
  standard deviation, the last is sqrt(max(|x|^2 / (d s^2) - 1, 0)): the
  expectation of |x|^2 is the squared norm of the true mean plus d s^2. Values
  below about (2 / d)^(1/4) cannot be told from 0.

  Args:
    factory: The aggregator.
    clip_norm: L2 norm above which an update counts as clipped, may be
      infinite.
    noise_stddev_of_mean: Standard deviation of the noise on each number of the
      mean, 0 for none.

  Returns:
    A factory with the same result.
  """

  def measure_clients(value):
    @tff.tensorflow.computation(value.type_signature.member)
    def measure(update):
      norm = tf.linalg.global_norm(tf.nest.flatten(update))
      return collections.OrderedDict(
          clipped=tf.cast(norm > clip_norm, tf.int32),
          histogram=tf.one_hot(_norm_bin(norm), _NUM_BINS + 1, dtype=tf.int32),
      )

    @tff.tensorflow.computation(measure.type_signature.result)
    def summarise(sums):
      num_clients = tf.reduce_sum(sums["histogram"])
      return collections.OrderedDict(
          num_clients=num_clients,
          clipped_share=tf.cast(
              tf.math.divide_no_nan(
                  tf.cast(sums["clipped"], tf.float32),
                  tf.cast(num_clients, tf.float32),
              ),
              tf.float32,
          ),
          median_update_norm=_median(sums["histogram"]),
          noise_stddev_of_mean=tf.constant(noise_stddev_of_mean, tf.float32),
      )

    return tff.federated_map(
        summarise, tff.federated_sum(tff.federated_map(measure, value))
    )

  def measure_server(result):
    @tff.tensorflow.computation(result.type_signature.member)
    def measure(mean):
      return collections.OrderedDict(
          signal_to_noise=_signal_to_noise(mean, noise_stddev_of_mean)
      )

    return tff.federated_map(measure, result)

  return tff.aggregators.add_measurements(
      factory,
      client_measurement_fn=measure_clients,
      server_measurement_fn=measure_server,
  )


