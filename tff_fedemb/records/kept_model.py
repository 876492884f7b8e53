"""The best model of the evaluated rounds, kept until a run hands it over.

Models are compared by their recall on the validation images, averaged over the
false accept rates of an evaluation: with few images, recall at a single rate
varies by chance. The start counts as round 0. If two models are equal, the
later one is kept.

Privacy:
  The account of a run covers the models of all rounds, so any of them may be
  released. Choosing among them costs nothing if the images are of users who do
  not train. A choice by images of users who train would reveal something about
  them that no epsilon here covers: do not create a `KeptModel` then.
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
    recall: Mean recall on the validation images, in [0, 1].
    weights: Weights of the whole process, or of the backbone alone.
  """

  round: int
  recall: float
  weights: tff.learning.models.ModelWeights


class KeptModel:
  """The best model of a run, saved with each of its checkpoints.

  A run that goes on from a checkpoint goes on with the best model up to it. The
  rounds after the checkpoint run again, so their former models are dropped.

  Attributes:
    best: The best model; `None` before the first evaluation.
  """

  def __init__(
    self,
    run_dir: str | os.PathLike[str],
    chain: chain_lib.Chain,
  ) -> None:
    """Begins without a model.

    Args:
      run_dir: Directory of the run.
      chain: Chain of the run.
    """
    self.best: Best | None = None
    self._run_dir = pathlib.Path(run_dir)
    self._chain = chain

  def _path(self, rounds_done: int) -> pathlib.Path:
    """Returns the file that belongs to a checkpoint."""
    name = f"{_PREFIX}{rounds_done}.npz"
    return self._run_dir / run_directory.CHECKPOINTS / name

  def restore(self, rounds_done: int) -> None:
    """Takes the best model at a checkpoint; none if nothing was evaluated.

    Args:
      rounds_done: Number of rounds that led to the checkpoint.

    Raises:
      errors.FieldError: If the file is damaged, or has a model that is neither
        the start nor that of a round in the chain.
    """
    path = self._path(rounds_done)
    self.best = None
    if path.exists():
      self.best = _read(path)
    if self.best is not None:
      self._chain.check_released(self.best.round, self.best.weights)

  def offer(
    self,
    number: int,
    recalls: Mapping[str, float],
    weights: tff.learning.models.ModelWeights,
  ) -> None:
    """Keeps a model unless an earlier one was better.

    Models are compared by the unweighted mean of `recalls`; an equal one
    replaces the model kept so far. The chain gets a record of the start here;
    it has those of the rounds already.

    Args:
      number: Number of its round, 0 for the start.
      recalls: Recalls on the validation images, by name.
      weights: Its weights.
    """
    recall = float(np.mean(list(recalls.values())))
    if self.best is not None and recall < self.best.recall:
      return
    # The caller may change its variables or arrays later.
    copy = tree.map_structure(np.array, weights)
    if not number:
      self._chain.record_start(copy)
    self.best = Best(number, recall, copy)

  def save(self, rounds_done: int) -> None:
    """Saves the best model, before the checkpoint that it belongs to.

    Files that belong to no checkpoint are deleted.

    Args:
      rounds_done: Number of rounds that led to the checkpoint.

    Raises:
      errors.StorageError: If the file cannot be written.
    """
    if self.best is None:
      return
    path = self._path(rounds_done)
    with storage.writing(path.parent):
      _write(path, self.best)
    needed = run_directory.checkpointed_rounds(self._run_dir) + [rounds_done]
    kept = list(map(self._path, needed))
    for other in path.parent.glob(f"{_PREFIX}*.npz"):
      if other not in kept:
        other.unlink()


def _write(path: pathlib.Path, best: Best) -> None:
  """Writes a model to an .npz file.

  Args:
    path: The file, which appears whole or not at all.
    best: The model; its arrays are named `trainable/0`, `non_trainable/0` and
      so on.
  """
  arrays: dict[str, Any] = {}
  for name in ("trainable", "non_trainable"):
    for number, array in enumerate(getattr(best.weights, name)):
      arrays[f"{name}/{number}"] = array
  with whole_files.replacing(path) as partial:
    np.savez(partial, round=best.round, recall=best.recall, **arrays)


def _read(path: pathlib.Path) -> Best:
  """Reads a model from an .npz file, whose arrays keep their order.

  Raises:
    errors.FieldError: If the file is damaged.
  """
  try:
    with np.load(path, allow_pickle=False) as file:
      arrays = dict(file)
    number = int(arrays["round"])
    recall = float(arrays["recall"])
  except (
    OSError,
    ValueError,
    KeyError,
    EOFError,
    zipfile.BadZipFile,
  ) as error:
    raise run_directory.damaged(path, error) from error
  weights = tff.learning.models.ModelWeights(
    trainable=_arrays_of(arrays, "trainable"),
    non_trainable=_arrays_of(arrays, "non_trainable"),
  )
  return Best(number, recall, weights)


def _arrays_of(
  arrays: Mapping[str, np.ndarray],
  name: str,
) -> tuple[np.ndarray, ...]:
  """Returns the arrays whose names begin with a name and a slash."""
  prefix = f"{name}/"
  return tuple(arrays[key] for key in arrays if key.startswith(prefix))
