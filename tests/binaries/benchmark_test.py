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


@pytest.mark.parametrize(
  ("argument", "message"),
  [
    ("--output_json=missing/f.json", "--output_json must be in a direct"),
    ("--cases=vgg", "found 'vgg'."),
  ],
)
def test_mistake_is_one_line(tmp_path, argument, message):
  path = tmp_path / "figures.json"
  found = programs.call("benchmark", f"--output_json={path}", argument)
  programs.check_refused(found, "--")
  assert message in found.errors
  assert not path.exists()
