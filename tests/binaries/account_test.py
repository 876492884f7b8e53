"""Tests of the program that accounts: as a user calls it."""

import json
import math
import pathlib
import subprocess
import sys

import dp_accounting
import numpy as np
import pytest

from experiments import account_run
from tff_fedemb.data import participation_trace
from tff_fedemb.data.participation import registry as participations
from tff_fedemb.privacy import ledger as ledger_lib
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
  """Runs the program; returns the process, and what it wrote if it did."""
  output = tmp_path / "output.json"

  def run(*arguments):
    output.unlink(missing_ok=True)
    process = subprocess.run(
      [
        sys.executable,
        "-m",
        "binaries.account",
        *arguments,
        f"--output_json={output}",
      ],
      cwd=_REPOSITORY,
      capture_output=True,
      text=True,
      check=False,
    )
    values = None
    if output.exists():
      # Infinity is "inf", as JSON has none.
      values = json.loads(output.read_text(), parse_constant=pytest.fail)
    return process, values

  return run


def _check_refused(process, values, message):
  assert process.returncode == 1
  assert values is None
  assert not process.stdout
  assert process.stderr.startswith("error: ")
  assert process.stderr.count("\n") == 1
  assert message in process.stderr


def test_tensorflow_is_not_imported():
  program = (
    "import sys; from binaries import account;"
    ' assert "dp_accounting" in sys.modules;'
    ' print([name for name in sys.modules if name.startswith("tensorflow")])'
  )
  process = subprocess.run(
    [sys.executable, "-c", program],
    cwd=_REPOSITORY,
    capture_output=True,
    text=True,
    check=True,
  )
  assert process.stdout.strip() == "[]"


def test_the_tree_of_the_authors(account):
  process, values = account("epsilon", *_TREE, "--accountant=rdp")
  assert process.returncode == 0, process.stderr
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
  assert "min_separation 77 is that of whole passes" in process.stdout
  assert any("min_separation 77" in note for note in values["notes"])
  assert "epsilon = 9.6724 at delta = 1e-07 (rdp)" in process.stdout
  assert "zCDP    = 1.2785" in process.stdout
  # 1e-7 is not below 1 / 10,000,000.
  assert "warning: delta 1e-07 is not below" in process.stdout
  assert len(values["warnings"]) == 1
  assert values["unit"] == "user"
  for name in ("neighboring_relation", "released", "not_covered", "statement"):
    assert values[name]


@pytest.mark.parametrize(
  ("noise_multiplier", "strict", "virtual"),
  [(1.28, 14.50, 3.90), (0.96, 35.55, 5.62)],
)
def test_fixed_size_in_both_readings(
  account, noise_multiplier, strict, virtual
):
  # The command may be left out.
  process, values = account(
    *_AUTHORS,
    "--mechanism=gaussian",
    "--participation=fixed_size",
    f"--noise_multiplier={noise_multiplier}",
    "--accountant=rdp",
  )
  assert process.returncode == 0, process.stderr
  assert round(values["epsilon"], 2) == strict
  assert round(values["unit_is_virtual_client_epsilon"], 2) == virtual
  assert values["zcdp"] is None
  assert f"{strict:.2f}" in process.stdout
  assert f"{virtual:.2f}" in process.stdout


@pytest.mark.parametrize("accountant", ["rdp", "pld"])
def test_one_user_per_client_has_one_reading(account, accountant):
  process, values = account("epsilon", *_SMALL, f"--accountant={accountant}")
  assert process.returncode == 0, process.stderr
  assert values["accountant"] == accountant
  assert values["sensitivity_in_clip_norms"] == 1
  assert values["unit_is_virtual_client_epsilon"] == values["epsilon"] > 0
  assert values["delta"] == planning.default_delta(1_000)
  assert "delta 0.0005 is num_users ** -1.1" in process.stdout


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
  assert process.returncode == 0, process.stderr
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
  assert process.returncode == 0, process.stderr
  assert values["epsilon"] == "inf"
  assert values["unit_is_virtual_client_epsilon"] == "inf"
  assert "nothing is protected" in process.stdout


