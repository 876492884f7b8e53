"""Tests of the program that compares classifiers over epsilons."""

import json
import math
import pathlib
import statistics
import subprocess
import sys

from PIL import Image
import pytest

from experiments import feature_problems
from experiments import feature_runs
from experiments import feature_settings
from experiments import feature_sweeps
from tests.binaries import classify_features_test

_ROOT = pathlib.Path(__file__).parents[2]
_DELTA = 1e-3
# Runs a program as `python -m` does, and says what it imported.
_PROGRAM = """
import runpy, sys
try:
  runpy.run_module("binaries.sweep_features", run_name="__main__")
finally:
  print("tensorflow" in sys.modules)
"""


@pytest.fixture(name="files")
def _files(tmp_path):
  for index in range(2):
    for seed, name in enumerate(("train", "test")):
      classify_features_test.write_features(
        tmp_path / f"{name}{index}.npz", seed=10 * index + seed
      )
  return tmp_path


def config(directory, **changes):
  values = {
    "train": (f"{directory}/train0.npz", f"{directory}/train1.npz"),
    "test": (f"{directory}/test0.npz", f"{directory}/test1.npz"),
    "methods": ("sgd:steps=3", "least_squares"),
    "epsilons": (1.0, math.inf),
    "delta": _DELTA,
    "seeds": (1, 2),
    "output_json": f"{directory}/sweep.json",
  }
  return feature_sweeps.SweepConfig(**(values | changes))


def execute(directory, **changes):
  feature_sweeps.execute(config(directory, **changes))
  # Infinity is "inf", as JSON has none.
  return json.loads(
    (directory / "sweep.json").read_text(), parse_constant=pytest.fail
  )


def test_program(files):
  process = subprocess.run(
    [
      *(sys.executable, "-c", _PROGRAM),
      f"--train={files}/train0.npz",
      f"--test={files}/test0.npz",
      "--methods=least_squares,least_squares:covariance=per_class",
      "--epsilons=inf,1",
      "--delta=0.1",
      "--seeds=1,2",
      f"--output_json={files}/sweep.json",
      f"--output_png={files}/sweep.png",
    ],
    cwd=_ROOT,
    capture_output=True,
    text=True,
    check=False,
  )
  assert process.returncode == 0, process.stderr
  assert not process.stderr
  *rows, warning, written, is_imported = process.stdout.splitlines()
  assert is_imported == "False"
  header, rule, first, second = rows
  cells = [cell.strip() for cell in header.strip("|").split("|")]
  assert cells == ["method", "epsilon 1", "no noise"]
  assert set(rule) == set("|- ")
  assert first.startswith("| least_squares  ")
  assert second.startswith("| least_squares:covariance=per_class |")
  result = json.loads((files / "sweep.json").read_text())
  for row, results in ((first, [0, 1]), (second, [2, 3])):
    for cell, index in zip(row.split("|")[2:], results, strict=False):
      found = result["results"][index]
      assert cell.strip() == f"{found['mean']:.4f} ± {found['stdev']:.4f}"
  assert warning.startswith("warning: delta 0.1 is not below 1 / 60")
  assert written == f"Written to {files}/sweep.json and {files}/sweep.png."
  with Image.open(files / "sweep.png") as image:
    assert image.format == "PNG"


def test_every_accuracy_is_that_of_its_own_fit(files, capsys):
  result = execute(files)
  assert len(result["results"]) == 4
  for found in result["results"]:
    epsilon = float(found["target_epsilon"])
    name, *items = found["method"].split(":")
    method = feature_settings.create_method(
      name, feature_settings.parse_pairs("methods", items)
    )
    for pair, seed in ((0, 2), (1, 1)):
      problem = feature_problems.read_problem(
        f"{files}/train{pair}.npz", f"{files}/test{pair}.npz"
      )
      settings = feature_settings.FitSettings(
        method, epsilon, _DELTA, seed=seed
      )
      fit = feature_runs.fit(settings, problem)
      assert fit.test_accuracy == found["accuracies"][pair][seed - 1]
    # Of each seed the mean over pairs, of which mean and deviation.
    means = [statistics.mean(a) for a in zip(*found["accuracies"], strict=True)]
    assert found["mean"] == pytest.approx(statistics.mean(means))
    assert found["stdev"] == pytest.approx(statistics.stdev(means))
    assert len(found["fits"]) == 2
    assert float(found["fits"][0]["epsilon"]) <= epsilon
  # A deterministic method without noise is the same for every seed.
  assert result["results"][3]["stdev"] == 0
  assert result["pairs"][1]["train"].endswith("train1.npz")
  assert result["pairs"][0]["train_size"] == 60
  assert feature_sweeps.NOT_COVERED in result["not_covered"]
  assert feature_runs.CLASSES_FROM_LABELS in result["assumptions"]
  # Of 60 examples each of 3 classes has a third.
  assert result["accuracy_of_guessing"] == pytest.approx(1 / 3)
  assert result["warnings"] == []
  assert "sgd:steps=3" in capsys.readouterr().out


