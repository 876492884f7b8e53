"""Tests of a tuning's course, with a small program in place of training."""

import json
import os
import pathlib
import sys
import time

import dp_accounting
import numpy as np
import pytest

from experiments import search_space
from experiments import tuning_output
from experiments import tuning_run
from tff_fedemb import errors
from tff_fedemb.data.participation import fixed_size
from tff_fedemb.privacy import ledger as ledger_lib
from tff_fedemb.privacy import tuning
from tff_fedemb.program import run_directory

_ROUNDS = 5
_PARTICIPATION = fixed_size.FixedSize(1_000, 20, users_per_client=2)

# Leaves what a training run leaves. Its recall is its server learning rate; a
# rate of 6 is a bug, 7 diverges after two rounds, 8 fails and 9 trains with
# less noise; one from 20 on is refused, a flag or a directory.
_FAKE = """
import json, os, pathlib, sys
flags = dict(flag.removeprefix("--").split("=", 1) for flag in sys.argv[2:])
run_dir = pathlib.Path(flags["run_dir"])
with open(run_dir.parent / "calls", "a") as calls:
  calls.write(json.dumps(flags) + "\\n")
rate = float(flags["server_learning_rate"])
def fail(kind, field, message):
  print("error:", message)
  pathlib.Path(flags["error_json"]).write_text(
      json.dumps({"type": kind, "field": field, "message": message}))
  sys.exit(1)
if rate >= 20:
  name = {20: "server_learning_rate", 21: "data_dir", 22: "head_margin"}[rate]
  if rate == 22:
    run_dir.mkdir(exist_ok=True)
    (run_dir / "flags.json").touch()
  fail("FieldError", name, f"--{name} must be something else, found {rate}.")
run_dir.mkdir(exist_ok=True)
rounds = ROUNDS
if rate == 6:
  raise RuntimeError("a bug")
if rate == 8:
  fail("DataError", None, "the disk is full.")
ledger = json.loads(sys.argv[1])
ledger["history"] = [
    [{"class": "GaussianDpEvent", "noise_multiplier": 0.5 if rate == 9 else 1},
     2 if rate == 7 else rounds]
]
(run_dir / "ledger.json").write_text(json.dumps(ledger))
(run_dir / "flags.json").write_text(json.dumps({"rounds": rounds}))
if rate == 7:
  fail("DivergedError", None, "the model diverged.")
(run_dir / "saved_model").mkdir(exist_ok=True)
(run_dir / "saved_model" / "rate").write_text(str(rate))
(run_dir / "summary.json").write_text(json.dumps({
    "evaluation": {
        "validation": {"recall_at_far": {"0.001": rate, "0.1": -rate}},
        "test": {"recall_at_far": {"0.001": rate / 2, "0.1": 0.5}},
    },
    "split": "by alphabet",
}))
""".replace("ROUNDS", str(_ROUNDS))


_reports = {}


@pytest.fixture(autouse=True)
def _work_each_report_out_once(monkeypatch):
  """Most tunings here cost the same, and it takes seconds to say how much."""
  create_report = tuning.create_report

  def create_once(*arguments):
    key = repr(arguments)
    if key not in _reports:
      _reports[key] = create_report(*arguments)
    return _reports[key]

  monkeypatch.setattr(tuning, "create_report", create_once)


class _FixedNumber(tuning.RepeatAndSelect):
  """Draws what the generator holds, for tests that count trials."""

  def draw_num_trials(self, generator):
    return next(generator)


def _command(tmp_path):
  script = tmp_path / "fake.py"
  script.write_text(_FAKE)
  empty = ledger_lib.Ledger(_PARTICIPATION, delta=1e-4).to_json()
  return (sys.executable, os.fspath(script), empty)


def _config(rates, *, seed=0, **options):
  return tuning_run.TuningConfig(
    selection=_FixedNumber(10.0, 1.0),
    space=search_space.SearchSpace(
      {"server_learning_rate": ("values", tuple(rates))}
    ),
    trial_flags=("--seed=1", "--clip_norm=0.3"),
    seed=seed,
    **options,
  )


def _run(tmp_path, rates, num_trials, **options):
  return tuning_run.TuningRun(
    _config(rates, **options),
    tmp_path / "tuning",
    command=_command(tmp_path),
    generator=iter([num_trials]),
  ).run()


