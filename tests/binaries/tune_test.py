"""Tests of the tuning program, from the command line and with real trials."""

import functools
import json
import os
import pathlib
import subprocess
import sys

import pytest

from experiments import search_space
from experiments import trial_flags
from experiments import tuning_run
from tasks.synthetic import emnist
from tests.binaries import programs
from tff_fedemb import errors
from tff_fedemb.privacy import ledger as ledger_lib
from tff_fedemb.privacy import tuning

_run = subprocess.run
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


@pytest.fixture(name="flag_types")
def _flag_types():
  return trial_flags.read_flag_types(_TRIAL)


@pytest.fixture(name="data_dir", scope="module")
def _data_dir(tmp_path_factory):
  directory = tmp_path_factory.mktemp("data")
  emnist.write_emnist(directory, num_users=6, seed=2, examples_per_user=30)
  return directory


@pytest.fixture(autouse=True)
def _ask_for_the_flags_once(monkeypatch):
  """The trials' program takes seconds to say which flags it has."""
  monkeypatch.setattr(subprocess, "run", _run_once)


@functools.cache
def _run_cached(command):
  return _run(command, stdout=subprocess.PIPE, check=False)


def _run_once(command, **options):
  if "--helpxml" in command:
    return _run_cached(tuple(command))
  return _run(command, **options)


def _tune(tmp_path, *arguments):
  return programs.call(
    "tune", f"--output_dir={tmp_path / 'tuning'}", *arguments
  )


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
    (["--metric=auc"], "error: --metric must be one of recall_at_far"),
    (["--seed=-1"], "error: --seed must be"),
    (["--output_dir=/proc/tuning"], "error: --output_dir must be"),
  ],
)
def test_mistake_is_one_line_and_nothing_is_written(
  tmp_path, arguments, message
):
  ended = _tune(tmp_path, _write_space(tmp_path, _SPACE), *arguments)
  assert ended.status == 1
  assert message in ended.errors
  assert not (tmp_path / "tuning").exists()


def test_search_over_what_a_trial_costs_is_refused(tmp_path):
  space = _write_space(tmp_path, {"noise_multiplier": {"uniform": [1, 2]}})
  ended = _tune(tmp_path, space)
  assert (ended.status, ended.errors.count("\n")) == (1, 1)
  assert "error: --search_space must not hold noise_multiplier" in ended.errors
  assert not (tmp_path / "tuning").exists()


def test_directory_of_something_else_is_refused(tmp_path):
  directory = tmp_path / "tuning"
  directory.mkdir()
  (directory / "thesis.tex").touch()
  ended = _tune(tmp_path, _write_space(tmp_path, _SPACE))
  assert ended.status == 1
  assert "error: --output_dir must be new or hold a run" in ended.errors
  assert os.listdir(directory) == ["thesis.tex"]


def test_program_of_its_own_process(tmp_path):
  command = [sys.executable, "-m", "binaries.tune", "--search_space=/no/file"]
  ended = _run(
    [*command, f"--output_dir={tmp_path / 'tuning'}"],
    cwd=_REPOSITORY,
    capture_output=True,
    text=True,
    check=False,
  )
  assert ended.returncode == 1
  assert ended.stderr.splitlines()[-1].startswith(
    "error: --search_space must be a JSON file, found"
  )


def test_flags_of_the_training_program(flag_types):
  assert flag_types["server_learning_rate"] == "float"
  assert flag_types["batch_size"] == "int"
  assert flag_types["head_learned_scale"] == "bool"
  assert "flagfile" not in flag_types


def test_every_flag_of_the_training_program_is_fixed_or_searchable(flag_types):
  # Does a flag change what a trial costs, its data, what it releases or how it
  # is judged? Then it is fixed, and searchable if only the model depends on it.
  fixed, searchable = search_space.FIXED_FLAGS, search_space.SEARCHABLE_FLAGS
  assert not fixed & searchable
  assert set(flag_types) == fixed | searchable


