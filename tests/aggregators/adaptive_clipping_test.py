"""Tests of what mechanisms with adaptive clipping have in common."""

import pytest

from tff_fedemb.aggregators import adaptive_gaussian


def test_split_of_the_noise_by_hand():
  config = adaptive_gaussian.AdaptiveGaussianConfig(
    clients_per_round=100, noise_multiplier=6.0
  )
  assert config.noise_multiplier_of_sum == pytest.approx(7.5)
  assert config.count_stddev == pytest.approx(5.0)
  assert pytest.approx(6.0**-2) == 7.5**-2 + (2.0 * 5.0) ** -2
  config = adaptive_gaussian.AdaptiveGaussianConfig(clients_per_round=1)
  assert config.noise_multiplier_of_sum == config.count_stddev == 0.0


@pytest.mark.parametrize("noise_multiplier", [10.0, 11.0, 1e6])
def test_noise_that_no_split_can_have_is_refused(noise_multiplier):
  with pytest.raises(
    ValueError,
    match=(
      "noise_multiplier must be less than a tenth of clients_per_round, 10,"
      " with adaptive clipping, found 1"
    ),
  ):
    adaptive_gaussian.AdaptiveGaussianConfig(
      clients_per_round=100, noise_multiplier=noise_multiplier
    )


def test_default_options_are_those_of_the_paper():
  config = adaptive_gaussian.AdaptiveGaussianConfig(
    clients_per_round=1, noise_multiplier=1e-3
  )
  assert config.target_unclipped_quantile == 0.5
  assert config.clip_learning_rate == 0.2
  assert config.count_stddev == pytest.approx(0.05)
