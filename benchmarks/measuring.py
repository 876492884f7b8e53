"""Measures processes that run rounds on request, from outside and in turn.

Nothing that is measured takes part in measuring, so the figures of a Python
process, of one with a worker process behind it, and of several processes of
another framework mean the same.
"""

from collections.abc import Callable
from collections.abc import Sequence
import contextlib
import dataclasses
import pathlib
import re
import select
import subprocess
import tempfile
import time
from typing import Any

import pandas as pd
import psutil

from tff_fedemb import errors

_GRACE_SECONDS = 10.0
_SAMPLING_SECONDS = 0.02
_ENDED = (psutil.NoSuchProcess, psutil.ZombieProcess)


@dataclasses.dataclass(frozen=True)
class Measurement:
  """What the rounds of one process took.

  Attributes:
    rounds: A row for each measured round: `wall_seconds`; `cpu_seconds`, user
      and system time in steps of 0.01 s; and `resident_memory_bytes` after it.
      The last two are sums over the process and its descendants.
    peak_memory_bytes: Sum over the process and its descendants of the most
      resident memory that each ever had.
    peak_anonymous_memory_bytes: Most memory of the process that is no page of
      a file, which the system takes back when it needs it.
      A peak between two looks may be missed.
  """

  rounds: pd.DataFrame
  peak_memory_bytes: int
  peak_anonymous_memory_bytes: int


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
    self.peak_memory_bytes = 0
    self.peak_anonymous_memory_bytes = 0

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
      self.peak_anonymous_memory_bytes = max(
        self.peak_anonymous_memory_bytes, memory.rss - memory.shared
      )

  def run_round(self) -> None:
    """Runs a round and measures it."""
    cpu = self._sum(_cpu_seconds)
    start = time.perf_counter()
    self._process.stdin.write("\n")
    self._process.stdin.flush()
    self.expect("done")
    wall = time.perf_counter() - start
    peak = self._sum(_peak_memory_bytes)
    self.peak_memory_bytes = max(self.peak_memory_bytes, peak)
    self.rounds.append(
      {
        "wall_seconds": wall,
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


def measure(
  commands: Sequence[Sequence[str]],
  *,
  rounds: int,
  warmup_rounds: int,
) -> list[Measurement]:
  """Runs the rounds of several processes in turn, one at a time.

  Taking turns spreads a machine's change of speed over all of them.

  Args:
    commands: Programs that answer as in `worker`, with their arguments.
    rounds: Measured rounds of each, at least 1.
    warmup_rounds: Rounds of each before those, at least 0.

  Returns:
    A measurement for each command.

  Raises:
    errors.DataError: If one of the processes ends, or says something else.
  """
  with contextlib.ExitStack() as stack:
    workers: list[_Worker] = []
    for command in commands:
      workers.append(_Worker(command))
      stack.callback(workers[-1].close)
    for worker in workers:
      worker.expect("ready")
    for _ in range(warmup_rounds + rounds):
      for worker in workers:
        worker.run_round()
    return [
      Measurement(
        pd.DataFrame(worker.rounds[warmup_rounds:]),
        worker.peak_memory_bytes,
        worker.peak_anonymous_memory_bytes,
      )
      for worker in workers
    ]
