"""Tests of the tuning program, from the command line and with real trials."""

import json
import shlex

import pytest

from binaries import tune as tune_program
from tests.binaries import closing
from tests.binaries import programs
from tff_fedemb import errors
from tff_fedemb.accounting import tuning
from tff_fedemb.mechanisms import banded
from tff_fedemb.models import heads
from tff_fedemb.records import chain as chain_lib
from tff_fedemb.records import model_card
from tff_fedemb.records import sampling_key
from tff_fedemb.report import account

_TINY = (
  "--task=emnist",
  "--aggregator=gaussian",
  "--noise_multiplier=5",
  "--clip_norm=0.3",
  "--clients_per_round=2",
  "--users_per_client=2",
  "--rounds=2",
  "--batch_size=64",
  "--evaluate_every=0",
  "--delta=0.01",
  "--extrapolated_num_users=0",
)
# An aggregator that no registry has.
_OWN = (
  "--aggregator=examples.own_aggregator:OwnAggregator",
  "--kept_share=0.75",
)
_SPACE = {"clip_norm": {"values": [1.0]}}


@pytest.fixture(name="tune")
def _tune(tmp_path):
  """Runs the program in a directory that it makes."""

  def tune(space, *arguments):
    path = tmp_path / "space.json"
    path.write_text(json.dumps(space))
    ended = programs.call(
      "tune",
      f"--output_dir={tmp_path / 'tuning'}",
      f"--search_space={path}",
      *arguments,
    )
    report = tmp_path / "tuning/release/tuning.json"
    return ended, json.loads(report.read_text()) if report.exists() else None

  return tune


@pytest.mark.parametrize(
  ("arguments", "message"),
  [
    (["--mean_trials=0.5"], "--mean_trials must be at least 1"),
    (["--search_space=/no/file"], "--search_space must be a JSON file"),
    (["--output_dir=/proc/tuning"], "--output_dir must be"),
    (
      ["--trial_flagfile=/no/file"],
      "flags of the trials: --flagfile must be a file",
    ),
  ],
)
def test_mistake_is_one_line_and_nothing_is_written(
  tune, data_dir, tmp_path, arguments, message
):
  flags = shlex.join((*_TINY, f"--data_dir={data_dir}"))
  ended, _ = tune(_SPACE, f"--trial_flags={flags}", *arguments)
  programs.check_refused(ended, message)
  assert not (tmp_path / "tuning").exists()


@pytest.mark.parametrize(
  ("flags", "message"),
  [
    ("'", "--trial_flags must be flags as in a shell"),
    ("--nope=3", "flags of the trials: Unknown command line flag 'nope'"),
    ("linear", "flags of the trials: arguments must be flags (--name=value)"),
    ("--data_dir=/no", "--data_dir must hold emnist_all"),
    ("--dry_run", "flags of the trials: Unknown command line flag 'dry_run'"),
  ],
)
def test_flags_of_trials_are_checked(tune, tmp_path, flags, message):
  ended, _ = tune(_SPACE, f"--trial_flags=--task=emnist {flags}")
  programs.check_refused(ended, message)
  assert not (tmp_path / "tuning").exists()


def test_spec_of_trials(data_dir, tmp_path):
  path = tmp_path / "some.flags"
  # Flags of a flagfile may be of classes that are not chosen.
  path.write_text("# A comment.\n" + "\n".join((*_TINY, "--head_margin=0.2")))
  flags = (
    *("--aggregator=banded", "--num_bands=3", "--head=cosine"),
    *("--participation=min_separation", "--min_separation=3"),
    *(f"--data_dir={data_dir}", "--head_scale=2", "--nohead_learned_scale"),
    "--run_dir=elsewhere",
  )
  spec, task = tune_program.read_trials(
    tune_program.TrialOptions(
      search_space="unread",
      trial_flagfile=str(path),
      trial_flags=shlex.join(flags),
      selection_users=4,
    )
  )
  assert isinstance(spec.mechanism, banded.BandedConfig)
  assert (spec.mechanism.num_bands, spec.mechanism.clip_norm) == (3, 0.3)
  assert spec.algorithm.head == heads.CosineHead(scale=2.0)
  assert spec.participation.users_per_round == 4
  assert (spec.task.data_dir, spec.task.selection_users) == (str(data_dir), 4)
  assert (len(task.train_users), task.selection_users) == (2, 4)


@pytest.mark.slow
def test_tuning_of_real_trials(tune, data_dir, tmp_path, monkeypatch):
  directory = tmp_path / "tuning"
  flags = (*_TINY, *_OWN, f"--data_dir={data_dir}")
  # Two, so that there is a choice to check.
  monkeypatch.setattr(
    tuning.RepeatAndSelect, "draw_num_trials", lambda selection, generator: 2
  )
  ended, report = tune(
    {"client_learning_rate": {"log_uniform": [0.01, 0.1]}},
    f"--trial_flags={shlex.join(flags)}",
    *("--mean_trials=1", "--selection_users=2"),
  )
  assert ended.status == 0, ended.errors
  trials = json.loads((directory / "run.json").read_text())["trials"]
  assert trials["mechanism"]["kept_share"] == 0.75
  # Trials write to their logs, the summary of a run too.
  closing.check_size(ended.output)
  assert ended.output.startswith("best trial: client_learning_rate ")
  summaries = [
    json.loads((directory / f"trials/00{i}/summary.json").read_text())
    for i in range(2)
  ]
  recalls = [
    summary["evaluation"]["validation"]["recall_at_far"]["0.001"]
    for summary in summaries
  ]
  assert report["best"]["validation"] == max(recalls)
  best = summaries[recalls.index(max(recalls))]
  # The 26 lower-case letters for test are those of the writers who train.
  kept = json.loads((directory / "recall_of_best.json").read_text())
  assert kept == {"test": best["recall_at_far"]["0.001"]}
  keys = {
    sampling_key.read(directory / f"trials/00{i}/checkpoints") for i in range(2)
  }
  assert len(keys - {None}) == 2
  # A trial may not be given away at the epsilon of one run.
  trial = directory / "trials/000"
  with pytest.raises(errors.FieldError, match="found a trial of a tuning"):
    account.check_release(trial)
  first, *_ = account.recompute(trial).report.warnings
  assert first == account.TRIAL_WARNING
  assert (
    account.check_release(directory)["epsilon"]
    == (report["privacy"]["epsilon"])
  )
  ledger = chain_lib.Chain(directory / "trials/000").ledger
  expected = tuning.RepeatAndSelect(1.0).epsilon(ledger)
  assert report["privacy"]["epsilon"] == pytest.approx(expected)
  assert report["privacy"]["epsilon_of_one_trial"] == pytest.approx(
    best["privacy"]["epsilon_by_accountant"]["rdp"]
  )
  card = model_card.read(directory / "release/saved_model" / model_card.PATH)
  assert card.privacy["epsilon"] == report["privacy"]["epsilon"]
  assert card.privacy["selection_users"] == 2
  assert card.verification["source"] == "validation images of task emnist"
  assert card.verification["images_of_training_users"] is False
  known, own = card.verification["at_far"], best["evaluation"]["validation"]
  for rate in known.keys() & own["recall_at_far"].keys():
    assert known[rate]["recall"] == own["recall_at_far"][rate]
