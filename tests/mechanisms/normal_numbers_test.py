"""Tests of normal numbers: those of their bits, with all their tails."""

import math

import numpy as np
import pytest
from scipy import stats
import tensorflow as tf

from tff_fedemb.accounting import arithmetic
from tff_fedemb.mechanisms import normal_numbers
from tff_fedemb.mechanisms import secret_noise


def _bits_to_normal(high, low, angle):
  """What bits mean, in long double."""
  unit = np.longdouble(2) ** -64

  def fraction(high, rest):
    high, rest = np.array([high, rest], np.uint64).astype(np.longdouble)
    return (high + rest * np.longdouble(2) ** -53) * unit

  rest = angle % 2**9 * 2**44 + (low | 1)
  if high < 2**63:
    logarithm = np.log(fraction(high, rest))
  else:
    logarithm = np.log1p(-fraction(2**64 - 1 - high, 2**53 - rest))
  radius = np.sqrt(-2 * logarithm)
  # In quarters of a turn, from -1/2 to 1/2.
  place = (angle << 2) % 2**64
  place = np.longdouble(place - (place >> 63 << 64)) * unit
  turn = place * np.longdouble("1.57079632679489661923132169163975144")
  if angle >> 63:
    radius = -radius
  pair = [radius * np.cos(turn), radius * np.sin(turn)]
  return np.stack(pair[::-1] if angle >> 62 & 1 else pair)


def _to_normal(monkeypatch, high, low, angles):
  """The numbers of these bits, of standard deviation 1, `[2, angles]`."""
  monkeypatch.setattr(
    normal_numbers,
    "_random_words",
    lambda seeds, chunk, shape, first: tf.fill(
      shape, tf.constant(low, tf.uint64)
    ),
  )
  words = tf.constant([[high] * len(angles), angles], tf.uint64)
  seeds, chunk = tf.zeros([2], tf.int64), tf.constant(0, tf.int64)
  stddev = tf.constant(3.0, tf.float64)
  found = normal_numbers._to_normal(words, seeds, chunk, stddev)
  return found.numpy().reshape([2, -1]) / 3.0


@pytest.mark.parametrize("spare", [0, 2**9 - 1])
@pytest.mark.parametrize("low", [0, 2**44 - 1])
@pytest.mark.parametrize("high", [0, 1, 2**18, 2**63, 2**64 - 1])
def test_numbers_are_those_of_the_bits(high, low, spare, monkeypatch):
  """To 2^-49 of the standard deviation; to 2^-48 for the largest."""
  angles = [(i << 64) // 50 >> 9 << 9 | spare for i in range(50)]
  found = _to_normal(monkeypatch, high, low, angles)
  # Large words make small radii, which the third word is not drawn for.
  low = low if high < 2**40 else 0
  expected = np.stack([_bits_to_normal(high, low, each) for each in angles])
  np.testing.assert_allclose(
    found,
    expected.T.astype(np.float64),
    rtol=0,
    atol=2.0**-49 if high else 2.0**-48,
  )
  if high == low == spare == 0:
    # The largest number; TensorFlow's own is 5.68.
    largest = math.sqrt(2 * 117 * math.log(2))
    assert np.max(np.abs(found)) == pytest.approx(largest, rel=1e-12)


def test_no_gap_below_what_reports_count_as_the_end(monkeypatch):
  """The next radius is at most 2^-51 further, with and without a third word."""

  def radius(number):
    """The one that the 116 upper bits of u make."""
    high, rest = divmod(2 * number, 2**53)
    numbers = _to_normal(monkeypatch, high, rest % 2**44, [rest >> 44])
    return np.hypot(*numbers.astype(np.longdouble))[0]

  for reach, step in ((arithmetic.NOISE_REACH, 1), (5.7, 2**43)):
    number = round(math.exp(-(reach**2) / 2) * 2**116)
    # Over many steps, the rounding of double precision does not matter.
    gap = (radius(number) - radius(number + 2**20 * step)) / 2**20
    assert 2.0**-54 < gap <= 2.0**-51


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


def test_the_third_words_are_others():
  """Those of one chunk are neither its first two nor those of the next one."""
  seeds = tf.constant(secret_noise.draw_key(), tf.int64)
  words = []
  for chunk in tf.range(2, dtype=tf.int64):
    words.append(normal_numbers._random_words(seeds, chunk, [200]))
    low = normal_numbers._random_words(seeds, chunk, [100], first=2**31)
    words.append(low)
  assert len({*np.concatenate(words)}) == 600
