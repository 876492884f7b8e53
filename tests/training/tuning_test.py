"""Tests of a tuning's course, with a small function in place of training."""

import dataclasses
import json
import os
import pathlib
import stat
import time
from unittest import mock

import numpy as np
import pytest

from tests.training import tunings
from tff_fedemb import errors
from tff_fedemb.accounting import composition
from tff_fedemb.accounting import tuning
from tff_fedemb.mechanisms import blt
from tff_fedemb.mechanisms import blt_strategy
from tff_fedemb.mechanisms import mechanism
from tff_fedemb.participation import min_separation
from tff_fedemb.records import model_card
from tff_fedemb.report import account
from tff_fedemb.training import tuning as tuning_run

_reports = {}


@pytest.fixture(autouse=True)
def _work_each_report_out_once(monkeypatch):
  """Most tunings here cost the same, and it takes seconds to say how much."""
  create = tuning.create_report

  def create_once(*arguments, **options):
    key = repr((arguments, options))
    return _reports.get(key) or _reports.setdefault(
      key, create(*arguments, **options)
    )

  monkeypatch.setattr(tuning, "create_report", create_once)


@pytest.fixture(name="epsilon", scope="module")
def _epsilon():
  """Epsilon of a tuning by trials of the same noise in every round."""
  noise = composition.Noise(1.0)
  history = (composition.Rounds(count=tunings.ROUNDS, noise=noise),)
  return tuning.RepeatAndSelect(10, 1).epsilon(
    composition.Account(tunings.PARTICIPATION, delta=1e-4, history=history)
  )


def test_best_trial_is_reported_with_the_cost_of_all(tmp_path, epsilon, capsys):
  run = tunings.Tuning(tmp_path / "12")
  report = run.run(tunings.RATES, 12)
  assert len(run.rates) == 12
  assert max(run.rates) == 0.4, "the seed must draw the best for this test"
  assert report["best"] == {
    "hyperparameters": {"server_learning_rate": 0.4},
    "metric": "recall_at_far_0.001",
    "validation": 0.4,
    "test": 0.2,
    "saved_model": "release/saved_model",
  }
  assert (run.path / "release/saved_model/rate").read_text() == "0.4"
  assert report["privacy"]["epsilon"] == pytest.approx(epsilon, rel=1e-12)
  assert report["privacy"]["delta"] == 1e-4
  assert report["privacy"]["epsilon_if_chosen_by_others"] is None
  assert run.read("release/tuning.json") == report
  # The tuning does not cover what the chosen run does not cover.
  card = model_card.read(run.path / "release/saved_model" / model_card.PATH)
  assert card.privacy == {**report["privacy"], "not_covered": ["the trace"]}
  assert card.training["command"] == "python -m binaries.run_federated"
  table = tuning_run.to_table(report, pathlib.Path("x"))
  for text in (
    "| server_learning_rate | 0.4 |",
    "| validation | 0.4 |",
    "| test | 0.2 |",
    f"| epsilon | {epsilon:.4g} |",
    "| distribution | geometric |",
  ):
    assert text in table
  # The release is the same however many worse trials there were.
  assert tunings.Tuning(tmp_path / "13").run(tunings.RATES, 13) == report
  # Trials' output is kept with them, for their owner alone.
  assert "rate" not in "".join(capsys.readouterr())
  log = (run.path / "trials/003.log").read_text()
  assert log == f"a trial with rate {run.rates[3]}\n"
  assert stat.S_IMODE((run.path / "trials").stat().st_mode) == 0o700


# A summary that does not say so is no proof that it is not so.
@pytest.mark.parametrize("facts", [{"evaluation_on_training_users": True}, {}])
def test_choice_by_users_who_train_is_not_private(tmp_path, epsilon, facts):
  run = tunings.Tuning(tmp_path, facts)
  report = run.run(tunings.RATES, 3)
  privacy = report["privacy"]
  assert privacy["epsilon"] == "inf"
  assert privacy["unit_is_virtual_client_epsilon"] == "inf"
  assumed = privacy["epsilon_if_chosen_by_others"]
  assert assumed == pytest.approx(epsilon, rel=1e-12)
  assert privacy["statement"].startswith("Epsilon is infinite: ")
  assert f"would be {epsilon:.4g}" in privacy["statement"]
  assert "selection_users=N" in str(report["warnings"])
  # The split may name people.
  assert "by alphabet" not in str(report)
  assert set(report["best"]) == {"hyperparameters", "metric", "saved_model"}
  assert run.read("recall_of_best.json") == {"validation": 0.4, "test": 0.2}


