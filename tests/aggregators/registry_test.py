"""Tests of the registry of aggregators."""

import dataclasses

import dp_accounting
import numpy as np
import pytest
import tensorflow_federated as tff
import tensorflow_privacy as tfp

from binaries import choice_flags
from binaries import config_flags
from tests.aggregators import cases
from tests.aggregators import released
from tff_fedemb import config
from tff_fedemb import errors
from tff_fedemb.aggregators import mechanism
from tff_fedemb.aggregators import registry
from tff_fedemb.strategies import strategy as strategy_lib

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


@pytest.mark.parametrize("name", sorted(registry.AGGREGATORS))
def test_privacy_is_documented(name):
  text = registry.AGGREGATORS[name].__doc__
  section = text[text.index("Privacy:") :]
  for word in ("Unit", "eighbouring relation", "Sensitivity:", "DpEvent:"):
    assert word in section


@pytest.mark.parametrize("name", sorted(registry.AGGREGATORS))
def test_options_and_event(name):
  known = cases.of(name)
  specs = config.specs(registry.AGGREGATORS[name])
  own = [spec for spec in specs if spec.name not in _SHARED]
  assert {spec.name for spec in own} == set(known.options)
  assert {spec.name for spec in own if spec.searchable} == known.searchable
  created = registry.AGGREGATORS[name](clients_per_round=100, **known.options)
  assert created.noise_multiplier == 0.0
  without = created.create(cases.SCHEDULE)
  assert without.round_event == dp_accounting.NonPrivateDpEvent()
  # A mechanism with noise has cases of it.
  assert created.adds_noise == bool(known.noisy) == bool(known.once)
  if not created.adds_noise:
    return
  noisy = dataclasses.replace(created, noise_multiplier=1.5).create(
    cases.SCHEDULE
  )
  assert noisy.config.noise_multiplier == 1.5
  assert noisy.strategy == known.strategy
  assert noisy.round_event == (
    strategy_lib.CorrelatedGaussianDpEvent(1.5, known.strategy)
    if known.strategy
    else dp_accounting.GaussianDpEvent(1.5)
  )


def test_a_new_aggregator_is_one_class_and_one_line(monkeypatch):
  monkeypatch.setitem(registry.AGGREGATORS, "toy", _ToyConfig)
  with config_flags.Parser(["program", "--of_test_bound=2"], "") as parser:
    choice = choice_flags.ChoiceFlags(
      parser, "aggregator", registry.AGGREGATORS, skip=_SHARED
    )
    parser.parse()
    fields = {"clients_per_round": 4.0, **choice.given}
    made = registry.AGGREGATORS.create("toy", **fields)
    with pytest.raises(
      errors.FieldError,
      match="of_test_bound must not be given with mechanism gaussian, which",
    ):
      registry.AGGREGATORS.create("gaussian", **fields)
  assert made == _ToyConfig(clients_per_round=4.0, of_test_bound=2.0)
  created = dataclasses.replace(made, noise_multiplier=1.5).create(
    cases.SCHEDULE
  )
  assert created.round_event == dp_accounting.GaussianDpEvent(1.5)
  aggregation = released.Aggregation(
    "toy", clients_per_round=4.0, clip_norm=9.0, of_test_bound=2.0
  )
  rounds = aggregation.run([[np.array([8.0, 0.0, 0.0, 0.0, 0.0])]])
  aggregation.close()
  np.testing.assert_allclose(rounds.means, [[0.5, 0.0, 0.0, 0.0, 0.0]])
  assert rounds.reports[0]["num_clients"] == 1
