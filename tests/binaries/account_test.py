"""Tests of the program that accounts: as a user calls it."""

import math

import pytest

from tests.binaries import accounting
from tests.binaries import programs
from tff_fedemb.planning import planning

_AUTHORS = (
  "--num_users=10000000 --users_per_round=131072 --users_per_client=32"
  " --rounds=800 --delta=1e-7"
)
_SMALL = (
  "--mechanism=gaussian --participation=poisson --num_users=1000"
  " --users_per_round=50 --rounds=40 --noise_multiplier=4"
)


@pytest.fixture(name="account")
def _account(tmp_path):
  """Calls the program with words, which has to end well."""

  def account(*words):
    ended, values = accounting.call(tmp_path, *" ".join(words).split())
    assert ended.status == 0, ended.errors
    return ended.output, values

  return account


def test_the_tree_of_the_authors(account):
  tree = "--mechanism=tree --participation=min_separation"
  output, values = account(
    "epsilon", _AUTHORS, tree, "--noise_multiplier=16.64 --accountant=rdp"
  )
  assert values["epsilon"] == pytest.approx(9.6724, abs=5e-5)
  assert values["zcdp"] == pytest.approx(1.2785, abs=5e-5)
  assert values["sensitivity_in_clip_norms"] == 2
  assert 0 < values["unit_is_virtual_client_epsilon"] < values["epsilon"]
  assert values["mechanism"] == values["strategy"]["name"] == "tree"
  assert values["max_participations"] == 11
  assert values["strategy_sensitivity"] == pytest.approx(math.sqrt(177))
  (event,) = values["events"]
  assert event["count"] == 1
  assert event["event"].startswith("GaussianDpEvent(noise_multiplier=0.625")
  assert "epsilon = 9.6724 at delta = 1e-07 (rdp)" in output
  assert "zCDP    = 1.2785" in output
  # 1e-7 is not below 1 / 10,000,000.
  assert "warning: delta 1e-07 is not below" in output
  assert values["statement"]


def test_one_user_per_client_has_one_reading(account):
  # The command may be left out.
  output, values = account(_SMALL, "--accountant=pld")
  assert values["accountant"] == "pld"
  assert values["sensitivity_in_clip_norms"] == 1
  assert values["unit_is_virtual_client_epsilon"] == values["epsilon"] > 0
  assert values["delta"] == planning.default_delta(1_000)
  assert "delta 0.0005 is num_users ** -1.1" in output


def test_table(account):
  output, values = account("table")
  assert len(values["rows"]) == 3
  for figure in ("3.90", "5.62", "9.67", "1.28", "14.50", "35.55"):
    assert figure in output


def test_extrapolate(account):
  output, values = account(
    "extrapolate --mechanism=gaussian --participation=fixed_size",
    "--num_users=110000 --users_per_round=2048 --users_per_client=32",
    "--rounds=800 --noise_multiplier=0.02 --cohort_factor=64 --delta=1e-7",
  )
  assert round(values["authors"]["epsilon"], 2) == 3.90
  assert round(values["user_level"]["epsilon"], 2) == 14.50
  assert "EXTRAPOLATION" in output


@pytest.mark.parametrize(
  "solve_for",
  [
    "noise_multiplier",
    "num_users",
    pytest.param("users_per_round", marks=pytest.mark.slow),
  ],
)
def test_calibrate(account, solve_for):
  given = f"{_SMALL} --users_per_client=5 --delta=1e-4"
  plan_words = given
  if solve_for != "users_per_round":
    plan_words = " ".join(w for w in given.split() if solve_for not in w)
  output, values = account(
    "calibrate --target_epsilon=2", f"--solve_for={solve_for}", plan_words
  )
  # A cohort grows by five users at a time.
  low = 1.0 if solve_for == "users_per_round" else 1.99
  assert low < values["report"]["epsilon"] <= 2
  assert values["value"] > 0
  assert values["plan"]["participation"]["users_per_client"] == 5
  assert f"smallest {solve_for} for epsilon <= 2" in output


def test_calibrate_for_a_cohort_that_is_no_whole_number(account):
  plan = (
    "--mechanism=gaussian --participation=random_allocation --rounds=40"
    " --delta=1e-5 --users_per_round=1.5 --noise_multiplier=2"
  )
  _, values = account(
    "calibrate --target_epsilon=1 --solve_for=num_users", plan
  )
  # 18 users were told before, who cost 1.0765.
  found = f"--num_users={values['value']:g}"
  _, again = account("epsilon", plan, found)
  assert again["epsilon"] == values["report"]["epsilon"] <= 1


_OPTIMIZE = (
  "optimize --target_epsilon=4 --num_users=1000 --users_per_round=100"
  " --rounds=40 --delta=1e-4"
)


