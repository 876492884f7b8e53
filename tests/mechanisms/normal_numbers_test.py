"""Tests of normal numbers: those of their bits, with all their tails."""

import numpy as np
import pytest
from scipy import stats
import tensorflow as tf

from tff_fedemb.accounting import arithmetic
from tff_fedemb.mechanisms import normal_numbers
from tff_fedemb.mechanisms import secret_noise


def _bits_to_normal(high, low):
  """What a block of bits means, in long double."""
  unit = np.longdouble(2) ** -64

  def fraction(high, rest):
    high, rest = np.array([high, rest], np.uint64).astype(np.longdouble)
    return (high + (rest + 0.5) * unit) * unit

  # Nine spare bits, and the middle of what they leave open.
  rest = (2 * low + 1) * 2**54 % 2**64
  if high < 2**63:
    logarithm = np.log(fraction(high, rest))
  else:
    logarithm = np.log1p(-fraction(2**64 - 1 - high, 2**64 - 1 - rest))
  radius = np.sqrt(-2 * logarithm)
  # In quarters of a turn, from -1/2 to 1/2.
  place = (low << 2) % 2**64
  place = np.longdouble(place - (place >> 63 << 64)) * unit
  angle = place * np.longdouble("1.57079632679489661923132169163975144")
  if low >> 63:
    radius = -radius
  pair = [radius * np.cos(angle), radius * np.sin(angle)]
  return np.stack(pair[::-1] if low >> 62 & 1 else pair)


@pytest.mark.parametrize("spare", [0, 2**9 - 1])
@pytest.mark.parametrize("high", [0, 1, 2**18, 2**63, 2**64 - 1])
def test_numbers_are_those_of_the_bits(high, spare, monkeypatch):
  """To 2^-49 of the standard deviation; to 2^-48 for the largest."""
  lows = [(i << 64) // 50 >> 9 << 9 | spare for i in range(50)]
  words = np.array([[high] * 50, lows], np.uint64)
  monkeypatch.setattr(
    normal_numbers,
    "_random_words",
    lambda seeds, chunk, num_pairs: tf.constant(words),
  )
  found = normal_numbers.draw_normal(tf.zeros([2], tf.int64), 0, 100, 3.0)
  expected = np.stack([_bits_to_normal(high, low) for low in lows])
  np.testing.assert_allclose(
    found / 3.0,
    expected.T.reshape(-1).astype(np.float64),
    rtol=0,
    atol=2.0**-49 if high else 2.0**-48,
  )
  if high == 0 and spare == 0:
    # The largest number, by which reports bound what lies beyond; TensorFlow's
    # own is 5.68.
    reach = np.max(np.abs(found)) / 3.0
    assert reach == pytest.approx(arithmetic.NOISE_REACH, rel=1e-12)


@pytest.mark.slow
def test_tails_are_there():
  """Beyond 5.68 standard deviations TensorFlow's normal draws have nothing.

  14.5 of 2^30 numbers are expected there. Between 2 and 36: false alarms once
  in 10^5 runs. None at all, as before, is an alarm.
  """
  key = tf.constant(secret_noise.draw_key(), tf.int64)

  @tf.function
  def count(chunk):
    numbers = normal_numbers.draw_normal(key, chunk, 2**20)
    return tf.reduce_sum(tf.cast(tf.abs(numbers) > 5.68, tf.int64))

  beyond = sum(int(count(chunk)) for chunk in tf.range(2**10, dtype=tf.int64))
  expected = 2.0**30 * 2 * stats.norm.sf(5.68)
  assert stats.poisson.cdf(beyond, expected) > 1e-5
  assert stats.poisson.sf(beyond - 1, expected) > 1e-5


def test_numbers_are_normal():
  """False alarms: once in 10^6 runs; Kolmogorov-Smirnov, and moments."""
  numbers = normal_numbers.draw_normal(
    tf.constant(secret_noise.draw_key(), tf.int64),
    tf.constant(5, tf.int64),
    400_001,
  ).numpy()
  assert numbers.shape == (400_001,)
  assert stats.kstest(numbers, "norm").pvalue > 3e-7
  # Those of a pair share their radius.
  first, second = numbers[:200_000], numbers[200_001:]
  assert abs(np.corrcoef(first**2, second**2)[0, 1]) * 200_000**0.5 < 5.1
