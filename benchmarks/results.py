"""Rows of figures, what they are meant to be, and the run that makes them.

Both benchmarks measure groups of processes in turn, compare rows with each
other, print what they find and write it after every group. `goals.csv` says
which figures are told, or compared with that of another row, and their bounds.
"""

from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
import dataclasses
import json
import pathlib
import sys
from typing import Any

import pandas as pd

from benchmarks import measuring
from experiments import output_files
from tff_fedemb import config as config_lib
from tff_fedemb import errors

WALL, MEMORY = "wall_seconds", "peak_memory_bytes"
ANONYMOUS_MEMORY = "peak_anonymous_memory_bytes"

# Name of the work, with a lower precision if it has one; and who does it.
Entry = tuple[str, str]


@dataclasses.dataclass(frozen=True, kw_only=True)
class BenchmarkConfig(config_lib.Config):
  """What all benchmarks are told.

  Attributes:
    output_json: File to write the figures to.
    rounds: Measured rounds or fits of each, but for those of a long run.
    warmup_rounds: Rounds or fits before those.
  """

  output_json: str
  rounds: int = config_lib.field(5, minimum=1)
  warmup_rounds: int = config_lib.field(2, minimum=0)


@dataclasses.dataclass(frozen=True)
class Group:
  """What takes turns with each other.

  Attributes:
    commands: Programs that answer as in `worker`, with their arguments.
    rounds: Measured rounds from the first one on; `None` for what the flags
      say.
    prepare: Called before that.
    resident_after: Rounds whose resident memory is a figure, with that of all.
    columns: Further figures of its rows.
    tells_anonymous_memory: Whether that is a figure.
  """

  commands: Mapping[Entry, Sequence[str]]
  rounds: int | None = None
  prepare: Callable[[], object] = lambda: None
  resident_after: tuple[int, ...] = ()
  columns: Mapping[str, Any] = dataclasses.field(default_factory=dict)
  tells_anonymous_memory: bool = False

  def measure(self, config: BenchmarkConfig) -> dict[Entry, dict[str, Any]]:
    """Returns the rows of its entries."""
    self.prepare()
    measurements = measuring.measure(
      list(self.commands.values()),
      rounds=self.rounds or config.rounds,
      warmup_rounds=0 if self.rounds else config.warmup_rounds,
    )
    pairs = zip(self.commands, measurements, strict=True)
    return {entry: self._row(entry, found) for entry, found in pairs}

  def _row(self, entry: Entry, found: measuring.Measurement) -> dict[str, Any]:
    row = {
      **dict(zip(("case", "runtime"), entry, strict=True)),
      **self.columns,
      WALL: found.rounds.wall_seconds.median(),
      "cpu_seconds": found.rounds.cpu_seconds.median(),
      MEMORY: found.peak_memory_bytes,
    }
    if self.tells_anonymous_memory:
      row[ANONYMOUS_MEMORY] = found.peak_anonymous_memory_bytes
    row["wall_seconds_of_rounds"] = found.rounds.wall_seconds.tolist()
    row["ratios"] = {}
    if self.resident_after:
      resident = found.rounds.resident_memory_bytes.tolist()
      for number in self.resident_after:
        name = f"resident_memory_bytes_after_{number}_rounds"
        row[name] = resident[number - 1]
      row["resident_memory_bytes_of_rounds"] = resident
    return row


def read_goals() -> pd.DataFrame:
  """Returns what is told of the rows, as texts; empty where there is none."""
  path = pathlib.Path(__file__).with_name("goals.csv")
  return pd.read_csv(path, dtype=str, keep_default_na=False)


def evaluate(goals: pd.DataFrame, rows: dict[Entry, dict[str, Any]]) -> list:
  """Puts the ratios into their rows; returns lines that tell of all goals.

  Args:
    goals: Those whose rows are missing are left out.
    rows: By entry; each gets its `ratios`.
  """
  lines = []
  for goal in goals.itertuples():
    row = rows.get((goal.case, goal.runtime))
    other = rows.get((goal.other_case, goal.other_runtime))
    if row is None or (goal.other_case and other is None):
      continue
    value = row[goal.figure]
    if other is not None:
      value /= float(goal.scale) * other[goal.other_figure]
      row["ratios"][goal.name] = value
    verdict = ""
    if goal.bound:
      direction, bound = goal.bound.rsplit(" ", 1)
      sign = {"at most": 1, "at least": -1}[direction]
      is_met = sign * value <= sign * float(bound)
      verdict = f"{goal.bound}: {'met' if is_met else 'MISSED'}"
    line = f"{goal.case:34} {goal.name:36} {value:10.4g}  {verdict}"
    lines.append(line.rstrip())
  return lines


def execute(
  config: BenchmarkConfig, groups: Iterable[Group], goals: pd.DataFrame
) -> None:
  """Measures groups, prints and writes; exits with status 1 if one fails.

  Args:
    config: What the flags say.
    groups: Taken one after the other.
    goals: What is told of the rows, as `read_goals` returns it.

  Raises:
    errors.FieldError: If the file cannot be written.
  """
  output_files.check({"output_json": config.output_json}, overwrite=True)
  _write(config.output_json, [])
  has_failed = False
  lines: list[str] = []
  rows: dict[Entry, dict[str, Any]] = {}
  for group in groups:
    try:
      found = group.measure(config)
    except errors.DataError as error:
      # What else can be measured is worth having.
      print(f"FAILED: {error}", file=sys.stderr, flush=True)
      has_failed = True
      continue
    for row in found.values():
      print(_row_in_words(row), flush=True)
    rows |= found
    lines = evaluate(goals, rows)
    _write(config.output_json, list(rows.values()))
  print("\n".join(lines))
  if has_failed:
    sys.exit(1)


def _row_in_words(row: Mapping[str, Any]) -> str:
  text = (
    f"{row['case']:34} {row['runtime']:12} {row[WALL]:8.3f} s wall"
    f" {row['cpu_seconds']:8.2f} s CPU {row[MEMORY] / 1e9:6.2f} GB"
  )
  if ANONYMOUS_MEMORY in row:
    text += f", {row[ANONYMOUS_MEMORY] / 1e9:5.2f} GB anonymous"
  return text


def _write(path: str, rows: list[dict[str, Any]]) -> None:
  text = json.dumps(rows, indent=2) + "\n"
  # At once, so that a reader never sees half of it.
  output_files.write({"output_json": (path, lambda p: p.write_text(text))})
