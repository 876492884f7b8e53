"""Tests of a tuning's course, with a small program in place of training."""

import json
import os
import pathlib
import sys
import time
from unittest import mock

import dp_accounting
import numpy as np
import pytest

from experiments import tuning_run
from tff_fedemb import errors
from tff_fedemb.data.participation import fixed_size
from tff_fedemb.privacy import ledger as ledger_lib
from tff_fedemb.privacy import tuning
from tff_fedemb.program import model_card

_ROUNDS = 5
_RATES = (0.1, 0.2, 0.3, 0.4)
_PARTICIPATION = fixed_size.FixedSize(1_000, 20, users_per_client=2)

# Leaves what a training run leaves. Its recall is its server learning rate; a
# rate of 6 is a bug, 7 diverges after two rounds, 8 fails and 9 trains with
# less noise; one from 20 on is refused, a flag or a directory.
_FAKE = """
import hashlib, json, os, pathlib, sys
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
planned = json.loads(sys.argv[1])
planned["history"] = [
    {"count": rounds, "noise": {"multiplier": 0.5 if rate == 9 else 1}}
]
lines = [{"format": ["tff_fedemb.program.chain", 1], "planned": planned}]
lines += [
    {"round": n, "participants": "", "released": str(n)}
    for n in range(1, (2 if rate == 7 else rounds) + 1)
]
previous = None
with open(run_dir / "rounds.jsonl", "w") as chain:
  for line in lines:
    text = json.dumps({"previous": previous} | line) + "\\n"
    chain.write(text)
    previous = hashlib.sha256(text.encode()).hexdigest()
(run_dir / "flags.json").write_text(json.dumps({"rounds": rounds}))
if rate == 7:
  fail("DivergedError", None, "the model diverged.")
saved_model = run_dir / "release/saved_model"
(saved_model / "assets.extra").mkdir(parents=True, exist_ok=True)
(saved_model / "rate").write_text(str(rate))
facts = json.loads(flags["facts"])
(saved_model / "assets.extra" / "model_card.json").write_text(
    json.dumps({
        "image_shape": [2, 2, 1],
        "embedding_dim": 3,
        "verification": None,
        "privacy": {"epsilon": 0.1926, "not_covered": ["the trace"]},
        "training": {"command": "python -m binaries.run_federated"},
        "preprocessing": {"name": "middle_crop"},
    }))
(run_dir / "summary.json").write_text(json.dumps({
    "evaluation": {
        "validation": {"recall_at_far": {"0.001": rate, "0.1": -rate}},
        "test": {"recall_at_far": {"0.001": rate / 2, "0.1": 0.5}},
    },
    "split": "by alphabet",
    **facts,
}))
""".replace("ROUNDS", str(_ROUNDS))


_reports = {}


@pytest.fixture(autouse=True)
def _work_each_report_out_once(monkeypatch):
  """Most tunings here cost the same, and it takes seconds to say how much."""
  create_report = tuning.create_report

  def create_once(*arguments, **options):
    key = repr((arguments, options))
    if key not in _reports:
      _reports[key] = create_report(*arguments, **options)
    return _reports[key]

  monkeypatch.setattr(tuning, "create_report", create_once)


@pytest.fixture(name="epsilon", scope="module")
def _epsilon():
  """That of a tuning by trials of one Gaussian event a round."""
  return tuning.RepeatAndSelect(10, 1).epsilon(
    [(dp_accounting.GaussianDpEvent(1.0), _ROUNDS)], _PARTICIPATION, 1e-4
  )


# What a trial's summary says of the users whose images it is evaluated on.
_OTHERS = {"evaluation_on_training_users": False}


def _create(tmp_path, rates, generator, facts=_OTHERS, **options):
  script = tmp_path / "fake.py"
  tmp_path.mkdir(exist_ok=True)
  script.write_text(_FAKE)
  empty = json.dumps(ledger_lib.Ledger(_PARTICIPATION, delta=1e-4).to_json())
  return tuning_run.TuningRun(
    tuning_run.TuningConfig(
      **{
        "run_dir": tmp_path / "tuning",
        "search_space": "unread",
        "seed": 0,
        **options,
      }
    ),
    {"server_learning_rate": ("values", tuple(rates))},
    ("--seed=1", "--clip_norm=0.3", f"--facts={json.dumps(facts)}"),
    # It needs no packages, which take as long to look for as it runs.
    command=(sys.executable, "-S", os.fspath(script), empty),
    generator=generator,
  )


