"""Tests of search spaces: what is drawn, and what is refused."""

import json
import math

import numpy as np
import pytest
from scipy import stats

from tff_fedemb import errors
from tff_fedemb.training import search_space

_TYPES = {
  "client_learning_rate": "float",
  "server_learning_rate": "float",
  "batch_size": "int",
  "head": "string",
  "head_learned_scale": "bool",
  "noise_multiplier": "float",
}

# Chance that a right sampler fails, per check of draws.
_FALSE_ALARM_RATE = 1e-6


@pytest.fixture(name="read")
def _read(tmp_path):
  def read(space):
    text = space if isinstance(space, str) else json.dumps(space)
    path = tmp_path / "space.json"
    path.write_text(text)
    return search_space.read(path, _TYPES)

  return read


def test_draws_have_their_distributions(read):
  space = read(
    {
      "client_learning_rate": {"log_uniform": [0.01, 1]},
      "server_learning_rate": {"uniform": [-1, 3]},
      "batch_size": {"values": [16, 32, 64]},
      "head_learned_scale": {"values": [True]},
    }
  )
  generator = np.random.default_rng(1)
  draws = [search_space.draw(space, generator) for _ in range(2_000)]
  logs = [math.log10(draw["client_learning_rate"]) for draw in draws]
  for values, distribution in (
    (logs, stats.uniform(-2, 2)),
    ([d["server_learning_rate"] for d in draws], stats.uniform(-1, 4)),
  ):
    assert stats.kstest(values, distribution.cdf).pvalue > _FALSE_ALARM_RATE
  sizes = [draw["batch_size"] for draw in draws]
  counts = [sizes.count(size) for size in (16, 32, 64)]
  assert sum(counts) == 2_000
  assert stats.chisquare(counts).pvalue > _FALSE_ALARM_RATE
  assert {draw["head_learned_scale"] for draw in draws} == {True}


def test_same_seed_draws_the_same_whatever_the_order_in_the_file(read):
  choices = {
    "server_learning_rate": {"uniform": [0, 1]},
    "client_learning_rate": {"uniform": [0, 1]},
  }
  first, second = (
    search_space.draw(space, np.random.default_rng(3))
    for space in (read(choices), read(dict(reversed(choices.items()))))
  )
  assert first == second


@pytest.mark.parametrize(
  ("space", "message"),
  [
    ("{", "search_space must be a JSON file"),
    (
      '{"head": {"values": ["a"]}, "head": {"values": ["b"]}}',
      "'head' once, found it twice",
    ),
    ({"noise_multiplier": {"values": [1]}}, "not hold noise_multiplier: all"),
    ({}, "must be an object"),
    ({"learning_rate": {"values": [1]}}, "flags of the trials, found 'lea"),
    ({"flagfile": {"values": ["x"]}}, "flags of the trials, found 'flagf"),
    ({"head": "linear"}, "must have one of values, uniform"),
    ({"head": {"values": []}}, "must have a list of values for head"),
    ({"head": {"values": "linear"}}, "must have a list of values"),
    ({"head": {"values": [1]}}, "of type string for head, found 1"),
    ({"batch_size": {"values": [16.5]}}, "of type int for batch_size"),
    ({"batch_size": {"values": [True]}}, "of type int for batch_size"),
    ({"batch_size": {"uniform": [1, 9]}}, "a flag of type int, found unif"),
    ({"client_learning_rate": {"values": [math.nan]}}, "of type float"),
    ({"client_learning_rate": {"uniform": [1]}}, "two finite numbers"),
    ({"client_learning_rate": {"uniform": [2, 1]}}, "ascending order"),
    ({"client_learning_rate": {"uniform": [0, math.inf]}}, "two finite"),
    (
      {"client_learning_rate": {"log_uniform": [0, 1]}},
      "two positive finite numbers",
    ),
  ],
)
def test_mistakes(read, space, message):
  with pytest.raises(errors.FieldError, match=message):
    read(space)
