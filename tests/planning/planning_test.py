"""Tests of the cost of plans, and of extrapolations."""

import json
import math
import subprocess
import sys

import pytest

from tff_fedemb import errors
from tff_fedemb.accounting import composition
from tff_fedemb.accounting import epsilon as epsilon_lib
from tff_fedemb.accounting import ledger as ledger_lib
from tff_fedemb.mechanisms import gaussian
from tff_fedemb.participation import fixed_size
from tff_fedemb.participation import poisson
from tff_fedemb.participation import random_allocation
from tff_fedemb.participation import registry as participations
from tff_fedemb.planning import extrapolation
from tff_fedemb.planning import planning

_AUTHORS = {
  "num_users": 10_000_000,
  "users_per_round": 131_072,
  "users_per_client": 32,
}


def _plan(mechanism="gaussian", kind="fixed_size", **options):
  return planning.create_plan(
    mechanism,
    participations.create_participation(kind, **_AUTHORS),
    **{
      "rounds": 800,
      "noise_multiplier": 1.28,
      "delta": 1e-7,
      "accountants": ("rdp",),
      **options,
    },
  )


# The authors' table: a user who moves a sum by one clip norm, or by two.
@pytest.mark.parametrize(
  ("mechanism", "kind", "noise_multiplier", "strict", "authors", "zcdp"),
  [
    ("gaussian", "fixed_size", 0.96, 35.55, 5.62, None),
    ("gaussian", "poisson", 0.96, 25.03, None, None),
    ("gaussian", "fixed_size", 1.28, 14.50, 3.90, None),
    ("gaussian", "poisson", 1.28, 10.59, None, None),
    ("tree", "min_separation", 16.64, 9.67, None, 1.28),
  ],
)
def test_published_figures(
  mechanism, kind, noise_multiplier, strict, authors, zcdp
):
  plan = _plan(mechanism, kind, noise_multiplier=noise_multiplier)
  report = planning.create_report(plan)
  assert round(report.epsilon, 2) == strict
  assert report.sensitivity_in_clip_norms == 2
  if authors is not None:
    assert round(report.unit_is_virtual_client_epsilon, 2) == authors
    assert report.neighboring_relation == "replace one user"
  assert (report.zcdp and round(report.zcdp, 2)) == zcdp


@pytest.mark.parametrize(
  ("num_users", "delta"),
  [(1, 0.5), (200, 0.003), (10_000_000, 2e-8)],
)
def test_default_delta_is_below_one_over_the_number_of_users(num_users, delta):
  found = planning.default_delta(num_users)
  assert found == delta
  assert found < 1.0 / num_users


def test_a_plan_of_a_model_costs_what_its_run_costs():
  plan = _plan(rounds=20, num_parameters=97_000)
  ledger = ledger_lib.Ledger(
    plan.participation,
    delta=1e-7,
    accountants=("rdp",),
    # Another clip norm makes no difference.
    round_sum=composition.RoundSum(0.3, 1.28, 97_000),
  ).with_rounds(plan.noise, 20)
  report = planning.create_report(plan)
  assert report == ledger.report()
  exact = planning.create_report(_plan(rounds=20))
  assert exact.arithmetic_epsilon is None
  assert report.arithmetic_epsilon > 0
  assert report.epsilon == exact.epsilon + report.arithmetic_epsilon


@pytest.mark.parametrize(
  ("mechanism", "options", "message"),
  [
    ("tree", {"num_bands": 3}, "num_bands must not be given"),
    ("tree", {"rounds": 10**23}, "rounds must be at most 1,000,000,000"),
    ("tree", {"num_parameters": 97_000}, "num_parameters must not be"),
    ("tree", {"accountants": ("moments",)}, "accountants must be among"),
  ],
)
def test_plans_that_are_none(mechanism, options, message):
  with pytest.raises(ValueError, match=message):
    _plan(mechanism, "min_separation", **options)


def test_parts_of_another_kind_are_refused():
  mechanism = gaussian.GaussianConfig(noise_multiplier=1.0)
  claim = poisson.Poisson(users_per_round=50)
  options = {"num_users": 1_000, "rounds": 2}
  message = "participation must be a Participation, found 'poisson'"
  with pytest.raises(errors.FieldError, match=message):
    planning.epsilon(mechanism, "poisson", **options)
  with pytest.raises(errors.FieldError, match="mechanism must be a Mechanism"):
    planning.epsilon(claim, mechanism, **options)


def test_a_delta_of_zero_is_refused():
  mechanism = gaussian.GaussianConfig(noise_multiplier=1.0)
  claim = poisson.Poisson(users_per_round=50)
  with pytest.raises(errors.FieldError, match=r"delta must be in .*found 0"):
    planning.epsilon(mechanism, claim, num_users=1_000, rounds=2, delta=0.0)


def test_the_noise_is_in_proportion_to_the_cohort_that_is_settled():
  # A pass of 20,000 users in cohorts of 6,000 has four rounds, of 5,000 each.
  claim = random_allocation.RandomAllocation(20_000, 500)
  plan = planning.create_plan(
    "gaussian", claim, 60, 1.0, 1e-5, accountants=("rdp",)
  )
  larger = plan.with_value("users_per_round", 6_000)
  assert larger.participation.users_per_round == 5_000
  assert larger.noise_multiplier == 10.0


