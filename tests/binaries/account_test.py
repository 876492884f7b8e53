"""Tests of the program that accounts: as a user calls it."""

import functools
import math
import pathlib
import subprocess
import sys

import pytest

from tests.binaries import accounting
from tests.binaries import programs
from tff_fedemb.privacy import planning

_REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
_AUTHORS = (
  "--num_users=10000000",
  "--users_per_round=131072",
  "--users_per_client=32",
  "--rounds=800",
  "--delta=1e-7",
)
_TREE = (
  *_AUTHORS,
  "--mechanism=tree",
  "--participation=min_separation",
  "--noise_multiplier=16.64",
)
_SMALL = (
  "--mechanism=gaussian",
  "--participation=poisson",
  "--num_users=1000",
  "--users_per_round=50",
  "--rounds=40",
  "--noise_multiplier=4",
)


@pytest.fixture(name="account")
def _account(tmp_path):
  return functools.partial(accounting.call, tmp_path)


def test_help_tells_of_the_commands_without_tensorflow():
  process = subprocess.run(
    [
      *(sys.executable, "-X", "importtime"),
      *("-m", "binaries.account", "--helpshort"),
    ],
    cwd=_REPOSITORY,
    capture_output=True,
    text=True,
    check=False,
  )
  for command in ("epsilon", "calibrate", "extrapolate", "table"):
    assert f"\n{command}" in process.stdout or f" {command}" in process.stdout
  assert "--users_per_client" in process.stdout
  assert " dp_accounting\n" in process.stderr
  assert "tensorflow" not in process.stderr


def test_the_tree_of_the_authors(account):
  process, values = account("epsilon", *_TREE, "--accountant=rdp")
  assert process.status == 0, process.errors
  assert values["epsilon"] == pytest.approx(9.6724, abs=5e-5)
  assert values["zcdp"] == pytest.approx(1.2785, abs=5e-5)
  assert values["sensitivity_in_clip_norms"] == 2
  assert 0 < values["unit_is_virtual_client_epsilon"] < values["epsilon"]
  assert values["mechanism"] == "tree"
  assert values["strategy"] == {
    "name": "tree",
    "restart_every": None,
    "first_restart_after": None,
  }
  assert values["max_participations"] == 11
  assert values["strategy_sensitivity"] == pytest.approx(math.sqrt(177))
  (event,) = values["events"]
  assert event["count"] == 1
  assert event["event"].startswith("GaussianDpEvent(noise_multiplier=0.625")
  assert "min_separation 77 is that of whole passes" in process.output
  assert any("min_separation 77" in note for note in values["notes"])
  assert "epsilon = 9.6724 at delta = 1e-07 (rdp)" in process.output
  assert "zCDP    = 1.2785" in process.output
  # 1e-7 is not below 1 / 10,000,000.
  assert "warning: delta 1e-07 is not below" in process.output
  assert len(values["warnings"]) == 1
  assert values["unit"] == "user"
  for name in ("neighboring_relation", "released", "not_covered", "statement"):
    assert values[name]


def test_fixed_size_in_both_readings(account):
  # The command may be left out.
  process, values = account(
    *_AUTHORS,
    "--mechanism=gaussian",
    "--participation=fixed_size",
    "--noise_multiplier=1.28",
    "--accountant=rdp",
  )
  assert process.status == 0, process.errors
  assert round(values["epsilon"], 2) == 14.50
  assert round(values["unit_is_virtual_client_epsilon"], 2) == 3.90
  assert values["zcdp"] is None
  assert "14.50" in process.output
  assert "3.90" in process.output


@pytest.mark.parametrize("accountant", ["rdp", "pld"])
def test_one_user_per_client_has_one_reading(account, accountant):
  process, values = account("epsilon", *_SMALL, f"--accountant={accountant}")
  assert process.status == 0, process.errors
  assert values["accountant"] == accountant
  assert values["sensitivity_in_clip_norms"] == 1
  assert values["unit_is_virtual_client_epsilon"] == values["epsilon"] > 0
  assert values["delta"] == planning.default_delta(1_000)
  assert "delta 0.0005 is num_users ** -1.1" in process.output