def _calls(tmp_path):
  text = (tmp_path / "tuning" / "trials" / "calls").read_text()
  return [json.loads(line) for line in text.splitlines()]


def _files(directory):
  return sorted(
    os.fspath(path.relative_to(directory))
    for path in directory.rglob("*")
    if path.is_file()
  )


def test_best_trial_is_reported_with_the_cost_of_all(tmp_path):
  report = _run(tmp_path, [0.1, 0.2, 0.3, 0.4], 12)
  calls = _calls(tmp_path)
  assert len(calls) == 12
  rates = [float(call["server_learning_rate"]) for call in calls]
  assert max(rates) == 0.4, "the seed must draw the best for this test"
  assert report["best"] == {
    "hyperparameters": {"server_learning_rate": 0.4},
    "metric": "recall_at_far_0.001",
    "validation": 0.4,
    "test": 0.2,
    "saved_model": "best/saved_model",
  }
  directory = tmp_path / "tuning"
  assert (directory / "best/saved_model/rate").read_text() == "0.4"
  expected = tuning.RepeatAndSelect(10, 1).epsilon(
    [(dp_accounting.GaussianDpEvent(1.0), _ROUNDS)], _PARTICIPATION, 1e-4
  )
  assert report["privacy"]["epsilon"] == pytest.approx(expected, rel=1e-12)
  assert report["privacy"]["delta"] == 1e-4
  assert "may hold data of the protected users (by alphabet)" in str(
    report["warnings"]
  )
  assert json.loads((directory / "tuning.json").read_text()) == report
  table = tuning_output.to_table(report, directory)
  for text in (
    "| --server_learning_rate | 0.4 |",
    "| recall_at_far_0.001, validation | 0.4000 |",
    "| recall_at_far_0.001, test | 0.2000 |",
    f"| epsilon of the tuning | {expected:.4g} |",
    "| number of trials | geometric, mean 10 |",
    "warning: the validation split",
  ):
    assert text in table


def test_another_metric_chooses_another_trial(tmp_path):
  report = _run(tmp_path, [0.1, 0.2], 8, metric="recall_at_far_0.1")
  assert report["best"]["validation"] == -0.1


@pytest.mark.parametrize(
  "metric", ["recall_at_far_1e-3", "recall_at_far_0.0010"]
)
def test_metric_is_the_same_however_its_number_is_written(tmp_path, metric):
  report = _run(tmp_path, [0.1], 1, metric=metric)
  assert report["best"]["metric"] == "recall_at_far_0.001"
  # And so is the tuning.
  assert _run(tmp_path, [0.1], 1, metric="recall_at_far_0.001") == report


def test_report_tells_nothing_of_the_other_trials(tmp_path):
  """What may be released is the same however many worse trials there were."""
  told = []
  for num_trials in (12, 13):
    directory = tmp_path / str(num_trials)
    directory.mkdir()
    report = _run(directory, [0.1, 0.2, 0.3, 0.4], num_trials)
    written = (directory / "tuning/tuning.json").read_text()
    told.append((written, tuning_output.to_table(report, pathlib.Path("x"))))
  assert told[0] == told[1]


def test_times_of_the_released_files_do_not_tell_of_the_best_trial(tmp_path):
  _run(tmp_path, [0.1], 1)
  directory = tmp_path / "tuning"
  saved_model = directory / "trials/000/saved_model"
  (saved_model / "variables").mkdir()
  (saved_model / "variables/weights").touch()
  long_ago = 1e9
  for path in (saved_model, *saved_model.rglob("*")):
    os.utime(path, (long_ago, long_ago))
  start = time.time()
  _run(tmp_path, [0.1], 1)
  best = directory / "best"
  copied = {path.name: path.stat() for path in (best, *best.rglob("*"))}
  assert set(copied) == {"best", "saved_model", "rate", "variables", "weights"}
  [time_of_all] = {stat.st_mtime for stat in copied.values()}
  # Clocks of file systems are coarse.
  assert start - 1 < time_of_all <= time.time()
  assert all(stat.st_atime > start - 1 for stat in copied.values())


def _draw_three(directory, **options):
  tuning_run.TuningRun(
    _config([0.1, 0.2], **options),
    directory / "tuning",
    command=_command(directory),
    generator=iter([3]),
  ).run()
  return _calls(directory)


