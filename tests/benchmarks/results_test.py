"""Tests of the run that makes a benchmark's rows, with processes of no work."""

import json
import sys

import pytest

from benchmarks import results

_IDLE = """
import sys
print('ready', flush=True)
for line in sys.stdin:
  print('done', flush=True)
"""
_IN_PROCESS, _BARE, _BROKEN = (
  results.Entry("case", name) for name in ("in_process", "bare", "broken")
)


def _command(script):
  return (sys.executable, "-c", script)


def _goals():
  wall = results.WALL
  yield results.Goal("ratio", wall, _IN_PROCESS, _BARE, at_most=1e9)
  yield results.Goal("seconds", wall, _IN_PROCESS, at_least=1e9)
  yield results.Goal("never", wall, _BROKEN)


@pytest.fixture(name="config")
def _config(tmp_path):
  return results.BenchmarkConfig(
    output_json=str(tmp_path / "f.json"), rounds=3, warmup_rounds=0
  )


def test_rows_and_goals(config, capsys):
  group = results.Group(
    {_IN_PROCESS: _command(_IDLE), _BARE: _command(_IDLE)},
    columns={"num_examples": 7},
  )
  results.execute(config, [group], _goals)
  with open(config.output_json, encoding="utf-8") as file:
    first, second = json.load(file)
  assert (first["case"], first["runtime"]) == ("case", "in_process")
  assert second["runtime"] == "bare" and first["num_examples"] == 7
  assert len(first["wall_seconds_of_rounds"]) == 3
  assert first["wall_seconds"] == sorted(first["wall_seconds_of_rounds"])[1]
  assert first["ratios"] == {
    "ratio": first["wall_seconds"] / second["wall_seconds"]
  }
  assert not second["ratios"]
  lines = capsys.readouterr().out.splitlines()
  assert lines[0].split()[:2] == ["case", "in_process"]
  assert lines[2].endswith("at most 1e+09: met")
  assert lines[3].endswith("at least 1e+09: MISSED")
  assert len(lines) == 4


def test_figures_that_a_group_asks_for(config):
  group = results.Group(
    {_BARE: _command(_IDLE)},
    rounds=2,
    resident_after=(1, 2),
    samples_anonymous_memory=True,
  )
  row = group.measure(config)[_BARE]
  resident = row["resident_memory_bytes_of_rounds"]
  assert len(resident) == len(row["wall_seconds_of_rounds"]) == 2
  assert row["resident_memory_bytes_after_1_rounds"] == resident[0]
  assert row["resident_memory_bytes_after_2_rounds"] == resident[1]
  assert 0 <= row["peak_anonymous_memory_bytes"] <= row["peak_memory_bytes"]


def test_what_fails_does_not_stop_the_rest(config, capsys):
  failing = results.Group({_BROKEN: _command("raise ValueError('no')")})
  working = results.Group({_BARE: _command(_IDLE)})
  with pytest.raises(SystemExit) as end:
    results.execute(config, [failing, working], _goals)
  assert end.value.code == 1
  assert "FAILED" in (errors := capsys.readouterr().err)
  assert "ValueError: no" in errors
  with open(config.output_json, encoding="utf-8") as file:
    assert [row["runtime"] for row in json.load(file)] == ["bare"]
