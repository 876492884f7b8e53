"""Measures processes that run rounds on request, from outside and in turn.

Nothing that is measured takes part in measuring, so the figures of a Python
process, of one with a worker process behind it, and of several processes of
another framework mean the same.
"""

from collections.abc import Iterator
from collections.abc import Sequence
import contextlib
import dataclasses
import pathlib
import statistics
import subprocess
import tempfile
import threading
import time

import psutil

_GRACE_SECONDS = 10.0
_SAMPLING_SECONDS = 0.02
_ENDED = (psutil.NoSuchProcess, psutil.ZombieProcess)


class WorkerError(RuntimeError):
  """A measured process ended, or said what it should not."""


@dataclasses.dataclass(frozen=True)
class Measurement:
  """What the rounds of one process took.

  Attributes:
    wall_seconds: Of each measured round.
    cpu_seconds: Of each measured round, user and system time of the process
      and its descendants; in steps of 0.01 s.
    resident_memory_bytes: Resident memory after each measured round, sum over
      the process and its descendants.
    peak_memory_bytes: Sum over the process and its descendants of the most
      resident memory that each ever had.
    peak_anonymous_memory_bytes: Most memory of the process that is no page of
      a file, which the system takes back when it needs it; 0 if not sampled.
      A peak between two looks may be missed.
  """

  wall_seconds: tuple[float, ...]
  cpu_seconds: tuple[float, ...]
  resident_memory_bytes: tuple[int, ...]
  peak_memory_bytes: int
  peak_anonymous_memory_bytes: int = 0

  def median_wall_seconds(self) -> float:
    """The median over rounds."""
    return statistics.median(self.wall_seconds)

  def median_cpu_seconds(self) -> float:
    """The median over rounds."""
    return statistics.median(self.cpu_seconds)


def _memory_bytes(pid: int, name: str) -> int:
  """Returns a line of a process's status; 0 if it has none."""
  with contextlib.suppress(OSError):
    status = pathlib.Path(f"/proc/{pid}/status").read_text()
    for line in status.splitlines():
      if line.startswith(f"{name}:"):
        return int(line.split()[1]) * 1024
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
    self.peak_memory_bytes = 0
    self.peak_anonymous_memory_bytes = 0
    self._name = " ".join(command)

  def _tree(self) -> list[psutil.Process]:
    root = psutil.Process(self._process.pid)
    return [root, *root.children(recursive=True)]

  def _cpu_seconds(self) -> float:
    total = 0.0
    for process in self._tree():
      with contextlib.suppress(*_ENDED):
        times = process.cpu_times()
        total += times.user + times.system
    return total

  def _expect(self, answer: str) -> None:
    found = self._process.stdout.readline().strip()
    if found != answer:
      self._log.seek(0)
      lines = self._log.read().strip().splitlines()
      raise WorkerError(
        f"{self._name} must answer {answer!r}, found {found!r}:"
        f" {' | '.join(lines[-5:])}"
      )

  def wait_until_ready(self) -> None:
    """Waits for whatever comes before the first round."""
    self._expect("ready")

  def run_round(self) -> tuple[float, float, int]:
    """Returns a round's wall and CPU seconds, and the bytes resident then."""
    cpu = self._cpu_seconds()
    start = time.perf_counter()
    self._process.stdin.write("\n")
    self._process.stdin.flush()
    self._expect("done")
    wall = time.perf_counter() - start
    peak = resident = 0
    for process in self._tree():
      with contextlib.suppress(*_ENDED):
        peak += _memory_bytes(process.pid, "VmHWM")
        resident += process.memory_info().rss
    self.peak_memory_bytes = max(self.peak_memory_bytes, peak)
    return wall, self._cpu_seconds() - cpu, resident

  def look_at_anonymous_memory(self) -> None:
    """Notes how much of the process's memory is no file's."""
    found = _memory_bytes(self._process.pid, "RssAnon")
    self.peak_anonymous_memory_bytes = max(
      self.peak_anonymous_memory_bytes, found
    )

  def close(self) -> None:
    """Ends the process and all that it started."""
    tree = []
    with contextlib.suppress(*_ENDED):
      tree = self._tree()
    self._process.stdin.close()
    _, alive = psutil.wait_procs(tree, timeout=_GRACE_SECONDS)
    for process in alive:
      with contextlib.suppress(*_ENDED):
        process.kill()
    self._process.wait()
    self._process.stdout.close()
    self._log.close()


@contextlib.contextmanager
def _sampling(workers: Sequence[_Worker]) -> Iterator[None]:
  """Looks at processes' memory again and again while the context is open."""
  is_closed = threading.Event()

  def look():
    while not is_closed.wait(_SAMPLING_SECONDS):
      for worker in workers:
        worker.look_at_anonymous_memory()

  thread = threading.Thread(target=look, daemon=True)
  thread.start()
  try:
    yield
  finally:
    is_closed.set()
    thread.join()


def measure(
  commands: Sequence[Sequence[str]],
  *,
  rounds: int,
  warmup_rounds: int,
  samples_anonymous_memory: bool = False,
) -> list[Measurement]:
  """Runs the rounds of several processes in turn, one at a time.

  Taking turns spreads a machine's change of speed over all of them.

  Args:
    commands: Programs that answer as in `rounds`, with their arguments.
    rounds: Measured rounds of each, at least 1.
    warmup_rounds: Rounds of each before those, at least 0.
    samples_anonymous_memory: Whether to look at that all the time.

  Returns:
    A measurement for each command.

  Raises:
    WorkerError: If one of the processes fails.
  """
  figures = [[] for _ in commands]
  with contextlib.ExitStack() as stack:
    workers = []
    for command in commands:
      worker = _Worker(command)
      stack.callback(worker.close)
      workers.append(worker)
    if samples_anonymous_memory:
      stack.enter_context(_sampling(workers))
    for worker in workers:
      worker.wait_until_ready()
    for round_num in range(warmup_rounds + rounds):
      for worker, found in zip(workers, figures, strict=True):
        figure = worker.run_round()
        if round_num >= warmup_rounds:
          found.append(figure)
    measurements = []
    for worker, found in zip(workers, figures, strict=True):
      wall_seconds, cpu_seconds, memory = zip(*found, strict=True)
      peaks = worker.peak_memory_bytes, worker.peak_anonymous_memory_bytes
      measurements.append(
        Measurement(wall_seconds, cpu_seconds, memory, *peaks)
      )
    return measurements
