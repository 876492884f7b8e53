"""Clipped updates as whole numbers, whose sums are exact.

Sums of floating-point numbers depend on their order. One summand may change
them by more than itself, because the numbers that they can take lie ever
farther apart. Haney et al. 2022, "Precision-based attacks and interval
refining: how to break, then fix, differential privacy on finite computers";
Casacuberta et al. 2022, "Widespread Underestimation of Sensitivity in
Differentially Private Libraries and How to Fix It". A clipped update is
therefore sent in steps: its numbers are divided by a power of two, from 2^-31
to 2^-30 clip norms, and rounded to whole numbers that float32 can hold. Steps
are added up as int64, which 2^31 clients cannot overflow, whatever the order.

Privacy:
  Unit: one record.
  Neighbouring relation: zero-out of one record.
  Sensitivity: the clip norm, for steps as they are. Rounding d numbers adds at
    most sqrt(d) / 2 steps to their norm. The limit of a record's norm is the
    clip norm less this. A record whose norm may exceed the limit, by an upper
    bound on its norm, is scaled to 2^-22 below the limit. That margin is more
    than the rounding errors of factor and products. A record without a finite
    norm becomes zeros.
  DpEvent: none, there is no noise.
"""

from collections.abc import Callable
import dataclasses
import math
from typing import Any

import tensorflow as tf
import tensorflow_federated as tff

_BITS = 30
# The largest number of steps: a clip norm is less than 2^31 of them.
MAX_STEPS = 2**31 - 1
# A smaller step, or one over it, is not a normal float32.
_SMALLEST_STEP = 2.0**-120
_EXPONENT_BITS = 0x7FF0000000000000
_MARGIN = 2.0**-22
# Tensors with more numbers than `_LARGE` would leave the processor's cache in
# double precision. Their squares are first added up by rows of `_ROW` numbers
# in single precision, by an operation that copies nothing.
_LARGE = 2**16
_ROW = 32
# Upper bounds on rounding errors: of a row's squares, their sum and its root in
# single precision, 40 times 2^-24, and of a sum of 2^16 numbers in double
# precision.
_ERROR_OF_ROW = 2.0**-18
_ERROR_OF_SUM = 2.0**-36
# A smaller square is not a normal float32 and may be taken for 0.
_SMALLEST_SQUARE = 2.0**-126


def power_of_two(value: tf.Tensor) -> tf.Tensor:
  """Returns the largest power of two that is not above a float64.

  Args:
    value: Float64 of any shape, positive, finite and no subnormal number.

  Returns:
    Float64 of the same shape: the number without its mantissa.
  """
  bits = tf.bitwise.bitwise_and(tf.bitcast(value, tf.int64), _EXPONENT_BITS)
  return tf.bitcast(bits, tf.float64)


def step_of(clip_norm: Any) -> tf.Tensor:
  """Returns the size of a step, a power of two.

  Clients and the server must compute the same step, so the clip norm is rounded
  to float32 first, whatever its type.

  Args:
    clip_norm: L2 norm to which records are clipped, scalar, not negative.

  Returns:
    Scalar float64, between 2^-31 and 2^-30 clip norms, but at least 2^-120.
  """
  clip_norm = tf.cast(tf.cast(clip_norm, tf.float32), tf.float64)
  step = power_of_two(clip_norm) * 2.0**-_BITS
  return tf.maximum(step, _SMALLEST_STEP)


def _sum_squares(tensor: tf.Tensor) -> tf.Tensor:
  """The sum of float32 numbers' squares, which are exact in float64."""
  return tf.reduce_sum(tf.square(tf.cast(tensor, tf.float64)))


def _bound_squares(tensor: tf.Tensor) -> tf.Tensor:
  """A float64 no smaller than the sum of a tensor's squares.

  Large tensors are added up in two stages, which is faster and has a larger
  error; the bound allows for the error of either way.

  Args:
    tensor: Floating-point numbers of a known shape; rounded to float32.
  """
  size = tensor.shape.num_elements()
  tensor = tf.cast(tensor, tf.float32)
  if size <= _LARGE:
    total = _sum_squares(tensor)
    return total * (1.0 + _ERROR_OF_SUM) if size > 1 else total
  flat = tf.reshape(tensor, [-1])
  in_rows = size - size % _ROW
  rows = tf.reshape(flat[:in_rows], [-1, _ROW])
  norms = tf.math.reduce_euclidean_norm(rows, axis=1)
  total = _sum_squares(norms) + _sum_squares(flat[in_rows:])
  return total * (1.0 + _ERROR_OF_ROW) + size * _SMALLEST_SQUARE


def bound_norm(record: Any) -> tf.Tensor:
  """Bounds the L2 norm of nested tensors, as float32, all together.

  Args:
    record: Nested tensors of floating-point numbers.

  Returns:
    A scalar float64, at least the norm. It is larger by a share of less than
    2^-18 if the norm is above 2^-40. Infinite or NaN if there is no norm, or if
    a square is too large for float32.
  """
  parts = [_bound_squares(tensor) for tensor in tf.nest.flatten(record)]
  total = tf.add_n(parts)
  if len(parts) > 1:
    total *= 1.0 + _ERROR_OF_SUM
  return tf.sqrt(total)


