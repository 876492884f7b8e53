"""Tests of Monte-Carlo bounds, whichever way a user's rounds are drawn."""

import dataclasses
import math

import dp_accounting
import pytest

from tests.privacy import mixtures
from tff_fedemb import errors
from tff_fedemb.participation import b_min_sep as b_min_sep_lib
from tff_fedemb.participation import balls_in_bins as balls_in_bins_lib
from tff_fedemb.participation import cyclic_poisson
from tff_fedemb.privacy import b_min_sep
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
_waits = b_min_sep.BMinSepDpEvent


@pytest.mark.parametrize(
  ("event", "delta"),
  [
    (_bins(1.0, None, 2, 2), 1e-3),
    (_bins(0.6, None, 2, 2), 1e-5),
    (_bins(4.0, _BANDS, 2, 2), 1e-7),
    (_waits(1.0, None, 2, 2, 0.2), 1e-6),
    (_waits(1.0, _BANDS, 2, 2, 0.5), 1e-6),
    (_waits(4.0, _BANDS, 2, 2, 0.3), 1e-7),
  ],
)
def test_two_rounds_by_integration(event, delta):
  found = monte_carlo.bound_epsilon(event, delta)
  exact_delta = mixtures.integrate_two_rounds(*mixtures.ways(event))
  assert exact_delta(found) <= delta
  # It costs little to be sure.
  share = 0.96 if isinstance(event, _bins) else 0.97
  assert exact_delta(share * found) > delta
  known = gaussian_accountant.GaussianAccountant()
  known.compose(dp_accounting.GaussianDpEvent(event.largest_square**-0.5))
  assert found < known.get_epsilon(delta)


@pytest.mark.parametrize(
  "event", [_waits(1.5, None, 9, 2, 0.2), _bins(1.0, None, 16, 8)]
)
def test_epsilon_never_falls_as_delta_shrinks(event):
  deltas = [0.1, 9.9e-3, 1e-8]
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


_WAITING = b_min_sep_lib.BMinSep(
  1_000, 100, users_per_client=4, min_separation=3
)
_IN_BLOCKS = cyclic_poisson.CyclicPoisson(1_000, 100, period=1)
_IN_BINS = balls_in_bins_lib.BallsInBins(1_000, 100, users_per_client=4)


@pytest.mark.parametrize(
  ("claim", "strategy", "options", "participations"),
  [(_WAITING, _BANDS, (3, 0.1), 4), (_IN_BINS, _BLT, (10,), 2)],
)
def test_what_a_run_is_accounted_for(claim, strategy, options, participations):
  create = _waits if claim is _WAITING else _bins
  event = strategy_lib.CorrelatedGaussianDpEvent(6.0, strategy)
  assert composition.composed_events([(event, 35)], claim) == [
    (create(3.0, strategy, 35, *options), 1)
  ]
  counts = [(dp_accounting.GaussianDpEvent(z), 4) for z in (3.0, 1.0, 2.0)]
  ((found, _),) = composition.composed_events(counts, claim)
  if claim is _IN_BINS:
    # Two bins of two rounds, eight of one.
    assert found.slots == ((0.5 / math.sqrt(2), 2), (0.5, 8))
  else:
    assert found == create(0.5, None, 12, *options)
  assert composition.composed_events([], claim) == []
  # Each of a user's rounds, of a draw that anyone may know.
  assert composition.composed_events(counts, claim.with_known_schedule()) == [
    (dp_accounting.GaussianDpEvent(0.5), participations)
  ]


@pytest.mark.parametrize(
  ("claim", "strategy", "message"),
  [
    (
      _WAITING,
      banded.BandedToeplitzStrategy((1.0, 0.5, 0.4, 0.3)),
      "num_bands must be at most 3",
    ),
    (_WAITING, _BLT, "banded or one of independent noise with .* b_min_sep"),
    (_WAITING, tree.TreeStrategy(), "banded or one of independent noise"),
    (_IN_BINS, tree.TreeStrategy(), "be banded, blt or one .* found tree"),
    (_IN_BLOCKS, tree.TreeStrategy(), "be banded or .* found tree"),
    (_IN_BLOCKS, _BLT, "be banded or .* found blt"),
    (_IN_BLOCKS, _BANDS, "num_bands must be at most 1, .* found 2"),
  ],
)
def test_noise_whose_cost_is_not_known(claim, strategy, message):
  event = strategy_lib.CorrelatedGaussianDpEvent(6.0, strategy)
  with pytest.raises(errors.FieldError, match=message):
    composition.check_noise([(event, 1)], claim)


def test_report():
  claim = b_min_sep_lib.BMinSep(1_000, 100, min_separation=2)
  plan = planning.create_plan("banded", claim, 8, 2.0, 1e-4, num_bands=2)
  report = planning.create_report(plan)
  assert (report.accountant, report.zcdp) == ("monte_carlo", None)
  assert report.max_participations == 4
  known = dataclasses.replace(
    plan, participation=claim.with_known_schedule(), accountants=("gaussian",)
  )
  of_known = planning.create_report(known)
  assert of_known.epsilon_with_secret_sampling == report.epsilon
  assert 0.1 < report.epsilon / of_known.epsilon < 0.8
  assert "a coin of probability 0.1111" in report.statement
  assert "drawn in secret and hang together" in report.statement
  assert "which fail with a probability of 0.001 delta" in report.statement
