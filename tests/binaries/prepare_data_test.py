"""Tests of the program itself, as users start it."""

import os
import pathlib
import subprocess
import sys

from tests.tasks.prepare import made_up

_ROOT = pathlib.Path(__file__).parents[2]


def _start(**flags):
  return subprocess.Popen(
    [
      sys.executable,
      "-m",
      "binaries.prepare_data",
      *(f"--{name}={value}" for name, value in flags.items()),
    ],
    cwd=_ROOT,
    stdout=subprocess.PIPE,
    stderr=subprocess.PIPE,
    text=True,
    # TensorFlow sets it in this process, and the program would inherit it.
    env={k: v for k, v in os.environ.items() if k != "TF_CPP_MIN_LOG_LEVEL"},
  )


def test_program(tmp_path):
  made_up.write_gld(tmp_path / "source")
  flags = {"task": "gld", "source_dir": tmp_path / "source"}
  # At the same time: most of it is to load TensorFlow.
  dry = _start(**flags, output_dir=tmp_path / "dry", dry_run=True)
  good = _start(**flags, output_dir=tmp_path / "good")
  bad = _start(**flags, output_dir=tmp_path / "bad", variant="gld1k")

  out, err = bad.communicate()
  assert bad.returncode == 1
  assert not out
  assert err == (
    "error: --variant must be one of gld23k, gld160k for task gld, found"
    " 'gld1k'.\n"
  )

  out, _ = dry.communicate()
  assert dry.returncode == 0
  assert "gld gld160k: 2 users with 5 images, 2 test images." in out
  assert "Images: 6 found, 0 missing." in out
  assert "Disk: " in out

  out, err = good.communicate()
  assert good.returncode == 0
  assert not err
  assert out.endswith(
    f"{tmp_path}/good/gld160k: 2 users, 7 images, 0 bad examples left out.\n"
  )
  assert sorted(os.listdir(tmp_path)) == ["good", "source"]
  assert sorted(made_up.read_files(tmp_path / "good")) == [
    "gld160k/preparation.json",
    "gld160k/test.tfRecord",
    "gld160k/train/17",
    "gld160k/train/9",
  ]
