"""Tests of the event that a round amounts to."""

import math

import dp_accounting
import pytest

from tff_fedemb.participation import fixed_size
from tff_fedemb.participation import min_separation
from tff_fedemb.participation import poisson
from tff_fedemb.privacy import composition
from tff_fedemb.strategies import strategy as strategy_lib
from tff_fedemb.strategies import tree

_GAUSSIAN = dp_accounting.GaussianDpEvent(1.0)
_POISSON = poisson.Poisson(1_000, 10)
_POISSON_GROUPS = poisson.Poisson(1_000, 10, users_per_client=2)
_FIXED_SIZE = fixed_size.FixedSize(1_000, 10)


def _round_event(event, participation, **options):
  ((composed, count),) = composition.composed_events(
    [(event, 7)], participation, **options
  )
  assert count == (7 if event == _GAUSSIAN else 1)
  return composed


def test_the_noise_is_divided_by_the_sensitivity_once():
  gaussian = dp_accounting.GaussianDpEvent
  poisson_event = dp_accounting.PoissonSampledDpEvent
  assert _round_event(_GAUSSIAN, _POISSON) == poisson_event(0.01, gaussian(1.0))
  assert _round_event(_GAUSSIAN, _POISSON_GROUPS) == poisson_event(
    0.01, gaussian(0.5)
  )
  for options, noise_multiplier in (
    ({}, 0.5),
    ({"sensitivity_in_clip_norms": 1}, 1.0),
  ):
    assert _round_event(
      _GAUSSIAN, _FIXED_SIZE, **options
    ) == dp_accounting.SampledWithoutReplacementDpEvent(
      1_000, 10, gaussian(noise_multiplier)
    )


@pytest.mark.parametrize(
  "event",
  [
    dp_accounting.LaplaceDpEvent(1.0),
    dp_accounting.PoissonSampledDpEvent(0.1, _GAUSSIAN),
    dp_accounting.GaussianDpEvent(-1.0),
  ],
)
def test_what_cannot_be_accounted_for(event):
  with pytest.raises(ValueError, match=r"must be .* found"):
    _round_event(event, _POISSON)


def test_sensitivity_of_a_strategy_over_the_rounds_that_there_were():
  # Once in two rounds: the leaf of a round, and the root above it.
  claim = min_separation.MinSeparation(10, 5)
  event = strategy_lib.CorrelatedGaussianDpEvent(1.0, tree.TreeStrategy())
  found = composition.strategy_sensitivity([(event, 2)], claim)
  assert found == pytest.approx(math.sqrt(2))
  assert composition.strategy_sensitivity([(_GAUSSIAN, 2)], claim) is None
