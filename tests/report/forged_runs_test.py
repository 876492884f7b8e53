"""Tests that forged runs are refused, and that interrupted runs go on."""

import shutil
from unittest import mock

import pandas as pd
import pytest

from tests.records import chains
from tests.spec import small_runs
from tff_fedemb.records import chain as chain_lib
from tff_fedemb.records import checkpoints
from tff_fedemb.records import metrics
from tff_fedemb.report import account as account_run

_RUN = "run"
_CHAIN, _TRACE = chain_lib.NAME, "participation.trace"
_MODEL, _SUMMARY = "release/saved_model", "summary.json"
_MORE_NOISE = ('"multiplier": 2.0}', '"multiplier": 9.0}')
_FEWER_NUMBERS = ('"num_parameters": 1000', '"num_parameters": 1')


@pytest.fixture(name="built", scope="module")
def _built(tmp_path_factory):
  """Finished and killed runs, two of each kind, to be copied."""
  directory = tmp_path_factory.mktemp("runs")
  for name in (_RUN, small_runs.OTHER):
    for correlated in (False, True):
      for end in ("train", "kill"):
        path = directory / f"{end} {correlated} {name}"
        getattr(small_runs.SmallRun(path, correlated=correlated), end)()
  return directory


def _copy(built, tmp_path, end, *, correlated):
  """Copies a run and another one of its kind; returns the first."""
  for name in (_RUN, small_runs.OTHER):
    shutil.copytree(built / f"{end} {correlated} {name}", tmp_path / name)
  return small_runs.SmallRun(tmp_path / _RUN, correlated=correlated)


def _cut(run, *kept):
  """Ends chain and trace at a round, and deletes later files unless kept."""
  run.cut()
  run.edit_trace(rounds=3)
  later = {_SUMMARY, _MODEL, "metrics.csv", "checkpoints"}
  run.delete(*later.difference(kept))


def _delete_a_line(run):
  run.lines = run.lines[:3] + run.lines[4:]


def _swap_lines(run):
  first, second, third, *others = run.lines
  run.lines = [first, third, second, *others]


def _forge_epsilon(run):
  run.edit(_SUMMARY, privacy__epsilon=0.01, privacy__epsilon_by_accountant={})


def _forge_numbers(run):
  run.replace(*_FEWER_NUMBERS, link=True)
  run.delete(_MODEL)
  run.edit(_SUMMARY, chain=chain_lib.Chain(run.path).head)


# Each entry changes a finished run, and has the message.
_FORGED = {
  "cut, without a summary": (
    lambda run: (run.cut(), run.delete(_SUMMARY)),
    r"checkpoints/round_\d .* found round \d there and 3",
  ),
  "cut as the trace, with metrics": (
    lambda run: _cut(run, "metrics.csv"),
    "metrics.csv .* found round 6 there and 3",
  ),
  "cut as the trace, with checkpoints": (
    lambda run: _cut(run, "checkpoints"),
    r"checkpoints/round_\d .* found round \d there and 3",
  ),
  "cut as the trace, with a model": (
    lambda run: _cut(run, _MODEL),
    "model_card.json .* found line",
  ),
  "cut as the trace, with a summary": (
    lambda run: _cut(run, _SUMMARY),
    "summary.json .* found round 6 there and 3",
  ),
  "cut, and nothing else left": (
    lambda run: (_cut(run), run.take(_TRACE)),
    f"{_TRACE} .* found 6 rounds there and 3",
  ),
  "a line is missing": (_delete_a_line, "lines follow .*, found line 4 of"),
  "lines are in another order": (_swap_lines, "lines follow .*, found line 2"),
  "no chain": (lambda run: run.delete(_CHAIN), "rounds.jsonl .* it was lost"),
  "the chain of another run": (
    lambda run: run.take(_CHAIN),
    f"{_TRACE} .* found other users there and in round 1",
  ),
  "chain and trace of another run": (
    lambda run: run.take(_CHAIN, _TRACE),
    "model_card.json .* found line",
  ),
  "the trace of another run": (
    lambda run: run.take(_TRACE),
    f"{_TRACE} .* found other users there and in round 1",
  ),
  "the model of another run": (
    lambda run: run.take(_MODEL),
    "model_card.json .* found line",
  ),
  "the summary of another run": (
    lambda run: run.take(_SUMMARY),
    "summary.json .* found chain",
  ),
  "the key of another run": (
    lambda run: run.take("checkpoints/sampling_key"),
    "fixed_size draws from the run's key",
  ),
  "a user was moved": (
    lambda run: run.edit_trace(move_a_user=True),
    f"{_TRACE} .* found other users there and in round 3",
  ),
  "other settings": (
    lambda run: run.edit("run.json", noise_multiplier=9.0),
    "run.json .* found another file",
  ),
  "more noise": (
    lambda run: run.replace(*_MORE_NOISE),
    "lines follow .*, found line 2 of",
  ),
  "more noise in a chain made anew": (
    lambda run: run.replace(*_MORE_NOISE, link=True),
    "model_card.json .* found line",
  ),
  "fewer numbers in a chain made anew": (
    _forge_numbers,
    "summary.json .* found num_private_parameters 1000 there and 1",
  ),
  "the digest of another model": (
    lambda run: run.replace('"released": "', '"released": "0'),
    "lines follow .*, found line",
  ),
  "fewer rounds in the summary": (
    lambda run: run.edit(_SUMMARY, rounds=3),
    "summary.json .* found rounds 3 there and 6",
  ),
  "another delta in the summary": (
    lambda run: run.edit(_SUMMARY, privacy__delta=0.1),
    "summary.json .* found delta 0.1 there",
  ),
  "another epsilon by an accountant": (
    lambda run: run.edit(_SUMMARY, privacy__epsilon_by_accountant__gaussian=1),
    "summary.json .* found epsilon by gaussian 1 there",
  ),
  "another epsilon, of no accountant": (
    _forge_epsilon,
    "summary.json .* found epsilon 0.01 there",
  ),
}


