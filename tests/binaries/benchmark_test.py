"""Tests of the benchmark programs."""

import json
import os

import pytest

from tests.binaries import programs

_FEW = "lenet_10x2x16_growth"


@pytest.mark.slow
def test_measures_every_runtime(tmp_path):
  path = tmp_path / "figures.json"
  ended = programs.start(
    "binaries.benchmark",
    f"--output_json={path}",
    "--rounds=1",
    "--warmup_rounds=0",
    f"--cases={_FEW}",
  )
  assert ended.status == 0, ended.errors
  rows = json.loads(path.read_text())
  assert [(row["case"], row["runtime"]) for row in rows] == [
    (_FEW, "bare"),
    (_FEW, "in_process"),
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
