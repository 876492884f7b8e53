"""Tests of all strategies: their names, their gains, what is refused."""

import dataclasses
import functools
import json

import pytest

from tff_fedemb.mechanisms import banded_strategy
from tff_fedemb.mechanisms import blt_strategy
from tff_fedemb.mechanisms import strategies
from tff_fedemb.mechanisms import strategy as strategy_lib
from tff_fedemb.mechanisms import tree_strategy


@pytest.mark.parametrize(
  "strategy",
  [
    tree_strategy.TreeStrategy(restart_every=8),
    blt_strategy.BltStrategy(decays=(0.9, 0.1), weights=(0.3, 0.2)),
    banded_strategy.optimize_banded(strategy_lib.Schedule(9, 4)),
  ],
)
def test_json_brings_the_strategy_back(strategy):
  values = json.loads(json.dumps(strategy.to_json()))
  strategy_class = strategies.STRATEGIES[strategy.name]
  assert strategy_class.from_json(values) == strategy


@pytest.mark.parametrize(
  ("optimize", "least", "most"),
  [
    (banded_strategy.optimize_banded, 1.84, 1.86),
    (functools.partial(blt_strategy.optimize_blt, num_buffers=1), 1.70, 1.76),
    (functools.partial(blt_strategy.optimize_blt, num_buffers=2), 1.74, 1.76),
  ],
)
def test_gain_over_the_tree_at_the_published_setting(optimize, least, most):
  schedule = strategy_lib.Schedule(800, 77, 11)
  strategy = optimize(schedule)
  assert len(getattr(strategy, "coefficients", (0,) * 77)) == 77
  of_tree = tree_strategy.TreeStrategy().model_error(schedule)
  assert least < of_tree / strategy.model_error(schedule) < most


def _values(name, *parameters):
  fields = dataclasses.fields(strategies.STRATEGIES[name])
  return {
    "name": name,
    **{f.name: p for f, p in zip(fields, parameters, strict=True)},
  }


@pytest.mark.parametrize(
  ("values", "message"),
  [
    ({"name": "oak"}, "must be one of banded, blt, tree, found 'oak'"),
    ({"name": "blt"}, "must be given with blt, found nothing"),
    (_values("banded", ()), r"must start with 1, found \(\)"),
    (_values("banded", (1.0, float("inf"))), "must be finite, found"),
    (_values("blt", (), ()), "number of decays must be .* found 0"),
    (_values("blt", (0.5,) * 5, (0.1,) * 5), "at most 4, found 5"),
    (_values("blt", (0.5,), (0.1, 0.1)), "weights must be 1 positive .* found"),
    (_values("blt", (1.0,), (0.1,)), r"decays must be in \(0, 1\), found"),
    (_values("blt", (0.5,), (0.0,)), "weights must be 1 positive .* found"),
    (_values("blt", (0.5, 0.4), (0.6, 0.5)), "sum of at most 1, found"),
    (_values("tree", 0), "restart_every must be .* found 0"),
  ],
)
def test_values_out_of_range(values, message):
  with pytest.raises(ValueError, match=message):
    strategies.STRATEGIES.create(values.pop("name", None), **values)
