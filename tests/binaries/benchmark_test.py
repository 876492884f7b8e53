"""Tests of the benchmark programs."""

import json
import os

import pytest

from tests.binaries import programs

_FEW = "lenet_10x2x16_growth"
_FIT = "least_squares_300x8x5"


def _measure(program, directory, *arguments):
  """Measures one round of each; returns the rows."""
  path = directory / "figures.json"
  ended = programs.start(
    f"binaries.{program}",
    f"--output_json={path}",
    "--rounds=1",
    "--warmup_rounds=0",
    *arguments,
  )
  assert ended.status == 0, ended.errors
  return json.loads(path.read_text())


@pytest.mark.slow
def test_measures_every_runtime(tmp_path):
  rows = _measure("benchmark", tmp_path, f"--cases={_FEW}")
  assert [(row["case"], row["runtime"]) for row in rows] == [
    (_FEW, "in_process"),
    (_FEW, "bare"),
    (_FEW, "tff"),
  ]
  for row in rows:
    assert row["wall_seconds"] > 0.0
    assert row["cpu_seconds"] > 0.0
    # TensorFlow alone takes more.
    assert row["peak_memory_bytes"] > 1e8
    assert len(row["wall_seconds_of_rounds"]) == 1
    assert isinstance(row["ratios"], dict)
  assert os.listdir(tmp_path) == ["figures.json"]


def test_measures_fits_and_bare_loops(tmp_path):
  data_dir = tmp_path / "data"
  data_dir.mkdir()
  rows = _measure(
    "benchmark_features", tmp_path, f"--cases={_FIT}", f"--data_dir={data_dir}"
  )
  assert [(row["case"], row["runtime"]) for row in rows] == [
    (_FIT, "private"),
    (_FIT, "bare"),
  ]
  for row in rows:
    assert row["wall_seconds"] > 0.0
    assert len(row["wall_seconds_of_rounds"]) == 1
    # NumPy alone takes more.
    assert row["peak_memory_bytes"] > 2e7
    assert 1e7 < row["peak_anonymous_memory_bytes"] <= row["peak_memory_bytes"]
  private, bare = rows
  assert private["ratios"] == {
    "wall_to_bare": private["wall_seconds"] / bare["wall_seconds"]
  }
  columns = ("num_examples", "dim", "num_classes")
  assert [private[name] for name in columns] == [300, 8, 5]
  assert not os.listdir(data_dir)
  assert sorted(os.listdir(tmp_path)) == ["data", "figures.json"]


@pytest.mark.parametrize(
  ("program", "argument", "message"),
  [
    ("", "--output_json=missing/f.json", "--output_json must be in a direct"),
    ("", "--cases=vgg", "found 'vgg'."),
    (
      "",
      "--pfl_python=/none/python",
      "--pfl_python must be a Python with torch and pfl 0.6.0, found"
      " /none/python",
    ),
    ("_features", "--rounds=0", "--rounds must be an integer of at least 1,"),
    ("_features", "--cases=newton_9x2x2", "--cases must be METHOD_NxDxK"),
    ("_features", "--cases=sgd_5x5", "--cases must be METHOD_NxDxK"),
    ("_features", "--cases=sgd_0x5x5", "--cases must be METHOD_NxDxK"),
    ("_features", "--cases=sgd_5x5x1", "--cases must be METHOD_NxDxK"),
    ("_features", "--data_dir=/none", "--data_dir must be an existing"),
  ],
)
def test_mistake_is_one_line(tmp_path, program, argument, message):
  path = tmp_path / "figures.json"
  found = programs.call(
    f"benchmark{program}", f"--output_json={path}", argument
  )
  programs.check_refused(found, "--")
  assert message in found.errors
  assert not path.exists()
