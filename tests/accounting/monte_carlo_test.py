"""Tests of Monte-Carlo bounds, whichever way a user's rounds are drawn."""

import dataclasses
import math

import dp_accounting
import numpy as np
import pytest

from tests.accounting import gaussian
from tests.accounting import mixtures
from tff_fedemb import errors
from tff_fedemb.accounting import balls_in_bins
from tff_fedemb.accounting import composition
from tff_fedemb.accounting import gaussian_accountant
from tff_fedemb.accounting import monte_carlo
from tff_fedemb.mechanisms import banded_strategy
from tff_fedemb.mechanisms import blt_strategy
from tff_fedemb.mechanisms import strategy as strategy_lib
from tff_fedemb.mechanisms import tree_strategy
from tff_fedemb.participation import balls_in_bins as balls_in_bins_lib
from tff_fedemb.participation import cyclic_poisson
from tff_fedemb.planning import planning

_BANDS = banded_strategy.BandedToeplitzStrategy((1.0, 0.5))
_BLT = blt_strategy.BltStrategy(decays=(0.9,), weights=(0.4,))
_bins = balls_in_bins.BallsInBinsDpEvent


def _bin_known(event, delta):
  """Epsilon if everybody knows that a user is in bin 0."""
  (square,) = event.gram(np.array([0])).ravel()
  return gaussian_accountant.epsilon_of(1.0 / math.sqrt(square), delta)


@pytest.mark.parametrize(
  ("event", "delta"),
  [
    (_bins(1.0, None, 2, 2), 1e-3),
    (_bins(0.6, None, 2, 2), 1e-5),
    (_bins(4.0, _BANDS, 2, 2), 1e-7),
  ],
)
def test_two_rounds_by_integration(event, delta):
  found = monte_carlo.bound_epsilon(event, delta)
  exact_delta = mixtures.integrate_two_rounds(*mixtures.ways(event))
  assert exact_delta(found) <= delta
  # It costs little to be sure.
  assert exact_delta(0.96 * found) > delta
  assert found < _bin_known(event, delta)


def test_epsilon_never_falls_as_delta_shrinks():
  event = _bins(1.0, None, 8, 4)
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


_IN_BLOCKS = cyclic_poisson.CyclicPoisson(1_000, 100, period=1)
_IN_BINS = balls_in_bins_lib.BallsInBins(1_000, 100, users_per_client=4)


def test_what_a_run_is_accounted_for():
  noise = composition.Noise(6.0, _BLT)
  assert composition.composed_events(
    [composition.Rounds(count=35, noise=noise)], _IN_BINS
  ) == [(_bins(3.0, _BLT, 35, 10), 1)]
  counts = [
    composition.Rounds(count=4, noise=composition.Noise(z))
    for z in (3.0, 1.0, 2.0)
  ]
  ((found, _),) = composition.composed_events(counts, _IN_BINS)
  # Two bins of two rounds, eight of one.
  assert found.slots == ((0.5 / math.sqrt(2), 2), (0.5, 8))
  assert composition.composed_events([], _IN_BINS) == []
  # Both of a user's rounds, of a draw that anyone may know.
  assert composition.composed_events(
    counts, _IN_BINS.with_known_schedule()
  ) == [(dp_accounting.GaussianDpEvent(0.5), 2)]


@pytest.mark.parametrize(
  ("claim", "strategy", "message"),
  [
    (
      _IN_BINS,
      tree_strategy.TreeStrategy(),
      "be banded, blt or one .* found tree",
    ),
    (_IN_BLOCKS, _BLT, "be banded or .* found blt"),
    (_IN_BLOCKS, _BANDS, "num_bands must be at most 1, .* found 2"),
  ],
)
def test_noise_whose_cost_is_not_known(claim, strategy, message):
  noise = composition.Noise(6.0, strategy)
  with pytest.raises(errors.FieldError, match=message):
    composition.check_noise([composition.Rounds(noise=noise)], claim)


