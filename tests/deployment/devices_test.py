"""Tests of the laws of `devices` against their formulas."""

import math

import numpy as np
import pytest
from scipy import stats

from tff_fedemb.deployment import deployment
from tff_fedemb.deployment import devices

_SLOTS = np.arange(40_000)
# Three standard deviations of a share of so many.
_TOLERANCE = 3 * 0.5 / math.sqrt(_SLOTS.size)


def _create(name="phones", seed=3, **availability):
  values = deployment.load(name).to_json()
  values["availability"] |= availability
  return devices.Devices(deployment.parse(values), seed)


def test_availability_is_that_of_flgo():
  one = _create(
    time_zones={-5: 1}, level_median=0.8, level_sigma=0, habit_sigma_hours=0
  )
  # The top of the sine, six hours after its zero, is at 2 at night, 7 in UTC.
  for hours in (7, 8, 13, 19):
    t = hours - 5 - 2 + 6
    np.testing.assert_allclose(
      one.availability(_SLOTS[:2], hours),
      0.8 * (0.4 * math.sin(2 * math.pi * t / 24) + 0.5),
    )
  assert one.availability(_SLOTS[:1], 7)[0] == pytest.approx(0.8 * 0.9)
  # Nobody is there more often than always.
  assert _create(level_median=50).availability(_SLOTS, 3).max() == 1


def test_levels_speeds_and_examples_are_lognormal():
  levels = _create(level_median=0.3, level_sigma=0.7).level(_SLOTS)
  speeds = _create("phones").milliseconds_per_example(_SLOTS)
  examples = _create("harsh").examples(_SLOTS, 320)
  for drawn, median, sigma in (
    (levels, 0.3, 0.7),
    (speeds, 20, 0.6),
    (examples, 320, 0.7),
  ):
    law = ("norm", (math.log(median), sigma))
    assert stats.kstest(np.log(drawn), *law).pvalue > 1e-3
  # With equal work, examples are the same.
  assert set(_create("phones").examples(_SLOTS, 320)) == {320}


def test_time_zones_have_their_weights():
  zones = _create(time_zones={-8: 1, 0: 2, 5.5: 5}).time_zone(_SLOTS)
  for zone, share in ((-8, 1 / 8), (0, 2 / 8), (5.5, 5 / 8)):
    assert np.mean(zones == zone) == pytest.approx(share, abs=_TOLERANCE)


def test_who_is_there_follows_the_availability():
  some = _create()
  expected = some.availability(_SLOTS, 30.2)
  there = some.is_there(_SLOTS, 30.2)
  assert there.mean() == pytest.approx(expected.mean(), abs=_TOLERANCE)
  # Rather those who are there often.
  assert expected[there].mean() > 1.1 * expected.mean()
  # And whoever is there stays for a while.
  soon = some.is_there(_SLOTS, 30.21)
  assert np.mean(there == soon) > 0.999
  later = some.is_there(_SLOTS, 34.0)
  assert np.mean(later[there]) < 0.5


def test_phones_swing_fourfold_between_night_and_day():
  """Bonawitz et al. 2019, section 9; here within a tenth."""
  some = _create("phones")
  shares = [some.availability(_SLOTS, hours).mean() for hours in range(24)]
  assert max(shares) / min(shares) == pytest.approx(4.0, rel=0.1)
  # At night in America.
  assert 6 <= np.argmax(shares) <= 10


def test_bandwidths_are_those_of_fedscale():
  """Median 6.1 Mbit/s, about a quarter below 3."""
  some = _create("phones")
  speeds = some.download_mbps(_SLOTS), some.upload_mbps(_SLOTS)
  below = stats.norm.cdf(math.log(3 / 6.1) / 1.1)
  assert below == pytest.approx(0.25, abs=0.015)
  for mbps in speeds:
    assert np.mean(mbps < 6.1) == pytest.approx(0.5, abs=_TOLERANCE)
    assert np.mean(mbps < 3) == pytest.approx(below, abs=_TOLERANCE)
  correlation = np.corrcoef(np.log(speeds))
  assert abs(correlation[0, 1]) < 2 * _TOLERANCE


def test_speed_is_cut_into_thirds():
  some = _create("phones")
  speed = some.milliseconds_per_example(_SLOTS)
  classes = some.device_class(_SLOTS)
  np.testing.assert_allclose(
    np.bincount(classes) / _SLOTS.size, [1 / 3] * 3, atol=_TOLERANCE
  )
  slow, middle, fast = (speed[classes == index] for index in range(3))
  assert slow.min() > middle.max() and middle.min() > fast.max()


def test_sessions_are_exponential_and_anew_in_each_round():
  some = _create("phones")
  minutes = some.session_seconds(_SLOTS, 4) / 60
  mean = some.config.availability.session_minutes
  assert stats.kstest(minutes, "expon", (0, mean)).pvalue > 1e-3
  again = some.session_seconds(_SLOTS, 5) / 60
  assert abs(np.corrcoef(minutes, again)[0, 1]) < 2 * _TOLERANCE
  dropped = some.drops_out(_SLOTS, 4)
  rate = some.config.dropout_rate
  assert dropped.mean() == pytest.approx(rate, abs=_TOLERANCE)
  forever = _create("ideal").session_seconds(_SLOTS, 0)
  assert np.all(np.isinf(forever))
