"""SplitMix64: random numbers of many keys at once, by integer arithmetic.

Steele, Lea and Flood 2014, "Fast Splittable Pseudorandom Number Generators".
TensorFlow's stateless operations take one key for all that they draw, and may
differ between devices; these take a key for each number, and do not. Nothing
private rests on them. (`deployment.devices` has them in NumPy, without waiting
for TensorFlow to start.)
"""

import tensorflow as tf

# A stream's next number is the last one plus this, modulo 2^64.
GAMMA = 0x9E3779B97F4A7C15
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