def test_seed_is_secret_unless_given(tmp_path):
  calls = []
  for name in ("a", "b"):
    (tmp_path / name).mkdir()
    calls.append(_draw_three(tmp_path / name, seed=None))
  seeds = [[call["seed"] for call in run] for run in calls]
  assert not set(seeds[0]) & set(seeds[1])
  drawn = [
    json.loads((tmp_path / name / "tuning/num_trials.json").read_text())
    for name in ("a", "b")
  ]
  assert drawn[0]["seed"] != drawn[1]["seed"]
  assert all(seed["seed"] > 2**64 for seed in drawn)
  released = (tmp_path / "a/tuning/tuning.json").read_text()
  assert str(drawn[0]["seed"]) not in released
  assert "seed was given" not in released


def test_resumed_tuning_goes_on_with_the_seed_that_it_drew(tmp_path):
  before = _draw_three(tmp_path, seed=None)
  for index in (1, 2):
    (tmp_path / f"tuning/trials/00{index}/summary.json").unlink()
  after = _draw_three(tmp_path, seed=None)
  assert after == [*before, *before[1:]]


def test_given_seed_is_reproducible_and_warned_of(tmp_path):
  drawn = []
  for name in ("a", "b"):
    (tmp_path / name).mkdir()
    calls = _draw_three(tmp_path / name, seed=5)
    drawn.append(
      [(call["seed"], call["server_learning_rate"]) for call in calls]
    )
  assert drawn[0] == drawn[1]
  report = json.loads((tmp_path / "a/tuning/tuning.json").read_text())
  assert "the seed was given: epsilon holds only for those who do not" in str(
    report["warnings"]
  )


def test_trials_are_independent_runs(tmp_path):
  _run(tmp_path, [0.1, 0.2], 6)
  calls = _calls(tmp_path)
  # Each has a seed of its own, whatever the flags for all trials say.
  seeds = [int(call["seed"]) for call in calls]
  assert len(set(seeds)) == 6
  assert all(0 <= seed < 2**32 for seed in seeds)
  assert {call["clip_norm"] for call in calls} == {"0.3"}
  assert len({call["server_learning_rate"] for call in calls}) == 2
  assert [pathlib.Path(call["run_dir"]).name for call in calls] == [
    f"{index:03d}" for index in range(6)
  ]


def test_resumed_tuning_neither_draws_nor_runs_again(tmp_path):
  whole = _run(tmp_path, [0.1, 0.2], 4)
  directory = tmp_path / "tuning"
  (directory / "tuning.json").unlink()
  (directory / "trials/002/summary.json").unlink()
  # A generator that has nothing left would raise.
  resumed = tuning_run.TuningRun(
    _config([0.1, 0.2]),
    directory,
    command=_command(tmp_path),
    generator=iter([]),
  ).run()
  assert resumed == whole
  calls = _calls(tmp_path)
  assert len(calls) == 5
  assert calls[4] == calls[2]


def test_diverged_trial_is_the_worst_and_is_not_run_again(tmp_path):
  assert _run(tmp_path, [7, -0.5], 8)["best"]["validation"] == -0.5
  calls = _calls(tmp_path)
  assert {call["server_learning_rate"] for call in calls} == {"7", "-0.5"}
  _run(tmp_path, [7, -0.5], 8)
  assert len(_calls(tmp_path)) == 8


def test_nothing_but_diverged_trials(tmp_path):
  report = _run(tmp_path, [7], 3)
  assert report["best"] is None
  assert "every model diverged" in str(report["warnings"])
  # They cost what they would have cost to their end.
  expected = tuning.RepeatAndSelect(10, 1).epsilon(
    [(dp_accounting.GaussianDpEvent(1.0), _ROUNDS)], _PARTICIPATION, 1e-4
  )
  assert report["privacy"]["epsilon"] == pytest.approx(expected, rel=1e-12)
  assert not (tmp_path / "tuning" / "best").exists()


