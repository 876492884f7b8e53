"""Tests of the program that extracts features."""

import os

import pytest

from tests.binaries import programs


@pytest.mark.slow
def test_command_line(tmp_path):
  ended = programs.start(
    "binaries.extract_features",
    "--digits",
    "--embedding=pixels",
    f"--output={tmp_path / 'o.npz'}",
  )
  assert ended.status == 0
  assert not ended.errors
  assert "1,797 examples of 10 classes, 64 numbers each" in ended.output


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
    programs.check_refused(ended, message)
  assert not os.listdir(tmp_path)
