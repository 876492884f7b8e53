"""Checkpoints, saved and loaded by TFF's program state manager.

A checkpoint holds everything that the next round depends on: the state of the
learning process, the digest of its line in the chain, and the time that its
rounds took. It gets its name when it is complete. If the newest one still
cannot be read, the one before it is loaded. The directory is readable by its
owner alone: anyone who has the state of correlated noise can remove the noise.
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
  """The checkpoints of a run, by the number of finished rounds.

  The newest three are kept. Each is written under a temporary name, and renamed
  once it is complete.
  """

  def __init__(
    self,
    directory: str | os.PathLike[str],
    *,
    warn: Callable[[str], None] = print,
  ):
    """Opens or creates the directory of the checkpoints.

    Checkpoints that a killed program left incomplete are deleted.

    Args:
      directory: Directory of the checkpoints.
      warn: Receives a line when a checkpoint cannot be used.

    Raises:
      errors.FieldError: If the directory cannot be created or made private.
    """
    self._directory = pathlib.Path(directory)
    # The state of correlated noise contains its seed.
    run_directory.make_private(self._directory)
    self._warn = warn
    self._manager = tff.program.FileProgramStateManager(
      os.fspath(directory), prefix=_PREFIX, keep_total=_KEPT, keep_first=False
    )
    self._remove_leftovers()

  def _remove_leftovers(self) -> None:
    """Removes checkpoints that were not written to their ends."""
    for leftover in self._directory.glob(f"{_PREFIX}*_temp*"):
      shutil.rmtree(leftover, ignore_errors=True)

  def save(
    self,
    program_state: Any,
    rounds_done: int,
    *,
    first: Callable[[], None] = lambda: None,
  ) -> None:
    """Saves a checkpoint, unless there is one after this round.

    If the disk is full, old checkpoints but the newest are removed to make
    room.

    Args:
      program_state: Everything that the next round depends on, nested arrays.
      rounds_done: Number of finished rounds.
      first: Called before the checkpoint is saved; writes files that it needs.

    Raises:
      errors.StorageError: If there is no room even so.
    """
    old = sorted(storage.wait_for(self._manager.get_versions()) or [])
    while True:
      try:
        first()
        if rounds_done not in old:
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

    Unreadable newer ones are renamed to `unreadable_*`, with a warning.

    Args:
      structure: A program state of the same structure.

    Returns:
      The program state and its number of finished rounds; `None` if there are
      no checkpoints.

    Raises:
      errors.FieldError: If no checkpoint can be read; all stay as they are.
    """
    versions = storage.wait_for(self._manager.get_versions()) or []
    unreadable: dict[pathlib.Path, str] = {}
    for version in sorted(versions, reverse=True):
      path = self._directory / f"{_PREFIX}{version}"
      try:
        program_state = storage.wait_for(self._manager.load(version, structure))
        _check_shapes(program_state, structure)
      # A damaged SavedModel can fail in any way.
      except Exception as error:
        unreadable[path] = errors.first_line(error)
        continue
      for path, cause in unreadable.items():
        self._set_aside(path, cause)
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

  def _set_aside(self, path: pathlib.Path, cause: str) -> None:
    """Renames an unreadable checkpoint, so that its name is free again.

    Args:
      path: Directory of the checkpoint.
      cause: Why it cannot be read, for the warning.
    """
    self._warn(
      f"warning: checkpoint {path} cannot be read ({cause}); going back to the"
      " one before."
    )
    aside = path.with_name(f"unreadable_{path.name}")
    shutil.rmtree(aside, ignore_errors=True)
    os.replace(path, aside)


def _check_shapes(found: Any, expected: Any) -> None:
  """Refuses the arrays of another version of the code.

  The first dimension may have grown since the run began, as the buffers of a
  tree do.

  Args:
    found: Program state of a checkpoint, nested arrays.
    expected: Program state that this code starts with.

  Raises:
    ValueError: If the arrays differ in number, or one of them in its shape.
  """
  arrays = zip(tree.flatten(found), tree.flatten(expected), strict=True)
  for one, other in arrays:
    saved = np.shape(one)
    wanted = np.shape(other)
    has_grown = bool(wanted) and saved[:1] > wanted[:1]
    start = 1 if has_grown else 0
    if saved[start:] != wanted[start:]:
      raise ValueError(
        f"an array of shape {saved} where this code has one of {wanted}"
      )
