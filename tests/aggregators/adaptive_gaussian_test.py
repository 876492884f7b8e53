"""Tests of the Gaussian mechanism with adaptive clipping."""

import numpy as np
import pytest
from scipy import stats

from tests.aggregators import checks
from tests.aggregators import noise_theory
from tests.aggregators import released

# The count's noise has s = 0.05 x 100 = 5, and 6^-2 = 7.5^-2 + (2 x 5)^-2.
_NOISE_MULTIPLIER = 6.0
_OF_SUM = 7.5
_COUNT_STDDEV = 5.0
_ROUNDS = 16


def test_zero_noise_is_clipping_that_follows_the_median(create_aggregation):
  updates = checks.draw_updates()
  clip_norms = checks.adapted_clip_norms(updates)
  assert len(set(clip_norms)) > 2
  checks.check_without_noise(
    create_aggregation("adaptive_gaussian", **checks.CONFIG), clip_norms
  )


def test_options_of_clipping(create_aggregation):
  updates = checks.draw_updates()
  checks.check_without_noise(
    create_aggregation(
      "adaptive_gaussian",
      target_unclipped_quantile=0.8,
      clip_learning_rate=0.7,
      **checks.CONFIG,
    ),
    checks.adapted_clip_norms(updates, quantile=0.8, learning_rate=0.7),
  )


def test_reports(create_aggregation):
  checks.check_reports(
    create_aggregation(
      "adaptive_gaussian",
      noise_multiplier=_NOISE_MULTIPLIER,
      **checks.CONFIG,
    ),
    np.ones(_ROUNDS),
    _OF_SUM,
  )


@pytest.mark.parametrize("clip_learning_rate", [1e-9, 0.2])
def test_noise(create_aggregation, clip_learning_rate):
  # Constant as good as, and following its own noise.
  aggregation = create_aggregation(
    "adaptive_gaussian",
    shapes=checks.LARGE,
    noise_multiplier=_NOISE_MULTIPLIER,
    clip_learning_rate=clip_learning_rate,
    **checks.CONFIG,
  )
  checks.check_noise(aggregation, np.eye(_ROUNDS), _OF_SUM)
  clip_norms = aggregation.run_on_zeros(_ROUNDS).column("clip_norm")
  assert (np.ptp(clip_norms) > 0.0) == (clip_learning_rate == 0.2)


def test_noise_of_the_count(create_aggregation):
  """The clip norm's logarithm moves as the noised count says.

  False alarms: once in 10^6 runs at most, see `noise_theory.alarms`, and the
  same for the two correlations with the released sum.

  Power: the variance of 800 numbers has a standard error of 7 %, and 38 % too
  much make an alarm. A standard deviation that is 30 % too large is missed once
  in 100 runs, one that is 50 % too large, as tried here, once in 10^7.
  """
  learning_rate = 0.2
  aggregation = create_aggregation(
    "adaptive_gaussian", noise_multiplier=_NOISE_MULTIPLIER, **checks.CONFIG
  )
  rounds = aggregation.run_on_zeros(801)
  moves = -np.diff(np.log(rounds.column("clip_norm"))) / learning_rate
  # One client, below the clip norm, counts for 1/2 above the half.
  count_noise = moves * checks.CLIENTS_PER_ROUND - 0.5
  noise = (count_noise / _COUNT_STDDEV).reshape(1, 1, -1)
  assert not noise_theory.alarms(noise, np.eye(1))
  assert noise_theory.alarms(1.5 * noise, np.eye(1))
  # The two releases of a round share no noise.
  for numbers in (rounds.means[:-1, 0], rounds.means[:-1, 4]):
    scaled = numbers / rounds.column("noise_stddev_of_mean")[:-1]
    assert stats.pearsonr(scaled, count_noise)[1] > 1e-6 / 2


@pytest.mark.parametrize(
  "quantile",
  [
    0.25,
    pytest.param(0.5, marks=pytest.mark.slow),
    pytest.param(0.75, marks=pytest.mark.slow),
  ],
)
def test_clip_norm_moves_to_the_quantile(create_aggregation, quantile):
  # Norms 1, 2 ... 20: the estimate comes to rest where as many are below.
  aggregation = create_aggregation(
    "adaptive_gaussian",
    clients_per_round=20.0,
    clip_norm=2.0,
    target_unclipped_quantile=quantile,
    clip_learning_rate=0.3,
  )
  updates = [np.eye(released.SIZE)[0] * norm for norm in range(1, 21)]
  clip_norms = aggregation.run([updates] * 60).column("clip_norm")
  rest = clip_norms[-15:]
  assert np.all(20.0 * quantile - 1.0 < rest)
  assert np.all(rest < 20.0 * quantile + 2.0)


@pytest.mark.slow
def test_clip_norm_moves_to_the_quantile_with_noise(create_aggregation):
  # As above. The noise of the count, 5 % of the clients, moves the logarithm by
  # 0.2 x 0.05 = 1 % a round, and ten clients in a doubling pull it back by 10 %
  # of its distance: it stays within 2 %, one standard deviation, of the median.
  aggregation = create_aggregation(
    "adaptive_gaussian",
    clients_per_round=20.0,
    clip_norm=4.0,
    noise_multiplier=1.0,
  )
  updates = [np.eye(released.SIZE)[0] * norm for norm in range(1, 21)]
  clip_norms = aggregation.run([updates] * 80).column("clip_norm")
  assert 8.0 < np.mean(clip_norms[-40:]) < 13.0