@pytest.mark.parametrize(
  ("mechanism", "option"),
  [
    ("tree", "--restart_every=10"),
    ("blt", "--num_buffers=3"),
    ("banded", "--num_bands=4"),
    ("gaussian", "--max_participations=1"),
  ],
)
def test_exact_accounting_without_sampling(account, mechanism, option):
  arguments = [
    f"--mechanism={mechanism}" if "mechanism" in a else a for a in _SMALL
  ]
  process, values = account(
    "epsilon",
    *arguments,
    "--participation=min_separation",
    "--min_separation=15",
    "--accountant=gaussian",
    option,
  )
  assert process.status == 0, process.errors
  # Balle and Wang 2018, theorem 8.
  mu = math.sqrt(2 * values["zcdp"])
  epsilon = values["epsilon"]

  def cdf(x):
    return 0.5 * math.erfc(-x / math.sqrt(2))

  delta = cdf(mu / 2 - epsilon / mu) - math.exp(epsilon) * cdf(
    -mu / 2 - epsilon / mu
  )
  assert delta == pytest.approx(values["delta"], rel=1e-6)


def test_no_noise_is_infinite(account):
  process, values = account("epsilon", *_SMALL, "--noise_multiplier=0")
  assert process.status == 0, process.errors
  assert values["epsilon"] == "inf"
  assert values["unit_is_virtual_client_epsilon"] == "inf"
  assert "nothing is protected" in process.output


def test_table(account):
  process, values = account("table")
  assert process.status == 0, process.errors
  assert [round(row["published_epsilon"], 2) for row in values["rows"]] == [
    5.62,
    3.90,
    9.67,
  ]
  assert [round(row["strict_epsilon"], 2) for row in values["rows"]] == [
    35.55,
    14.50,
    9.67,
  ]
  for figure in ("3.90", "5.62", "9.67", "1.28", "14.50", "35.55"):
    assert figure in process.output


def test_extrapolate(account):
  process, values = account(
    "extrapolate",
    "--mechanism=gaussian",
    "--participation=fixed_size",
    "--num_users=110000",
    "--users_per_round=2048",
    "--users_per_client=32",
    "--rounds=800",
    "--noise_multiplier=0.02",
    "--cohort_factor=64",
    "--delta=1e-7",
  )
  assert process.status == 0, process.errors
  assert round(values["authors"]["epsilon"], 2) == 3.90
  assert round(values["user_level"]["epsilon"], 2) == 14.50
  assert "EXTRAPOLATION" in process.output


@pytest.mark.parametrize(
  ("solve_for", "left_out"),
  [
    ("noise_multiplier", "noise_multiplier"),
    ("num_users", "num_users"),
    ("users_per_round", None),
  ],
)
def test_calibrate(account, solve_for, left_out):
  arguments = [
    argument
    for argument in (*_SMALL, "--users_per_client=5", "--delta=1e-4")
    if left_out is None or not argument.startswith(f"--{left_out}=")
  ]
  process, values = account(
    "calibrate", *arguments, "--target_epsilon=2", f"--solve_for={solve_for}"
  )
  assert process.status == 0, process.errors
  # A cohort grows by five users at a time.
  low = 1.0 if solve_for == "users_per_round" else 1.99
  assert low < values["user_level"]["epsilon"] <= 2
  assert values["authors"]["value"] < values["user_level"]["value"]
  assert f"smallest {solve_for} for epsilon <= 2" in process.output
  # What was found costs what is said of it.
  plan = values["user_level"]["plan"]
  claim = plan["participation"]
  process, again = account(
    "epsilon",
    *_SMALL,
    "--users_per_client=5",
    "--delta=1e-4",
    f"--noise_multiplier={plan['noise_multiplier']}",
    f"--num_users={claim['num_users']}",
    f"--users_per_round={claim['users_per_round']}",
  )
  assert again["epsilon"] == values["user_level"]["epsilon"]


