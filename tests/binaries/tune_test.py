"""Tests of the tuning program, from the command line and with real trials."""

import json
import os
import pathlib
import shlex
import subprocess
import sys
from unittest import mock

import pytest

from tests.binaries import programs
from tff_fedemb import errors
from tff_fedemb.privacy import tuning
from tff_fedemb.program import chain as chain_lib
from tff_fedemb.program import model_card
from tff_fedemb.program import sampling_key
from tff_fedemb.training import search_space
from tff_fedemb.training import tuning as tuning_run

_REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
_TRIAL = (sys.executable, "-m", "binaries.run_federated")
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


@pytest.fixture(name="answer", scope="module")
def _answer():
  """What the training program tells of its flags, in no process of its own."""
  return mock.Mock(stdout=programs.call("run_federated", "--helpxml").output)


@pytest.fixture(name="flag_types")
def _flag_types(answer, monkeypatch):
  with monkeypatch.context() as patched:
    patched.setattr(subprocess, "run", lambda *_, **__: answer)
    return search_space.read_flag_types(_TRIAL, ())


@pytest.fixture(name="tune")
def _tune(tmp_path, answer, monkeypatch):
  def tune(*arguments):
    return programs.call(
      "tune", f"--output_dir={tmp_path / 'tuning'}", *arguments
    )

  monkeypatch.setattr(subprocess, "run", lambda *_, **__: answer)
  return tune


def _write_space(tmp_path, space):
  path = tmp_path / "space.json"
  path.write_text(json.dumps(space))
  return f"--search_space={path}"


_SPACE = {"server_learning_rate": {"uniform": [0.1, 1.0]}}


@pytest.mark.parametrize(
  ("arguments", "message"),
  [
    (["--mean_trials=0.5"], "error: --mean_trials must be at least 1"),
    (["--shape=-1"], "error: --shape must be"),
    (["--trial_flags='"], "error: --trial_flags must be flags as in a sh"),
    (["--trial_flagfile=/no/file"], "error: --trial_flagfile must be a fi"),
    (["--search_space=/no/file"], "error: --search_space must be a JSON"),
    (["--num_trials=3"], "Unknown command line flag 'num_trials'"),
    (
      ["--trial_flags=--clip_nrom=3"],
      "error: --trial_flags must be flags of the trials (--name=value),"
      " found '--clip_nrom=3'",
    ),
    (["--seed=-1"], "error: --seed must be"),
    (["--output_dir=/proc/tuning"], "error: --output_dir must be"),
    (["--output_dir="], "error: --output_dir must be given"),
  ],
)
def test_mistake_is_one_line_and_nothing_is_written(
  tune, tmp_path, arguments, message
):
  ended = tune(_write_space(tmp_path, _SPACE), *arguments)
  assert ended.status == 1
  assert message in ended.errors
  assert not (tmp_path / "tuning").exists()


def test_directory_of_something_else_is_refused(tune, tmp_path):
  directory = tmp_path / "tuning"
  directory.mkdir()
  (directory / "thesis.tex").touch()
  ended = tune(_write_space(tmp_path, _SPACE))
  assert ended.status == 1
  assert "error: --output_dir must be new or hold a run" in ended.errors
  assert os.listdir(directory) == ["thesis.tex"]


def test_program_of_its_own_process(tmp_path):
  ended = programs.start(
    "binaries.tune",
    "--mean_trials=0",
    f"--output_dir={tmp_path / 'tuning'}",
    "--search_space=x",
  )
  assert ended.status == 1
  assert ended.errors.splitlines()[-1].startswith("error: --mean_trials must")


def test_every_flag_of_the_training_program_is_fixed_or_searchable(flag_types):
  # Does a flag change what a trial costs, its data, what it releases or how it
  # is judged? Then it is fixed, and searchable if only the model depends on it.
  fixed = """
    aggregator algorithm cache_dir checkpoint_every clients_per_round color_mode
    compute_precision concurrent_clients data_dir delta deployment
    deployment_seed dry_run evaluate_every export extrapolated_cohort_factor
    extrapolated_delta extrapolated_num_users hold_out image_size
    max_evaluation_images max_held_out_images max_images_per_user min_separation
    noise_multiplier num_bands num_buffers num_users on_bad_example
    on_client_error participation period population_seed pretrained_backbone
    ray_address ray_clients_per_chunk ray_runtime_env ray_worker_cores
    ray_worker_gpus ray_workers regroup_clients report require_gpu restart_every
    restart_warmup rounds run_dir runtime sampling_seed
    secure_sum_threshold seed selection_users smoke table task task_variant
    users_per_client
  """
  assert set(flag_types) - search_space.SEARCHABLE_FLAGS == set(fixed.split())
  assert set(flag_types) >= search_space.SEARCHABLE_FLAGS
  assert flag_types["server_learning_rate"] == "float"
  assert flag_types["batch_size"] == "int"
  assert flag_types["head_learned_scale"] == "bool"