def _run(tmp_path, rates, *num_trials, **options):
  """Runs a tuning that draws these numbers of trials, one after another."""
  with mock.patch.object(
    tuning.RepeatAndSelect,
    "draw_num_trials",
    lambda selection, generator: next(generator),
  ):
    return _create(tmp_path, rates, iter(num_trials), **options).run()


def _calls(tmp_path):
  text = (tmp_path / "tuning" / "trials" / "calls").read_text()
  return [json.loads(line) for line in text.splitlines()]


def _values(calls, name):
  return [call[name] for call in calls]


def _files(directory):
  return {p: p.stat().st_mtime_ns for p in directory.rglob("*") if p.is_file()}


def test_best_trial_is_reported_with_the_cost_of_all(tmp_path, epsilon):
  report = _run(tmp_path / "12", _RATES, 12)
  calls = _calls(tmp_path / "12")
  assert len(calls) == 12
  rates = [float(rate) for rate in _values(calls, "server_learning_rate")]
  assert max(rates) == 0.4, "the seed must draw the best for this test"
  assert report["best"] == {
    "hyperparameters": {"server_learning_rate": 0.4},
    "metric": "recall_at_far_0.001",
    "validation": 0.4,
    "test": 0.2,
    "saved_model": "release/saved_model",
  }
  directory = tmp_path / "12/tuning"
  assert (directory / "release/saved_model/rate").read_text() == "0.4"
  assert report["privacy"]["epsilon"] == pytest.approx(epsilon, rel=1e-12)
  assert report["privacy"]["delta"] == 1e-4
  assert report["privacy"]["epsilon_if_chosen_by_others"] is None
  assert json.loads((directory / "release/tuning.json").read_text()) == report
  table = tuning_run.to_table(report, pathlib.Path("x"))
  for text in (
    "| --server_learning_rate | 0.4 |",
    "| recall_at_far_0.001, validation | 0.4000 |",
    "| recall_at_far_0.001, test | 0.2000 |",
    f"| epsilon of the tuning | {epsilon:.4g} |",
    "| number of trials | geometric, mean 10 |",
    "warning: the seed was given",
  ):
    assert text in table
  # What may be released is the same however many worse trials there were.
  again = _run(tmp_path / "13", _RATES, 13)
  assert again == report
  assert (tmp_path / "13/tuning/release/tuning.json").read_bytes() == (
    directory / "release/tuning.json"
  ).read_bytes()


def test_card_of_the_best_is_that_of_the_whole_tuning(tmp_path):
  _run(tmp_path, _RATES, 3)
  directory = tmp_path / "tuning"
  card = model_card.read(directory / "release/saved_model" / model_card.PATH)
  report = json.loads((directory / "release/tuning.json").read_text())
  # What the run that was chosen does not cover, the tuning does not either.
  assert card.privacy == {**report["privacy"], "not_covered": ["the trace"]}
  assert card.training["command"] == "python -m binaries.run_federated"


# A summary that does not say so is no proof that it is not so.
@pytest.mark.parametrize("facts", [{"evaluation_on_training_users": True}, {}])
def test_choice_by_users_who_train_is_not_private(tmp_path, epsilon, facts):
  report = _run(tmp_path, _RATES, 3, facts=facts)
  privacy = report["privacy"]
  assert privacy["epsilon"] == "inf"
  assert privacy["unit_is_virtual_client_epsilon"] == "inf"
  assumed = privacy["epsilon_if_chosen_by_others"]
  assert assumed == pytest.approx(epsilon, rel=1e-12)
  assert privacy["statement"].startswith("Epsilon is infinite: ")
  assert f"would be {epsilon:.4g}" in privacy["statement"]
  assert "--selection_users=N" in str(report["warnings"])
  # The split may name people.
  assert "by alphabet" not in str(report)
  table = tuning_run.to_table(report, pathlib.Path("x"))
  assert "| epsilon of the tuning | inf |" in table
  assert f"| epsilon if chosen by images of others | {epsilon:.4g} |" in table
  assert "recall_of_best.json" in table
  assert set(report["best"]) == {"hyperparameters", "metric", "saved_model"}
  kept = json.loads((tmp_path / "tuning/recall_of_best.json").read_text())
  assert kept == {"validation": 0.4, "test": 0.2}