@pytest.mark.slow
def test_optimize(account):
  output, values = account(_OPTIMIZE)
  errors_found = [found["rmse"] for found in values["candidates"]]
  assert errors_found == sorted(errors_found)
  best = values["candidates"][0]
  claim = best["participation"]
  assert claim["kind"] == "random_allocation"
  # 1,000 users have at most ten blocks of 100.
  assert 1 < claim["period"] == best["size"] == best["model_copies"] + 1 <= 10
  for kind in ("poisson", "cyclic_poisson", "min_separation", claim["kind"]):
    assert kind in output
  assert f"--period={claim['period']} --num_bands={best['size']}" in output
  # The recommended mechanism costs what is said of it.
  _, again = account(
    "epsilon --mechanism=banded --participation=random_allocation",
    f"--period={claim['period']}",
    f"--noise_multiplier={best['noise_multiplier']}",
    *(word for word in _OPTIMIZE.split()[2:]),
  )
  assert 3.98 < again["epsilon"] == values["report"]["epsilon"] <= 4


def test_optimize_where_nobody_can_be_drawn(account, tmp_path):
  picture = tmp_path / "picture.png"
  output, values = account(
    _OPTIMIZE,
    "--participation=check_ins --min_separation=8 --max_participations=3",
    "--server_momentum=0.9",
    f"--output_png={picture}",
  )
  assert picture.stat().st_size > 10_000
  candidates = values["candidates"]
  assert {found["participation"]["kind"] for found in candidates} == {
    "check_ins"
  }
  assert {found["mechanism"] for found in candidates} == {
    *("gaussian", "tree", "blt", "banded")
  }
  assert values["report"]["sensitivity_in_clip_norms"] == 1
  assert values["candidates"][0]["workload"]["momentum"] == 0.9
  assert values["leanest"]["mechanism"] == "blt"
  assert "nearly, with 2 copies of the model beside it instead of 7" in output
  assert "(deployment: server.max_participations 3)" in " ".join(output.split())


def test_it_says_what_correlated_noise_is_made_for(account):
  banded = (
    "epsilon --mechanism=banded --num_bands=4 --participation=cyclic_poisson"
    " --num_users=1000 --users_per_round=50 --rounds=40 --noise_multiplier=4"
  )
  output, of_sums = account(banded)
  assert "--noise_objective=prefix_sums of run_federated" in output
  output, of_momentum = account(banded, "--server_momentum=0.9")
  assert "--noise_objective" not in output
  # At one noise multiplier; it leaves less noise in the models.
  assert of_momentum["epsilon"] > of_sums["epsilon"]


_EPSILON, _CALIBRATE = f"epsilon {_SMALL}", f"calibrate {_SMALL}"


@pytest.mark.parametrize(
  ("words", "message"),
  [
    ("cost", "arguments must be one of epsilon, calibrate, "),
    ("epsilon budget", "found 'epsilon budget'"),
    ("epsilon", "--mechanism must be given with epsilon, or --run_dir"),
    ("release --rounds=3", "--rounds must not be given with release"),
    (
      "epsilon --run_dir=x --rounds=3",
      "--rounds must not be given with --run_dir",
    ),
    (
      f"{_EPSILON} --min_separation=10",
      "--min_separation must not be given with participation poisson",
    ),
    (
      f"{_EPSILON} --noise_multiplier=0.02 --accountant=pld",
      "--accountant must be rdp where its epsilon exceeds 50",
    ),
    (
      f"{_CALIBRATE} --target_epsilon=2",
      "--noise_multiplier must not be given with "
      "--solve_for=noise_multiplier, which has no use for it",
    ),
    ("optimize --target_epsilon=2", "--num_users must be given with optimize"),
    (
      f"{_OPTIMIZE} --min_separation=3",
      "--min_separation must not be given with optimize without --participat",
    ),
    (
      f"{_OPTIMIZE} --participation=random_allocation --period=3",
      "--period must not be given with optimize, which has no use for it",
    ),
    (
      f"{_OPTIMIZE} --users_per_client=3",
      "--users_per_round must be a multiple of users_per_client, 3: a run",
    ),
    (
      f"{_OPTIMIZE} --output_png=/no/such/picture.png",
      "--output_png must be in a directory that can be written",
    ),
  ],
)
def test_mistakes_are_one_line(tmp_path, words, message):
  accounting.check_refused(*accounting.call(tmp_path, *words.split()), message)


def test_a_file_that_cannot_be_written(tmp_path):
  ended = programs.call(
    "account", *_EPSILON.split(), f"--output_json={tmp_path}"
  )
  accounting.check_refused(ended, None, "--output_json must be ")


def test_no_noise_is_infinite(account):
  output, values = account("epsilon", _SMALL, "--noise_multiplier=0")
  assert values["epsilon"] == "inf"
  assert values["unit_is_virtual_client_epsilon"] == "inf"
  assert "nothing is protected" in output
