"""SplitMix64: random numbers of many keys at once, by integer arithmetic.

Source: Steele, Lea and Flood 2014, "Fast Splittable Pseudorandom Number
Generators". TensorFlow's stateless operations take one key for all numbers that
they draw, and may differ between devices; these take a key for each number, and
do not differ. Nothing private rests on them. (`deployment.devices` has them in
NumPy, without waiting for TensorFlow to start.)
"""

import numpy as np
import tensorflow as tf

# The state of a stream grows by this with each number, modulo 2^64.
GAMMA = 0x9E3779B97F4A7C15
_WORD = 2**64
_MULTIPLIERS = {30: 0xBF58476D1CE4E5B9, 27: 0x94D049BB133111EB}


def mix(words: tf.Tensor) -> tf.Tensor:
  """Scrambles uint64 numbers of any shape, one to one.

  The n-th number of the stream of key k, from n = 1, is that of k + n `GAMMA`.

  Args:
    words: Uint64 of any shape.

  Returns:
    Uint64 of the same shape; different words have different results.
  """
  for shift, multiplier in _MULTIPLIERS.items():
    words = _xor_shifted(words, shift)
    words *= tf.constant(multiplier, tf.uint64)
  return _xor_shifted(words, 31)


def _xor_shifted(words: tf.Tensor, shift: int) -> tf.Tensor:
  """Words, each combined with itself shifted to the right by some bits."""
  shifted = tf.bitwise.right_shift(words, tf.constant(shift, tf.uint64))
  return tf.bitwise.bitwise_xor(words, shifted)


def derive_keys(keys: tf.Tensor, numbers: tf.Tensor, purpose: int) -> tf.Tensor:
  """Derives keys of the numbered parts of something from its own keys.

  Args:
    keys: Uint64, of any shape.
    numbers: Integers of the parts, of a shape that broadcasts with the keys.
    purpose: Kind of the parts; keys for other purposes have nothing in common.

  Returns:
    Uint64 keys, of the shape to which both broadcast.
  """
  salt = tf.constant(purpose * GAMMA % _WORD, tf.uint64)
  salted = tf.bitwise.bitwise_xor(keys, salt)
  return mix(salted + tf.cast(numbers, tf.uint64))


def derive_population_keys(seed: int, users: tf.Tensor) -> tf.Tensor:
  """Derives keys of users in the population of a seed.

  Args:
    seed: Any integer; only its remainder modulo 2^64 counts.
    users: Numbers of the users, integers `[k]`.

  Returns:
    Uint64 keys `[k]`.
  """
  first = mix(tf.constant(seed % _WORD, tf.uint64))
  return derive_keys(first[tf.newaxis], users, 1)


def number_parts(counts: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
  """Numbers the parts of things, one thing after the other.

  Counts of 2 and 3 give things [0, 0, 1, 1, 1] and numbers [0, 1, 0, 1, 2].

  Args:
    counts: Number of parts of each thing, int32 `[k]`, n in all.

  Returns:
    For each part, the index of its thing and its number within the thing, both
    int32 `[n]`.
  """
  things = tf.repeat(tf.range(tf.size(counts)), counts)
  starts = tf.cumsum(counts, exclusive=True)
  return things, tf.range(tf.size(things)) - tf.gather(starts, things)


def draw_uniforms(keys: tf.Tensor, count: int) -> tf.Tensor:
  """Draws uniform numbers in (0, 1).

  They are multiples of 2^-16, moved by half of it, so that neither 0 nor 1
  occurs.

  Args:
    keys: Uint64 `[n]`.
    count: Number of words of a key; a word has four numbers of 16 bits.

  Returns:
    Float32 `[n, count, 4]`.
  """
  steps = [(step + 1) * GAMMA % _WORD for step in range(count)]
  # A graph's constant made from a list would round them to float64.
  steps = tf.constant(np.array(steps, np.uint64))
  words = mix(keys[:, tf.newaxis] + steps)
  numbers = tf.cast(tf.bitcast(words, tf.uint16), tf.float32)
  return (numbers + 0.5) / 2.0**16


def sum_to_normals(uniforms: tf.Tensor) -> tf.Tensor:
  """Makes numbers that are about standard normal, each from four uniform ones.

  The sum of four uniform numbers is nearly normal; no result exceeds 2 sqrt(3),
  about 3.46, in size.

  Args:
    uniforms: Numbers in (0, 1), `[..., 4]`.

  Returns:
    Numbers of mean 0 and variance 1, `[...]`.
  """
  return (tf.reduce_sum(uniforms, -1) - 2.0) * 3.0**0.5
