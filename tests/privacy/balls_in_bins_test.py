"""Tests of Monte-Carlo bounds on what balls in bins cost."""

import math

import dp_accounting
import numpy as np
import pytest
from scipy import special

from tests.privacy import mixtures
from tff_fedemb import errors
from tff_fedemb.participation import balls_in_bins as participation_lib
from tff_fedemb.privacy import balls_in_bins
from tff_fedemb.privacy import composition
from tff_fedemb.privacy import gaussian_accountant
from tff_fedemb.privacy import monte_carlo
from tff_fedemb.privacy import planning
from tff_fedemb.strategies import banded
from tff_fedemb.strategies import blt
from tff_fedemb.strategies import strategy as strategy_lib
from tff_fedemb.strategies import tree

_BLT = blt.BltStrategy(decays=(0.9,), weights=(0.4,))


def _event(noise_multiplier, strategy, num_bins, rounds):
  return balls_in_bins.BallsInBinsDpEvent(
    noise_multiplier, strategy, num_bins, rounds
  )


def _bin_known(event):
  """The exact accountant, if everybody knows that a user is in bin 0."""
  (square,) = event.gram(np.array([0])).ravel()
  accountant = gaussian_accountant.GaussianAccountant()
  return accountant.compose(
    dp_accounting.GaussianDpEvent(1.0 / math.sqrt(square))
  )


def _means(event):
  """What a user of each bin changes."""
  rounds = np.arange(event.rounds)
  takes_part = rounds % event.num_bins == np.arange(event.num_bins)[:, None]
  return mixtures.change_releases(event, takes_part)


def test_inner_products_by_hand():
  strategy = banded.BandedToeplitzStrategy((1.0, 0.5))
  # Bin 0 changes 1, 1/2, 1, 1/2, 1; bin 1 changes 0, 1, 1/2, 1, 1/2.
  found = _event(2.0, strategy, 2, 5).gram(np.arange(2))
  np.testing.assert_allclose(found * 4, [[3.5, 2.0], [2.0, 2.5]])
  # A bin of rounds that were not.
  found = _event(1.0, strategy, 9, 3).gram(np.array([1, 8]))
  np.testing.assert_allclose(found, [[1.25, 0.0], [0.0, 0.0]], atol=1e-15)
  # A matrix of whatever signs costs what its absolute values cost.
  signs = banded.BandedToeplitzStrategy((1.0, -0.5))
  assert (_event(1.0, signs, 2, 5).gram(np.arange(2)) >= 0).all()
  # Against the dense matrix.
  event = _event(0.7, _BLT, 7, 40)
  means = _means(event)
  np.testing.assert_allclose(event.gram(np.arange(7)), means @ means.T)


@pytest.mark.parametrize("strategy", [None, _BLT])
def test_one_bin_is_a_gaussian_mechanism(strategy):
  event = _event(3.0, strategy, 1, 6)
  sensitivity = math.sqrt(6.0)
  if strategy is not None:
    sensitivity = strategy.sensitivity(strategy_lib.Schedule(6, 1))
  accountant = gaussian_accountant.GaussianAccountant()
  accountant.compose(dp_accounting.GaussianDpEvent(3.0 / sensitivity))
  assert monte_carlo.bound_epsilon(event, 1e-7) == pytest.approx(
    accountant.get_epsilon(1e-7), rel=1e-9
  )


@pytest.mark.parametrize(
  ("strategy", "noise_multiplier", "delta"),
  [
    (None, 1.0, 1e-3),
    (None, 1.0, 1e-6),
    (None, 0.6, 1e-5),
    (banded.BandedToeplitzStrategy((1.0, 0.5)), 1.0, 1e-6),
    (banded.BandedToeplitzStrategy((1.0, 0.5)), 4.0, 1e-7),
  ],
)
def test_two_rounds_by_integration(strategy, noise_multiplier, delta):
  event = _event(noise_multiplier, strategy, 2, 2)
  found = monte_carlo.bound_epsilon(event, delta)
  exact_delta = mixtures.integrate_two_rounds((0.5, 0.5), _means(event))
  assert exact_delta(found) <= delta
  # It costs little to be sure: here less than 4% of epsilon.
  assert exact_delta(0.96 * found) > delta
  assert found < _bin_known(event).get_epsilon(delta)