def test_report():
  claim = balls_in_bins_lib.BallsInBins(1_000, 125)
  plan = planning.create_plan("banded", claim, 16, 2.0, 1e-4, num_bands=2)
  report = planning.create_report(plan)
  assert (report.accountant, report.zcdp) == ("monte_carlo", None)
  assert report.max_participations == 2
  known = dataclasses.replace(
    plan, participation=claim.with_known_schedule(), accountants=("gaussian",)
  )
  of_known = planning.create_report(known)
  assert of_known.epsilon_with_secret_sampling == report.epsilon
  assert 0.1 < report.epsilon / of_known.epsilon < 0.8


def test_inner_products_by_hand():
  strategy = banded_strategy.BandedToeplitzStrategy((1.0, 0.5))
  # Bin 0 changes 1, 1/2, 1, 1/2, 1; bin 1 changes 0, 1, 1/2, 1, 1/2.
  found = _bins(2.0, strategy, 5, 2).gram(np.arange(2))
  np.testing.assert_allclose(found * 4, [[3.5, 2.0], [2.0, 2.5]])
  # A bin of rounds that were not.
  found = _bins(1.0, strategy, 3, 9).gram(np.array([1, 8]))
  np.testing.assert_allclose(found, [[1.25, 0.0], [0.0, 0.0]], atol=1e-15)
  # A matrix of whatever signs costs what its absolute values cost.
  signs = banded_strategy.BandedToeplitzStrategy((1.0, -0.5))
  assert (_bins(1.0, signs, 5, 2).gram(np.arange(2)) >= 0).all()
  # Against the dense matrix.
  event = _bins(0.7, _BLT, 40, 7)
  _, means = mixtures.ways(event)
  np.testing.assert_allclose(event.gram(np.arange(7)), means @ means.T)


def test_one_bin_is_a_gaussian_mechanism():
  event = _bins(3.0, _BLT, 6, 1)
  sensitivity = _BLT.sensitivity(strategy_lib.Schedule(6, 1))
  assert monte_carlo.bound_epsilon(event, 1e-7) == pytest.approx(
    gaussian.exact_epsilon([3.0 / sensitivity], 1e-7), rel=1e-9
  )


@pytest.mark.parametrize(
  ("strategy", "num_bins", "rounds"),
  [
    (_BLT, 5, 12),
    pytest.param(_BLT, 50, 60, marks=pytest.mark.slow),
    (None, 3, 2),
  ],
)
def test_delta_by_plain_simulation(strategy, num_bins, rounds):
  """Releases as they are drawn, losses from their densities."""
  event = _bins(1.5, strategy, rounds, num_bins)
  delta = 0.02
  found = monte_carlo.bound_epsilon(event, delta)
  chances, means = mixtures.ways(event)
  generator = np.random.default_rng(1)
  deltas = []
  for with_user in (False, True):
    noise = generator.standard_normal((50_000, rounds))
    if with_user:
      noise += means[generator.integers(num_bins, size=len(noise))]
    loss = mixtures.log_ratios(chances, means, noise)
    loss = loss if with_user else -loss
    deltas.append(np.maximum(-np.expm1(found - loss), 0.0).mean())
  # Five deviations of a mean of 50,000 numbers in [0, 1].
  assert max(deltas) < delta + 5 * math.sqrt(delta / 50_000)
  if num_bins == 5:
    assert max(deltas) > 0.9 * delta


@pytest.mark.slow
def test_what_samples_cannot_support_is_not_claimed():
  """No sample reaches a delta this small; the bound says what is sure."""
  event = _bins(1.0, None, 8, 8)
  shares = [
    monte_carlo.bound_epsilon(event, delta) / _bin_known(event, delta)
    for delta in (1e-2, 1e-7, 1e-30)
  ]
  # Always amplified, ever less.
  assert 0.02 < shares[0] < shares[1] < shares[2] < 1
  # Also where nobody is protected, four bins have something to hide.
  event = _bins(0.05, _BLT, 15, 4)
  known = _bin_known(event, 1e-6)
  assert 0.9 * known < monte_carlo.bound_epsilon(event, 1e-6) < known
