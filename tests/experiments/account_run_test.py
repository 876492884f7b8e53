"""Tests of the account of a run, from what it left in its directory."""

import functools
import json

import dp_accounting
import numpy as np
import pytest

from experiments import account_run
from tests.binaries import accounting
from tff_fedemb.data import participation_trace
from tff_fedemb.data.participation import registry as participations
from tff_fedemb.privacy import ledger as ledger_lib
from tff_fedemb.privacy import planning

_RUN_CLAIM = participations.create_participation(
  "min_separation", num_users=100, users_per_round=10, users_per_client=2
)
_RUN_PLAN = planning.Plan("tree", _RUN_CLAIM, 30, 6.0, 1e-3)


@pytest.fixture(name="account")
def _account(tmp_path):
  return functools.partial(accounting.call, tmp_path)


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
  assert process.status == 0, process.errors
  summary = json.loads((tmp_path / "run" / "summary.json").read_text())
  assert {name: values[name] for name in summary["privacy"]} == (
    summary["privacy"] | {"epsilon": values["epsilon"]}
  )
  assert values["mechanism"] == "tree"
  words = " ".join(process.output.split())
  assert "checked against the trace of the run" in words
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
  accounting.check_refused(process, values, message)
  assert "--run_dir must hold a summary.json that agrees" in process.errors


@pytest.mark.parametrize(
  ("num_traced", "message"),
  [
    (15, "trace of the 12 rounds of its"),
    (11, "trace must hold the 12 rounds"),
  ],
)
def test_a_finished_run_of_another_number_of_rounds(
  tmp_path, num_traced, message
):
  ledger = _write_run(tmp_path / "run", num_traced=num_traced)
  privacy = ledger.report().to_json()
  path = tmp_path / "run" / "summary.json"
  path.write_text(json.dumps({"privacy": privacy}))
  with pytest.raises(ValueError, match=message):
    account_run.recompute(tmp_path / "run")


@pytest.mark.parametrize("missing", ["ledger.json", "participation.trace"])
def test_files_that_are_not_there(tmp_path, missing):
  _write_run(tmp_path / "run")
  (tmp_path / "run" / missing).unlink()
  with pytest.raises(ValueError, match=missing):
    account_run.recompute(tmp_path / "run")


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
  assert process.status == 0, process.errors
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
