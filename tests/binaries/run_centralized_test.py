"""Tests of the centralized program from the command line."""

import json
import os
import pathlib

from absl import flags
from absl.testing import flagsaver
import pytest

from binaries import run_centralized
from experiments import command_line
from tasks.synthetic import emnist


@pytest.fixture(name="given", scope="module")
def _given(tmp_path_factory):
  directory = tmp_path_factory.mktemp("data")
  emnist.write_emnist(directory, num_users=5, seed=2, examples_per_user=30)
  return [
    "program",
    "--task=emnist",
    f"--data_dir={directory}",
    "--users_per_round=3",
    "--rounds=2",
    "--evaluate_every=2",
    "--client_optimizer=sgdm",
    "--client_lr_schedule=linear",
    "--head=arcface",
  ]


def test_trains_without_privacy_and_says_so(given, tmp_path, capsys):
  run_dir = tmp_path / "run"
  with flagsaver.flagsaver():
    flags.FLAGS([*given, f"--run_dir={run_dir}"])
    run_centralized.main()
    assert "epsilon = inf" in capsys.readouterr().out
    # The same command again finds nothing left to do.
    run_centralized.main()
  assert "This run is complete" in capsys.readouterr().out
  summary = json.loads((run_dir / "summary.json").read_text())
  assert summary["privacy"]["epsilon"] == "inf"
  assert summary["privacy_extrapolated"] is None
  # Backbone, and a global head of 36 rows.
  assert summary["num_private_parameters"] == 453_632 + 36 * 128
  assert (run_dir / "saved_model" / "saved_model.pb").exists()


def test_number_of_users_is_checked(given, tmp_path):
  run_dir = pathlib.Path(tmp_path) / "run"
  with flagsaver.flagsaver():
    flags.FLAGS([*given, f"--run_dir={run_dir}", "--users_per_round=6"])
    with pytest.raises(
      command_line.UsageError, match="--users_per_round must be between 1"
    ):
      run_centralized.main()
  assert not os.path.exists(run_dir)
