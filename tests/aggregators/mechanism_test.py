"""Tests of what mechanisms have in common."""

import math

import pytest

from tff_fedemb import errors
from tff_fedemb.aggregators import mechanism
from tff_fedemb.aggregators import registry


@pytest.mark.parametrize(
  ("name", "options", "message"),
  [
    ("gaussian", {"clients_per_round": 0}, "clients_per_round .* found 0"),
    ("gaussian", {"clients_per_round": math.nan}, "be positive, found nan"),
    ("gaussian", {"clip_norm": -1.0}, "clip_norm must be positive, found -1"),
    ("gaussian", {"clip_norm": math.inf}, "clip_norm .* positive, found inf"),
    ("gaussian", {"noise_multiplier": -1.0}, "must be 0 or in .* found -1"),
    (
      "gaussian",
      {"noise_multiplier": 1e-7},
      r"noise_multiplier must be 0 or in \[1e-06, 1e\+06\], found 1e-07",
    ),
    ("none", {"noise_multiplier": 1.0}, "must be 0 with an aggregator that"),
    (
      "clip_only",
      {"noise_multiplier": 1.0},
      "must be 0 with an aggregator that",
    ),
    (
      "adaptive_gaussian",
      {"clip_learning_rate": 0.0},
      "clip_learning_rate must be positive",
    ),
    (
      "adaptive_gaussian",
      {"target_unclipped_quantile": 1.0},
      r"target_unclipped_quantile must be in \(0, 1\), found 1",
    ),
    # No split between sum and count has so much noise.
    *[
      (
        name,
        {"noise_multiplier": noise_multiplier, **options},
        "noise_multiplier must be less than a tenth .*, 10, .* found 1",
      )
      for name, options in (
        ("adaptive_gaussian", {}),
        ("adaptive_tree", {"restart_every": 4}),
      )
      for noise_multiplier in (10.0, 11.0, 1e6)
    ],
    ("adaptive_tree", {}, "restart_every must be given .* found None"),
    ("banded", {"num_bands": 5}, r"num_bands must be in .* \[1, 4\], found 5"),
    ("blt", {"num_buffers": 5}, "num_buffers must be at most 4, found 5"),
  ],
)
def test_mistakes_are_named(name, options, message):
  with pytest.raises(errors.FieldError, match=message):
    registry.AGGREGATORS[name](**{"clients_per_round": 100, **options}).create(
      mechanism.Schedule(rounds=9, min_separation=4)
    )