def test_table(account):
  process, values = account("table")
  assert process.returncode == 0, process.stderr
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
    assert figure in process.stdout


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
  assert process.returncode == 0, process.stderr
  assert round(values["authors"]["epsilon"], 2) == 3.90
  assert round(values["user_level"]["epsilon"], 2) == 14.50
  assert "EXTRAPOLATION" in process.stdout


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
  assert process.returncode == 0, process.stderr
  # A cohort grows by five users at a time.
  low = 1.0 if solve_for == "users_per_round" else 1.99
  assert low < values["user_level"]["epsilon"] <= 2
  assert values["authors"]["value"] < values["user_level"]["value"]
  assert f"smallest {solve_for} for epsilon <= 2" in process.stdout
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
      "--mechanism must be one of ['banded', 'blt', 'gaussian', 'tree'], "
      "found 'laplace'",
    ),
    (
      ("epsilon", *_SMALL, "--participation=all"),
      "--participation must be one of",
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
      "--min_separation must not be given with poisson participation",
    ),
    (
      (
        "epsilon",
        *_SMALL,
        "--participation=min_separation",
        "--min_separation=21",
      ),
      "--min_separation must be at most 20",
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
    (("epsilon", *_SMALL, "--delta=1"), "--delta must be in (0, 1)"),
    (
      ("epsilon", *_SMALL, "--users_per_round=1001"),
      "--users_per_round must be at least users_per_client",
    ),
    (
      ("epsilon", *_SMALL, "--noise_multiplier=nan"),
      "--noise_multiplier must be a finite number",
    ),
    (
      ("epsilon", *_SMALL, "--noise_multiplier=1e-200"),
      "--noise_multiplier must be 0 or in [1e-06, 1e+06], found 1e-200",
    ),
    (
      ("epsilon", *_SMALL, "--rounds=100000000000000000000000"),
      "--rounds must be at most 1,000,000,000",
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
      "--extrapolated_num_users must be at least 1",
    ),
  ],
)
def test_mistakes_are_one_line(account, arguments, message):
  _check_refused(*account(*arguments), message)


@pytest.mark.parametrize("path", [".", "no/such/directory", "/proc/output"])
def test_a_file_that_cannot_be_written(tmp_path, path):
  process = subprocess.run(
    [
      sys.executable,
      "-m",
      "binaries.account",
      "epsilon",
      *_SMALL,
      f"--output_json={tmp_path / path}",
    ],
    cwd=_REPOSITORY,
    capture_output=True,
    text=True,
    check=False,
  )
  _check_refused(
    process, None, "--output_json must be a file that can be written, found"
  )
  if path != "/proc/output":
    # Nothing was computed either.
    assert not (tmp_path / "untouched").exists()


def test_help_tells_of_the_commands():
  process = subprocess.run(
    [sys.executable, "-m", "binaries.account", "--helpshort"],
    cwd=_REPOSITORY,
    capture_output=True,
    text=True,
    check=False,
  )
  for command in ("epsilon", "calibrate", "extrapolate", "table"):
    assert f"\n{command}" in process.stdout or f" {command}" in process.stdout
  assert "--users_per_client" in process.stdout


_RUN_CLAIM = participations.create_participation(
  "min_separation", num_users=100, users_per_round=10, users_per_client=2
)
_RUN_PLAN = planning.Plan("tree", _RUN_CLAIM, 30, 6.0, 1e-3)


def _write_run(directory, *, rounds=12, num_traced=12, plan=_RUN_PLAN):
  """Leaves what a run leaves; returns its ledger."""
  directory.mkdir()
  ledger = ledger_lib.Ledger(
    plan.participation, delta=plan.delta, accountants=("rdp", "gaussian")
  )
  if rounds:
    ledger = ledger.with_rounds(plan.event, rounds)
  (directory / "ledger.json").write_text(ledger.to_json())
  with participation_trace.TraceWriter(
    directory / "participation.trace", plan.participation.num_users
  ) as writer:
    for number in range(num_traced):
      writer.record(number, np.split(np.arange(10) + 10 * (number % 10), 5))
  return ledger


def _finish(directory, ledger, **changes):
  with participation_trace.TraceReader(
    directory / "participation.trace"
  ) as reader:
    privacy = ledger.report(reader).to_json()
  (directory / "summary.json").write_text(
    json.dumps({"privacy": privacy | changes})
  )


def test_a_finished_run(account, tmp_path):
  ledger = _write_run(tmp_path / "run")
  _finish(tmp_path / "run", ledger)
  process, values = account("epsilon", f"--run_dir={tmp_path / 'run'}")
  assert process.returncode == 0, process.stderr
  summary = json.loads((tmp_path / "run" / "summary.json").read_text())
  assert {name: values[name] for name in summary["privacy"]} == (
    summary["privacy"] | {"epsilon": values["epsilon"]}
  )
  assert values["mechanism"] == "tree"
  assert "checked against the trace of the run" in process.stdout.replace(
    "\n", " "
  )
  assert not values["notes"]
  _, by_rdp = account(
    "epsilon", f"--run_dir={tmp_path / 'run'}", "--accountant=rdp"
  )
  assert by_rdp["epsilon"] == values["epsilon_by_accountant"]["rdp"]


