"""Checkpoints through TFF's program state manager, and the way back from them.

A checkpoint holds all that the next round depends on: the learning process's
state, the line of the chain that it belongs to, and the time its rounds took.
It appears under its name only when it is complete. If the newest one cannot be
read all the same, the one before it is taken. The directory is its owner's
alone: anyone who has the state of correlated noise can remove the noise.
"""

from collections.abc import Callable
import os
import pathlib
import shutil
from typing import Any

import numpy as np
import tensorflow_federated as tff
import tree

from tff_fedemb import errors
from tff_fedemb.records import run_directory
from tff_fedemb.records import storage

_PREFIX = run_directory.CHECKPOINT_PREFIX
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
      directory: Directory of the checkpoints.
      warn: Receives a line when a checkpoint cannot be used.
    """
    self._directory = pathlib.Path(directory)
    # The state of correlated noise holds its seed.
    run_directory.make_private(self._directory)
    self._warn = warn
    self._manager = tff.program.FileProgramStateManager(
      os.fspath(directory), prefix=_PREFIX, keep_total=_KEPT, keep_first=False
    )
    self._remove_leftovers()

  def _remove_leftovers(self) -> None:
    for leftover in self._directory.glob(f"{_PREFIX}*_temp*"):
      shutil.rmtree(leftover, ignore_errors=True)

  def save(self, program_state: Any, rounds_done: int) -> None:
    """Saves what the next round depends on; nothing if it is saved already.

    On a full disk old checkpoints make room for it, all but the newest.

    Raises:
      errors.StorageError: If it cannot be written all the same.
    """
    old = sorted(storage.wait_for(self._manager.get_versions()) or [])
    while rounds_done not in old:
      try:
        with storage.writing(self._directory):
          storage.wait_for(self._manager.save(program_state, rounds_done))
        return
      except errors.StorageError:
        self._remove_leftovers()
        if len(old) < 2:
          raise
        shutil.rmtree(self._directory / f"{_PREFIX}{old.pop(0)}")

  def load_latest(self, structure: Any) -> tuple[Any, int] | None:
    """Loads the newest checkpoint that can be read.

    Newer ones which cannot are renamed out of the way, with a warning.

    Args:
      structure: A program state of the same structure.

    Returns:
      The program state and its number of rounds done; `None` without any.

    Raises:
      errors.FieldError: If there are checkpoints and none of them can be read;
        they stay as they are.
    """
    versions = storage.wait_for(self._manager.get_versions()) or []
    unreadable: dict[pathlib.Path, str] = {}
    for version in sorted(versions, reverse=True):
      path = self._directory / f"{_PREFIX}{version}"
      try:
        program_state = storage.wait_for(self._manager.load(version, structure))
        _check_shapes(program_state, structure)
      # A damaged SavedModel fails in as many ways as it has files.
      except Exception as error:
        unreadable[path] = errors.first_line(error)
        continue
      for path, cause in unreadable.items():
        self._warn(
          f"warning: checkpoint {path} cannot be read ({cause}); going back to"
          " the one before."
        )
        # Its name is free again.
        aside = path.with_name(f"unreadable_{path.name}")
        shutil.rmtree(aside, ignore_errors=True)
        os.replace(path, aside)
      return program_state, version
    if not unreadable:
      return None
    path, cause = next(iter(unreadable.items()))
    # Starting again would forget what the rounds so far have cost.
    raise errors.FieldError(
      "run_dir",
      "hold a checkpoint that this code can read",
      f"none among {len(unreadable)} in {self._directory} (the newest,"
      f" {path.name}: {cause})",
      "Take another one to start again.",
    )


def _check_shapes(found: Any, expected: Any) -> None:
  """Refuses what another version of the code has saved.

  The first dimension may have grown since the run began: a tree's buffers do.
  """
  for left, right in zip(
    tree.flatten(found), tree.flatten(expected), strict=True
  ):
    grown = np.shape(right)[:1] and np.shape(left)[:1] > np.shape(right)[:1]
    start = 1 if grown else 0
    if np.shape(left)[start:] != np.shape(right)[start:]:
      raise ValueError(
        f"an array of shape {np.shape(left)} where this code has one of"
        f" {np.shape(right)}"
      )
