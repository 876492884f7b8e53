"""Tests of the rows of a benchmark, and of measuring known amounts of work."""

import dataclasses
import json
import sys

import pandas as pd
import psutil
import pytest

from benchmarks import results

_IN_PROCESS, _BARE, _BROKEN = (
  ("case", name) for name in ("in_process", "bare", "broken")
)


def _command(script, *arguments):
  return (sys.executable, "-c", script, *arguments)


_GOALS = pd.DataFrame(
  [
    ("ratio", "in_process", "case", "bare", "at most 1e9"),
    ("seconds", "in_process", "", "", "at least 1e9"),
    ("never", "broken", "", "", ""),
  ],
  columns=["name", "runtime", "other_case", "other_runtime", "bound"],
).assign(
  case="case", figure="wall_seconds", other_figure="wall_seconds", scale="2"
)


@pytest.fixture(name="config")
def _config(tmp_path):
  return results.BenchmarkConfig(
    output_json=str(tmp_path / "f.json"), rounds=3, warmup_rounds=0
  )


def test_rows_and_goals(config, capsys):
  group = {_IN_PROCESS: _work(), _BARE: _work()}
  results.execute(config, [group], _GOALS)
  with open(config.output_json, encoding="utf-8") as file:
    first, second = json.load(file)
  assert (first["case"], first["runtime"]) == ("case", "in_process")
  assert second["runtime"] == "bare"
  assert len(first["wall_seconds_of_rounds"]) == 3
  assert first["wall_seconds"] == sorted(first["wall_seconds_of_rounds"])[1]
  assert first["ratios"] == {
    "ratio": first["wall_seconds"] / (2 * second["wall_seconds"])
  }
  assert not second["ratios"]
  lines = capsys.readouterr().out.splitlines()
  assert lines[0].split()[:2] == ["case", "in_process"]
  assert lines[2].endswith("at most 1e9: met")
  assert lines[3].endswith("at least 1e9: MISSED")
  assert len(lines) == 4


def test_memory_of_each_round(config):
  # A hundred megabytes in the second round, which are given back in the third.
  script = """
import sys
print('ready', flush=True)
for megabytes in (0, 100, 0):
  input()
  memory = b'x' * (megabytes * 1_000_000)
  print('done', flush=True)
sys.stdin.read()
"""
  row = results.measure(config, {_BARE: _command(script)})[_BARE]
  before, during, after = row["resident_memory_bytes_of_rounds"]
  assert 95 * _MEGABYTE < during - before < 105 * _MEGABYTE
  assert abs(after - before) < 5 * _MEGABYTE
  assert row["peak_memory_bytes"] >= during
  assert 0 <= row["anonymous_memory_bytes"] <= row["peak_memory_bytes"]


@pytest.mark.parametrize(
  "script",
  [
    "raise ValueError('no')",
    "print('ready', flush=True); input(); raise ValueError('no')",
  ],
)
def test_what_fails_does_not_stop_the_rest(config, capsys, script):
  failing = {_BARE: _work(), _BROKEN: _command(script)}
  with pytest.raises(SystemExit) as end:
    results.execute(config, [failing, {_BARE: _work()}], _GOALS)
  assert end.value.code == 1
  (line,) = capsys.readouterr().err.splitlines()
  assert line.startswith("FAILED: ") and "ValueError: no" in line
  with open(config.output_json, encoding="utf-8") as file:
    assert [row["runtime"] for row in json.load(file)] == ["bare"]
  _check_no_process_is_left()


_MEGABYTE = 1_000_000
# Sleeps, computes and remembers as much as its arguments say, in each round.
_SCRIPT = """
import sys, time
sleep, compute, megabytes = map(float, sys.argv[1:])
memory = b'x' * int(megabytes * 1e6)
print('ready', flush=True)
for line in sys.stdin:
  time.sleep(sleep)
  end = time.process_time() + compute
  while time.process_time() < end:
    pass
  print('done', flush=True)
"""


def _work(*, sleep=0.0, compute=0.0, megabytes=0):
  return _command(_SCRIPT, str(sleep), str(compute), str(megabytes))


@pytest.mark.slow
def test_measures_wall_time_cpu_time_and_memory(config):
  # The outer process does nothing but pass the lines on.
  outer = "import subprocess, sys; subprocess.call(sys.argv[1:])"
  commands = {
    ("case", "idle"): _work(sleep=0.3),
    ("case", "busy"): _command(outer, *_work(compute=0.3)),
    ("case", "large"): _work(megabytes=200),
  }
  config = dataclasses.replace(config, warmup_rounds=1)
  idle, busy, large = results.measure(config, commands).values()
  assert len(idle["wall_seconds_of_rounds"]) == 3
  assert idle["wall_seconds"] >= 0.3
  assert idle["cpu_seconds"] < 0.1
  assert busy["wall_seconds"] >= 0.29
  assert busy["cpu_seconds"] >= 0.27
  assert large["peak_memory_bytes"] > 200 * _MEGABYTE
  assert large["anonymous_memory_bytes"] > 200 * _MEGABYTE
  assert idle["peak_memory_bytes"] < 100 * _MEGABYTE
  _check_no_process_is_left()


def _check_no_process_is_left():
  children = psutil.Process().children(recursive=True)
  assert not any(_SCRIPT in child.cmdline() for child in children)
