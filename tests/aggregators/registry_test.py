"""Tests of the registry of aggregators."""

import dataclasses

import dp_accounting
import numpy as np
import pytest
import tensorflow_federated as tff
import tensorflow_privacy as tfp

from binaries import choice_flags
from binaries import config_flags
from tests.aggregators import released
from tff_fedemb import config
from tff_fedemb import errors
from tff_fedemb.aggregators import mechanism
from tff_fedemb.aggregators import registry
from tff_fedemb.strategies import banded
from tff_fedemb.strategies import blt
from tff_fedemb.strategies import strategy as strategy_lib
from tff_fedemb.strategies import tree

_SCHEDULE = mechanism.Schedule(
  rounds=20, min_separation=5, max_participations=3
)
# Options of every aggregator, and the strategy of its noise.
_EXAMPLES = {
  "adaptive_gaussian": (
    {"target_unclipped_quantile": 0.4, "clip_learning_rate": 0.1},
    None,
  ),
  "adaptive_tree": (
    {
      "restart_every": 4,
      "restart_warmup": 2,
      "noise_seed": 0,
      "target_unclipped_quantile": 0.4,
      "clip_learning_rate": 0.1,
    },
    tree.TreeStrategy(4, 2),
  ),
  "banded": (
    {"num_bands": 3, "noise_seed": 0},
    banded.optimize_banded(_SCHEDULE, num_bands=3),
  ),
  "blt": (
    {"num_buffers": 3, "noise_seed": 0},
    blt.optimize_blt(_SCHEDULE, num_buffers=3),
  ),
  "clip_only": ({}, None),
  "gaussian": ({}, None),
  "none": ({}, None),
  "secure_gaussian": ({}, None),
  "tree": ({"restart_every": 4, "noise_seed": 0}, tree.TreeStrategy(4)),
}
_SHARED = {"clients_per_round", "clip_norm", "noise_multiplier"}


@dataclasses.dataclass(frozen=True, kw_only=True)
class _ToyConfig(mechanism.MechanismConfig):
  """An aggregator that is one class: clips each update twice.

  Attributes:
    of_test_bound: The first L2 norm.
  """

  of_test_bound: float = config.field(3.0, above=0)

  def build_factory(self, strategy):
    return tff.aggregators.clipping_factory(
      self.of_test_bound, super().build_factory(strategy)
    )

  def build_query(self, specs, strategy):
    return tfp.GaussianSumQuery(
      self.clip_norm, self.clip_norm * self.noise_multiplier
    )


def _create(name, **options):
  return registry.AGGREGATORS[name](
    clients_per_round=100, **{**_EXAMPLES[name][0], **options}
  ).create(_SCHEDULE)


def test_every_aggregator_is_known():
  assert set(registry.AGGREGATORS) == set(_EXAMPLES)


@pytest.mark.parametrize("name", sorted(_EXAMPLES))
def test_privacy_is_documented(name):
  text = registry.AGGREGATORS[name].__doc__
  section = text[text.index("Privacy:") :]
  for word in ("Unit", "eighbouring relation", "Sensitivity:", "DpEvent:"):
    assert word in section


@pytest.mark.parametrize("name", sorted(_EXAMPLES))
def test_options(name):
  specs = config.specs(registry.AGGREGATORS[name])
  assert {spec.name for spec in specs} - _SHARED == set(_EXAMPLES[name][0])


@pytest.mark.parametrize("name", sorted(_EXAMPLES))
def test_event_states_the_noise(name):
  created = _create(name)
  assert created.round_event == dp_accounting.NonPrivateDpEvent()
  assert created.config.noise_multiplier == 0.0
  if name in ("none", "clip_only"):
    return
  created = _create(name, noise_multiplier=1.5)
  assert created.config.noise_multiplier == 1.5
  strategy = _EXAMPLES[name][1]
  assert created.strategy == strategy
  assert created.round_event == (
    strategy_lib.CorrelatedGaussianDpEvent(1.5, strategy)
    if strategy
    else dp_accounting.GaussianDpEvent(1.5)
  )


def test_a_new_aggregator_is_one_class_and_one_line(monkeypatch):
  monkeypatch.setitem(registry.AGGREGATORS, "toy", _ToyConfig)
  with config_flags.Parser(["program", "--of_test_bound=2"], "") as parser:
    choice = choice_flags.ChoiceFlags(
      parser, "aggregator", registry.AGGREGATORS, skip=_SHARED
    )
    parser.parse()
    made = choice.create("toy", clients_per_round=4.0)
    with pytest.raises(
      errors.FieldError,
      match="--of_test_bound must not be set with aggregator gaussian, which",
    ):
      choice.create("gaussian", clients_per_round=4.0)
  assert made == _ToyConfig(clients_per_round=4.0, of_test_bound=2.0)
  created = dataclasses.replace(made, noise_multiplier=1.5).create(_SCHEDULE)
  assert created.round_event == dp_accounting.GaussianDpEvent(1.5)
  aggregation = released.Aggregation(
    "toy", clients_per_round=4.0, clip_norm=9.0, of_test_bound=2.0
  )
  rounds = aggregation.run([[np.array([8.0, 0.0, 0.0, 0.0, 0.0])]])
  aggregation.close()
  np.testing.assert_allclose(rounds.means, [[0.5, 0.0, 0.0, 0.0, 0.0]])
  assert rounds.reports[0]["num_clients"] == 1
