"""Tests of calibration: the target holds, and nothing less would do."""

import dataclasses
import math

import pytest

from tff_fedemb import errors
from tff_fedemb.accounting import balls_in_bins
from tff_fedemb.accounting import epsilon as epsilon_lib
from tff_fedemb.participation import registry as participations
from tff_fedemb.planning import calibration
from tff_fedemb.planning import planning


def _plan(
  mechanism="gaussian",
  kind="fixed_size",
  *,
  accountant="rdp",
  num_users=100_000,
  users_per_round=1_000,
  users_per_client=5,
  rounds=200,
  noise_multiplier=4.0,
  **options,
):
  return planning.create_plan(
    mechanism,
    participations.create_participation(
      kind,
      num_users=num_users,
      users_per_round=users_per_round,
      users_per_client=users_per_client,
    ),
    rounds=rounds,
    noise_multiplier=noise_multiplier,
    delta=1e-6,
    accountants=accountant and (accountant,),
    **options,
  )


def _epsilon(plan):
  (epsilon,) = epsilon_lib.epsilon_by_accountant(plan.account).values()
  return epsilon


def _calibrate(plan, target, solve_for):
  """The value that was found, and the plan with it; the target holds."""
  value = calibration.calibrate(plan, solve_for, target)
  solved = plan.with_value(solve_for, value)
  assert _epsilon(solved) <= target
  return value, solved


