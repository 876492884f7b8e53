"""Tests of the registry of strategies."""

import json

import pytest

from tff_fedemb.strategies import banded
from tff_fedemb.strategies import blt
from tff_fedemb.strategies import registry
from tff_fedemb.strategies import tree


@pytest.mark.parametrize(
  "strategy",
  [
    tree.TreeStrategy(),
    tree.TreeStrategy(restart_every=8, first_restart_after=3),
    blt.BltStrategy(decays=(0.9, 0.1), weights=(0.3, 0.2)),
    banded.BandedToeplitzStrategy((1.0, 1 / 3)),
    banded.optimize_banded(rounds=9, min_separation=4),
  ],
)
def test_json_brings_the_strategy_back(strategy):
  values = json.loads(json.dumps(registry.to_json(strategy)))
  assert registry.from_json(values) == strategy
  assert registry.STRATEGIES[values["name"]] is type(strategy)


@pytest.mark.parametrize(
  ("values", "message"),
  [
    ({"name": "oak"}, r"must be one of \['banded', 'blt', 'tree'\], found"),
    ({}, "must be one of .* found None"),
    ({"name": "blt"}, r"must be those of BltStrategy, found \[\]"),
    ({"name": "tree", "bands": 3}, r"must be those .* found \['bands'\]"),
    ({"name": "tree", "restart_every": 0}, "restart_every must be"),
  ],
)
def test_unknown_values(values, message):
  with pytest.raises(ValueError, match=message):
    registry.from_json(values)
