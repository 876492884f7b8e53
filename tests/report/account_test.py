"""Tests of the account of a run, from the files in its directory."""

import json
import shutil

import pytest

from tests.binaries import accounting
from tests.records import chains
from tests.spec import small_runs
from tff_fedemb import errors
from tff_fedemb.participation import participation_trace
from tff_fedemb.report import account as account_run


@pytest.fixture(name="finished", scope="module")
def _finished(tmp_path_factory):
  run = small_runs.SmallRun(
    tmp_path_factory.mktemp("runs") / "finished", correlated=True
  )
  run.train()
  return run


@pytest.fixture(name="run")
def _run(finished, tmp_path):
  """A copy of the finished run, to be changed."""
  shutil.copytree(finished.path, tmp_path / "run")
  return small_runs.SmallRun(tmp_path / "run", correlated=True)


def test_a_finished_run(finished, tmp_path):
  argument = f"--run_dir={finished.path}"
  process, values = accounting.call(tmp_path, "epsilon", argument)
  assert process.status == 0, process.errors
  summary = json.loads((finished.path / "summary.json").read_text())
  for name, value in summary["privacy"].items():
    assert value is None or values[name] == value, name
  words = " ".join(process.output.split())
  assert "The trace of the run does not refute this." in words
  (note,) = values["notes"]
  assert note.startswith("the draw of all 6 rounds was replayed from checkpoi")
  _, by_rdp = accounting.call(tmp_path, "epsilon", argument, "--accountant=rdp")
  assert by_rdp["epsilon"] == values["epsilon_by_accountant"]["rdp"]


def test_a_killed_run(tmp_path):
  run = small_runs.SmallRun(tmp_path / "run", correlated=True)
  run.kill()
  found = account_run.recompute(run.path)
  assert found.report.rounds == 5
  assert found.report.epsilon == found.ledger.report().epsilon
  assert any("not finished: 5 rounds" in note for note in found.notes)
  assert any("the trace has 1 round more" in note for note in found.notes)


@pytest.mark.parametrize(
  ("name", "text"),
  [
    ("rounds.jsonl", "[]\n"),
    ("rounds.jsonl", '{"format": "another", "previous": null}\n'),
    ("participation.trace", None),
    ("run.json", None),
    ("run.json", "["),
    ("summary.json", "["),
    ("summary.json", '{"privacy": {"epsilon": 1}}'),
    ("metrics.csv", ""),
    ("metrics.csv", "loss\n1\n"),
    ("metrics.csv", 'round_num,loss\n1,"\n'),
  ],
)
def test_files_that_are_missing_or_damaged(run, name, text):
  run.delete(name)
  if text is not None:
    (run.path / name).write_text(text)
  with pytest.raises(ValueError, match=name):
    account_run.recompute(run.path)


def test_a_missing_file_is_not_taken_for_another(run):
  run.delete("run.json")
  with pytest.raises(errors.FieldError, match="found no file there"):
    account_run.recompute(run.path)


def test_a_finished_run_has_no_round_more_in_its_trace(run):
  path = run.path / "participation.trace"
  with participation_trace.TraceReader(path) as read:
    *_, last = read
  with participation_trace.TraceWriter(path, 20) as trace:
    trace.record(small_runs.ROUNDS, last.slots.reshape(-1, 1))
  with pytest.raises(ValueError, match="7 rounds there and 6 in the chain"):
    account_run.recompute(run.path)


def test_extrapolation_of_a_run(finished, tmp_path):
  """The population has 100,000 users, in cohorts ten times as large."""
  process, values = accounting.call(
    tmp_path,
    "extrapolate",
    f"--run_dir={finished.path}",
    "--extrapolated_num_users=100000",
    "--cohort_factor=10",
  )
  assert process.status == 0, process.errors
  assert (values["noise_multiplier"], values["rounds"]) == (20, 6)
  assert values["participation"]["min_separation"] == 1_667
  # A user takes part once; the six rounds are trees of 4 and 2 leaves.
  assert values["zcdp"] == pytest.approx(3 * (1 / 20) ** 2 / 2)


def test_a_run_that_has_not_done_a_round(run):
  run.delete("checkpoints", "metrics.csv", "summary.json", "release")
  run.lines = run.lines[:1]
  run.edit_trace(rounds=0)
  with pytest.raises(errors.FieldError, match="run of at least one round"):
    account_run.recompute(run.path)


def test_a_copy_without_its_checkpoints(run):
  run.delete("checkpoints")
  found = account_run.recompute(run.path)
  assert any("was not replayed" in note for note in found.notes)
  assert chains.runs_of_rounds(found.ledger) == [1] * small_runs.ROUNDS
