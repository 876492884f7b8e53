"""Tests of the program that extracts features."""

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