def test_choice_by_selection_users_covers_those_who_train(tmp_path, epsilon):
  facts = {"selection_users": 40}
  report = _run(tmp_path, _RATES, 3, facts=facts, selection_users=40)
  assert {*_values(_calls(tmp_path), "selection_users")} == {"40"}
  privacy = report["privacy"]
  assert privacy["epsilon"] == pytest.approx(epsilon, rel=1e-12)
  assert privacy["epsilon_if_chosen_by_others"] is None
  covered = "covers the 1,000 users who train, and not the 40 users who do not"
  assert covered in privacy["statement"]
  # The test images may be of users who train.
  assert report["best"]["validation"] == 0.4
  assert "test" not in report["best"]


def test_another_metric_chooses_another_trial(tmp_path):
  report = _run(tmp_path, [0.1, 0.2], 8, metric="recall_at_far_0.1")
  assert report["best"]["validation"] == -0.1


@pytest.mark.parametrize("number", ["1e-3", "0.0010"])
def test_metric_is_the_same_however_its_number_is_written(tmp_path, number):
  report = _run(tmp_path, [0.1], 1, metric=f"recall_at_far_{number}")
  assert report["best"]["metric"] == "recall_at_far_0.001"
  # And so is the tuning.
  assert _run(tmp_path, [0.1], metric="recall_at_far_0.001") == report


@pytest.mark.parametrize(
  "metric", ["auc", "recall_at_far_0.5", "recall_at_far_", "0.001"]
)
def test_unknown_metric(tmp_path, metric):
  with pytest.raises(errors.FieldError, match="metric must be one of recall"):
    _run(tmp_path, [0.1], metric=metric)


def test_times_of_the_released_files_do_not_tell_of_the_best_trial(tmp_path):
  _run(tmp_path, [0.1], 1)
  directory = tmp_path / "tuning"
  saved_model = directory / "trials/000/release/saved_model"
  (saved_model / "variables").mkdir()
  (saved_model / "variables/weights").touch()
  long_ago = 1e9
  for path in (saved_model, *saved_model.rglob("*")):
    os.utime(path, (long_ago, long_ago))
  start = time.time()
  _run(tmp_path, [0.1])
  best = directory / "release/saved_model"
  copied = {path.name: path.stat() for path in (best, *best.rglob("*"))}
  assert set(copied) == {
    *("saved_model", "rate", "variables", "weights"),
    *("assets.extra", "model_card.json"),
  }
  [time_of_all] = {stat.st_mtime for stat in copied.values()}
  # Clocks of file systems are coarse.
  assert start - 1 < time_of_all <= time.time()
  assert all(stat.st_atime > start - 1 for stat in copied.values())


def test_seed_is_secret_unless_given(tmp_path):
  calls, seeds = [], []
  for path in (tmp_path / "a", tmp_path / "b"):
    _run(path, [0.1, 0.2], 3, seed=None)
    calls.append(_calls(path))
    drawn = json.loads((path / "tuning/trials/num_trials.json").read_text())
    seeds.append(drawn["seed"])
    released = (path / "tuning/release/tuning.json").read_text()
    assert str(drawn["seed"]) not in released
    assert "seed was given" not in released
  assert not {*_values(calls[0], "seed")} & {*_values(calls[1], "seed")}
  assert seeds[0] != seeds[1]
  assert min(seeds) > 2**64


def test_trials_of_a_given_seed_are_independent_runs(tmp_path):
  drawn = []
  for path in (tmp_path / "a", tmp_path / "b"):
    report = _run(path, [0.1, 0.2], 6, seed=5)
    assert "the seed was given: epsilon holds only for those who do not" in str(
      report["warnings"]
    )
    calls = _calls(path)
    drawn.append(
      (_values(calls, "seed"), _values(calls, "server_learning_rate"))
    )
  assert drawn[0] == drawn[1]
  # Each has a seed of its own, whatever the flags for all trials say.
  seeds, rates = drawn[0]
  assert len(set(seeds)) == 6
  assert all(0 <= int(seed) < 2**32 for seed in seeds)
  assert len(set(rates)) == 2
  assert {*_values(calls, "clip_norm")} == {"0.3"}
  assert [pathlib.Path(path).name for path in _values(calls, "run_dir")] == [
    f"{index:03d}" for index in range(6)
  ]


@pytest.mark.parametrize("seed", [None, 0])
def test_resumed_tuning_neither_draws_nor_runs_again(tmp_path, seed):
  whole = _run(tmp_path, [0.1, 0.2], 4, seed=seed)
  directory = tmp_path / "tuning"
  (directory / "release/tuning.json").unlink()
  (directory / "trials/002/summary.json").unlink()
  # There is no other number to be drawn.
  assert _run(tmp_path, [0.1, 0.2], seed=seed) == whole
  calls = _calls(tmp_path)
  assert len(calls) == 5
  assert calls[4] == calls[2]


