"""Tests of Monte-Carlo bounds, whichever way a user's rounds are drawn."""

import dataclasses
import math

import dp_accounting
import pytest

from tests.privacy import mixtures
from tff_fedemb import errors
from tff_fedemb.participation import balls_in_bins as balls_in_bins_lib
from tff_fedemb.privacy import balls_in_bins
from tff_fedemb.privacy import composition
from tff_fedemb.privacy import gaussian_accountant
from tff_fedemb.privacy import monte_carlo
from tff_fedemb.privacy import planning
from tff_fedemb.strategies import banded
from tff_fedemb.strategies import blt
from tff_fedemb.strategies import strategy as strategy_lib
from tff_fedemb.strategies import tree

_BANDS = banded.BandedToeplitzStrategy((1.0, 0.5))
_BLT = blt.BltStrategy(decays=(0.9,), weights=(0.4,))
_bins = balls_in_bins.BallsInBinsDpEvent


@pytest.mark.parametrize(
  ("event", "delta"),
  [
    (_bins(1.0, None, 2, 2), 1e-3),
    (_bins(1.0, None, 2, 2), 1e-6),
    (_bins(0.6, None, 2, 2), 1e-5),
    (_bins(1.0, _BANDS, 2, 2), 1e-6),
    (_bins(4.0, _BANDS, 2, 2), 1e-7),
  ],
)
def test_two_rounds_by_integration(event, delta):
  found = monte_carlo.bound_epsilon(event, delta)
  exact_delta = mixtures.integrate_two_rounds(*mixtures.ways(event))
  assert exact_delta(found) <= delta
  # It costs little to be sure.
  assert exact_delta(0.96 * found) > delta
  known = gaussian_accountant.GaussianAccountant()
  known.compose(dp_accounting.GaussianDpEvent(event.largest_square**-0.5))
  assert found < known.get_epsilon(delta)


def test_epsilon_never_falls_as_delta_shrinks():
  event = _bins(1.0, None, 8, 16)
  deltas = [0.1, 1e-2, 9.9e-3, 5e-3, 1e-8]
  found = [monte_carlo.bound_epsilon(event, delta) for delta in deltas]
  assert found == sorted(found)


def test_accountant():
  accountant = monte_carlo.MonteCarloAccountant()
  assert accountant.get_epsilon(0.1) == 0.0
  event = _bins(4.0, None, 2, 2)
  assert not accountant.supports(dp_accounting.GaussianDpEvent(1.0))
  assert accountant.supports(event)
  accountant.compose(event)
  assert accountant.get_epsilon(0.01) == monte_carlo.bound_epsilon(event, 0.01)
  # The rounds of a run are one event: two would be two runs.
  assert not accountant.supports(event)
  accountant = monte_carlo.MonteCarloAccountant()
  accountant.compose(dp_accounting.NonPrivateDpEvent())
  assert accountant.get_epsilon(0.1) == math.inf


_IN_BINS = balls_in_bins_lib.BallsInBins(1_000, 100, users_per_client=4)


def test_what_a_run_is_accounted_for():
  event = strategy_lib.CorrelatedGaussianDpEvent(6.0, _BLT)
  assert composition.composed_events([(event, 35)], _IN_BINS) == [
    (_bins(3.0, _BLT, 10, 35), 1)
  ]
  counts = [(dp_accounting.GaussianDpEvent(z), 4) for z in (3.0, 1.0, 2.0)]
  # Two bins of two rounds, eight of one.
  ((found, count),) = composition.composed_events(counts, _IN_BINS)
  assert (found.slots, count) == (((0.5 / math.sqrt(2), 2), (0.5, 8)), 1)
  assert composition.composed_events([], _IN_BINS) == []
  # Each of a user's rounds, of a draw that anyone may know.
  known = _IN_BINS.with_known_schedule()
  assert composition.composed_events(counts, known) == [
    (dp_accounting.GaussianDpEvent(0.5), 2)
  ]
  event = strategy_lib.CorrelatedGaussianDpEvent(6.0, tree.TreeStrategy())
  with pytest.raises(errors.FieldError, match=r"banded, blt or .* found tree"):
    composition.check_noise([(event, 1)], _IN_BINS)


def test_report():
  claim = balls_in_bins_lib.BallsInBins(1_000, 100)
  plan = planning.create_plan("blt", claim, 35, 4.0, 1e-4, num_buffers=1)
  report = planning.create_report(plan)
  assert (report.accountant, report.zcdp) == ("monte_carlo", None)
  assert report.max_participations == 4
  known = dataclasses.replace(
    plan, participation=claim.with_known_schedule(), accountants=("gaussian",)
  )
  of_known = planning.create_report(known)
  assert of_known.epsilon_with_secret_sampling == report.epsilon
  assert 0.5 < report.epsilon / of_known.epsilon < 0.95
  assert "drawn in secret and hang together" in report.statement
  assert "which fail with a probability of 0.001 delta" in report.statement
