"""Tests of what mechanisms have in common."""

import dp_accounting
import pytest

from tff_fedemb import errors
from tff_fedemb.aggregators import adaptive_gaussian
from tff_fedemb.aggregators import gaussian
from tff_fedemb.aggregators import mechanism
from tff_fedemb.strategies import strategy as strategy_lib
from tff_fedemb.strategies import tree


@pytest.mark.parametrize(
  ("options", "message"),
  [
    ({"clients_per_round": 0}, "clients_per_round must be positive, found 0"),
    ({"clients_per_round": float("nan")}, "be positive, found nan"),
    ({"clip_norm": -1.0}, "clip_norm must be positive, found -1"),
    ({"clip_norm": float("inf")}, "clip_norm must be positive, found inf"),
    ({"noise_multiplier": -1.0}, "noise_multiplier must be 0 or in .* -1"),
    ({"noise_multiplier": 1e-7}, r"0 or in \[1e-06, 1e\+06\], found 1e-07"),
    ({"clip_learning_rate": 0.0}, "clip_learning_rate must be positive"),
    (
      {"target_unclipped_quantile": 1.0},
      r"target_unclipped_quantile must be in \(0, 1\), found 1",
    ),
  ],
)
def test_mistakes_are_named(options, message):
  with pytest.raises(errors.FieldError, match=message):
    adaptive_gaussian.AdaptiveGaussianConfig(
      **{"clients_per_round": 4.0, **options}
    )


@pytest.mark.parametrize(
  "name", ["rounds", "min_separation", "max_participations"]
)
def test_schedules_are_at_least_1(name):
  with pytest.raises(errors.FieldError, match=f"{name} must .* 1, found 0"):
    mechanism.Schedule(**{name: 0})


@pytest.mark.parametrize(
  ("noise_multiplier", "strategy", "event"),
  [
    (0.0, None, dp_accounting.NonPrivateDpEvent()),
    (1.5, None, dp_accounting.GaussianDpEvent(1.5)),
    (0.0, tree.TreeStrategy(3), dp_accounting.NonPrivateDpEvent()),
    (
      1.5,
      tree.TreeStrategy(3),
      strategy_lib.CorrelatedGaussianDpEvent(1.5, tree.TreeStrategy(3)),
    ),
  ],
)
def test_event(noise_multiplier, strategy, event):
  created = mechanism.Mechanism(None, noise_multiplier, strategy)
  assert created.round_event == event


def test_noise_is_refused_by_name():
  config = gaussian.GaussianConfig(clients_per_round=4, noise_multiplier=0.5)
  with pytest.raises(
    errors.FieldError,
    match=r"noise_multiplier must be 0 with aggregator median, found 0\.5",
  ):
    mechanism.check_no_noise("median", config)
  mechanism.check_no_noise(
    "median", gaussian.GaussianConfig(clients_per_round=4)
  )
