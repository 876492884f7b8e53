"""Processes that are measured, rows of their figures, and what they shall be.

Processes run rounds on request and are measured from outside, in turn. Nothing
that is measured takes part in measuring, so the figures of a Python process, of
one with a worker process behind it, and of several processes of another
framework mean the same.

The benchmark measures groups of processes, compares rows with each other,
prints what it finds and writes it after every group. `goals.csv` says which
figures are told, or compared with that of another row, and their bounds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
import contextlib
import dataclasses
import pathlib
import re
import select
import subprocess
import sys
import tempfile
import time
from typing import Any

from etils import epy
import psutil

from tff_fedemb import config as config_lib
from tff_fedemb import errors
from tff_fedemb import output_files

with epy.lazy_imports():
  import pandas as pd

WALL, MEMORY = "wall_seconds", "peak_memory_bytes"
ANONYMOUS_MEMORY = "peak_anonymous_memory_bytes"

# Name of the work, with a lower precision if it has one; and who does it.
Entry = tuple[str, str]
_GRACE_SECONDS = 10.0
# A process compiles and buffers for some rounds before it is what it stays.
_SETTLED_ROUND = 50
_SAMPLING_SECONDS = 0.02
_ENDED = (psutil.NoSuchProcess, psutil.ZombieProcess)


def _cpu_seconds(process: psutil.Process) -> float:
  times = process.cpu_times()
  return times.user + times.system


def _peak_memory_bytes(process: psutil.Process) -> int:
  with contextlib.suppress(OSError):
    status = pathlib.Path(f"/proc/{process.pid}/status").read_text()
    if found := re.search(r"VmHWM:\s*(\d+)", status):
      return int(found[1]) * 1024
  return 0


class _Worker:
  """A process that runs rounds."""

  def __init__(self, command: Sequence[str]):
    self._log = tempfile.TemporaryFile(mode="w+")  # noqa: SIM115
    self._process = subprocess.Popen(
      command,
      stdin=subprocess.PIPE,
      stdout=subprocess.PIPE,
      stderr=self._log,
      text=True,
      # Ctrl-C is for who measures, who then ends this.
      start_new_session=True,
    )
    self._name = " ".join(command)
    self._root = psutil.Process(self._process.pid)
    self.rounds: list[dict[str, float]] = []
    self._anonymous_memory_bytes = 0

  def _sum(self, figure: Callable[[psutil.Process], Any]) -> Any:
    """Adds up a figure of the process and its descendants."""
    total: Any = 0
    for process in [self._root, *self._root.children(recursive=True)]:
      with contextlib.suppress(*_ENDED):
        total += figure(process)
    return total

  def expect(self, answer: str) -> None:
    """Waits for what the process is to say, and looks at its memory."""
    pipe = self._process.stdout
    while not select.select([pipe], [], [], _SAMPLING_SECONDS)[0]:
      self._look()
    # A quick round ends before the first look in it.
    self._look()
    found = pipe.readline().strip()
    if found != answer:
      self._log.seek(0)
      lines = self._log.read().strip().splitlines()
      raise errors.DataError(
        f"{self._name} must answer {answer!r}, found {found!r}:"
        f" {' | '.join(lines[-5:])}"
      )

  def _look(self) -> None:
    """Notes the memory of the process as it is now."""
    with contextlib.suppress(*_ENDED):
      memory = self._root.memory_info()
      anonymous = memory.rss - memory.shared
      self._anonymous_memory_bytes = max(
        self._anonymous_memory_bytes, anonymous
      )

  def run_round(self) -> None:
    """Runs a round and measures it."""
    cpu = self._sum(_cpu_seconds)
    start = time.perf_counter()
    self._process.stdin.write("\n")
    self._process.stdin.flush()
    self.expect("done")
    self.rounds.append(
      {
        WALL: time.perf_counter() - start,
        MEMORY: self._sum(_peak_memory_bytes),
        ANONYMOUS_MEMORY: self._anonymous_memory_bytes,
        "resident_memory_bytes": self._sum(lambda p: p.memory_info().rss),
        "cpu_seconds": self._sum(_cpu_seconds) - cpu,
      }
    )

  def close(self) -> None:
    """Ends the process and all that it started."""
    tree = []
    with contextlib.suppress(*_ENDED):
      tree = [self._root, *self._root.children(recursive=True)]
    self._process.stdin.close()
    _, alive = psutil.wait_procs(tree, timeout=_GRACE_SECONDS)
    for process in alive:
      with contextlib.suppress(*_ENDED):
        process.kill()
    self._process.wait()
    self._process.stdout.close()
    self._log.close()


@dataclasses.dataclass(frozen=True, kw_only=True)
class BenchmarkConfig(config_lib.Config):
  """Settings of the benchmark of training.

  Attributes:
    output_json: File to write the figures to.
    rounds: Measured rounds of each program, but for those of a long run.
    warmup_rounds: Rounds before those.
    cases: Cases to measure, by the beginning of their names [all].
    pfl_python: Python with torch and pfl-research, to measure that as well.
  """

  output_json: str
  rounds: int = config_lib.field(5, minimum=1)
  warmup_rounds: int = config_lib.field(2, minimum=0)
  cases: tuple[str, ...] = config_lib.field(())
  pfl_python: str | None = None


@dataclasses.dataclass(frozen=True)
class Group:
  """Commands that take turns with each other.

  Attributes:
    commands: Programs that answer as in `worker`, with their arguments.
    rounds: Measured rounds from the first one on; `None` for what the flags
      say.
  """

  commands: Mapping[Entry, Sequence[str]]
  rounds: int | None = None

  def measure(self, config: BenchmarkConfig) -> dict[Entry, dict[str, Any]]:
    """Runs the rounds of the programs in turn, one at a time.

    Taking turns spreads a machine's change of speed over all of them.

    Returns:
      The row of each entry: `wall_seconds` and `cpu_seconds`, user and system
      time in steps of 0.01 s, are medians of the measured rounds;
      `peak_memory_bytes` is the most that was resident, over the process and
      its descendants; and `peak_anonymous_memory_bytes` the most memory of the
      process that is no page of a file, which the system takes back when it
      needs it. Of this a peak between two looks may be missed.

    Raises:
      errors.DataError: If one of the programs ends, or says something else.
    """
    rounds, warmup_rounds = config.rounds, config.warmup_rounds
    if self.rounds:
      rounds, warmup_rounds = self.rounds, 0
    with contextlib.ExitStack() as stack:
      workers: dict[Entry, _Worker] = {}
      for entry, command in self.commands.items():
        workers[entry] = _Worker(command)
        stack.callback(workers[entry].close)
      for worker in workers.values():
        worker.expect("ready")
      for _ in range(warmup_rounds + rounds):
        for worker in workers.values():
          worker.run_round()
    return {
      entry: self._row(entry, pd.DataFrame(worker.rounds[warmup_rounds:]))
      for entry, worker in workers.items()
    }

  def _row(self, entry: Entry, found: pd.DataFrame) -> dict[str, Any]:
    resident = found.resident_memory_bytes.tolist()
    return {
      **dict(zip(("case", "runtime"), entry, strict=True)),
      WALL: found[WALL].median(),
      "cpu_seconds": found.cpu_seconds.median(),
      MEMORY: int(found[MEMORY].max()),
      ANONYMOUS_MEMORY: int(found[ANONYMOUS_MEMORY].max()),
      "wall_seconds_of_rounds": found[WALL].tolist(),
      "resident_memory_bytes_of_rounds": resident,
      "settled_memory_bytes": resident[:_SETTLED_ROUND][-1],
      "last_memory_bytes": resident[-1],
      "ratios": {},
    }


def read_goals() -> pd.DataFrame:
  """Returns the goals of the rows, as texts; empty where there is none."""
  path = pathlib.Path(__file__).with_name("goals.csv")
  return pd.read_csv(path, dtype=str, keep_default_na=False)


def evaluate(goals: pd.DataFrame, rows: dict[Entry, dict[str, Any]]) -> list:
  """Puts the ratios into their rows; returns lines that tell of all goals.

  Goals whose rows are missing are left out.
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
    config: Settings by the flags.
    groups: Taken one after the other.
    goals: Goals of the rows, as `read_goals` returns them.

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
    except (errors.DataError, OSError) as error:
      # The other measurements are worth having.
      print(f"FAILED: {error}", file=sys.stderr, flush=True)
      has_failed = True
      continue
    for (case, runtime), row in found.items():
      text = (
        f"{case:34} {runtime:12} {row[WALL]:8.3f} s wall"
        f" {row['cpu_seconds']:8.2f} s CPU {row[MEMORY] / 1e9:6.2f} GB,"
        f" {row[ANONYMOUS_MEMORY] / 1e9:5.2f} GB anonymous in its first process"
      )
      print(text, flush=True)
    rows |= found
    lines = evaluate(goals, rows)
    _write(config.output_json, list(rows.values()))
  print("\n".join(lines))
  if has_failed:
    sys.exit(1)


def _write(path: str, rows: list[dict[str, Any]]) -> None:
  output_files.write({"output_json": (path, output_files.json_writer(rows))})