def test_trial_refuses_hyperparameters_as_expected(data_dir, tmp_path):
  report = tuning_run.TuningRun(
    tuning_run.TuningConfig(
      selection=tuning.RepeatAndSelect(1.0),
      space=search_space.SearchSpace({"clip_norm": ("values", (-1.0,))}),
      trial_flags=(*_TINY, f"--data_dir={data_dir}"),
    ),
    tmp_path / "tuning",
    command=_TRIAL,
    generator=None,
  ).run()
  assert "every trial refused its flags" in str(report["warnings"])


def test_flags_of_trials(flag_types):
  trial_flags.check_trial_flags(
    [
      *_TINY,
      "--head=linear",
      "-head=linear",
      "--nohead_learned_scale",
      "--head_learned_scale",
      "--head_learned_scale=true",
    ],
    flag_types,
  )


@pytest.mark.parametrize(
  "flag", ["--head", "linear", "--nohead", "--flagfile=x", "head=linear", ""]
)
def test_what_is_no_flag_of_a_trial(flag_types, flag):
  with pytest.raises(errors.FieldError, match="trial_flags must be flags of"):
    trial_flags.check_trial_flags([*_TINY, flag], flag_types)


def test_published_search_spaces_are_of_real_flags(flag_types):
  paths = list((_REPOSITORY / "binaries/flagfiles").glob("*_search.json"))
  assert paths
  for path in paths:
    search_space.SearchSpace.from_json(path.read_text(), flag_types)


@pytest.mark.slow
def test_tuning_of_real_trials(data_dir, tmp_path):
  class TwoTrials(tuning.RepeatAndSelect):
    """Draws two, so that the test has a choice to check."""

    def draw_num_trials(self, generator):
      return 2

  directory = tmp_path / "tuning"
  report = tuning_run.TuningRun(
    tuning_run.TuningConfig(
      selection=TwoTrials(2.0),
      space=search_space.SearchSpace(
        {"client_learning_rate": ("log_uniform", (0.01, 0.1))}
      ),
      trial_flags=(*_TINY, f"--data_dir={data_dir}"),
    ),
    directory,
    command=_TRIAL,
    generator=None,
  ).run()
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
  assert report["best"]["test"] == best["recall_at_far"]["0.001"]
  assert (directory / "best/saved_model/saved_model.pb").exists()
  ledger = ledger_lib.Ledger.from_json(
    (directory / "trials/000/ledger.json").read_text()
  )
  expected = tuning.RepeatAndSelect(2.0).epsilon(
    ledger.history, ledger.participation, 0.01
  )
  assert report["privacy"]["epsilon"] == pytest.approx(expected)
  assert report["privacy"]["epsilon_of_one_trial"] == pytest.approx(
    best["privacy"]["epsilon_by_accountant"]["rdp"]
  )
  # The 26 lower-case letters are those of the same writers.
  assert "data of the protected users" in str(report["warnings"])


@pytest.mark.slow
def test_program_with_a_real_trial_that_diverges(data_dir, tmp_path):
  flagfile = tmp_path / "tiny.flags"
  flagfile.write_text("# A comment.\n" + "\n".join(_TINY))
  arguments = (
    _write_space(tmp_path, {"server_learning_rate": {"values": [1e38]}}),
    f"--trial_flagfile={flagfile}",
    f"--trial_flags='--data_dir={data_dir}'",
    # A geometric distribution of mean 1 has a single outcome.
    "--mean_trials=1",
  )
  ended = _tune(tmp_path, *arguments)
  assert ended.status == 0, ended.errors
  assert "every model diverged: there is none to release" in ended.output
  report = json.loads((tmp_path / "tuning/tuning.json").read_text())
  assert report["best"] is None
  assert report["privacy"]["rounds"] == 2
  assert 0 < report["privacy"]["epsilon"] < 10