@pytest.mark.parametrize("worst", ["7", "20"])
def test_diverged_and_refused_trials_are_the_worst(tmp_path, epsilon, worst):
  rates = [int(worst), -0.5]
  report = _run(tmp_path, rates, 8)
  assert report["best"]["validation"] == -0.5
  # As many as were drawn, and all of them accounted for.
  assert report["privacy"]["epsilon"] == pytest.approx(epsilon, rel=1e-12)
  assert "refused" not in json.dumps(report["warnings"])
  found = _values(_calls(tmp_path), "server_learning_rate")
  assert set(found) == {worst, "-0.5"}
  assert _run(tmp_path, rates) == report
  # None of them was run again.
  assert len(_calls(tmp_path)) == len(found) == 8
  log = tmp_path / f"tuning/trials/{found.index(worst):03d}.log"
  was_refused = "refused before its first round: counts as the worst"
  assert (log.read_text().splitlines()[-1] == was_refused) == (worst == "20")


@pytest.mark.parametrize(
  ("rate", "num_trials", "warning"),
  [
    (7, 3, "every model diverged"),
    (20, 3, "every trial refused its flags"),
    (0.1, 0, "no trial was drawn"),
  ],
)
def test_no_trial_is_of_use(tmp_path, epsilon, rate, num_trials, warning):
  report = _run(tmp_path, [rate], num_trials)
  assert report["best"] is None
  assert warning in str(report["warnings"])
  assert "| none | |" in tuning_run.to_table(report, tmp_path) or rate == 7
  if rate == 7:
    # They cost what they would have cost to their end, and none of them has
    # told whose images the best would have been chosen by.
    privacy = report["privacy"]
    assert privacy["epsilon"] == "inf"
    assert privacy["epsilon_if_chosen_by_others"] == pytest.approx(
      epsilon, rel=1e-12
    )
  else:
    assert report["privacy"] is None
  assert not (tmp_path / "tuning" / "best").exists()
  assert (tmp_path / "tuning/trials/calls").exists() == (num_trials > 0)


@pytest.mark.parametrize(
  ("rate", "end"),
  [
    (8, "error: the disk is full."),
    (6, "RuntimeError: a bug"),
    # Missing data, and a trial that has begun, are no refusal.
    (21, "error: --data_dir must be something else, found 21.0."),
    (22, "error: --head_margin must be something else, found 22.0."),
  ],
)
def test_failed_trial_ends_the_tuning_and_names_its_log(tmp_path, rate, end):
  with pytest.raises(errors.DataError) as caught:
    _run(tmp_path, [rate], 2)
  log = tmp_path / "tuning/trials/000.log"
  assert f"exit status 1; see {log}: {end}" in str(caught.value)
  assert not (tmp_path / "tuning/release/tuning.json").exists()
  assert len(_calls(tmp_path)) == 1


def test_trials_of_different_cost_are_refused(tmp_path):
  with pytest.raises(errors.DataError, match="all cost the same"):
    _run(tmp_path, [0.1, 9], 8)
  assert not (tmp_path / "tuning/release/tuning.json").exists()


def test_trial_with_rounds_missing_in_its_chain_is_refused(tmp_path):
  _run(tmp_path, [0.1], 1)
  path = tmp_path / "tuning/trials/000/rounds.jsonl"
  *lines, _ = path.read_text().splitlines(keepends=True)
  path.write_text("".join(lines))
  with pytest.raises(errors.DataError, match="must have run 5 rounds, found 4"):
    _run(tmp_path, [0.1])


def test_directory_of_another_tuning_is_left_alone(tmp_path):
  _run(tmp_path, [0.1], 1)
  before = _files(tmp_path / "tuning")
  with pytest.raises(errors.FieldError, match=r"run_dir must .* seed"):
    _run(tmp_path, [0.1], 1, seed=4)
  assert _files(tmp_path / "tuning") == before


def test_number_of_trials_is_drawn_from_the_generator(tmp_path):
  generator = np.random.default_rng(11)
  _create(tmp_path, [0.1], generator, mean_trials=3.0).run()
  drawn = tuning.RepeatAndSelect(3.0, 1.0).draw_num_trials(
    np.random.default_rng(11)
  )
  assert len(_calls(tmp_path)) == drawn
