"""Tests of the benchmark of private fits on features."""

import json
import os
import subprocess
import sys

import pytest

from tests.binaries import programs

_CASE = "least_squares_300x8x5"


def test_measures_fits_and_bare_loops(tmp_path):
  path = tmp_path / "figures.json"
  data_dir = tmp_path / "data"
  data_dir.mkdir()
  subprocess.run(
    [
      *(sys.executable, "-m", "binaries.benchmark_features"),
      f"--output_json={path}",
      f"--cases={_CASE}",
      "--rounds=1",
      "--warmup_rounds=0",
      f"--data_dir={data_dir}",
    ],
    stdin=subprocess.DEVNULL,
    check=True,
  )
  rows = json.loads(path.read_text())
  assert [(row["case"], row["runtime"]) for row in rows] == [
    (_CASE, "private"),
    (_CASE, "bare"),
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
  ("arguments", "message"),
  [
    (["--rounds=0"], "--rounds must be an integer of at least 1, found 0"),
    (["--cases=newton_9x2x2"], "--cases must be METHOD_NxDxK"),
    (["--data_dir=/none"], "--data_dir must be an existing directory,"),
    (
      # Four exabytes.
      ["--cases=sgd_1000000000000x1000000x2"],
      "--data_dir must have 4000008000.3 GB free, found",
    ),
  ],
)
def test_mistake_is_one_line(tmp_path, arguments, message):
  path = tmp_path / "figures.json"
  found = programs.call(
    "benchmark_features", f"--output_json={path}", *arguments
  )
  assert found.status == 1
  assert found.errors.startswith("error: --")
  assert message in found.errors
  assert found.errors.count("\n") == 1
  assert not path.exists()
