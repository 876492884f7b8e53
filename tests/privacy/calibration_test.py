"""Tests of calibration: the target holds, and nothing less would do."""

import dataclasses
import json

import dp_accounting
import pytest

from tff_fedemb.data.participation import registry as participations
from tff_fedemb.privacy import calibration
from tff_fedemb.privacy import epsilon as epsilon_lib
from tff_fedemb.privacy import planning


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
  return planning.Plan(
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


def _epsilon(plan, sensitivity=None):
  (epsilon,) = epsilon_lib.epsilon_by_accountant(
    [(plan.event, plan.rounds)],
    plan.participation,
    plan.delta,
    accountants=plan.accountants,
    sensitivity_in_clip_norms=sensitivity,
  ).values()
  return epsilon


def _check(found, target):
  """The target holds in both readings, and so does what is said of it."""
  for solution in (found.user_level, found.authors):
    assert solution.epsilon <= target
    assert solution.epsilon == _epsilon(
      solution.plan, solution.sensitivity_in_clip_norms
    )
  assert found.report.epsilon == found.user_level.epsilon
  assert found.authors.value <= found.user_level.value


@pytest.mark.parametrize(
  ("kind", "target"),
  [
    ("poisson", 0.1),
    ("poisson", 1.0),
    ("poisson", 8.0),
    # What `dp_accounting` searches with takes a second each time.
    pytest.param("fixed_size", 1.0, marks=pytest.mark.slow),
    ("min_separation", 0.1),
    ("min_separation", 8.0),
  ],
)
def test_noise_multiplier_is_that_of_dp_accounting(kind, target):
  plan = _plan(kind=kind)
  found = calibration.calibrate(
    plan, target_epsilon=target, solve_for="noise_multiplier"
  )
  _check(found, target)
  claim = plan.participation

  def make_event(noise_multiplier):
    event = dp_accounting.GaussianDpEvent(
      noise_multiplier / claim.sensitivity_in_clip_norms
    )
    if claim.is_sampled:
      return dp_accounting.SelfComposedDpEvent(claim.sampled_event(event), 200)
    # A pass has 100 rounds.
    return dp_accounting.SelfComposedDpEvent(event, 2)

  expected = dp_accounting.calibrate_dp_mechanism(
    lambda: dp_accounting.rdp.RdpAccountant(
      neighboring_relation=claim.neighboring_relation
    ),
    make_event,
    target,
    1e-6,
    dp_accounting.LowerEndpointAndGuess(0.1, 10.0),
  )
  # Rounded up at the fifth digit.
  assert 0 <= found.user_level.value / expected - 1 + 1e-6 < 1.1e-4


def test_the_readings_of_noise_differ_by_the_sensitivity():
  found = calibration.calibrate(
    _plan(kind="poisson"), target_epsilon=2.0, solve_for="noise_multiplier"
  )
  assert found.user_level.value == pytest.approx(
    2 * found.authors.value, rel=2e-4
  )
  values = found.to_json()
  assert json.loads(json.dumps(values, allow_nan=False)) == values
  assert values["user_level"]["plan"]["noise_multiplier"] == (
    found.user_level.value
  )
  assert values["authors"]["protects"] == epsilon_lib.VIRTUAL_CLIENT_UNIT
  assert values["report"]["statement"]
  single = calibration.calibrate(
    _plan(kind="poisson", users_per_client=1),
    target_epsilon=2.0,
    solve_for="noise_multiplier",
  )
  assert single.authors == dataclasses.replace(
    single.user_level, name="authors"
  )


@pytest.mark.parametrize(
  ("mechanism", "kind", "accountant", "noise", "target", "solve_for"),
  [
    ("tree", "min_separation", "rdp", 4.0, 2.0, "noise_multiplier"),
    ("blt", "min_separation", "rdp", 4.0, 2.0, "noise_multiplier"),
    ("banded", "min_separation", "rdp", 4.0, 2.0, "noise_multiplier"),
    ("tree", "min_separation", "gaussian", 4.0, 2.0, "noise_multiplier"),
    ("blt", "min_separation", "gaussian", 4.0, 2.0, "noise_multiplier"),
    ("banded", "min_separation", "gaussian", 4.0, 2.0, "noise_multiplier"),
    ("gaussian", "poisson", "rdp", 4.0, 0.3, "num_users"),
    ("gaussian", "poisson", "rdp", 4.0, 4.0, "num_users"),
    pytest.param(
      *("gaussian", "fixed_size", "rdp", 4.0, 1.0, "num_users"),
      marks=pytest.mark.slow,
    ),
    ("gaussian", "min_separation", "rdp", 12.0, 3.0, "num_users"),
    ("tree", "min_separation", "rdp", 12.0, 3.0, "num_users"),
    ("blt", "min_separation", "rdp", 12.0, 3.0, "num_users"),
    ("banded", "min_separation", "rdp", 12.0, 3.0, "num_users"),
    ("gaussian", "poisson", "rdp", 1.0, 3.0, "users_per_round"),
    ("gaussian", "fixed_size", "rdp", 1.0, 3.0, "users_per_round"),
  ],
)
def test_nothing_less_would_do(
  mechanism, kind, accountant, noise, target, solve_for
):
  plan = _plan(mechanism, kind, accountant=accountant, noise_multiplier=noise)
  found = calibration.calibrate(
    plan, target_epsilon=target, solve_for=solve_for
  )
  _check(found, target)
  value, solved = found.user_level.value, found.user_level.plan
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
  worse = calibration.with_value(plan, solve_for, less)
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
    users: _epsilon(calibration.with_value(plan, "users_per_round", users))
    for users in range(5, 301, 5)
  }
  # More users cost more where they make room for one more participation.
  assert any(costs[users + 5] > costs[users] for users in range(5, 300, 5))
  for target in (2.0, 3.0, 5.0, 8.0):
    found = calibration.calibrate(
      plan, target_epsilon=target, solve_for="users_per_round"
    )
    assert found.user_level.value == min(
      users for users, cost in costs.items() if cost <= target
    )