@pytest.mark.parametrize(
  ("arguments", "message"),
  [
    (("cost",), "arguments must be one of epsilon, calibrate, "),
    (("epsilon", "table"), "found 'epsilon table'"),
    (("epsilon",), "--mechanism must be given with epsilon, or --run_dir"),
    (("table", "--rounds=3"), "--rounds must not be given with table"),
    (
      ("epsilon", *_SMALL, "--target_epsilon=3"),
      "--target_epsilon must not be given with epsilon",
    ),
    (
      ("epsilon", "--run_dir=x", "--rounds=3"),
      "--rounds must not be given with --run_dir",
    ),
    (
      ("epsilon", *_SMALL, "--mechanism=laplace"),
      "--mechanism must be one of banded, blt, gaussian, tree, found 'laplace'",
    ),
    (
      ("epsilon", *_SMALL, "--mechanism=tree"),
      "--participation must be min_separation with mechanism tree",
    ),
    (
      ("epsilon", *_SMALL, "--restart_every=10"),
      "--restart_every must not be given with mechanism gaussian",
    ),
    (
      ("epsilon", *_SMALL, "--min_separation=10"),
      "--min_separation must not be set with participation poisson",
    ),
    (
      (
        "epsilon",
        *_SMALL,
        "--participation=fixed_size",
        "--accountant=pld",
      ),
      "--accountant must be among ('rdp',) for fixed_size participation, "
      "found ('pld',)",
    ),
    (
      ("epsilon", *_SMALL, "--noise_multiplier=0.02", "--accountant=pld"),
      "--accountant must be rdp where its epsilon exceeds 50",
    ),
    (("epsilon", *_SMALL, "--rounds=0"), "--rounds must be an integer of"),
    (
      ("epsilon", *_SMALL, "--users_per_round=1001"),
      "--users_per_round must be at least users_per_client",
    ),
    (
      ("epsilon", *_SMALL, "--noise_multiplier=nan"),
      "--noise_multiplier must be a finite number",
    ),
    (
      ("calibrate", *_SMALL),
      "--target_epsilon must be given with calibrate",
    ),
    (
      ("calibrate", *_SMALL, "--target_epsilon=2"),
      "--noise_multiplier must not be given with "
      "--solve_for=noise_multiplier, which finds it",
    ),
    (
      (
        "calibrate",
        *_SMALL,
        "--target_epsilon=2",
        "--solve_for=users_per_round",
        "--min_separation=3",
      ),
      "--min_separation must not be given with",
    ),
    (
      ("calibrate", "--target_epsilon=2", "--solve_for=delta"),
      "--solve_for must be one of noise_multiplier, num_users,",
    ),
    (
      (
        "calibrate",
        *_SMALL,
        "--target_epsilon=0.01",
        "--solve_for=users_per_round",
      ),
      "--target_epsilon must be at least",
    ),
    (
      ("extrapolate", *_SMALL, "--cohort_factor=-1"),
      "--cohort_factor must be positive",
    ),
    (
      ("extrapolate", *_SMALL, "--extrapolated_num_users=0"),
      "--extrapolated_num_users must be an integer of at least 1",
    ),
  ],
)
def test_mistakes_are_one_line(account, arguments, message):
  accounting.check_refused(*account(*arguments), message)


@pytest.mark.parametrize("path", [".", "no/such/directory", "/proc/output"])
def test_a_file_that_cannot_be_written(tmp_path, path):
  ended = programs.call(
    "account", "epsilon", *_SMALL, f"--output_json={tmp_path / path}"
  )
  accounting.check_refused(ended, None, "--output_json must be ")


def test_a_device_is_written_to():
  ended = programs.call(
    "account", "epsilon", *_SMALL, "--output_json=/dev/null"
  )
  assert ended.status == 0, ended.errors
