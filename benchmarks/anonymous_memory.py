"""How much memory processes take that is no page of a file, from outside.

Resident memory counts the pages of a file that is mapped into memory, which the
system takes back when it needs them. What is left is the program's own.
"""

from collections.abc import Sequence
import contextlib
import pathlib
import threading

import psutil

_INTERVAL_SECONDS = 0.02
_LOOKS_BETWEEN_SEARCHES = 25


class Sampler:
  """Looks at this process's descendants while the context is open.

  A peak between two looks may be missed.

  Attributes:
    peaks: Bytes by command line.
  """

  def __init__(self):
    self.peaks: dict[tuple[str, ...], int] = {}
    self._is_closed = threading.Event()
    self._thread = threading.Thread(target=self._run, daemon=True)

  def __enter__(self) -> "Sampler":
    self._thread.start()
    return self

  def __exit__(self, *unused_args) -> None:
    self._is_closed.set()
    self._thread.join()

  def peak(self, command: Sequence[str]) -> int:
    """Returns the peak of the process with this command line, 0 if unseen."""
    return self.peaks.get(tuple(command), 0)

  def _run(self) -> None:
    looks = 0
    processes: dict[int, tuple[str, ...]] = {}
    while not self._is_closed.wait(_INTERVAL_SECONDS):
      # To find them takes as long as a hundred looks at them.
      if looks % _LOOKS_BETWEEN_SEARCHES == 0:
        processes = _find_descendants()
      looks += 1
      for pid, command in processes.items():
        with contextlib.suppress(OSError):
          found = max(self.peaks.get(command, 0), _anonymous_bytes(pid))
          self.peaks[command] = found


def _find_descendants() -> dict[int, tuple[str, ...]]:
  """Command lines by number of the process."""
  found = {}
  for process in psutil.Process().children(recursive=True):
    with contextlib.suppress(psutil.Error):
      found[process.pid] = tuple(process.cmdline())
  return found


def _anonymous_bytes(pid: int) -> int:
  status = pathlib.Path(f"/proc/{pid}/status").read_text()
  for line in status.splitlines():
    if line.startswith("RssAnon:"):
      return int(line.split()[1]) * 1024
  return 0