def test_refused_hyperparameters_are_the_worst_and_do_not_end_it(tmp_path):
  report = _run(tmp_path, [20, -0.5], 8)
  assert report["best"]["validation"] == -0.5
  calls = _calls(tmp_path)
  rates = [call["server_learning_rate"] for call in calls]
  assert set(rates) == {"20", "-0.5"}
  # As many as were drawn, and all of them accounted for.
  assert len(calls) == 8
  expected = tuning.RepeatAndSelect(10, 1).epsilon(
    [(dp_accounting.GaussianDpEvent(1.0), _ROUNDS)], _PARTICIPATION, 1e-4
  )
  assert report["privacy"]["epsilon"] == pytest.approx(expected, rel=1e-12)
  log = tmp_path / f"tuning/trials/{rates.index('20'):03d}.log"
  assert log.read_text().splitlines()[-1] == (
    "refused before its first round: counts as the worst"
  )
  assert "refused" not in json.dumps(report["warnings"])
  assert _run(tmp_path, [20, -0.5], 8) == report
  assert len(_calls(tmp_path)) == 8


def test_nothing_but_refused_trials(tmp_path):
  report = _run(tmp_path, [20], 3)
  assert (report["best"], report["privacy"]) == (None, None)
  assert "every trial refused its flags" in str(report["warnings"])
  assert not (tmp_path / "tuning" / "best").exists()


@pytest.mark.parametrize(
  ("rate", "flag"), [(21, "data_dir"), (22, "head_margin")]
)
def test_missing_data_or_a_started_trial_is_not_refused(tmp_path, rate, flag):
  with pytest.raises(errors.DataError, match=f"error: --{flag} must"):
    _run(tmp_path, [rate], 2)
  assert not (tmp_path / "tuning/tuning.json").exists()
  assert len(_calls(tmp_path)) == 1


def test_no_trial_was_drawn(tmp_path):
  report = _run(tmp_path, [0.1], 0)
  assert (report["best"], report["privacy"]) == (None, None)
  assert "no trial was drawn" in str(report["warnings"])
  assert "none" in tuning_output.to_table(report, tmp_path)
  assert not (tmp_path / "tuning/trials/calls").exists()


@pytest.mark.parametrize(
  ("rate", "end"),
  [(8, "error: the disk is full."), (6, "RuntimeError: a bug")],
)
def test_failed_trial_ends_the_tuning_and_names_its_log(tmp_path, rate, end):
  with pytest.raises(errors.DataError) as caught:
    _run(tmp_path, [rate], 2)
  log = tmp_path / "tuning/trials/000.log"
  assert f"exit status 1; see {log}: {end}" in str(caught.value)
  assert not (tmp_path / "tuning/tuning.json").exists()
  assert len(_calls(tmp_path)) == 1


def test_trials_of_different_cost_are_refused(tmp_path):
  with pytest.raises(errors.DataError, match="all cost the same"):
    _run(tmp_path, [0.1, 9], 8)
  assert not (tmp_path / "tuning/tuning.json").exists()


def test_trial_with_rounds_missing_in_its_ledger_is_refused(tmp_path):
  _run(tmp_path, [0.1], 1)
  ledger = tmp_path / "tuning/trials/000/ledger.json"
  values = json.loads(ledger.read_text())
  values["history"][0][1] = _ROUNDS - 1
  ledger.write_text(json.dumps(values))
  with pytest.raises(errors.DataError, match="must have 5 rounds"):
    _run(tmp_path, [0.1], 1)


def test_directory_of_another_tuning_is_left_alone(tmp_path):
  _run(tmp_path, [0.1], 1)
  before = _files(tmp_path)
  with pytest.raises(run_directory.RunDirectoryError, match="seed"):
    _run(tmp_path, [0.1], 1, seed=4)
  assert _files(tmp_path) == before


@pytest.mark.parametrize(
  "metric", ["auc", "recall_at_far_0.5", "recall_at_far_", "0.001"]
)
def test_unknown_metric(metric):
  with pytest.raises(ValueError, match="metric must be one of recall_at_far"):
    _config([0.1], metric=metric)


def test_negative_seed():
  with pytest.raises(ValueError, match="seed must be an integer of at least 0"):
    _config([0.1], seed=-1)


def test_number_of_trials_is_drawn_from_the_generator(tmp_path):
  selection = tuning.RepeatAndSelect(3.0, 1.0)
  config = tuning_run.TuningConfig(
    selection=selection,
    space=search_space.SearchSpace(
      {"server_learning_rate": ("values", (0.1,))}
    ),
  )
  tuning_run.TuningRun(
    config,
    tmp_path / "tuning",
    command=_command(tmp_path),
    generator=np.random.default_rng(11),
  ).run()
  drawn = selection.draw_num_trials(np.random.default_rng(11))
  assert len(_calls(tmp_path)) == drawn