@pytest.mark.parametrize(
  ("strategy", "num_bins", "rounds"),
  [(None, 5, 12), (_BLT, 5, 12), (_BLT, 50, 60), (None, 3, 2)],
)
def test_delta_by_plain_simulation(strategy, num_bins, rounds):
  """Releases as they are drawn, losses from their densities."""
  event = _event(1.5, strategy, num_bins, rounds)
  delta = 0.02
  found = monte_carlo.bound_epsilon(event, delta)
  means = _means(event)
  generator = np.random.default_rng(1)
  deltas = []
  for with_user in (False, True):
    noise = generator.standard_normal((50_000, rounds))
    if with_user:
      noise += means[generator.integers(num_bins, size=len(noise))]
    exponents = noise @ means.T - 0.5 * np.sum(means**2, axis=1)
    loss = special.logsumexp(exponents, axis=1) - math.log(num_bins)
    loss = loss if with_user else -loss
    deltas.append(np.maximum(-np.expm1(found - loss), 0.0).mean())
  # Five deviations of a mean of 50,000 numbers in [0, 1].
  assert max(deltas) < delta + 5 * math.sqrt(delta / 50_000)
  if num_bins == 5:
    assert max(deltas) > 0.9 * delta


def test_bins_of_fresh_noise_are_nearly_poisson_sampling():
  # One pass of 12 rounds, which nobody can be in more than once.
  accountant = dp_accounting.pld.PLDAccountant(
    value_discretization_interval=1e-3
  ).compose(
    dp_accounting.PoissonSampledDpEvent(
      1 / 12, dp_accounting.GaussianDpEvent(1.0)
    ),
    12,
  )
  for delta in (1e-2, 1e-4):
    found = monte_carlo.bound_epsilon(_event(1.0, None, 12, 12), delta)
    assert 0.75 < found / accountant.get_epsilon(delta) < 1.0


def test_what_samples_cannot_support_is_not_claimed():
  """Of a delta this small there is no sample; the bound says what is sure."""
  event = _event(1.0, None, 8, 8)
  shares = [
    monte_carlo.bound_epsilon(event, delta)
    / _bin_known(event).get_epsilon(delta)
    for delta in (1e-2, 1e-7, 1e-30)
  ]
  # Always amplified, ever less.
  assert 0.02 < shares[0] < shares[1] < shares[2] < 1


def test_the_same_again_and_less_with_more_noise():
  epsilons = [
    monte_carlo.bound_epsilon(_event(z, _BLT, 4, 15), 1e-6)
    for z in (3.0, 3.0, 3.1, 1e3)
  ]
  assert epsilons[0] == epsilons[1] > epsilons[2] > epsilons[3]
  # Also where nobody is protected, four bins have something to hide.
  event = _event(0.05, _BLT, 4, 15)
  known = _bin_known(event).get_epsilon(1e-6)
  assert 0.9 * known < monte_carlo.bound_epsilon(event, 1e-6) < known


def test_accountant():
  accountant = monte_carlo.MonteCarloAccountant()
  assert accountant.get_epsilon(0.1) == 0.0
  event = _event(4.0, None, 2, 2)
  assert not accountant.supports(dp_accounting.GaussianDpEvent(1.0))
  assert accountant.supports(event)
  accountant.compose(event)
  assert accountant.get_epsilon(0.01) == monte_carlo.bound_epsilon(event, 0.01)
  # The rounds of a run are one event: two would be two runs.
  assert not accountant.supports(event)
  accountant = monte_carlo.MonteCarloAccountant()
  accountant.compose(dp_accounting.NonPrivateDpEvent())
  assert accountant.get_epsilon(0.1) == math.inf


def test_what_a_run_is_accounted_for():
  claim = participation_lib.BallsInBins(1_000, 100, users_per_client=4)
  event = strategy_lib.CorrelatedGaussianDpEvent(6.0, _BLT)
  assert composition.composed_events([(event, 35)], claim) == [
    (_event(3.0, _BLT, 10, 35), 1)
  ]
  counts = [(dp_accounting.GaussianDpEvent(z), 4) for z in (3.0, 1.0, 2.0)]
  assert composition.composed_events(counts, claim) == [
    (_event(0.5, None, 10, 12), 1)
  ]
  assert composition.composed_events([], claim) == []
  with pytest.raises(errors.FieldError, match=r"be banded, blt or one.*tree"):
    composition.check_noise(
      [(strategy_lib.CorrelatedGaussianDpEvent(6.0, tree.TreeStrategy()), 1)],
      claim,
    )


def test_report():
  claim = participation_lib.BallsInBins(1_000, 100)
  plan = planning.create_plan("blt", claim, 35, 4.0, 1e-4, num_buffers=1)
  report = planning.create_report(plan)
  assert report.accountant == "monte_carlo"
  assert report.zcdp is None
  assert report.max_participations == 4
  known = planning.create_plan(
    "blt", claim.with_known_schedule(), 35, 4.0, 1e-4, num_buffers=1
  )
  of_known = planning.create_report(known)
  assert of_known.strategy_sensitivity == report.strategy_sensitivity
  assert of_known.epsilon_with_secret_sampling == report.epsilon
  assert 0.5 * of_known.epsilon < report.epsilon < 0.95 * of_known.epsilon
  assert "which fail with a probability of 0.001 delta" in report.statement
  assert "which were drawn in secret and hang together" in report.statement
