"""The best model of the evaluated rounds, kept until a run hands it over.

A model is as good as its mean recall on the validation images, over the false
accept rates of an evaluation: one rate alone swings by chance where images are
few. The start counts as round 0. Among equals the later one is kept.

Privacy:
  Every round's model may be released, and the account of a run covers them all.
  A choice among them is free of cost if it is made by images of users who do
  not train; by those of users who do, it would tell of them, and no epsilon
  here covers that. Who creates a `KeptModel` sees to it.
"""

from __future__ import annotations

from collections.abc import Mapping
import dataclasses
import os
import pathlib
from typing import Any
import zipfile

from etils import epy
import numpy as np
import tree

from tff_fedemb import whole_files
from tff_fedemb.records import chain as chain_lib
from tff_fedemb.records import run_directory

with epy.lazy_imports():
  import tensorflow_federated as tff

  from tff_fedemb.records import storage

BEST = "best"
LAST = "last"
_PREFIX = "best_"


@dataclasses.dataclass(frozen=True)
class Best:
  """The best model so far.

  Attributes:
    round: Number of its round, 0 for the start.
    recall: Its mean recall on the validation images.
    weights: Its weights, a process's or the backbone's alone.
  """

  round: int
  recall: float
  weights: tff.learning.models.ModelWeights


class KeptModel:
  """The best model of a run, saved with each of its checkpoints.

  A run that goes on from a checkpoint goes on with the best model of the rounds
  that led to it: those behind it run again, and release nothing that is kept.

  Attributes:
    best: It; `None` before the first evaluation.
  """

  def __init__(
    self,
    run_dir: str | os.PathLike[str],
    chain: chain_lib.Chain,
  ) -> None:
    """Begins with none.

    Args:
      run_dir: Directory of the run.
      chain: Chain of the run.
    """
    self.best: Best | None = None
    self._run_dir = pathlib.Path(run_dir)
    self._chain = chain

  def _path(self, rounds_done: int) -> pathlib.Path:
    name = f"{_PREFIX}{rounds_done}.npz"
    return self._run_dir / run_directory.CHECKPOINTS / name

  def restore(self, rounds_done: int) -> None:
    """Takes what was the best at a checkpoint, if an evaluation was before it.

    Args:
      rounds_done: Number of rounds that led to the checkpoint.

    Raises:
      errors.FieldError: If the file is damaged, or has a model that no round of
        the chain released.
    """
    path = self._path(rounds_done)
    self.best = _read(path) if path.exists() else None
    if self.best is not None and self.best.round:
      self._chain.check_released(self.best.round, self.best.weights)

  def offer(
    self,
    number: int,
    recalls: Mapping[str, float],
    weights: tff.learning.models.ModelWeights,
  ) -> None:
    """Keeps a model if none before was better.

    Args:
      number: Number of its round, 0 for the start.
      recalls: Its recalls on the validation images.
      weights: Its weights, which the chain has recorded.
    """
    recall = float(np.mean(list(recalls.values())))
    if self.best is not None and recall < self.best.recall:
      return
    # Others go on with what they gave: a model's variables, a state's arrays.
    copy = tree.map_structure(np.array, weights)
    self.best = Best(number, recall, copy)

  def save(self, rounds_done: int) -> None:
    """Saves the best model, before the checkpoint that it belongs to.

    Args:
      rounds_done: Number of rounds that led to the checkpoint.

    Raises:
      errors.StorageError: If it cannot be written.
    """
    if self.best is None:
      return
    path = self._path(rounds_done)
    with storage.writing(path.parent):
      _write(path, self.best)
    needed = run_directory.checkpointed_rounds(self._run_dir) + [rounds_done]
    kept = {self._path(number) for number in needed}
    for other in path.parent.glob(f"{_PREFIX}*.npz"):
      if other not in kept:
        other.unlink()


def _write(path: pathlib.Path, best: Best) -> None:
  arrays: dict[str, Any] = {}
  for name in ("trainable", "non_trainable"):
    for number, array in enumerate(getattr(best.weights, name)):
      arrays[f"{name}/{number}"] = array
  with whole_files.replacing(path) as partial:
    np.savez(partial, round=best.round, recall=best.recall, **arrays)


def _read(path: pathlib.Path) -> Best:
  try:
    with np.load(path, allow_pickle=False) as file:
      arrays = dict(file)
    number = int(arrays["round"])
    recall = float(arrays["recall"])
  except (OSError, ValueError, KeyError, zipfile.BadZipFile) as error:
    raise run_directory.damaged(path, error) from error
  # The order of the file is that of writing.
  weights = tff.learning.models.ModelWeights(
    trainable=_arrays_of(arrays, "trainable"),
    non_trainable=_arrays_of(arrays, "non_trainable"),
  )
  return Best(number, recall, weights)


def _arrays_of(
  arrays: Mapping[str, np.ndarray],
  name: str,
) -> tuple[np.ndarray, ...]:
  """The arrays that a file has below a name."""
  prefix = f"{name}/"
  return tuple(arrays[key] for key in arrays if key.startswith(prefix))
