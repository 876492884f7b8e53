"""Tests of the registry of aggregators."""

import dataclasses
import math

import numpy as np
import pytest
import tensorflow_federated as tff

from tests.mechanisms import cases
from tff_fedemb import config
from tff_fedemb import errors
from tff_fedemb.accounting import composition
from tff_fedemb.mechanisms import mechanism
from tff_fedemb.mechanisms import registry
from tff_fedemb.mechanisms import tree
from tff_fedemb.participation import min_separation
from tff_fedemb.planning import planning

_SHARED = {"clients_per_round", "clip_norm", "noise_multiplier"}


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
  created = registry.AGGREGATORS[name](**known.options)
  assert created.noise_multiplier == 0.0
  without = created.create(100, cases.SCHEDULE)
  rounds = composition.Rounds(noise=composition.noise_of(without))
  assert rounds.noise == composition.Noise(0.0)
  # A mechanism with noise has cases of it.
  assert created.adds_noise == bool(known.noisy) == bool(known.once)
  if not created.adds_noise:
    return
  # Noise of a known seed protects nobody.
  seed = {"noise_seed": None} if "noise_seed" in known.options else {}
  noisy = dataclasses.replace(created, noise_multiplier=1.5, **seed).create(
    100, cases.SCHEDULE
  )
  assert noisy.config.noise_multiplier == 1.5
  assert noisy.strategy == known.strategy
  assert composition.noise_of(noisy) == composition.Noise(1.5, known.strategy)


@pytest.mark.parametrize(
  ("seed", "is_finite"), [({}, True), ({"noise_seed": 0}, False)]
)
def test_noise_of_a_known_seed_protects_nobody(seed, is_finite):
  found = tree.TreeConfig(noise_multiplier=4.0, **seed)
  assert found.secret_noise_multiplier == (4.0 if is_finite else 0.0)
  claim = min_separation.MinSeparation(users_per_round=100)
  epsilon = planning.epsilon(found, claim, num_users=1_000, rounds=12)
  assert math.isfinite(epsilon) == is_finite


@pytest.mark.parametrize(
  ("name", "options", "message"), cases.params("mistakes")
)
def test_mistakes_are_named(name, options, message):
  with pytest.raises(errors.FieldError, match=message):
    registry.AGGREGATORS[name](**options).create(
      100, mechanism.Schedule(rounds=9, min_separation=4)
    )


@pytest.mark.parametrize("name", sorted(registry.AGGREGATORS))
def test_no_mechanism_without_what_it_needs(name):
  known = cases.of(name)
  # Its noise would have been that of one round, again and again.
  config = registry.AGGREGATORS[name](**known.options)
  if config.strategy_class is not None:
    with pytest.raises(
      errors.FieldError, match="schedule must be given, with its rounds"
    ):
      config.create(100)
  else:
    assert config.create(100).factory is not None
  with pytest.raises(errors.FieldError, match="clients_per_round must be"):
    config.create(0, cases.SCHEDULE)


class _NothingOwn(mechanism.MechanismConfig):
  pass


class _NoRecurrence(mechanism.CorrelatedConfig):
  pass


@pytest.mark.parametrize(
  ("own", "method"),
  [(_NothingOwn, "build_query"), (_NoRecurrence, "next_noise")],
)
def test_a_mechanism_of_ones_own_has_to_say_how_it_sums(own, method):
  made = own(noise_multiplier=1.0).create(100)
  message = f"{own.__name__} must have a method {method}"
  with pytest.raises(errors.DataError, match=message):
    made.factory.create(tff.to_type((np.float32, [2])))
