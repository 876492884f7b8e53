"""Tests of the program itself."""

import os

from tests.binaries import programs
from tests.tasks.prepare import made_up


def test_program(tmp_path):
  made_up.write_gld(tmp_path / "source")
  ended = programs.call(
    "prepare_data",
    "--task=gld",
    f"--source_dir={tmp_path / 'source'}",
    f"--output_dir={tmp_path / 'good'}",
  )
  assert ended.status == 0
  assert not ended.errors
  assert "gld gld160k: 2 users with 5 images, 2 test images." in ended.output
  assert "Images: 6 found, 0 missing." in ended.output
  assert "Disk: " in ended.output
  assert ended.output.endswith(
    f"{tmp_path}/good/gld160k: 2 users, 7 images, 0 bad examples left out.\n"
  )
  assert sorted(os.listdir(tmp_path)) == ["good", "source"]
  assert sorted(made_up.read_files(tmp_path / "good")) == [
    "gld160k/preparation.json",
    "gld160k/test.tfRecord",
    "gld160k/train/17",
    "gld160k/train/9",
  ]
