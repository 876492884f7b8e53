"""Normal numbers with all their tails, as a function of a secret key.

The bits are those of Philox (Salmon et al. 2011, "Parallel Random Numbers: As
Easy as 1, 2, 3"). The method of Box and Muller 1958 turns them into normal
numbers in double precision. 117 bits of the radius let them reach 12.7 standard
deviations, and leave gaps of more than 2^-51 only beyond 9.7; TensorFlow's own
numbers reach 5.68.
"""

from collections.abc import Callable
import functools
import math
from typing import Any

import tensorflow as tf

_UNIT = 2.0**-64
_PHILOX = 1
# Words below this one, of which 2^-24 are, make the largest radii.
_FEW = 2**40


def _random_words(
  seeds: tf.Tensor, chunk: tf.Tensor, shape: tf.Tensor, *, first: int = 0
) -> tf.Tensor:
  """The generator's words of a chunk, uint64, two from each block.

  Args:
    seeds: Key and offset of the generator, int64 `[2]`.
    chunk: Index of the chunk, int64: the upper half of a word of the counter.
    shape: Shape of the words.
    first: Number of the first block, the lower half of that word.
  """
  # A chunk takes fewer than 2^32 blocks of the generator.
  place = tf.bitwise.left_shift(chunk, 32) + first
  counter = tf.stack([place, seeds[1]])
  return tf.raw_ops.StatelessRandomUniformFullIntV2(
    shape=shape,
    key=tf.bitcast(seeds[:1], tf.uint64),
    counter=tf.bitcast(counter, tf.uint64),
    alg=_PHILOX,
    dtype=tf.uint64,
  )


def draw_normal(
  seeds: tf.Tensor,
  chunk: tf.Tensor,
  size: int,
  stddev: Any = 1.0,
) -> tf.Tensor:
  """Draws independent normal numbers of mean 0, a function of the seeds.

  Args:
    seeds: Key and offset of the generator, int64 `[2]`.
    chunk: Index of the chunk, int64; each chunk has other numbers.
    size: How many numbers the chunk has, at most 2^32.
    stddev: Standard deviation, scalar float64.

  Returns:
    `[size]`, float64. Each number is within 2^-49 standard deviations of the
    result of exact arithmetic on the same bits if it is at most 6 standard
    deviations, and within 2^-48 beyond.
  """
  words = _random_words(seeds, chunk, [2, (size + 1) // 2])
  stddev = tf.cast(stddev, tf.float64)
  pairs = _normal_function()(words, seeds, chunk, stddev)
  return tf.ensure_shape(pairs[:size], [size])


# A graph has this function once. With separate nodes for each tensor, noise
# would be most of a server's graphs; to prepare them would take seconds and
# hundreds of megabytes for a model with many tensors.
@functools.cache
def _normal_function() -> Callable[..., tf.Tensor]:
  """Traces `_to_normal`, once for all graphs."""
  # A function holds the graph in which it was traced.
  with tf.Graph().as_default():
    return tf.function(
      _to_normal,
      input_signature=[
        tf.TensorSpec([2, None], tf.uint64),
        tf.TensorSpec([2], tf.int64),
        tf.TensorSpec([], tf.int64),
        tf.TensorSpec([], tf.float64),
      ],
      autograph=False,
    ).get_concrete_function()


def _to_normal(
  words: tf.Tensor, seeds: tf.Tensor, chunk: tf.Tensor, stddev: tf.Tensor
) -> tf.Tensor:
  """Makes two numbers from each block of the generator, `[2 num_pairs]`.

  Args:
    words: Uint64 `[2, num_pairs]`: the first row makes radii, the second
      angles.
    seeds: Key and offset of the generator, int64 `[2]`.
    chunk: Index of the chunk, int64.
    stddev: Standard deviation of the numbers, scalar.
  """
  high, angle = tf.unstack(words)
  # Radii below 5.7 standard deviations do not show further bits, and to draw
  # them for every chunk would take a quarter more time.
  low = tf.cond(
    tf.reduce_any(high < _FEW),
    lambda: _random_words(seeds, chunk, tf.shape(high), first=2**31),
    lambda: tf.zeros([1], tf.uint64),
  )
  radius = _radius(high, angle, low, stddev)
  # Two bits choose one of four arcs, the others choose a place on it.
  radius = _flip(radius, tf.bitwise.bitwise_and(angle, 2**63))
  angle = tf.bitcast(angle, tf.int64) * 2
  is_upright = angle < 0
  near, far = _turn(radius, tf.cast(angle * 2, tf.float64))
  return tf.concat(
    [tf.where(is_upright, far, near), tf.where(is_upright, near, far)], 0
  )


def _flip(number: tf.Tensor, bits: tf.Tensor) -> tf.Tensor:
  """Flips bits of float64 numbers, for example the sign.

  Args:
    number: Float64 of any shape.
    bits: Uint64 of the same shape; ones are flipped.
  """
  flipped = tf.bitwise.bitwise_xor(tf.bitcast(number, tf.uint64), bits)
  return tf.bitcast(flipped, tf.float64)


def _radius(
  high: tf.Tensor, angle: tf.Tensor, low: tf.Tensor, stddev: tf.Tensor
) -> tf.Tensor:
  """The radius stddev sqrt(-2 log(u)), with u of 117 bits in (0, 1).

  Args:
    high: Uint64 `[n]`, all of whose bits are used.
    angle: Uint64 `[n]`, whose lowest 9 bits are used.
    low: Uint64 `[n]`, whose lowest 44 bits are used; the last counts as 1, the
      middle of its values.
    stddev: Standard deviation of the numbers, scalar.
  """
  # Double precision holds these bits of the word exactly.
  coarse = tf.cast(tf.bitwise.bitwise_and(high, -(2**11) % 2**64), tf.float64)
  coarse *= _UNIT
  # The bits that this and the angle leave over in double precision, and those
  # of the third word. A multiplication takes a tenth of the time of a shift.
  fine = high * 2**53 + tf.bitwise.bitwise_and(angle, 2**9 - 1) * 2**44
  fine += tf.bitwise.bitwise_or(tf.bitwise.bitwise_and(low, 2**44 - 1), 1)
  fine = tf.cast(fine, tf.float64) * (_UNIT * 2.0**-53)
  uniform = coarse + fine
  # Subtracts the rounding error, which matters near 1. No sum has three terms,
  # because TensorFlow may change their order.
  logarithm = tf.math.log(uniform) - ((uniform - coarse) - fine)
  return tf.sqrt(logarithm * (-2.0 * tf.square(stddev)))


def _turn(radius: tf.Tensor, place: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
  """Products of a radius with cosine and sine of an angle up to pi / 4.

  TensorFlow's cosine and sine are slow. If s is the square root of 2 times the
  sine of half the angle, computed by Taylor's series, they are 1 - s^2 and
  s sqrt(2 - s^2).

  Args:
    radius: Float64 `[n]`.
    place: Float64 `[n]`, angle over pi / 2, times 2^64.
  """
  unit = math.pi / 4.0 * _UNIT
  terms = [
    math.sqrt(2.0) * (-1) ** (power // 2) * unit**power / math.factorial(power)
    for power in range(1, 14, 2)
  ]
  square = tf.square(place)
  total = terms.pop()
  while terms:
    total = total * square + terms.pop()
  half = total * place
  square = tf.square(half)
  return radius * (1.0 - square), radius * half * tf.sqrt(2.0 - square)
