"""Rows of figures, what they are meant to be, and the run that makes them.

Both benchmarks measure groups of processes in turn, compare rows with each
other, print what they find and write it after every group.
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

from benchmarks import measuring
from experiments import output_files
from tff_fedemb import config as config_lib

WALL, MEMORY = "wall_seconds", "peak_memory_bytes"
ANONYMOUS_MEMORY = "peak_anonymous_memory_bytes"


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
class Entry:
  """One row of the result.

  Attributes:
    case: Name of the work and, with a lower precision, of that.
    runtime: Who does it.
  """

  case: str
  runtime: str


@dataclasses.dataclass(frozen=True)
class Goal:
  """A figure, or a ratio of two, and what it is meant to be.

  Attributes:
    name: What the result calls it, in the row of `numerator`.
    figure: Of a row: `WALL`, `MEMORY` or another one.
    numerator: The row it belongs to.
    denominator: What that is compared with; `None` for the figure itself.
    denominator_figure: Of that row; `None` for the same one.
    scale: Factor of the denominator.
    at_most: Upper bound, if there is one.
    at_least: Lower bound, if there is one.
  """

  name: str
  figure: str
  numerator: Entry
  denominator: Entry | None = None
  denominator_figure: str | None = None
  scale: float = 1.0
  at_most: float | None = None
  at_least: float | None = None

  def evaluate(self, rows: Mapping[Entry, dict[str, Any]]) -> float | None:
    """The ratio, or `None` if not everything it needs was measured."""
    if self.numerator not in rows:
      return None
    value = rows[self.numerator][self.figure]
    if self.denominator is None:
      return value
    if self.denominator not in rows:
      return None
    figure = self.denominator_figure or self.figure
    return value / (self.scale * rows[self.denominator][figure])

  def verdict(self, value: float) -> str:
    """Says whether the goal was met."""
    if self.at_most is not None:
      met = value <= self.at_most
      return f"at most {self.at_most:g}: {'met' if met else 'MISSED'}"
    if self.at_least is not None:
      met = value >= self.at_least
      return f"at least {self.at_least:g}: {'met' if met else 'MISSED'}"
    return ""


@dataclasses.dataclass(frozen=True)
class Group:
  """What takes turns with each other.

  Attributes:
    commands: Programs that answer as in `rounds`, with their arguments.
    rounds: Measured rounds from the first one on; `None` for what the flags
      say.
    resident_after: Rounds whose resident memory is a figure, with that of all.
    columns: Further figures of its rows.
    samples_anonymous_memory: Whether that is measured.
  """

  commands: Mapping[Entry, Sequence[str]]
  rounds: int | None = None
  resident_after: tuple[int, ...] = ()
  columns: Mapping[str, Any] = dataclasses.field(default_factory=dict)
  samples_anonymous_memory: bool = False

  def measure(self, config: BenchmarkConfig) -> dict[Entry, dict[str, Any]]:
    """Returns the rows of its entries."""
    measurements = measuring.measure(
      list(self.commands.values()),
      rounds=self.rounds or config.rounds,
      warmup_rounds=0 if self.rounds else config.warmup_rounds,
      samples_anonymous_memory=self.samples_anonymous_memory,
    )
    pairs = zip(self.commands, measurements, strict=True)
    return {entry: self._row(entry, found) for entry, found in pairs}

  def _row(self, entry: Entry, found: measuring.Measurement) -> dict[str, Any]:
    row = {
      **dataclasses.asdict(entry),
      **self.columns,
      WALL: found.median_wall_seconds(),
      "cpu_seconds": found.median_cpu_seconds(),
      MEMORY: found.peak_memory_bytes,
    }
    if self.samples_anonymous_memory:
      row[ANONYMOUS_MEMORY] = found.peak_anonymous_memory_bytes
    row |= {"wall_seconds_of_rounds": found.wall_seconds, "ratios": {}}
    if self.resident_after:
      resident = found.resident_memory_bytes
      for round_num in self.resident_after:
        row[resident_memory_figure(round_num)] = resident[round_num - 1]
      row["resident_memory_bytes_of_rounds"] = resident
    return row


def resident_memory_figure(round_num: int) -> str:
  """What a row calls the memory that is resident after so many rounds."""
  return f"resident_memory_bytes_after_{round_num}_rounds"


def check_output(config: BenchmarkConfig) -> None:
  """Refuses a file that cannot be written.

  Raises:
    errors.FieldError: If it cannot be.
  """
  output_files.check({"output_json": config.output_json}, overwrite=True)


def execute(
  config: BenchmarkConfig,
  groups: Iterable[Group],
  goals: Callable[[], Iterable[Goal]],
) -> None:
  """Measures groups, prints and writes; exits with status 1 if one fails.

  Args:
    config: What the flags say.
    groups: Taken one after the other.
    goals: What is told of the rows.
  """
  _write(config.output_json, [])
  has_failed = False
  lines: list[str] = []
  rows: dict[Entry, dict[str, Any]] = {}
  for group in groups:
    try:
      found = group.measure(config)
    except measuring.WorkerError as error:
      # What else can be measured is worth having.
      print(f"FAILED: {error}", file=sys.stderr, flush=True)
      has_failed = True
      continue
    for row in found.values():
      print(_row_in_words(row), flush=True)
    rows |= found
    lines = evaluate(goals(), rows)
    _write(config.output_json, list(rows.values()))
  print("\n".join(lines))
  if has_failed:
    sys.exit(1)


def evaluate(
  goals: Iterable[Goal], rows: dict[Entry, dict[str, Any]]
) -> list[str]:
  """Puts the ratios into their rows; returns lines that tell of all goals.

  Args:
    goals: Those whose rows are missing are left out.
    rows: By entry; each gets its `ratios`.
  """
  lines = []
  for goal in goals:
    value = goal.evaluate(rows)
    if value is None:
      continue
    if goal.denominator is not None:
      rows[goal.numerator]["ratios"][goal.name] = value
    lines.append(
      f"{goal.numerator.case:34} {goal.name:36} {value:10.4g}"
      f"  {goal.verdict(value)}".rstrip()
    )
  return lines


def _row_in_words(row: Mapping[str, Any]) -> str:
  text = (
    f"{row['case']:34} {row['runtime']:12} {row[WALL]:8.3f} s wall"
    f" {row['cpu_seconds']:8.2f} s CPU {row[MEMORY] / 1e9:6.2f} GB"
  )
  if ANONYMOUS_MEMORY in row:
    text += f", {row[ANONYMOUS_MEMORY] / 1e9:5.2f} GB anonymous"
  return text


def _write(path: str, rows: list[dict[str, Any]]) -> None:
  def write(temporary: pathlib.Path) -> None:
    temporary.write_text(json.dumps(rows, indent=2) + "\n")

  # At once, so that a reader never sees half of it.
  output_files.write({"output_json": (path, write)})