def test_choice_by_selection_users_covers_those_who_train(tmp_path, epsilon):
  report = tunings.Tuning(tmp_path, {"selection_users": 40}).run(
    tunings.RATES, 3
  )
  privacy = report["privacy"]
  assert privacy["epsilon"] == pytest.approx(epsilon, rel=1e-12)
  assert privacy["epsilon_if_chosen_by_others"] is None
  covered = "covers the 1,000 users who train, and not the 40 users who do not"
  assert covered in privacy["statement"]
  # The test images may be of users who train.
  assert report["best"]["validation"] == 0.4
  assert "test" not in report["best"]


def test_times_of_the_released_files_do_not_tell_of_the_best_trial(tmp_path):
  run = tunings.Tuning(tmp_path)
  run.run([0.1], 1)
  saved_model = run.path / "trials/000/release/saved_model"
  (saved_model / "variables").mkdir()
  (saved_model / "variables/weights").touch()
  long_ago = 1e9
  for path in (saved_model, *saved_model.rglob("*")):
    os.utime(path, (long_ago, long_ago))
  start = time.time()
  run.run([0.1])
  best = run.path / "release/saved_model"
  copied = [path.stat() for path in (best, *best.rglob("*"))]
  assert len(copied) == 6
  [time_of_all] = {stat.st_mtime for stat in copied}
  # Clocks of file systems are coarse.
  assert start - 1 < time_of_all <= time.time()
  assert all(stat.st_atime > start - 1 for stat in copied)


# Each entry changes what a tuning leaves, and has the message.
_FORGED = {
  "release/tuning.json": "tuning.json that agrees with its trials/given_away",
  f"release/saved_model/{model_card.PATH}": "model_card.json that agrees with",
  "trials/given_away.json": "found none: the run or tuning was cut off",
}


def test_a_forged_tuning_is_refused(tmp_path):
  run = tunings.Tuning(tmp_path)
  report = run.run([0.1], 1)
  with pytest.raises(errors.FieldError, match="of a tuning, whose release/tun"):
    account.read_ledger(run.path)
  checked = account.check_release(run.path)
  assert checked["epsilon"] == report["privacy"]["epsilon"]
  assert (checked["delta"], checked["num_files"]) == (1e-4, 2)
  for name, message in _FORGED.items():
    content = (run.path / name).read_text()
    if name.startswith("release"):
      (run.path / name).write_text(
        content.replace('"epsilon": ', '"epsilon": 0')
      )
    else:
      (run.path / name).unlink()
    with pytest.raises(errors.FieldError, match=message):
      account.check_release(run.path)
    (run.path / name).write_text(content)


def test_the_seed_of_all_trials_is_secret(tmp_path):
  runs = [tunings.Tuning(tmp_path / name) for name in "ab"]
  for run in runs:
    run.run([0.1, 0.2], 3, seed=None)
    drawn = run.read("trials/num_trials.json")["seed"]
    assert drawn > 2**64
    released = (run.path / "release/tuning.json").read_text()
    assert str(drawn) not in released
  # The trials' own seeds come from it.
  assert not {*runs[0].seeds} & {*runs[1].seeds}


def test_trials_of_a_seed_are_independent_runs(tmp_path):
  first, second = runs = [tunings.Tuning(tmp_path / name) for name in "ab"]
  for run in runs:
    run.run([0.1, 0.2], 6, seed=5)
  assert (first.seeds, first.rates) == (second.seeds, second.rates)
  # Each has a seed of its own, whatever the spec of all trials says.
  assert len({*first.seeds}) == 6
  assert {*first.rates} == {0.1, 0.2}
  for index, (spec, run_dir) in enumerate(first.calls):
    assert run_dir == first.path / f"trials/{index:03d}"
    same = dataclasses.replace(
      spec,
      seed=tunings.SPEC.seed,
      server_optimizer=tunings.SPEC.server_optimizer,
    )
    assert same == tunings.SPEC


