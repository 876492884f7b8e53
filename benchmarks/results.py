"""Processes that are measured, rows of their figures, and what they shall be.

Processes run rounds on request and are measured from outside, in turn. Nothing
that is measured takes part in measuring, so the figures of a Python process, of
one with a worker process behind it, and of several processes of another
framework mean the same.

The benchmark measures groups of processes that take turns, compares rows with
each other, prints what it finds and writes it after every group. `goals.csv`
says which figures are told, or compared with that of another row, and their
bounds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
import contextlib
import dataclasses
import pathlib
import re
import subprocess
import sys
import tempfile
import time
from typing import Any

from etils import epy
import psutil

from tff_fedemb import config as config_lib
from tff_fedemb import errors
from tff_fedemb.records import output_files

with epy.lazy_imports():
  import pandas as pd

WALL, MEMORY = "wall_seconds", "peak_memory_bytes"
ANONYMOUS_MEMORY = "anonymous_memory_bytes"

# Name of the work, with a lower precision if it has one; and who does it.
Entry = tuple[str, str]
_GRACE_SECONDS = 10.0
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
    self._process = psutil.Popen(
      command,
      stdin=subprocess.PIPE,
      stdout=subprocess.PIPE,
      stderr=self._log,
      text=True,
      # Ctrl-C is for who measures, who then ends this.
      start_new_session=True,
    )
    self.rounds: list[dict[str, float]] = []

  def _tree(self) -> list[psutil.Process]:
    """The process and its descendants."""
    with contextlib.suppress(*_ENDED):
      return [self._process, *self._process.children(recursive=True)]
    return []

  def _sum(self, figure: Callable[[psutil.Process], Any]) -> Any:
    """Adds up a figure of the process and its descendants."""
    total: Any = 0
    for process in self._tree():
      with contextlib.suppress(*_ENDED):
        total += figure(process)
    return total

  def expect(self, answer: str) -> None:
    """Waits for what the process is to say."""
    found = self._process.stdout.readline().strip()
    if found != answer:
      self._log.seek(0)
      lines = self._log.read().strip().splitlines()
      raise errors.DataError(
        f"{' '.join(self._process.args)} must answer {answer!r}, found"
        f" {found!r}: {' | '.join(lines[-5:])}"
      )

  def run_round(self) -> None:
    """Runs a round and measures it."""
    cpu = self._sum(_cpu_seconds)
    start = time.perf_counter()
    self._process.stdin.write("\n")
    self._process.stdin.flush()
    self.expect("done")
    seconds = time.perf_counter() - start
    memory = self._process.memory_info()
    self.rounds.append(
      {
        WALL: seconds,
        "cpu_seconds": self._sum(_cpu_seconds) - cpu,
        MEMORY: self._sum(_peak_memory_bytes),
        ANONYMOUS_MEMORY: memory.rss - memory.shared,
        "resident_memory_bytes": self._sum(lambda p: p.memory_info().rss),
      }
    )

  def close(self) -> None:
    """Ends the process and all that it started."""
    tree = self._tree()
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
    rounds: Measured rounds of each program.
    warmup_rounds: Rounds before those.
    cases: Cases to measure, by the beginning of their names [all].
    pfl_python: Python with torch and pfl-research, to measure that as well.
  """

  output_json: str
  rounds: int = config_lib.field(5, minimum=1)
  warmup_rounds: int = config_lib.field(2, minimum=0)
  cases: tuple[str, ...] = config_lib.field(())
  pfl_python: str | None = None


def measure(
  config: BenchmarkConfig, commands: Mapping[Entry, Sequence[str]]
) -> dict[Entry, dict[str, Any]]:
  """Runs the rounds of programs in turn, one at a time.

  Taking turns spreads a machine's change of speed over all of them.

  Args:
    config: Settings by the flags.
    commands: Programs that answer as `round_process`, with their arguments.

  Returns:
    The row of each entry: `wall_seconds` and `cpu_seconds`, user and system
    time in steps of 0.01 s, are medians of the measured rounds;
    `peak_memory_bytes` is the most that was resident, over the process and its
    descendants; and `anonymous_memory_bytes` the most memory of the process
    after a round that is no page of a file, which the system takes back when it
    needs it.

  Raises:
    errors.DataError: If one of the programs ends, or says something else.
  """
  with contextlib.ExitStack() as stack:
    workers: dict[Entry, _Worker] = {}
    for entry, command in commands.items():
      workers[entry] = _Worker(command)
      stack.callback(workers[entry].close)
    for worker in workers.values():
      worker.expect("ready")
    for _ in range(config.warmup_rounds + config.rounds):
      for worker in workers.values():
        worker.run_round()
  rows = {}
  for entry, worker in workers.items():
    found = pd.DataFrame(worker.rounds[config.warmup_rounds :])
    rows[entry] = {
      **dict(zip(("case", "runtime"), entry, strict=True)),
      WALL: found[WALL].median(),
      "cpu_seconds": found.cpu_seconds.median(),
      MEMORY: int(found[MEMORY].max()),
      ANONYMOUS_MEMORY: int(found[ANONYMOUS_MEMORY].max()),
      "wall_seconds_of_rounds": found[WALL].tolist(),
      "resident_memory_bytes_of_rounds": found.resident_memory_bytes.tolist(),
      "ratios": {},
    }
  return rows


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
  config: BenchmarkConfig,
  groups: Iterable[Mapping[Entry, Sequence[str]]],
  goals: pd.DataFrame,
) -> None:
  """Measures groups, prints and writes; exits with status 1 if one fails.

  Args:
    config: Settings by the flags.
    groups: Commands that take turns with each other, as in `measure`.
    goals: Goals of the rows, as `read_goals` returns them.

  Raises:
    errors.FieldError: If the file cannot be written.
  """
  output_files.check({"output_json": config.output_json}, overwrite=True)
  output_files.write_json(config.output_json, [])
  has_failed = False
  lines: list[str] = []
  rows: dict[Entry, dict[str, Any]] = {}
  for group in groups:
    try:
      found = measure(config, group)
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
    output_files.write_json(config.output_json, list(rows.values()))
  print("\n".join(lines))
  if has_failed:
    sys.exit(1)
