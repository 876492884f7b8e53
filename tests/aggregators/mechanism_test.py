"""Tests of the aggregators' config."""

import dp_accounting
import pytest

from tff_fedemb.aggregators import mechanism


@pytest.mark.parametrize(
  ("options", "message"),
  [
    ({"clients_per_round": 0}, "clients_per_round must be positive"),
    (
      {"clients_per_round": float("nan")},
      "clients_per_round must be positive, found nan",
    ),
    (
      {"clients_per_round": float("inf")},
      "clients_per_round must be positive, found inf",
    ),
    ({"clip_norm": -1.0}, "clip_norm must be positive, found -1"),
    ({"clip_norm": float("inf")}, "clip_norm must be positive, found inf"),
    ({"clip_learning_rate": 0.0}, "clip_learning_rate must be positive"),
    (
      {"noise_multiplier": -1.0},
      r"noise_multiplier must be 0 or in .* found -1",
    ),
    (
      {"noise_multiplier": float("nan")},
      r"noise_multiplier must be 0 or in .* found nan",
    ),
    (
      {"noise_multiplier": 1e-7},
      r"noise_multiplier must be 0 or in \[1e-06, 1e\+06\], found 1e-07",
    ),
    ({"rounds": 0}, "rounds must be at least 1, found 0"),
    ({"min_separation": 0}, "min_separation must be at least 1, found 0"),
    ({"max_participations": 0}, "max_participations must be at least 1"),
    ({"restart_every": 0}, "restart_every must be at least 1, found 0"),
    ({"num_buffers": 0}, "num_buffers must be at least 1, found 0"),
    ({"num_bands": 0}, "num_bands must be at least 1, found 0"),
    (
      {"target_unclipped_quantile": 0.0},
      r"target_unclipped_quantile must be in \(0, 1\), found 0",
    ),
    (
      {"target_unclipped_quantile": 1.0},
      r"target_unclipped_quantile must be in \(0, 1\), found 1",
    ),
  ],
)
def test_mistakes_are_named(options, message):
  with pytest.raises(ValueError, match=message):
    mechanism.AggregatorConfig(**{"clients_per_round": 4.0, **options})


def test_gaussian_event():
  assert mechanism.gaussian_event(1.5) == dp_accounting.GaussianDpEvent(1.5)
  assert mechanism.gaussian_event(0.0) == dp_accounting.NonPrivateDpEvent()


def test_noise_is_refused_by_name():
  config = mechanism.AggregatorConfig(4.0, noise_multiplier=0.5)
  with pytest.raises(
    ValueError,
    match=r"noise_multiplier must be 0 with aggregator median, found 0\.5",
  ):
    mechanism.check_no_noise("median", config)
  mechanism.check_no_noise("median", mechanism.AggregatorConfig(4.0))