def clip(record: Any, clip_norm: Any) -> tuple[Any, tf.Tensor]:
  """Clips a record and rounds it to steps.

  Args:
    record: Nested tensors of floating-point numbers.
    clip_norm: L2 norm of all tensors together, scalar.

  Returns:
    Its steps, whole numbers as float32 in the same structure; and a bound on
    the norm that it had (`bound_norm`), float32.
  """
  tensors = [tf.cast(part, tf.float32) for part in tf.nest.flatten(record)]
  norm = bound_norm(tensors)
  step = step_of(clip_norm)
  size = sum(part.shape.num_elements() for part in tensors)
  # The clip norm is a whole number of steps, so rounding does not move a single
  # number beyond it.
  room = 0.5 * math.sqrt(size) if size > 1 else 0.0
  limit = tf.maximum(tf.cast(clip_norm, tf.float64) - room * step, 0.0)
  factor = tf.where(
    norm <= limit, tf.ones_like(norm), limit * (1.0 - _MARGIN) / norm
  )
  steps_of_one = tf.cast(factor / step, tf.float32)
  # To choose between two records, or to use integers, would take more memory.
  steps_of_one = tf.where(tf.math.is_finite(norm), steps_of_one, 0.0)
  steps = [
    tf.round(tf.math.multiply_no_nan(part, steps_of_one)) for part in tensors
  ]
  return tf.nest.pack_sequence_as(record, steps), tf.cast(norm, tf.float32)


def zeros(template: Any) -> Any:
  """Returns the sum of no steps.

  Args:
    template: Specs or numbers of the same structure and shapes.

  Returns:
    Nested int64 tensors of zeros.
  """
  return tf.nest.map_structure(
    lambda part: tf.zeros(getattr(part, "shape", []), tf.int64), template
  )


def size_of_one(total: tf.Tensor, clip_norm: Any) -> tf.Tensor:
  """The value of 1 in a sum: the size of a step, or 1 for numbers.

  Args:
    total: A tensor of the sum; integers are steps.
    clip_norm: L2 norm to which the summands were clipped, scalar.

  Returns:
    Scalar float64.
  """
  if total.dtype.is_integer:
    return step_of(clip_norm)
  return tf.constant(1.0, tf.float64)


def to_numbers(total: Any, clip_norm: Any) -> Any:
  """Converts a sum of steps to numbers.

  Args:
    total: Nested tensors; integers are steps, others are numbers already.
    clip_norm: L2 norm to which the summands were clipped, scalar.

  Returns:
    Nested float32 tensors; products are in float64 and rounded at the end.
  """

  def convert(part: tf.Tensor):
    numbers = tf.cast(part, tf.float64) * size_of_one(part, clip_norm)
    return tf.cast(numbers, tf.float32)

  return tf.nest.map_structure(convert, total)


@dataclasses.dataclass(frozen=True, eq=False)
class TypedSumFactory(tff.aggregators.UnweightedAggregationFactory):
  """TFF's sum, in types that may differ from those of the values.

  Attributes:
    create_zeros: Creates the sum of no values; values are cast to its types.
  """

  create_zeros: Callable[[], Any]

  def create(
    self, value_type: tff.types.Type
  ) -> tff.templates.AggregationProcess:
    """Creates the aggregation of values of a type.

    Args:
      value_type: Type of a client's value, in the structure of the zeros.

    Returns:
      A process without state or measurements, whose result has the types of
      `create_zeros`.
    """
    zero = tff.tensorflow.computation(self.create_zeros)
    sum_type = zero.type_signature.result

    @tff.tensorflow.computation(sum_type, value_type)
    def accumulate(total: Any, value: Any):
      return tf.nest.map_structure(
        lambda total, part: total + tf.cast(part, total.dtype), total, value
      )

    @tff.tensorflow.computation(sum_type, sum_type)
    def merge(one: Any, other: Any):
      return tf.nest.map_structure(tf.add, one, other)

    @tff.tensorflow.computation(sum_type)
    def report(total: Any):
      return total

    @tff.federated_computation
    def initialize():
      return tff.federated_value((), tff.SERVER)

    @tff.federated_computation(
      initialize.type_signature.result,
      tff.types.FederatedType(value_type, tff.CLIENTS),
    )
    def next_round(state: Any, value: Any):
      return tff.templates.MeasuredProcessOutput(
        state,
        tff.federated_aggregate(value, zero(), accumulate, merge, report),
        tff.federated_value((), tff.SERVER),
      )

    return tff.templates.AggregationProcess(initialize, next_round)


class SecureStepsFactory(tff.aggregators.UnweightedAggregationFactory):
  """TFF's secure sum of steps, in int64.

  The range of a client's steps is fixed, so nothing about it has to be found
  out from the clients.
  """

  def create(
    self, value_type: tff.types.Type
  ) -> tff.templates.AggregationProcess:
    """Creates the aggregation of values of a type.

    Args:
      value_type: Type of a client's steps: whole numbers of any type, in
        [-`MAX_STEPS`, `MAX_STEPS`].

    Returns:
      The process of TFF's secure sum, whose result is int64.
    """

    @tff.tensorflow.computation(value_type)
    def widen(value: Any):
      return tf.nest.map_structure(lambda part: tf.cast(part, tf.int64), value)

    process = tff.aggregators.SecureSumFactory(MAX_STEPS, -MAX_STEPS).create(
      widen.type_signature.result
    )

    @tff.federated_computation(
      process.initialize.type_signature.result,
      tff.types.FederatedType(value_type, tff.CLIENTS),
    )
    def next_round(state: Any, value: Any):
      return process.next(state, tff.federated_map(widen, value))

    return tff.templates.AggregationProcess(process.initialize, next_round)
