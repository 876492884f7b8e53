"""Tests of Monte-Carlo bounds on what b-min-sep sampling costs."""

import math

import dp_accounting
import numpy as np
import pytest

from tests.accounting import gaussian
from tests.accounting import mixtures
from tff_fedemb.accounting import b_min_sep
from tff_fedemb.accounting import monte_carlo
from tff_fedemb.mechanisms import banded_strategy
from tff_fedemb.participation import b_min_sep as participation_lib
from tff_fedemb.planning import planning

_BANDS = banded_strategy.BandedToeplitzStrategy((1.0, 0.5))


def _event(noise_multiplier, strategy, separation, chance, rounds):
  return b_min_sep.BMinSepDpEvent(
    noise_multiplier, strategy, rounds, separation, chance
  )


@pytest.mark.parametrize(
  ("strategy", "separation", "chance", "rounds"),
  [
    (None, 1, 0.3, 4),
    (None, 3, 1 / 3, 5),
    (_BANDS, 2, 0.4, 5),
    (_BANDS, 3, 0.1, 6),
    (banded_strategy.BandedToeplitzStrategy((1.0, 0.5, 0.25)), 3, 0.3, 2),
  ],
)
def test_likelihood_ratios_by_all_ways(strategy, separation, chance, rounds):
  event = _event(0.8, strategy, separation, chance, rounds)
  probabilities, means = mixtures.ways(event)
  assert probabilities.sum() == pytest.approx(1.0)
  # The same in every round.
  ways = mixtures.ways(_event(1.0, None, separation, chance, rounds))[1]
  np.testing.assert_allclose(probabilities @ ways, chance)
  squares = np.sum(means**2, axis=1)[probabilities > 0]
  assert event.largest_square == pytest.approx(squares.max())
  releases = np.random.default_rng(1).normal(0.5, 2.0, (50, rounds))
  # Each column is the change by a single participation in a round.
  columns = mixtures.change_releases(event, np.eye(rounds)).T
  exponents = releases @ columns - 0.5 * np.sum(columns**2, axis=0)
  np.testing.assert_allclose(
    event.log_ratios(exponents.T),
    mixtures.log_ratios(probabilities, means, releases),
  )


@pytest.mark.parametrize(
  ("event", "usual"),
  [
    (_event(0.7, _BANDS, 2, 0.5, 3), 2.0),
    (_event(1.5, _BANDS, 3, 0.2, 5), 0.3),
  ],
)
def test_samples_weigh_what_they_stand_for(event, usual):
  """Means of weights are probabilities, and no weight is above its bound."""
  probabilities, means = mixtures.ways(event)
  generator = np.random.default_rng(2)
  count = 400_000
  noise = generator.standard_normal((count, event.rounds))
  moved = noise + means[generator.choice(len(means), count, p=probabilities)]
  of_removal = mixtures.log_ratios(probabilities, means, moved)
  of_addition = -mixtures.log_ratios(probabilities, means, noise)
  for samples, losses in (
    (event.sample_removals(usual, 60_000), of_removal),
    (event.sample_additions(usual, 60_000), of_addition),
  ):
    bounds = samples.log_scale - samples.slope * samples.losses
    assert np.all(samples.log_weights <= bounds + 1e-9)
    weights = np.exp(samples.log_weights)
    for loss in (0.25, 0.5, 1.0):
      values = np.where(samples.losses > loss, weights, 0.0)
      found = values.sum() / samples.count
      expected = (losses > loss).mean()
      error = math.sqrt(
        expected / count + np.square(values).sum() / samples.count**2
      )
      assert abs(found - expected) < 5 * error + 1e-5


@pytest.mark.parametrize(
  ("noise_multiplier", "chance", "rounds", "delta"),
  [
    (1.5, 0.1, 12, 1e-6),
    (1.5, 0.2, 9, 1e-2),
    # Where all that is known is an epsilon of 97.
    pytest.param(*(1.0, 0.05, 100, 1e-6), marks=pytest.mark.slow),
  ],
)
def test_without_separation_it_is_poisson_sampling(
  noise_multiplier, chance, rounds, delta
):
  exact = (
    dp_accounting.pld.PLDAccountant(value_discretization_interval=1e-3)
    .compose(
      dp_accounting.PoissonSampledDpEvent(
        chance, dp_accounting.GaussianDpEvent(noise_multiplier)
      ),
      rounds,
    )
    .get_epsilon(delta)
  )
  event = _event(noise_multiplier, None, 1, chance, rounds)
  found = monte_carlo.bound_epsilon(event, delta)
  # PLD is too large by up to a step of its grid in each round.
  assert exact - rounds * 1e-3 < found < 1.02 * exact


def test_without_separation_pld_accounts_for_it():
  claim = participation_lib.BMinSep(1_000, 200)
  plan = planning.create_plan("banded", claim, 9, 1.5, 1e-2, num_bands=1)
  report = planning.create_report(plan)
  assert report.accountant == "pld"
  assert round(report.epsilon, 2) == 0.90


def test_noise_too_small_for_its_arithmetic_is_not_amplified():
  event = _event(0.02, None, 2, 0.2, 9)
  known = gaussian.exact_epsilon([0.02] * 5, 1e-3)
  assert monte_carlo.bound_epsilon(event, 1e-3) == pytest.approx(known)
  # With a little more it is, and nothing has broken down.
  event = _event(0.05, None, 2, 0.2, 9)
  assert 100 < monte_carlo.bound_epsilon(event, 1e-3) < 1_500


def test_all_in_one_round_of_each_pass_are_balls_in_bins():
  # Half of all users in each round: the first one is all that is random. There
  # are two ways of three rounds each.
  event = _event(1.0, None, 2, 0.5, 6)
  known = gaussian.exact_epsilon([1.0] * 3, 1e-5)
  assert 0.8 < monte_carlo.bound_epsilon(event, 1e-5) / known < 1.0
  everybody = _event(2.0, None, 1, 1.0, 8)
  assert monte_carlo.bound_epsilon(everybody, 1e-5) == pytest.approx(
    gaussian.exact_epsilon([2.0] * 8, 1e-5)
  )