@pytest.mark.parametrize(
  "solve_for",
  [
    "noise_multiplier",
    pytest.param("num_users", marks=pytest.mark.slow),
    pytest.param("users_per_round", marks=pytest.mark.slow),
  ],
)
def test_pld_needs_less(solve_for):
  plan = _plan(kind="poisson", noise_multiplier=2.0, users_per_client=1)
  found = {
    accountant: calibration.calibrate(
      dataclasses.replace(plan, accountants=(accountant,)),
      target_epsilon=1.0,
      solve_for=solve_for,
    )
    for accountant in ("rdp", "pld")
  }
  _check(found["pld"], 1.0)
  assert found["pld"].user_level.value < found["rdp"].user_level.value
  # Close to the smallest.
  assert found["pld"].user_level.epsilon > 0.98


@pytest.mark.parametrize(
  ("options", "target", "solve_for", "message"),
  [
    ({}, 0.0, "num_users", "target_epsilon must be in"),
    (
      {"kind": "poisson", "accountant": "pld"},
      99.0,
      "noise_multiplier",
      "target_epsilon must be in .*50., found 99",
    ),
    (
      {"kind": "poisson"},
      1e-9,
      "noise_multiplier",
      "target_epsilon must be",
    ),
    (
      # All users have 2e-4; a single client would have 1e-8.
      {"kind": "poisson", "noise_multiplier": 2e-6},
      1.0,
      "users_per_round",
      "target_epsilon must be at least",
    ),
    (
      {"kind": "poisson", "accountant": None},
      1.0,
      "noise_multiplier",
      "accountants must be one",
    ),
    ({}, 1.0, "delta", "solve_for must be one of .* found 'delta'"),
    (
      {"noise_multiplier": 0.0},
      1.0,
      "num_users",
      "noise_multiplier must be positive to solve for num_users",
    ),
    (
      {"kind": "min_separation"},
      0.001,
      "noise_multiplier",
      "target_epsilon must be at least .* what rdp gives at "
      "noise_multiplier = 1e[+]06",
    ),
    (
      {"noise_multiplier": 0.01},
      1.0,
      "users_per_round",
      "target_epsilon must be at least .* what rdp gives at "
      "users_per_round = 100,000, the largest that is tried, found 1",
    ),
    (
      {"kind": "min_separation", "noise_multiplier": 1.0},
      1.0,
      "num_users",
      "target_epsilon must be at least .* num_users = 199,001",
    ),
    (
      {"kind": "min_separation", "noise_multiplier": 0.01},
      1.0,
      "users_per_round",
      "target_epsilon must be at least .* users_per_round = 100,000",
    ),
  ],
)
def test_what_cannot_be_solved(options, target, solve_for, message):
  with pytest.raises(ValueError, match=message):
    calibration.calibrate(
      _plan(**options), target_epsilon=target, solve_for=solve_for
    )


def test_the_whole_population_as_the_smallest_cohort_is_remarked():
  # All users at z = 2 x 4: epsilon 1.9; drawing 99 of 100 costs more.
  plan = _plan(num_users=100, users_per_round=100, users_per_client=1, rounds=1)
  found = calibration.calibrate(
    plan, target_epsilon=_epsilon(plan), solve_for="users_per_round"
  )
  assert found.user_level.value == 100
  assert any("All users are in every round" in a for a in found.assumptions)


def test_cohorts_stay_where_their_noise_can_be_accounted_for():
  # A single client of 5 users has 5e5 / 200; all users would have 5e7.
  found = calibration.calibrate(
    _plan(kind="poisson", noise_multiplier=5e5),
    target_epsilon=1.0,
    solve_for="users_per_round",
  )
  assert found.user_level.value == 5