@pytest.mark.parametrize("case", _FORGED)
def test_a_forged_run_is_refused_an_epsilon(built, tmp_path, case):
  forge, message = _FORGED[case]
  run = _copy(built, tmp_path, "train", correlated=False)
  forge(run)
  with pytest.raises(ValueError, match=message) as error:
    account_run.recompute(run.path)
  small_runs.check_one_line(error)


def test_a_finished_run_with_a_forged_summary_does_not_open(built, tmp_path):
  run = _copy(built, tmp_path, "train", correlated=False)
  _forge_epsilon(run)
  with pytest.raises(ValueError, match=r"found epsilon 0\.01 there and"):
    account_run.open_chain(run.path)


def test_what_is_forged_was_not_refused(built, tmp_path):
  for correlated in (False, True):
    path = tmp_path / str(correlated)
    run = _copy(built, path, "train", correlated=correlated)
    assert account_run.recompute(run.path).report.rounds == small_runs.ROUNDS


def _rename_a_checkpoint(run):
  path = run.path / "checkpoints"
  (path / "round_4").rename(path / "round_5")


# Each entry changes a killed run with correlated noise, and has the message if
# it goes on with other data.
_CHANGED = {
  "nothing": (lambda run: None, "come to the model that round 5 released"),
  "an older checkpoint": (
    lambda run: run.delete("checkpoints/round_4"),
    "come to the model that round 3 released",
  ),
  "an older checkpoint, the chain cut": (
    lambda run: (run.delete("checkpoints/round_4"), run.cut(2)),
    "metrics.csv .* found round 5 there and 2",
  ),
  "the same, without metrics": (
    lambda run: (run.delete("checkpoints/round_4", "metrics.csv"), run.cut(2)),
    f"{_TRACE} .* found 6 rounds there and 2",
  ),
  "the checkpoint of another run": (
    lambda run: run.take("checkpoints/round_4"),
    "checkpoints that its rounds.jsonl knows, found another one of round 4",
  ),
  "a checkpoint under another number": (
    _rename_a_checkpoint,
    "checkpoints that its rounds.jsonl knows, found another one of round 5",
  ),
  "more noise in a chain made anew": (
    lambda run: run.replace(
      '"multiplier": 2.0,', '"multiplier": 9.0,', link=True
    ),
    "go on as it began, found planned.history=.*9.0.* .now .*2.0",
  ),
  "more users in a chain made anew": (
    lambda run: run.replace('"num_users": 20', '"num_users": 99', link=True),
    "go on as it began, found planned.*num_users=99 .now 20",
  ),
  "no checkpoints": (
    lambda run: run.delete("checkpoints/round_2", "checkpoints/round_4"),
    "hold a checkpoint of the 6 rounds in its trace",
  ),
}


