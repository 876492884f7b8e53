"""Tests of the program itself, as users start it."""

import os
import pathlib
import subprocess
import sys

from tests.tasks.prepare import made_up

_ROOT = pathlib.Path(__file__).parents[2]


def test_program(tmp_path):
  made_up.write_gld(tmp_path / "source")
  done = subprocess.run(
    [
      sys.executable,
      "-m",
      "binaries.prepare_data",
      "--task=gld",
      f"--source_dir={tmp_path / 'source'}",
      f"--output_dir={tmp_path / 'good'}",
    ],
    cwd=_ROOT,
    capture_output=True,
    text=True,
    check=True,
    # TensorFlow sets it in this process, and the program would inherit it.
    env={k: v for k, v in os.environ.items() if k != "TF_CPP_MIN_LOG_LEVEL"},
  )
  assert not done.stderr
  assert "gld gld160k: 2 users with 5 images, 2 test images." in done.stdout
  assert "Images: 6 found, 0 missing." in done.stdout
  assert "Disk: " in done.stdout
  assert done.stdout.endswith(
    f"{tmp_path}/good/gld160k: 2 users, 7 images, 0 bad examples left out.\n"
  )
  assert sorted(os.listdir(tmp_path)) == ["good", "source"]
  assert sorted(made_up.read_files(tmp_path / "good")) == [
    "gld160k/preparation.json",
    "gld160k/test.tfRecord",
    "gld160k/train/17",
    "gld160k/train/9",
  ]
