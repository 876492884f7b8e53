"""Tests of the registry of aggregators."""

import pathlib

import dp_accounting
import pytest

from tff_fedemb.aggregators import mechanism
from tff_fedemb.aggregators import registry
from tff_fedemb.strategies import strategy as strategy_lib

_OPTIONS = {
  "restart_every": 4,
  "num_buffers": 2,
  "num_bands": 2,
  "noise_seed": 0,
  "target_unclipped_quantile": 0.5,
  "clip_learning_rate": 0.2,
}
_USED = {
  "adaptive_gaussian": {"target_unclipped_quantile", "clip_learning_rate"},
  "adaptive_tree": {
    "restart_every",
    "noise_seed",
    "target_unclipped_quantile",
    "clip_learning_rate",
  },
  "banded": {"num_bands", "noise_seed"},
  "blt": {"num_buffers", "noise_seed"},
  "clip_only": set(),
  "gaussian": set(),
  "none": set(),
  "tree": {"restart_every", "noise_seed"},
}


def _create(name, **options):
  if name == "adaptive_tree":
    options.setdefault("restart_every", 4)
  return registry.create_mechanism(
    name,
    mechanism.AggregatorConfig(100.0, rounds=8, min_separation=4, **options),
  )


def test_every_aggregator_is_known():
  assert set(registry.AGGREGATORS) == set(_USED)


@pytest.mark.parametrize("name", sorted(registry.AGGREGATORS))
def test_every_aggregator_has_a_test(name):
  path = pathlib.Path(__file__).parent / f"{name}_test.py"
  assert path.exists()
  text = path.read_text()
  assert "check_without_noise" in text
  if name not in ("clip_only", "none"):
    assert "check_noise" in text


@pytest.mark.parametrize("name", sorted(registry.AGGREGATORS))
def test_privacy_is_documented(name):
  text = registry.AGGREGATORS[name].create.__doc__
  section = text[text.index("Privacy:") : text.index("Args:")]
  for word in ("Unit", "eighbouring relation", "Sensitivity:", "DpEvent:"):
    assert word in section


@pytest.mark.parametrize("name", sorted(registry.AGGREGATORS))
def test_no_noise_is_not_private(name):
  assert _create(name).round_event == dp_accounting.NonPrivateDpEvent()


@pytest.mark.parametrize(
  "name", sorted(set(registry.AGGREGATORS) - {"none", "clip_only"})
)
def test_event_states_the_noise(name):
  created = _create(name, noise_multiplier=1.5)
  assert created.noise_multiplier == 1.5
  if name in ("gaussian", "adaptive_gaussian"):
    assert created.round_event == dp_accounting.GaussianDpEvent(1.5)
  else:
    assert created.round_event == strategy_lib.CorrelatedGaussianDpEvent(
      1.5, created.strategy
    )


@pytest.mark.parametrize("name", sorted(registry.AGGREGATORS))
@pytest.mark.parametrize("option", sorted(_OPTIONS))
def test_options_without_use_are_refused(name, option):
  value = {option: _OPTIONS[option]}
  if option in _USED[name]:
    _create(name, **value)
    return
  with pytest.raises(
    ValueError,
    match=f"{option} must not be set with aggregator {name}, .* found",
  ):
    _create(name, **value)


def test_unknown_names_are_refused():
  with pytest.raises(
    ValueError, match=r"aggregator must be one of \[.*\], found 'laplace'"
  ):
    _create("laplace")


@pytest.mark.parametrize("name", ["none", "clip_only"])
def test_noise_without_use_is_refused(name):
  with pytest.raises(
    ValueError, match=f"must be 0 with aggregator {name}, found 1"
  ):
    _create(name, noise_multiplier=1.0)
