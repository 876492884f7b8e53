"""Tests of search spaces: what may be drawn, what is, and what is refused."""

import json
import math
import pathlib

import numpy as np
import pytest
from scipy import stats

from tff_fedemb import config
from tff_fedemb import errors
from tff_fedemb.algorithms import centralized
from tff_fedemb.algorithms import fedemb
from tff_fedemb.algorithms import local_training
from tff_fedemb.algorithms import server_optimizers
from tff_fedemb.mechanisms import gaussian
from tff_fedemb.mechanisms import registry as aggregators
from tff_fedemb.models import heads
from tff_fedemb.participation import poisson
from tff_fedemb.spec import spec as spec_lib
from tff_fedemb.spec import task as task_lib
from tff_fedemb.training import search_space

_REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
_SPEC = spec_lib.RunSpec(
  task=task_lib.RecordedTask({}),
  participation=poisson.Poisson(users_per_round=10),
  mechanism=gaussian.GaussianConfig(noise_multiplier=1.0),
  algorithm=fedemb.FedEmb(
    head=heads.CosineHead(scale=8.0),
    local=local_training.LocalTraining(head_imprint_steps=1),
  ),
)
# Only the model depends on these. All other fields decide what a trial costs,
# its data, what it releases, how it is run or how it is judged: they are fixed,
# which is what a field is unless it says otherwise. A mechanism's own test has
# those of the mechanism.
_SEARCHABLE = """
  augmentation backbone batch_size client_learning_rate client_lr_schedule
  client_momentum client_optimizer embedding_dim freeze_head head
  head_imprint_steps head_initial_scale head_learned_scale head_lr_scale
  head_margin head_scale head_warmup_steps local_epochs max_examples_per_client
  server_learning_rate server_momentum server_optimizer trainable turned_classes
"""

# Chance that a right sampler fails, per check of draws.
_FALSE_ALARM_RATE = 1e-6


@pytest.fixture(name="read")
def _read(tmp_path):
  def read(space):
    text = space if isinstance(space, str) else json.dumps(space)
    path = tmp_path / "space.json"
    path.write_text(text)
    return search_space.read(path, _SPEC)

  return read


def _fields(config_class):
  """The fields of a class, and of all classes that its parts may have."""
  for field in config.specs(config_class):
    parts = [] if field.registry is None else field.registry.values()
    if field.registry is None and issubclass(field.type, config.Config):
      parts = [field.type]
    elif field.type is not object:
      yield field
    for part in parts:
      yield from _fields(part)


def test_searchable_fields_decide_the_model_alone():
  task_lib.load_tasks()
  of_mechanisms = {
    field.flag
    for mechanism in aggregators.AGGREGATORS.values()
    for field in config.specs(mechanism)
  }
  found = {f.flag for f in _fields(spec_lib.RunSpec) if f.searchable}
  assert found - of_mechanisms == set(_SEARCHABLE.split())


def test_published_search_spaces_are_of_fields():
  paths = list((_REPOSITORY / "binaries/flagfiles").glob("*_search.json"))
  assert paths
  for path in paths:
    search_space.read(path, _SPEC)


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


def test_fields_of_a_class_are_drawn_with_it(read):
  space = read(
    {
      "head": {"values": ["linear", f"{heads.__name__}:ArcFaceHead"]},
      "head_margin": {"values": [0.2]},
      "head_imprint_steps": {"values": [0, 1]},
      "server_momentum": {"values": [0.5]},
    }
  )
  assert space["server_momentum"] == ("values", (0.5,))
  applied = search_space.apply(
    _SPEC,
    {"head_margin": 0.2, "head": space["head"][1][1]},
  )
  assert applied.algorithm.head == heads.ArcFaceHead(scale=8.0, margin=0.2)
  # Only both together fit.
  with pytest.raises(errors.FieldError, match="head_imprint_steps must"):
    search_space.apply(_SPEC, {"head": "linear"})
  applied = search_space.apply(
    _SPEC,
    {"head": "linear", "head_imprint_steps": 0, "server_momentum": 0.5},
  )
  assert applied.algorithm.head == heads.LinearHead()
  assert applied.server_optimizer == server_optimizers.SgdMomentum(momentum=0.5)
  assert applied.mechanism == _SPEC.mechanism


@pytest.mark.parametrize(
  ("space", "message"),
  [
    ("{", "search_space must be a JSON file"),
    ({"noise_multiplier": {"values": [1]}}, "not hold noise_multiplier: all"),
    ({}, "must be an object"),
    ({"learning_rate": {"values": [1]}}, "fields of the trials, found 'lea"),
    ({"head_margin": {"values": [0.1]}}, "fields of the trials, found 'head_m"),
    ({"participation": {"values": ["fixed"]}}, "not hold participation: all"),
    ({"head": "linear"}, "must have one of values, uniform"),
    ({"head": {"value": ["linear"]}}, "head must be one of log_uniform, unif"),
    ({"head": {"values": []}}, "must have a list of values for head"),
    ({"head": {"values": [1]}}, "head must be one of arcface, .* found 1"),
    ({"head": {"uniform": [1, 2]}}, "of head, a field of type Head, found"),
    ({"batch_size": {"values": [True]}}, "batch_size must be an integer of"),
    ({"client_learning_rate": {"values": [-0.1]}}, "_rate must be at least 0"),
    ({"client_learning_rate": {"uniform": [1]}}, "two numbers in ascending"),
    ({"client_learning_rate": {"uniform": [2, 1]}}, "ascending order"),
    ({"client_learning_rate": {"uniform": [0, math.inf]}}, "be a finite"),
    ({"client_learning_rate": {"log_uniform": [0, 1]}}, "two positive numbers"),
  ],
)
def test_mistakes(read, space, message):
  with pytest.raises(errors.FieldError, match=message):
    read(space)


def test_trials_on_pooled_data_are_refused(tmp_path):
  pooled = spec_lib.RunSpec(
    task=task_lib.RecordedTask({}), algorithm=centralized.Centralized()
  )
  message = "algorithm must have a mechanism, .* found centralized, which"
  with pytest.raises(errors.FieldError, match=message):
    search_space.read(tmp_path / "space.json", pooled)
