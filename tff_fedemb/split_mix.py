"""SplitMix64: random numbers of many keys at once, by integer arithmetic.

Steele, Lea and Flood 2014, "Fast Splittable Pseudorandom Number Generators".
TensorFlow's stateless operations take one key for all that they draw, and may
differ between devices; these take a key for each number, and do not. Nothing
private rests on them. (`deployment.devices` has them in NumPy, without waiting
for TensorFlow to start.)
"""

import numpy as np
import tensorflow as tf

# A stream's next number is the last one plus this, modulo 2^64.
GAMMA = 0x9E3779B97F4A7C15
_WORD = 2**64
_MULTIPLIERS = {30: 0xBF58476D1CE4E5B9, 27: 0x94D049BB133111EB}


def mix(words: tf.Tensor) -> tf.Tensor:
  """Scrambles uint64 numbers of any shape, one to one.

  The n-th number of the stream of key k, from n = 1, is that of k + n `GAMMA`.
  """
  for shift, multiplier in _MULTIPLIERS.items():
    words = _xor_shifted(words, shift) * tf.constant(multiplier, tf.uint64)
  return _xor_shifted(words, 31)


def _xor_shifted(words: tf.Tensor, shift: int) -> tf.Tensor:
  shifted = tf.bitwise.right_shift(words, tf.constant(shift, tf.uint64))
  return tf.bitwise.bitwise_xor(words, shifted)


def derive_keys(keys: tf.Tensor, numbers: tf.Tensor, purpose: int) -> tf.Tensor:
  """Derives keys of the numbered parts of something from its own keys.

  Args:
    keys: Uint64, of any shape.
    numbers: Integers of the parts, of a shape that broadcasts with the keys.
    purpose: Which parts; other purposes have nothing in common.

  Returns:
    Uint64 keys.
  """
  salt = tf.constant(purpose * GAMMA % _WORD, tf.uint64)
  return mix(tf.bitwise.bitwise_xor(keys, salt) + tf.cast(numbers, tf.uint64))


def derive_population_keys(seed: int, users: tf.Tensor) -> tf.Tensor:
  """Keys of users who are numbers, `[k]`, in the population of a seed."""
  first = mix(tf.constant(seed % _WORD, tf.uint64))
  return derive_keys(first[tf.newaxis], users, 1)


def number_parts(counts: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
  """Numbers the parts of things, one thing after the other.

  Args:
    counts: Number of parts of each thing, int32 `[k]`, n in all.

  Returns:
    The thing that each part is of, and its number among these, int32 `[n]`.
  """
  things = tf.repeat(tf.range(tf.size(counts)), counts)
  starts = tf.cumsum(counts, exclusive=True)
  return things, tf.range(tf.size(things)) - tf.gather(starts, things)


def draw_uniforms(keys: tf.Tensor, count: int) -> tf.Tensor:
  """Uniform numbers in (0, 1), float32 `[n, count, 4]`, of keys `[n]`."""
  steps = [(step + 1) * GAMMA % _WORD for step in range(count)]
  # A graph's constant made from a list would round them to float64.
  steps = tf.constant(np.array(steps, np.uint64))
  words = mix(keys[:, tf.newaxis] + steps)
  numbers = tf.cast(tf.bitcast(words, tf.uint16), tf.float32)
  return (numbers + 0.5) / 2.0**16


def sum_to_normals(uniforms: tf.Tensor) -> tf.Tensor:
  """About standard normal numbers `[n, count]`, of four uniform ones each."""
  return (tf.reduce_sum(uniforms, -1) - 2.0) * 3.0**0.5
