"""Small files of features, and the programs that fit to them."""

import pathlib
import subprocess
import sys

import numpy as np

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


def write_pair(directory, index=""):
  """Writes `train.npz` and `test.npz`, or others of an index."""
  for seed, name in enumerate(("train", "test")):
    path = directory / f"{name}{index}.npz"
    write(path, seed=10 * int(index or 0) + seed)


def run_program(name, *arguments):
  """Runs a program, which is to do without TensorFlow; returns its lines."""
  process = subprocess.run(
    [sys.executable, "-c", _PROGRAM.format(name), *arguments],
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
