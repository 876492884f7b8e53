"""Tests of the bracket of what random allocation costs."""

import math

import dp_accounting
import pytest

from tests.accounting import gaussian
from tests.accounting import mixtures
from tff_fedemb.accounting import balls_in_bins
from tff_fedemb.accounting import monte_carlo
from tff_fedemb.accounting import random_allocation
from tff_fedemb.participation import random_allocation as participation_lib
from tff_fedemb.planning import mechanism_choice
from tff_fedemb.planning import planning

_event = participation_lib.RandomAllocationDpEvent


def _bracket(events, delta):
  return tuple(
    random_allocation.bound_epsilon(tuple(events), delta, is_upper=is_upper)
    for is_upper in (False, True)
  )


@pytest.mark.parametrize(
  ("slots", "delta"),
  [
    (((0.6, 2),), 1e-3),
    (((4.0, 1), (2.0, 1)), 1e-6),
    (((1.0, 1), (math.inf, 1)), 1e-5),
  ],
)
def test_two_rounds_by_integration(slots, delta):
  noises = [noise for noise, count in slots for _ in range(count)]
  means = [(1 / noises[0], 0), (0, 1 / noises[1])]
  exact_delta = mixtures.integrate_two_rounds([0.5, 0.5], means)
  low, high = _bracket([(_event(slots), 1)], delta)
  assert exact_delta(low) > 0.99 * delta
  assert exact_delta(high) <= 1.0 * delta
  assert low < high < 1.01 * low


@pytest.mark.parametrize(
  ("noise", "passes", "delta"),
  [(1.0, 1, 1e-5), (0.2, 3, 1e-8), (9.0, 40, 1e-3)],
)
def test_one_round_a_pass_is_a_gaussian_mechanism(noise, passes, delta):
  low, high = _bracket([(_event(((noise, 1),)), passes)], delta)
  assert (
    low < gaussian.exact_epsilon([noise] * passes, delta) < high < 1.01 * low
  )


@pytest.mark.parametrize(
  ("noise", "slots", "passes", "delta", "low", "high"),
  [
    # By `PLD_accounting` 2.0, and of 20 times as many cells.
    (1.0, 30, 1, 1e-5, 1.303, 1.306),
    (0.8, 39, 1, 2e-5, 1.9646, 1.9651),
    (4.0, 76, 10, 5e-8, 0.4231, 0.4232),
  ],
)
def test_known_brackets(noise, slots, passes, delta, low, high):
  found = _bracket([(_event(((noise, slots),)), passes)], delta)
  assert 0.997 * low < found[0] < high
  assert low < found[1] < 1.002 * high


def test_composition_and_what_has_no_bracket():
  event = _event(((2.0, 5),))
  accountant = random_allocation.RandomAllocationAccountant()
  assert accountant.get_epsilon(0.1) == 0.0
  assert not accountant.supports(dp_accounting.GaussianDpEvent(1.0))
  part = _event(((2.0, 2), (math.inf, 3)))
  whole = _bracket([(event, 3)], 1e-6)[1]
  both = _bracket([(event, 2), (part, 1)], 1e-6)[1]
  assert _bracket([(event, 2)], 1e-6)[1] < both < whole
  # Hardly any noise: as if all knew the round.
  loud = _event(((0.01, 5),))
  known = pytest.approx(gaussian.exact_epsilon([0.01] * 2, 1e-6))
  assert _bracket([(loud, 2)], 1e-6) == (0.0, known)
  accountant.compose(dp_accounting.NonPrivateDpEvent())
  assert accountant.get_epsilon(0.1) == math.inf


@pytest.mark.parametrize("rounds", [3, 12])
def test_independent_noise_in_bins(rounds):
  bins = balls_in_bins.create_event(1.5, None, 5, rounds)
  low, high = _bracket([(bins, 1)], 1e-5)
  bound = monte_carlo.bound_epsilon(
    balls_in_bins.BallsInBinsDpEvent(1.5, None, rounds, 5), 1e-5
  )
  assert low < high < bound < 1.05 * low


def test_noise_is_that_of_the_target_and_less_than_of_poisson_sampling():
  claim = participation_lib.RandomAllocation(390, 10, users_per_client=2)
  plan, *banded = mechanism_choice.list_plans(
    [claim], rounds=39, delta=2e-5, mechanisms=("gaussian", "banded")
  )
  assert [plan.size for plan in banded[:2]] == [2, 3]
  found = mechanism_choice.for_epsilon(plan, 2.28)
  # Poisson sampling needs twice 0.800, for users who cost 2 C.
  assert found.noise_multiplier == pytest.approx(2 * 0.7585, rel=2e-3)
  report = planning.create_report(found)
  assert 0.997 * 2.28 < report.epsilon <= 2.28
  assert "1 x RandomAllocationDpEvent(slots=((0.75" in report.statement
  assert "No epsilon below 2.2" in report.statement


def test_banded_noise_is_amplified():
  claim = participation_lib.RandomAllocation(240, 10, period=2)
  plan = planning.create_plan("banded", claim, 30, 4.0, 1e-5, num_bands=2)
  norm = math.hypot(*plan.strategy.first_column(30)[:2])
  events = plan.account.composed_events()
  # A whole pass of 24 rounds, and 3 of the 12 that a block has in another.
  assert [(event.slots, count) for event, count in events] == [
    (((pytest.approx(4 / norm), 12),), 1),
    (((pytest.approx(4 / norm), 3), (math.inf, 9)), 1),
  ]
