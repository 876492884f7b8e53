"""Metrics of the rounds, through TFF's release managers.

Training metrics (loss, accuracy, update norms, counts) are computed from
unprotected client updates: no differential privacy guarantee covers them. The
files they are written to say so.
"""

import collections
from collections.abc import Mapping
import os
import pathlib
from typing import Any

import numpy as np
import pandas as pd
import tensorflow_federated as tff

from tff_fedemb.records import release as release_lib
from tff_fedemb.records import storage

ROUND = "round_num"
NUM_SKIPPED_CLIENTS = "participants/num_skipped_clients"
NUM_SKIPPED_EXAMPLES = "client_work/num_skipped_examples"
NUM_USERS = "participants/num_users"
# Clients whose updates are in the round's sum.
NUM_ACCEPTED = "participants/num_accepted_clients"
_FILE_NAME = "metrics.csv"


def flatten(metrics: Any, prefix: str = "") -> dict[str, float]:
  """Flattens nested metrics to numbers by slash-separated names."""
  if isinstance(metrics, Mapping):
    flat = {}
    for name, value in metrics.items():
      flat.update(flatten(value, f"{prefix}/{name}" if prefix else name))
    return flat
  value = np.asarray(metrics)
  if value.ndim == 0 and value.dtype.kind in "iuf":
    return {prefix: value.item()}
  return {}


def read(directory: str | os.PathLike[str]) -> pd.DataFrame:
  """All rounds on file in a run's directory, indexed by the round from 1.

  Raises:
    FileNotFoundError: If there is no such file.
  """
  return pd.read_csv(pathlib.Path(directory) / _FILE_NAME).set_index(ROUND)


class MetricsLog:
  """Releases each round's metrics to a CSV file and to TensorBoard."""

  def __init__(self, directory: str | os.PathLike[str]):
    """Opens the files in a run's directory.

    Args:
      directory: Gets `metrics.csv`, `tensorboard/` and a note on privacy.
    """
    directory = pathlib.Path(directory)
    self._directory = directory
    (directory / release_lib.NOTE).write_text(release_lib.NOTE_TEXT)
    csv_and_tensorboard = [
      # Write mode replaces the file as a whole: a program that is killed
      # leaves no half row.
      tff.program.CSVFileReleaseManager(
        os.fspath(directory / _FILE_NAME),
        save_mode=tff.program.CSVSaveMode.WRITE,
        key_fieldname=ROUND,
      ),
      tff.program.TensorBoardReleaseManager(
        os.fspath(directory / "tensorboard")
      ),
    ]
    self._manager = tff.program.GroupingReleaseManager(csv_and_tensorboard)

  def release(self, metrics: Mapping[str, float], rounds_done: int) -> None:
    """Releases a round's metrics; later rounds on file are dropped.

    Args:
      metrics: Numbers by name.
      rounds_done: Number of the round, counted from 1.

    Raises:
      errors.StorageError: If they cannot be written.
    """
    value = collections.OrderedDict(metrics)
    with storage.writing(self._directory):
      storage.wait_for(self._manager.release(value, rounds_done))

  def rounds_of_nobody(self, rounds_done: int) -> list[int]:
    """The last rounds in a row none of whose clients was accepted.

    Rounds that drew nobody neither count nor end the row.

    Args:
      rounds_done: Number of the last round.
    """
    if not (self._directory / _FILE_NAME).exists():
      return []
    frame = read(self._directory)
    frame = frame[frame.index <= rounds_done]
    if frame.empty:
      return []
    accepted = frame[NUM_ACCEPTED][frame[NUM_USERS] > 0]
    # The most that was accepted from each round on.
    since = accepted[::-1].cummax()[::-1]
    return list(since.index[since == 0])
