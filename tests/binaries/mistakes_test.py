"""Tests that mistakes in flags are told before what takes long is imported."""

import json
import pathlib
import subprocess
import sys

import pytest

_ROOT = pathlib.Path(__file__).parents[2]
_PROGRAMS = sorted(
  path.stem
  for path in (_ROOT / "binaries").glob("[!_]*.py")
  if "\ndef main(argv" in path.read_text()
)
_RUN = ("--task=emnist", "--run_dir=nowhere")
_NO_DATA = {
  "digiface": "--data_dir must hold prepared images, 72_images or",
  "emnist": "--data_dir must hold emnist_all.sqlite",
  "gld": "--data_dir must hold gld160k/train/",
  "inaturalist": "--data_dir must hold user_120k/train/",
  "omniglot": "--data_dir must hold Omniglot images",
  "photos": "--data_dir must be a folder",
  "tfds": "--tfds_name must be given for task tfds",
}
# Arguments, and what is said of them.
_MISTAKES = {
  "account": [(["epsilon", "--mechanism=x"], "--mechanism must be one of")],
  "audit": [
    (["run"], "--output_dir must be given"),
    (
      ["run", "--task=emnist", "--output_dir=nowhere", "--data_dir=nowhere"],
      "--data_dir must hold emnist_all.sqlite",
    ),
  ],
  "benchmark": [([], "--output_json must be given")],
  "benchmark_features": [([], "--output must be given")],
  "classify_features": [([], "--output_json must be given")],
  "demo": [
    ([], "--run_dir must be given, or saved_model, one of them"),
    (["--run_dir=nowhere"], "--run_dir must be the directory of a finished"),
  ],
  "evaluate": [
    ([], "--saved_model must be given"),
    (
      ["--saved_model=nowhere", "--image_folder=x", "--output_json=nowhere"],
      "--saved_model must be the directory of a SavedModel",
    ),
  ],
  "export": [
    (
      ["--saved_model=nowhere", "--output_dir=nowhere"],
      "--saved_model must be the directory of a SavedModel",
    ),
  ],
  "extract_features": [(["--digits"], "--output must be given")],
  "match": [([], "--saved_model must be given")],
  "plot_privacy": [([], "--output_dir must be given")],
  "prepare_data": [(["--task=x"], "--task must be one of")],
  "report": [([], "--run_dirs must be given")],
  "sweep_features": [([], "--output_json must be given")],
  "tabulate": [([], "runs must hold a finished run (summary.json)")],
  "tune": [([], "--output_dir must be given")],
  "run_centralized": [
    (["--task=emnist"], "--run_dir must be given"),
    ([*_RUN, "--objective=contrastive"], "--augmentation must make the views"),
  ],
  "run_federated": [
    *(
      ([f"--task={task}", "--run_dir=nowhere", "--data_dir=nowhere"], said)
      for task, said in _NO_DATA.items()
    ),
    (["--task=emnist"], "--run_dir must be given"),
    ([*_RUN, "--no_such_flag=1"], "Unknown command line flag"),
    (
      [*_RUN, "--num_bands=3"],
      "--num_bands must not be set with aggregator gaussian",
    ),
    ([*_RUN, "--table=a.csv"], "--table must not be set with task emnist"),
  ],
}
_CASES = [
  *((program, ["--helpshort"], "") for program in _PROGRAMS),
  *(
    (program, arguments, f"error: {said}")
    for program in _PROGRAMS
    for arguments, said in _MISTAKES[program]
  ),
]
# Runs each program in a child of a process that has imported all of them.
_SCRIPT = """
import contextlib, importlib, io, json, os, runpy, sys
cases = json.load(sys.stdin)
for program, _ in cases:
  importlib.import_module(f"binaries.{program}")
for program, arguments in cases:
  if os.fork():
    os.wait()
    continue
  sys.argv = [program, *arguments]
  del sys.modules[f"binaries.{program}"]
  output, errors = io.StringIO(), io.StringIO()
  with contextlib.redirect_stdout(output), contextlib.redirect_stderr(errors):
    try:
      runpy.run_module(f"binaries.{program}", run_name="__main__")
    except SystemExit as end:
      status = end.code
    except Exception as error:
      status = repr(error)
  slow = {"jax", "tensorflow", "tensorflow_federated", "tensorflow_privacy"}
  print(json.dumps([status, errors.getvalue(), sorted(slow & {*sys.modules})]))
  sys.stdout.flush()
  os._exit(0)
"""


@pytest.fixture(scope="module")
def ended():
  """Exit status, standard error and slow modules of each case."""
  done = subprocess.run(
    [sys.executable, "-c", _SCRIPT],
    cwd=_ROOT,
    input=json.dumps([case[:2] for case in _CASES]),
    stdout=subprocess.PIPE,
    text=True,
    check=True,
  )
  lines = [json.loads(line) for line in done.stdout.splitlines()]
  assert len(lines) == len(_CASES)
  return lines


@pytest.mark.parametrize(
  "case",
  range(len(_CASES)),
  ids=[" ".join([program, *words]) for program, words, _ in _CASES],
)
def test_flags_need_no_tensorflow(ended, case):
  status, errors, slow = ended[case]
  assert not slow
  assert status == (0 if "--helpshort" in _CASES[case][1] else 1)
  assert errors.startswith(_CASES[case][2])