@pytest.mark.parametrize(
  ("mechanism", "kind", "accountant", "noise", "target", "solve_for"),
  [
    ("tree", "min_separation", "gaussian", 4.0, 2.0, "noise_multiplier"),
    ("blt", "min_separation", "rdp", 4.0, 2.0, "noise_multiplier"),
    ("banded", "min_separation", "rdp", 12.0, 3.0, "num_users"),
    ("gaussian", "min_separation", "rdp", 12.0, 3.0, "num_users"),
    ("gaussian", "poisson", "rdp", 4.0, 8.0, "noise_multiplier"),
    ("banded", "cyclic_poisson", "rdp", 4.0, 1.0, "noise_multiplier"),
    ("banded", "cyclic_poisson", "rdp", 4.0, 1.0, "num_users"),
    ("gaussian", "poisson", "rdp", 4.0, 0.3, "num_users"),
    pytest.param(
      *("gaussian", "fixed_size", "rdp", 4.0, 1.0, "num_users"),
      marks=pytest.mark.slow,
    ),
    ("gaussian", "poisson", "rdp", 1.0, 3.0, "users_per_round"),
  ],
)
def test_nothing_less_would_do(
  mechanism, kind, accountant, noise, target, solve_for
):
  plan = _plan(mechanism, kind, accountant=accountant, noise_multiplier=noise)
  value, solved = _calibrate(plan, target, solve_for)
  if solve_for == "noise_multiplier":
    less = value * 0.9998
  else:
    assert isinstance(value, int)
    less = value - 1
  if solve_for == "users_per_round":
    # Whole virtual clients, and the noise on the mean of the plan.
    assert value % 5 == 0
    assert solved.noise_multiplier / value == pytest.approx(1.0 / 1_000)
    less = value - 5
  worse = plan.with_value(solve_for, less)
  assert _epsilon(worse) > target
  if solve_for == "num_users" and not plan.participation.is_sampled:
    # One user fewer makes a pass one round shorter.
    separation = solved.participation.min_separation
    assert separation == -(-value // 1_000)
    assert worse.participation.min_separation == separation - 1


def test_smallest_cohort_in_passes_is_found_among_all():
  plan = _plan(
    kind="min_separation",
    num_users=300,
    users_per_round=10,
    rounds=30,
    noise_multiplier=4.0,
  )
  costs = {
    users: _epsilon(plan.with_value("users_per_round", users))
    for users in range(5, 301, 5)
  }
  # More users cost more where they make room for one more participation.
  assert any(costs[users + 5] > costs[users] for users in range(5, 300, 5))
  for target in (2.0, 3.0, 5.0, 8.0):
    found, _ = _calibrate(plan, target, "users_per_round")
    assert found == min(
      users for users, cost in costs.items() if cost <= target
    )


def test_random_allocation_finds_passes_that_are_just_long_enough():
  plan = _plan(
    kind="random_allocation",
    accountant="allocation",
    num_users=1_000,
    users_per_round=100,
    users_per_client=1,
    rounds=12,
    noise_multiplier=2.0,
  )
  value, found = _calibrate(plan, 0.5, "num_users")
  rounds = found.participation.rounds_of_pass
  # To a thousandth, as it takes long.
  assert 100 * (rounds - 1) < value <= 100.1 * (rounds - 1) + 2
  assert _epsilon(plan.with_value("num_users", 100 * (rounds - 1))) > 0.5


@pytest.mark.parametrize(
  ("solve_for", "factor", "expected"),
  [
    # 250 users of a block, of 63 a round: four rounds of 62.5; of 62: five.
    ("users_per_round", 0.9, 63),
    # Four blocks of 50 at least.
    ("num_users", 9.0, 200),
  ],
)
def test_every_block_has_the_users_of_a_round(solve_for, factor, expected):
  claim = participations.create_participation(
    "random_allocation", num_users=1_000, users_per_round=50, period=4
  )
  plan = planning.create_plan(
    "banded",
    # Who is in which block is the largest question where nothing is secret.
    claim.with_known_schedule(2),
    *(12, 2.0, 1e-3),
    accountants=("rdp",),
    num_bands=4,
  )
  value, _ = _calibrate(plan, factor * _epsilon(plan), solve_for)
  assert value == expected


@pytest.mark.slow
def test_cohorts_may_leave_fewer_bins_than_there_are():
  claim = participations.create_participation(
    "balls_in_bins", num_users=10_000, users_per_round=300
  )
  plan = planning.create_plan("gaussian", claim, 100, 1.0, 1e-5)
  # With the 33 bins of now there are at most 303 users a round.
  value, found = _calibrate(plan, 3.0, "users_per_round")
  # 576 cost 3.0016; from 589 on, a user is in one more round.
  assert value == 577
  assert found.noise_multiplier == pytest.approx(value / 300)


@pytest.mark.parametrize("solve_for", ["num_users", "users_per_round"])
def test_passes_of_fewer_rounds_than_bands_are_not_tried(solve_for):
  claim = participations.create_participation(
    "min_separation", num_users=1_000, users_per_round=100
  )
  plan = planning.create_plan(
    "banded", claim, 20, 20.0, 1e-5, num_bands=8, accountants=("gaussian",)
  )
  value, found = _calibrate(plan, 8.0, solve_for)
  assert value in ({701} if solve_for == "num_users" else range(1, 143))
  assert found.participation.min_separation >= 8


def test_passes_are_longer_where_they_must_not_be_more():
  """A bound that the passes of fewer users would not keep is not believed."""
  claim = participations.create_participation(
    "min_separation", num_users=1_000, users_per_round=10
  )
  plan = planning.create_plan(
    "gaussian", claim.for_rounds(100), 100, 1.0, 1e-5, accountants=("gaussian",)
  )
  value, _ = _calibrate(plan, 6.0, "num_users")
  assert value == 991


@pytest.mark.slow
def test_a_choice_by_simulation_is_accounted_for(monkeypatch):
  """The estimates of all that may be found hold together: Bonferroni."""
  claim = participations.create_participation(
    "balls_in_bins", num_users=100, users_per_round=10
  )
  plan = planning.create_plan("banded", claim, 6, 1.0, 1e-3, num_bands=2)
  bound_delta = balls_in_bins.Samples.bound_delta
  epsilons, failures = set(), set()

  def record(self, epsilon, log_failure, **options):
    epsilons.add(epsilon)
    failures.add(log_failure)
    return bound_delta(self, epsilon, log_failure, **options)

  monkeypatch.setattr(balls_in_bins.Samples, "bound_delta", record)
  _, found = _calibrate(plan, 1.0, "noise_multiplier")
  assert 0.98 < _epsilon(found) <= 1.0
  # Noise multipliers of five digits from 1e-3 to 1e6, in two readings; of each
  # of them two directions and all epsilons that are looked at.
  tried = 9 * 90_000 * 2 * 2 * len(epsilons)
  assert math.exp(max(failures)) * tried < 1e-3 * 1e-3
  assumed = calibration.assumptions(found, "noise_multiplier")
  assert any("hold for all noise" in text for text in assumed)


_POISSON = {"kind": "poisson"}
_PASSES = {"kind": "min_separation"}


@pytest.mark.parametrize(
  ("options", "noise_multiplier", "target", "solve_for", "message"),
  [
    ({}, 0.0, 1.0, "num_users", "noise_multiplier must be positive to solve"),
    (
      {"kind": "poisson", "accountant": "pld"},
      *(4.0, 99.0, "noise_multiplier", "must be in .*50., found 99"),
    ),
    (
      {"kind": "poisson", "accountant": None},
      *(4.0, 1.0, "noise_multiplier", "accountants must be one"),
    ),
    # All users have 2e-4; a single client would have 1e-8.
    (_POISSON, 2e-6, 1.0, "users_per_round", "target_epsilon must be at least"),
    (
      *(_PASSES, 4.0, 0.001, "noise_multiplier"),
      "at least .* what rdp gives at noise_multiplier = 1e[+]06",
    ),
    (_PASSES, 1.0, 1.0, "num_users", "at least .* num_users = 199,001"),
    (
      {"mechanism": "blt", "kind": "balls_in_bins", "accountant": None},
      *(4.0, 1.0, "num_users", "solve_for must be noise_multiplier"),
    ),
  ],
)
def test_what_cannot_be_solved(
  options, noise_multiplier, target, solve_for, message
):
  plan = _plan(noise_multiplier=noise_multiplier, **options)
  with pytest.raises(errors.FieldError, match=message):
    _calibrate(plan, target, solve_for)


@pytest.mark.slow
def test_a_target_holds_with_what_arithmetic_leaves():
  exact = _plan(users_per_client=1, accountant=None)
  exact = calibration.by_tightest(exact, 1.0)
  assert exact.accountants == ("pld",)
  large = dataclasses.replace(exact, num_parameters=25_000_000)
  noise, more = (
    calibration.calibrate(plan, "noise_multiplier", 1.0)
    for plan in (exact, large)
  )
  assert noise < more < 1.1 * noise
  solved = large.with_value("noise_multiplier", more)
  assert 0.99 < solved.account.tightest_epsilon() <= 1.0
  solved = large.with_value("noise_multiplier", noise)
  assert solved.account.tightest_epsilon() > 1.0
