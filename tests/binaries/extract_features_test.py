"""Tests of the program that extracts features."""

import os
import pathlib
import subprocess
import sys

from tests.binaries import programs

_ROOT = pathlib.Path(__file__).parents[2]


def test_command_line(tmp_path):
  finished = subprocess.run(
    [
      sys.executable,
      "-m",
      "binaries.extract_features",
      "--digits",
      "--embedding=pixels",
      f"--output={tmp_path / 'o.npz'}",
    ],
    cwd=_ROOT,
    capture_output=True,
    text=True,
    check=False,
    env={k: v for k, v in os.environ.items() if k != "TF_CPP_MIN_LOG_LEVEL"},
  )
  assert finished.returncode == 0
  assert not finished.stderr
  assert "1,797 examples of 10 classes, 64 numbers each" in finished.stdout


def test_refuses_in_one_line(tmp_path):
  output = f"--output={tmp_path / 'o.npz'}"
  for arguments, message in (
    (["--digits", "--embedding=pixels"], "--output must be given, found noth"),
    ([output, "--embedding=pixels"], "--task must be given, or --image_fold"),
    (
      [output, "--digits", "--embedding=pixels", "--gamma=1"],
      "--gamma must be given with --embedding=random_features only, found 1.0",
    ),
  ):
    ended = programs.call("extract_features", *arguments)
    assert ended.status == 1
    assert ended.errors.startswith(f"error: {message}")
    assert ended.errors.count("\n") == 1
  assert not os.listdir(tmp_path)
