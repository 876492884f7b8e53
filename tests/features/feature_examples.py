"""Small files of features, and the programs that fit to them."""

import json
import pathlib
import subprocess
import sys

import numpy as np
import pytest

from tests.binaries import programs

_ROOT = pathlib.Path(__file__).parents[2]
# Runs a program as `python -m` does, and says whether it imported TensorFlow.
_PROGRAM = """
import runpy, sys
try:
  runpy.run_module("binaries.{}", run_name="__main__")
finally:
  print("tensorflow" in sys.modules)
"""


def write(path, *, seed, num_examples=60, dim=4, num_classes=3, num_users=0):
  """Writes clusters of features, longer than 1."""
  rng = np.random.default_rng(seed)
  labels = np.arange(num_examples) % num_classes
  features = 3 * np.eye(num_classes, dim)[labels]
  features += rng.normal(size=features.shape)
  arrays = {"features": features.astype(np.float32), "labels": labels}
  if num_users:
    arrays["users"] = np.arange(num_examples) % num_users
  np.savez(path, **arrays)


def write_both(directory):
  """Writes files to fit on and to test on; returns their paths by flag."""
  paths = {name: directory / f"{name}.npz" for name in ("train", "test")}
  for seed, path in enumerate(paths.values()):
    write(path, seed=seed)
  return paths


def run_program(name, **flags):
  """Runs a program, which is to do without TensorFlow; returns its lines."""
  process = subprocess.run(
    [sys.executable, "-c", _PROGRAM.format(name), *_arguments(flags)],
    cwd=_ROOT,
    capture_output=True,
    text=True,
    check=False,
  )
  assert process.returncode == 0, process.stderr
  assert not process.stderr
  *lines, has_tensorflow = process.stdout.splitlines()
  assert has_tensorflow == "False"
  return lines


def _arguments(flags):
  """Flags as they are typed; those that are `None` are left out."""
  return [f"--{k}={v}" for k, v in flags.items() if v is not None]


def call(program, **flags):
  """Calls a program that writes --output_json; returns that, and its output."""
  ended = programs.call(program, *_arguments(flags))
  assert (ended.status, ended.errors) == (0, "")
  text = pathlib.Path(flags["output_json"]).read_text(encoding="utf-8")
  # Infinity is "inf", as JSON has none.
  return json.loads(text, parse_constant=pytest.fail), ended.output


def check_refused(program, directory, message, **flags):
  """Checks that a program ends with one line, and leaves a directory alone."""
  before = {path: path.read_bytes() for path in directory.iterdir()}
  programs.check_refused(programs.call(program, *_arguments(flags)), message)
  assert before == {path: path.read_bytes() for path in directory.iterdir()}