def _run_trials(directory, choices, *more, **options):
  """Runs a tuning of the real program, for its report."""
  return tuning_run.TuningRun(
    tuning_run.TuningConfig(
      run_dir=directory, search_space="unread", mean_trials=1.0, **options
    ),
    choices,
    (*_TINY, *more),
    command=_TRIAL,
    generator=None,
  ).run()


@pytest.mark.slow
def test_trials_tell_of_their_flags(flag_types):
  assert search_space.read_flag_types(_TRIAL, ()) == flag_types


@pytest.mark.slow
def test_trial_refuses_hyperparameters_as_expected(data_dir, tmp_path):
  report = _run_trials(
    tmp_path / "tuning",
    {"clip_norm": ("values", (-1.0,))},
    f"--data_dir={data_dir}",
  )
  assert "every trial refused its flags" in str(report["warnings"])


def test_flags_of_trials(flag_types, tmp_path):
  path = tmp_path / "some.flags"
  path.write_text("# A comment.\n" + "\n".join(_TINY))
  more = ("-head=a b", "--nohead_learned_scale", "--head_learned_scale=true")
  found = search_space.read_trial_flags(path, shlex.join(more))
  search_space.check_trial_flags(found, flag_types)
  assert found == (*_TINY, *more)


@pytest.mark.parametrize(
  "flag", ["--head", "linear", "--nohead", "--flagfile=x", "head=linear", ""]
)
def test_what_is_no_flag_of_a_trial(flag_types, flag):
  with pytest.raises(errors.FieldError, match="trial_flags must be flags of"):
    search_space.check_trial_flags([*_TINY, flag], flag_types)


def test_trials_train(flag_types):
  with pytest.raises(
    errors.FieldError, match=r"have trials that train.*dry_run"
  ):
    search_space.check_trial_flags(["--dry_run"], flag_types)


def test_published_search_spaces_are_of_real_flags(flag_types):
  paths = list((_REPOSITORY / "binaries/flagfiles").glob("*_search.json"))
  assert paths
  for path in paths:
    search_space.read(path, flag_types)


@pytest.mark.slow
def test_tuning_of_real_trials(data_dir, tmp_path, monkeypatch):
  directory = tmp_path / "tuning"
  # Two, so that there is a choice to check.
  monkeypatch.setattr(
    tuning.RepeatAndSelect, "draw_num_trials", lambda selection, generator: 2
  )
  report = _run_trials(
    directory,
    {"client_learning_rate": ("log_uniform", (0.01, 0.1))},
    f"--data_dir={data_dir}",
    selection_users=2,
  )
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
  assert (directory / "release/saved_model/saved_model.pb").exists()
  keys = {
    sampling_key.read(directory / f"trials/00{i}/checkpoints") for i in range(2)
  }
  assert len(keys - {None}) == 2
  ledger = chain_lib.Chain(directory / "trials/000").ledger
  expected = tuning.RepeatAndSelect(1.0).epsilon(
    ledger.history, ledger.participation, 0.01
  )
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
  assert known
  for rate in known.keys() & own["threshold_at_far"].keys():
    assert known[rate]["threshold"] == own["threshold_at_far"][rate]
    assert known[rate]["recall"] == own["recall_at_far"][rate]


@pytest.mark.slow
def test_program_with_a_real_trial_that_diverges(tune, data_dir, tmp_path):
  flagfile = tmp_path / "tiny.flags"
  flagfile.write_text("# A comment.\n" + "\n".join(_TINY))
  arguments = (
    _write_space(tmp_path, {"server_learning_rate": {"values": [1e38]}}),
    f"--trial_flagfile={flagfile}",
    f"--trial_flags='--data_dir={data_dir}'",
    # A geometric distribution of mean 1 has a single outcome.
    "--mean_trials=1",
  )
  ended = tune(*arguments)
  assert ended.status == 0, ended.errors
  assert "every model diverged: there is none to release" in ended.output
  report = json.loads((tmp_path / "tuning/release/tuning.json").read_text())
  assert report["best"] is None
  assert report["privacy"]["rounds"] == 2
  assert report["privacy"]["epsilon"] == "inf"
  assert 0 < report["privacy"]["epsilon_if_chosen_by_others"] < 10