# The killed tuning had not written these files yet.
@pytest.mark.parametrize("lost", ["002/summary.json", "002.json"])
def test_resumed_tuning_neither_draws_nor_runs_again(tmp_path, lost):
  run = tunings.Tuning(tmp_path)
  whole = run.run([0.1, 0.2], 4)
  (run.path / "release/tuning.json").unlink()
  (run.path / "trials" / lost).unlink()
  # There is no other number to be drawn, and another seed is not taken.
  assert run.run([0.1, 0.2], seed=1) == whole
  assert len(run.calls) == 5
  assert run.calls[4] == run.calls[2]


def test_a_tuning_that_lost_its_number_of_trials_draws_no_other(tmp_path):
  run = tunings.Tuning(tmp_path)
  run.run(tunings.RATES, 3)
  (run.path / "trials/num_trials.json").unlink()
  for _ in range(2):
    with pytest.raises(errors.FieldError, match=r"num_trials\.json that its"):
      run.run(tunings.RATES, 2, seed=1)
  assert len(run.calls) == 3


def test_a_finished_tuning_runs_no_trial_again(tmp_path):
  run = tunings.Tuning(tmp_path)
  run.run(tunings.RATES, 3)
  (run.path / "trials/001.json").unlink()
  with pytest.raises(errors.FieldError, match="all trials of a finished tun"):
    run.run(tunings.RATES)
  assert len(run.calls) == 3


def test_a_killed_tuning_releases_no_card_of_a_trial(tmp_path, monkeypatch):
  run = tunings.Tuning(tmp_path)
  with monkeypatch.context() as patched:
    patched.setattr(
      tuning_run.os, "utime", mock.Mock(side_effect=KeyboardInterrupt)
    )
    with pytest.raises(KeyboardInterrupt):
      run.run(tunings.RATES, 2)
  assert list((run.path / "release").iterdir()) == []
  report = run.run(tunings.RATES)
  card = model_card.read(run.path / "release/saved_model" / model_card.PATH)
  assert card.privacy["epsilon"] == report["privacy"]["epsilon"]


def test_trials_that_diverge_before_their_chains_begin_have_a_cost(tmp_path):
  run = tunings.Tuning(tmp_path)
  for _ in range(2):
    report = run.run([tunings.DIVERGES_AT_ONCE], 2)
    assert report["best"] is None
    # It is not known by whose images they would have been chosen.
    assert report["privacy"]["epsilon_if_chosen_by_others"] > 0
  assert len(run.calls) == 2


def test_a_tuning_goes_on_with_what_decides_no_result(tmp_path, monkeypatch):
  run = tunings.Tuning(tmp_path)
  whole = run.run([0.1], 1)
  spec = tunings.SPEC
  runtime = dataclasses.replace(spec.runtime, concurrent_clients=3)
  monkeypatch.setattr(
    tunings, "SPEC", dataclasses.replace(spec, runtime=runtime)
  )
  assert run.run([0.1]) == whole
  assert len(run.calls) == 1
  monkeypatch.setattr(tunings, "SPEC", dataclasses.replace(spec, rounds=4))
  with pytest.raises(errors.FieldError, match=r"rounds=5 \(now 4\)"):
    run.run([0.1])


@pytest.mark.parametrize("worst", [tunings.DIVERGES, tunings.NEGATIVE])
def test_diverged_and_refused_trials_are_the_worst(tmp_path, epsilon, worst):
  run = tunings.Tuning(tmp_path)
  report = run.run([worst, 0.5], 8)
  assert report["best"]["validation"] == 0.5
  # As many as were drawn, and all of them accounted for.
  assert report["privacy"]["epsilon"] == pytest.approx(epsilon, rel=1e-12)
  assert "refused" not in json.dumps(report["warnings"])
  found = [run.read(f"trials/{index:03d}.json") for index in range(8)]
  outcome = "diverged" if worst == tunings.DIVERGES else "refused"
  assert {end["outcome"] for end in found} == {outcome, "complete"}
  assert all(("message" in x) == (x["outcome"] == outcome) for x in found)
  num_calls = len(run.calls)
  # None of them runs again.
  assert run.run([worst, 0.5]) == report
  assert len(run.calls) == num_calls