@pytest.mark.parametrize("case", _CHANGED)
def test_a_changed_run_does_not_go_on(built, tmp_path, case):
  change, message = _CHANGED[case]
  run = _copy(built, tmp_path, "kill", correlated=True)
  change(run)
  before = [line for line in run.lines if "released" in line]
  with pytest.raises(ValueError, match=message) as error:
    run.train(small_runs.OtherData())
  small_runs.check_one_line(error)
  assert [line for line in run.lines if "released" in line] == before
  assert not (run.path / _SUMMARY).exists()


def _interrupt(run, owner, name, error=SystemExit):
  """Goes on with a run, and interrupts it where it calls a function."""
  with (
    mock.patch.object(owner, name, side_effect=error),
    pytest.raises(error),
  ):
    run.train()


# Each entry changes a killed run before it goes on, and has the number of times
# that each round ran at the end if the noise is independent.
_INTERRUPTED = {
  "nothing else": (lambda run: None, [1, 1, 1, 1, 2, 1]),
  "half a line is written": (
    lambda run: run.append(_CHAIN, b'{"previous": "12'),
    [1, 1, 1, 1, 2, 1],
  ),
  "half a record of the trace is written": (
    lambda run: run.shorten(_TRACE),
    [1, 1, 1, 1, 2, 1],
  ),
  "the last checkpoint is lost": (
    lambda run: run.delete("checkpoints/round_4"),
    [1, 1, 2, 2, 2, 1],
  ),
  "the last checkpoint cannot be read": (
    lambda run: run.delete("checkpoints/round_4/saved_model.pb"),
    [1, 1, 2, 2, 2, 1],
  ),
  "it ends before it reports a round": (
    lambda run: _interrupt(run, metrics.MetricsLog, "release"),
    [1, 1, 1, 1, 2, 1],
  ),
  "Ctrl-C": (
    lambda run: _interrupt(run, metrics, "flatten", KeyboardInterrupt),
    [1, 1, 1, 1, 3, 1],
  ),
  "it ends before a checkpoint is written": (
    lambda run: _interrupt(run, checkpoints.Checkpoints, "save"),
    [1, 1, 1, 1, 3, 2],
  ),
  "it ends before its model is written": (
    lambda run: run.train(finish=False),
    [1, 1, 1, 1, 2, 1],
  ),
  "it is finished": (lambda run: run.train(), [1, 1, 1, 1, 2, 1]),
}


@pytest.mark.parametrize(
  ("case", "correlated"),
  [
    *(
      pytest.param(case, False, marks=pytest.mark.slow)
      for case in _INTERRUPTED
      if case != "Ctrl-C"
    ),
    ("Ctrl-C", False),
    # A case of each way in which rounds run again.
    ("the last checkpoint is lost", True),
    ("Ctrl-C", True),
    ("it ends before a checkpoint is written", True),
  ],
)
def test_an_interrupted_run_goes_on(built, tmp_path, case, correlated):
  interrupt, runs = _INTERRUPTED[case]
  run = _copy(built, tmp_path, "kill", correlated=correlated)
  interrupt(run)
  chain = run.train()
  assert chains.runs_of_rounds(chain.ledger) == (
    [1] * 6 if correlated else runs
  )
  account = account_run.recompute(run.path)
  assert account.ledger == chain.ledger
  assert account.notes[0].startswith("the draw of all 6 rounds was replayed")
  assert list(pd.read_csv(run.path / "metrics.csv").round_num) == [*range(1, 7)]


@pytest.mark.parametrize("left", [0, 1, 2])
def test_a_run_that_was_killed_as_it_began(tmp_path, left):
  """The chain has half a line, no state, or a state without a checkpoint."""
  run = small_runs.SmallRun(tmp_path / _RUN, correlated=True)
  _interrupt(run, checkpoints.Checkpoints, "save")
  first, state = run.lines
  run.lines = [[first[:99]], [first], [first, state]][left]
  assert chains.runs_of_rounds(run.train().ledger) == [1] * small_runs.ROUNDS
  assert account_run.recompute(run.path).report.rounds == small_runs.ROUNDS