def test_the_noise_is_in_proportion_to_the_clients_that_are_divided_by():
  # 48 users in clients of 32 are two clients, as 64 users are.
  claim = poisson.Poisson(100_000, 48, users_per_client=32)
  plan = planning.create_plan(
    "gaussian", claim, 50, 0.1, 1e-6, accountants=("rdp",)
  )
  larger = plan.with_value("users_per_round", 1_152)
  assert larger.noise_multiplier == pytest.approx(0.1 * 36 / 2)


def test_planning_does_not_wait_for_tensorflow():
  program = (
    "import sys\n"
    "from tff_fedemb.planning import calibration, extrapolation\n"
    "from tff_fedemb.accounting import tuning\n"
    "sys.exit(any('tensorflow' in name for name in sys.modules))"
  )
  subprocess.run([sys.executable, "-c", program], check=True)


_FIXED_SIZE = fixed_size.FixedSize(10_000, 64 * 32, users_per_client=32)
_POISSON = poisson.Poisson(10_000, 2_048.0)


def _extrapolate(participation, rounds, noise_multiplier, **changes):
  simulated = ledger_lib.create_ledger(
    participation, composition.Noise(noise_multiplier), rounds, delta=1e-5
  )
  options = {"num_users": 10_000_000, "cohort_factor": 64, "delta": 1e-7}
  return extrapolation.extrapolate_ledger(simulated, **(options | changes))


def test_single_user_poisson_has_one_reading():
  result = _extrapolate(_POISSON, rounds=20, noise_multiplier=0.03)
  assert result.authors.epsilon == result.user_level.epsilon
  assert result.user_level.accountant == "pld"
  assert result.user_level.protects.startswith("one user: a user's slot stays")
  assert not any("authors' reading" in text for text in result.assumptions)


def test_an_extrapolation_has_the_published_figure_beside_the_strict_one():
  result = _extrapolate(_FIXED_SIZE, rounds=800, noise_multiplier=0.02)
  assert round(result.authors.epsilon, 2) == 3.90
  assert round(result.user_level.epsilon, 2) == 14.50


@pytest.mark.parametrize(("factor", "clients"), [(1.4, 1), (1.6, 2), (64, 64)])
def test_the_noise_of_an_extrapolation_grows_as_its_whole_clients_do(
  factor, clients
):
  """The sum of a round is divided by a whole number of virtual clients."""
  claim = poisson.Poisson(1_000, 16, users_per_client=16)
  result = _extrapolate(claim, 20, 1.0, cohort_factor=factor)
  assert result.participation.clients_per_round == clients
  assert result.noise_multiplier == clients


def test_the_count_of_an_extrapolation_has_more_noise_too():
  def extrapolate(count_noise):
    simulated = ledger_lib.create_ledger(
      _POISSON,
      composition.Noise(0.03),
      20,
      delta=1e-5,
      round_sum=composition.RoundSum(1.0, 0.03, 1_000, count_noise),
    )
    return extrapolation.extrapolate_ledger(
      simulated, num_users=10_000_000, cohort_factor=64, delta=1e-7
    ).user_level.epsilon

  # Its bound is 2 a sqrt(2 T log(1 / failure)) for 64 times its noise.
  error = 1.25 * 2**-37 * 64 * 1e5
  bound = 2 * error * math.sqrt(2 * 20 * -math.log(1e-7 * 2**-22))
  assert bound < extrapolate(1e5) - extrapolate(None) < 1.5 * bound


def test_an_extrapolation_has_the_noise_on_the_mean_of_the_cohort_it_settles():
  # 600,000 of a million users a round are asked for: two rounds of 500,000.
  claim = random_allocation.RandomAllocation(20_000, 500)
  result = _extrapolate(
    claim, 60, 1.0, num_users=1_000_000, cohort_factor=1_200
  )
  assert result.participation.users_per_round == 500_000
  assert (result.cohort_factor, result.noise_multiplier) == (1_000, 1_000)
  assert "at 1000 times the noise" in " ".join(result.assumptions)


def test_json_names_both_readings():
  result = _extrapolate(_FIXED_SIZE, rounds=5, noise_multiplier=0.0)
  values = json.loads(json.dumps(result.to_json(), allow_nan=False))
  assert values["is_extrapolation"] is True
  assert values["user_level"]["epsilon"] == "inf"
  assert values["authors"]["epsilon"] == "inf"
  assert values["authors"]["protects"] == epsilon_lib.VIRTUAL_CLIENT_UNIT
  assert values["participation"]["kind"] == "fixed_size"
  assert any("10,000,000 users drawn unif" in a for a in values["assumptions"])
  # 1e-7 for ten million users: the published setting deserves the remark.
  assert any("delta" in text for text in values["assumptions"])


@pytest.mark.parametrize(
  ("participation", "changes", "message"),
  [
    (
      _FIXED_SIZE,
      {"num_users": 131_071},
      "users_per_round must be at most num_users",
    ),
    (
      _FIXED_SIZE,
      {"cohort_factor": 1.0001},
      "users_per_round must be an integer",
    ),
    (
      _POISSON,
      {"num_users": 10_000, "cohort_factor": 1, "accountants": ("pld",)},
      "accountant must be rdp where",
    ),
  ],
)
def test_what_cannot_be_extrapolated(participation, changes, message):
  with pytest.raises(ValueError, match=message):
    _extrapolate(participation, rounds=1, noise_multiplier=0.02, **changes)