@pytest.mark.parametrize(
  ("rate", "num_trials", "warning"),
  [
    (tunings.DIVERGES, 3, "every model diverged"),
    (tunings.NEGATIVE, 3, "every trial refused its hyperparameters"),
    (0.1, 0, "no trial was drawn"),
  ],
)
def test_no_trial_is_of_use(tmp_path, epsilon, rate, num_trials, warning):
  run = tunings.Tuning(tmp_path)
  report = run.run([rate], num_trials)
  assert report["best"] is None
  assert warning in str(report["warnings"])
  if rate == tunings.DIVERGES:
    # They cost what they would have cost to their end, and none of them has
    # told whose images the best would have been chosen by.
    privacy = report["privacy"]
    assert privacy["epsilon"] == "inf"
    assert privacy["epsilon_if_chosen_by_others"] == pytest.approx(
      epsilon, rel=1e-12
    )
  else:
    assert report["privacy"] is None
    assert warning in tuning_run.to_table(report, tmp_path)
  assert not (run.path / "release/saved_model").exists()
  assert len(run.calls) == (num_trials if rate == tunings.DIVERGES else 0)


@pytest.mark.parametrize(
  ("rate", "error", "message"),
  [
    (8, errors.DataError, "the disk is full."),
    # Missing data are no refusal.
    (21, errors.FieldError, "data_dir must be another one"),
    (tunings.INTERRUPTED, KeyboardInterrupt, None),
  ],
)
def test_trial_that_fails_ends_the_tuning(
  tmp_path, monkeypatch, rate, error, message
):
  run = tunings.Tuning(tmp_path)
  for times in (1, 2):
    with pytest.raises(error, match=message):
      run.run([rate], *([2] if times == 1 else []))
    assert not (run.path / "release/tuning.json").exists()
    assert not (run.path / "trials/000.json").exists()
    # The same trial again, and no other number of them.
    assert len(run.calls) == times
    assert run.calls[-1] == run.calls[0]
  # The error is mended.
  monkeypatch.delitem(tunings.ERRORS, rate)
  assert run.run([rate])["best"]["validation"] == rate
  assert len(run.calls) == 4


def test_trials_of_different_cost_are_refused(tmp_path):
  run = tunings.Tuning(tmp_path)
  with pytest.raises(errors.DataError, match="all cost the same"):
    run.run([0.1, tunings.LESS_NOISE], 8)
  assert not (run.path / "release/tuning.json").exists()


@dataclasses.dataclass(frozen=True, kw_only=True)
class _MadeForMomentum(mechanism.CorrelatedConfig):
  """Noise that does not say that its matrix follows the server's momentum."""

  next_noise = staticmethod(blt.BltConfig.next_noise)

  def create_strategy(self, schedule, workload):
    return blt_strategy.optimize_blt(schedule, workload, num_buffers=2)


def test_a_single_trial_of_another_cost_does_not_train(tmp_path, monkeypatch):
  spec = dataclasses.replace(
    tunings.SPEC,
    mechanism=_MadeForMomentum(noise_multiplier=1.0, clip_norm=0.3),
    participation=min_separation.MinSeparation(
      users_per_round=2, users_per_client=2, min_separation=1
    ),
  )
  monkeypatch.setattr(tunings, "SPEC", spec)
  run = tunings.Tuning(tmp_path)
  with pytest.raises(errors.DataError, match="all cost the same"):
    run.run([0.0], 1, field="server_momentum")
  assert not run.calls


def test_trial_with_rounds_missing_in_its_chain_is_refused(tmp_path):
  run = tunings.Tuning(tmp_path)
  run.run([0.1], 1)
  path = run.path / "trials/000/rounds.jsonl"
  *lines, _ = path.read_text().splitlines(keepends=True)
  path.write_text("".join(lines))
  with pytest.raises(errors.DataError, match="must have run 5 rounds, found 4"):
    run.run([0.1])


def test_number_of_trials_is_drawn_from_the_generator(tmp_path):
  run = tunings.Tuning(tmp_path)
  run.run([0.1], generator=np.random.default_rng(11), mean_trials=3.0)
  drawn = tuning.RepeatAndSelect(3.0, 1.0).draw_num_trials(
    np.random.default_rng(11)
  )
  assert len(run.calls) == drawn