def test_a_killed_run(tmp_path):
  ledger = _write_run(tmp_path / "run", num_traced=13)
  run = account_run.recompute(tmp_path / "run")
  assert run.report.rounds == 12
  assert run.report.epsilon == ledger.report().epsilon
  assert any("not finished: 12 rounds" in note for note in run.notes)
  assert any("the trace has 1 round more" in note for note in run.notes)


@pytest.mark.parametrize(
  ("change", "message"),
  [
    ({"epsilon": 0.5}, "found epsilon 0.5 there and"),
    ({"epsilon_by_accountant": {"rdp": 0.5, "gaussian": 0.4}}, "by rdp"),
    ({"delta": 0.1}, "found delta 0.1 there"),
    ({"rounds": 7}, "found rounds 7 there and 12 by the ledger"),
  ],
)
def test_a_summary_that_claims_something_else(
  account, tmp_path, change, message
):
  ledger = _write_run(tmp_path / "run")
  _finish(tmp_path / "run", ledger, **change)
  process, values = account("epsilon", f"--run_dir={tmp_path / 'run'}")
  _check_refused(process, values, message)
  assert "--run_dir must hold a summary.json that agrees" in process.stderr


def test_a_ledger_that_lacks_rounds_of_a_finished_run(tmp_path):
  ledger = _write_run(tmp_path / "run", num_traced=15)
  (tmp_path / "run" / "summary.json").write_text(
    json.dumps({"privacy": ledger.report().to_json()})
  )
  with pytest.raises(ValueError, match="trace of the 12 rounds of its"):
    account_run.recompute(tmp_path / "run")


def test_a_trace_that_lacks_rounds(tmp_path):
  _write_run(tmp_path / "run", num_traced=11)
  with pytest.raises(ValueError, match="trace must hold the 12 rounds"):
    account_run.recompute(tmp_path / "run")


@pytest.mark.parametrize("missing", ["ledger.json", "participation.trace"])
def test_files_that_are_not_there(account, tmp_path, missing):
  _write_run(tmp_path / "run")
  (tmp_path / "run" / missing).unlink()
  process, values = account("epsilon", f"--run_dir={tmp_path / 'run'}")
  _check_refused(process, values, missing)


@pytest.mark.parametrize(
  ("name", "text"),
  [
    ("ledger.json", "{"),
    ("ledger.json", "[]"),
    ("ledger.json", '{"format": "another"}'),
    ("summary.json", "{}"),
    ("summary.json", '{"privacy": {"epsilon": 1}}'),
  ],
)
def test_files_that_are_damaged(tmp_path, name, text):
  _write_run(tmp_path / "run")
  (tmp_path / "run" / name).write_text(text)
  with pytest.raises(
    ValueError, match=f"run_dir must hold whole files of a run, .*{name}"
  ):
    account_run.recompute(tmp_path / "run")


def test_extrapolation_of_a_run(account, tmp_path):
  _write_run(tmp_path / "run")
  process, values = account(
    "extrapolate",
    f"--run_dir={tmp_path / 'run'}",
    "--extrapolated_num_users=100000",
    "--cohort_factor=10",
  )
  assert process.returncode == 0, process.stderr
  assert values["noise_multiplier"] == 60
  assert values["rounds"] == 12
  assert values["participation"]["min_separation"] == 1_000
  # One participation: the twelve rounds are trees of 8 and 4 leaves.
  assert values["zcdp"] == pytest.approx(4 * (2 / 60) ** 2 / 2)


def test_pld_alone_is_refused_for_a_run_where_it_would_take_minutes(tmp_path):
  claim = participations.create_participation(
    "poisson", num_users=100, users_per_round=10
  )
  ledger = ledger_lib.Ledger(claim, delta=1e-3)
  ledger = ledger.with_rounds(dp_accounting.GaussianDpEvent(0.02))
  (tmp_path / "ledger.json").write_text(ledger.to_json())
  with pytest.raises(ValueError, match="accountant must be rdp where"):
    account_run.recompute(tmp_path, ("pld",))
