"""Checkpoints through TFF's program state manager, and the way back from them.

A checkpoint holds all that the next round depends on: the learning process's
state, the privacy ledger, the number of rounds done and the time they took. It
appears under its name only when it is complete. If the newest one cannot be
read all the same, the one before it is taken.
"""

import asyncio
from collections.abc import Callable
import os
import pathlib
import shutil
from typing import Any

import tensorflow_federated as tff

_PREFIX = "round_"
_KEPT = 3


class Checkpoints:
  """The checkpoints of a run, by number of rounds done."""

  def __init__(
      self,
      directory: str | os.PathLike[str],
      *,
      warn: Callable[[str], None] = print,
  ):
    """Opens or creates the directory of the checkpoints.

    Args:
      directory: Where they are.
      warn: Receives a line when a checkpoint cannot be used.
    """
    self._directory = pathlib.Path(directory)
    self._warn = warn
    self._manager = tff.program.FileProgramStateManager(
        os.fspath(directory),
        prefix=_PREFIX,
        keep_total=_KEPT,
        keep_first=False,
    )
    for leftover in self._directory.glob(f"{_PREFIX}*_temp*"):
      shutil.rmtree(leftover, ignore_errors=True)

  def save(self, program_state: Any, rounds_done: int) -> None:
    """Saves what the next round depends on; nothing if it is saved already."""
    if rounds_done not in (asyncio.run(self._manager.get_versions()) or []):
      asyncio.run(self._manager.save(program_state, rounds_done))

  def load_latest(self, structure: Any) -> tuple[Any, int] | None:
    """Loads the newest checkpoint that can be read.

    Those which cannot are renamed out of the way, with a warning.

    Args:
      structure: A program state of the same structure.

    Returns:
      The program state and its number of rounds done; `None` without any.
    """
    versions = asyncio.run(self._manager.get_versions()) or []
    for version in sorted(versions, reverse=True):
      try:
        return asyncio.run(self._manager.load(version, structure)), version
      # A damaged SavedModel fails in as many ways as it has files.
      except Exception as error:
        name = f"{_PREFIX}{version}"
        cause = (str(error).splitlines() or [type(error).__name__])[0]
        self._warn(
            f"warning: checkpoint {self._directory / name} cannot be read"
            f" ({cause[:120]}); going back to the one before."
        )
        shutil.rmtree(self._directory / f"unreadable_{name}", True)
        os.replace(
            self._directory / name, self._directory / f"unreadable_{name}"
        )
    return None