def test_users(files):
  """One example each, and without noise: as where examples are protected."""
  classify_features_test.write_features(
    files / "train0.npz", seed=0, num_users=60
  )
  options = {
    "train": (f"{files}/train0.npz",),
    "test": (f"{files}/test0.npz",),
    "methods": ("least_squares",),
    "epsilons": (math.inf,),
    "seeds": (1,),
    "delta": None,
  }
  expected = execute(files, **options)
  result = execute(
    files,
    **options,
    output_png=f"{files}/sweep.png",
    users=feature_settings.UserSettings(),
    overwrite=True,
  )
  assert result["results"][0]["mean"] == pytest.approx(
    expected["results"][0]["mean"]
  )
  assert result["unit"] == "user"
  assert result["seeds"] is None
  assert (result["num_fits"], expected["num_fits"]) == (1, 1)
  assert result["pairs"][0]["num_users"] == 60
  assert "train_size" not in result["pairs"][0]


def test_a_single_seed_has_no_deviation(files, capsys):
  result = execute(files, seeds=(1,), epsilons=(math.inf,), delta=None)
  assert [found["stdev"] for found in result["results"]] == [None, None]
  assert "±" not in capsys.readouterr().out


@pytest.mark.parametrize(
  "changes,message",
  [
    ({"output_json": None}, "output_json must be given"),
    ({"train": (), "test": ()}, "train and --test must have as many files"),
    ({"test": ("a.npz",)}, "as many files, at least one, found 2 and 1"),
    ({"methods": ()}, "methods must be given, each once"),
    ({"methods": ("sgd", "sgd")}, "methods must be given, each once"),
    ({"seeds": (1, 1)}, "seeds must be given, each once, found '1,1'"),
    ({"seeds": (-1,)}, "seeds must be an integer of at least 0, found -1"),
    (
      {"methods": tuple(f"sgd:steps={i + 1}" for i in range(7))},
      "methods must be 1 to 6, found 7",
    ),
    ({"methods": ("sgd", "magic")}, "methods must be among .*'magic'"),
    (
      {"methods": ("sgd:steps=x",)},
      "--methods must have hyperparameters that fit, found 'sgd:steps=x':"
      " steps must be an integer",
    ),
    ({"methods": ("sgd:steps",)}, "methods must have items NAME=VALUE"),
    (
      {"methods": ("sgd", "sgd:batch_size=61"), "epsilons": (math.inf,)},
      "found 'sgd:batch_size=61': batch_size must be at most",
    ),
    ({"epsilons": (-1.0,)}, "epsilon must be in"),
    (
      {"methods": ("newton",), "users": feature_settings.UserSettings()},
      r"methods must be among \[[^]]*'sgd'[^]]*\], each .* 'newton'",
    ),
    (
      {
        "methods": ("sgd:batch_size=6",),
        "users": feature_settings.UserSettings(),
      },
      "found 'sgd:batch_size=6': batch_size must not be given",
    ),
    (
      {"users": feature_settings.UserSettings()},
      "--train must hold user, .* in .*train0.npz",
    ),
    ({"delta": None}, "delta must be given where epsilon is finite"),
    ({"clip_norm": -1.0}, "clip_norm must be in"),
    ({"output_png": "no/such/directory.png"}, "output_png must be in"),
  ],
)
def test_mistakes(files, changes, message):
  before = sorted(files.iterdir())
  with pytest.raises((ValueError, ValueError), match=message) as error:
    feature_sweeps.execute(config(files, **changes))
  assert "\n" not in str(error.value)
  assert sorted(files.iterdir()) == before


def test_lists_of_numbers():
  assert feature_settings.parse_epsilons(["inf", "0.5", "2"]) == (
    0.5,
    2.0,
    math.inf,
  )
  assert feature_settings.parse_seeds(["3", "1"]) == (3, 1)
  with pytest.raises(ValueError, match=r"epsilons must be numbers .*'1,x'"):
    feature_settings.parse_epsilons(["1", "x"])
  with pytest.raises(ValueError, match=r"seeds must be integers .*'1.5'"):
    feature_settings.parse_seeds(["1.5"])
