"""Tests of the run that makes a benchmark's rows, with processes of no work."""

import json
import sys

import pandas as pd
import pytest

from benchmarks import results
from tff_fedemb import errors

_IDLE = """
import sys
print('ready', flush=True)
for line in sys.stdin:
  print('done', flush=True)
"""
_IN_PROCESS, _BARE, _BROKEN = (
  ("case", name) for name in ("in_process", "bare", "broken")
)


def _command(script):
  return (sys.executable, "-c", script)


_GOALS = pd.DataFrame(
  [
    ("ratio", "in_process", "case", "bare", "at most 1e9"),
    ("seconds", "in_process", "", "", "at least 1e9"),
    ("never", "broken", "", "", ""),
  ],
  columns=["name", "runtime", "other_case", "other_runtime", "bound"],
).assign(
  case="case", figure="wall_seconds", other_figure="wall_seconds", scale="1"
)


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
  results.execute(config, [group], _GOALS)
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
  assert lines[2].endswith("at most 1e9: met")
  assert lines[3].endswith("at least 1e9: MISSED")
  assert len(lines) == 4


def test_figures_that_a_group_asks_for(config):
  group = results.Group(
    {_BARE: _command(_IDLE)},
    rounds=2,
    resident_after=(1, 2),
    tells_anonymous_memory=True,
  )
  row = group.measure(config)[_BARE]
  resident = row["resident_memory_bytes_of_rounds"]
  assert len(resident) == len(row["wall_seconds_of_rounds"]) == 2
  assert row["resident_memory_bytes_after_1_rounds"] == resident[0]
  assert row["resident_memory_bytes_after_2_rounds"] == resident[1]
  assert 0 <= row["peak_anonymous_memory_bytes"] <= row["peak_memory_bytes"]


def test_what_fails_does_not_stop_the_rest(config, capsys):
  def prepare():
    raise errors.DataError("no room")

  failing = [
    results.Group({_BROKEN: _command("raise ValueError('no')")}),
    results.Group({_BROKEN: _command(_IDLE)}, prepare=prepare),
  ]
  working = results.Group({_BARE: _command(_IDLE)})
  with pytest.raises(SystemExit) as end:
    results.execute(config, [*failing, working], _GOALS)
  assert end.value.code == 1
  first, second = capsys.readouterr().err.splitlines()
  assert first.startswith("FAILED: ") and "ValueError: no" in first
  assert second == "FAILED: no room"
  with open(config.output_json, encoding="utf-8") as file:
    assert [row["runtime"] for row in json.load(file)] == ["bare"]
