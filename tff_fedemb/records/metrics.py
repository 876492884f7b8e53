"""Metrics of the rounds, written by TFF's release managers.

Privacy:
  Training metrics (loss, accuracy, update norms, counts) are computed from
  clients' updates without noise. No guarantee covers them, and a note beside
  their files says so.
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
# Number of clients whose updates are in the sum of the round.
NUM_ACCEPTED = "participants/num_accepted_clients"
RECALL_PREFIX = "validation/recall_at_far_"
EPSILON = "privacy/epsilon"
LOSS = "client_work/loss"
_NEEDED = (
  NUM_SKIPPED_CLIENTS,
  NUM_SKIPPED_EXAMPLES,
  NUM_USERS,
  NUM_ACCEPTED,
  LOSS,
)
_FILE_NAME = "metrics.csv"


def flatten(metrics: Any, prefix: str = "") -> dict[str, float]:
  """Flattens nested metrics to numbers by name.

  Args:
    metrics: Nested mappings; values that are no single numbers are left out.
    prefix: Name that all names begin with.

  Returns:
    Numbers by the names that lead to them, separated by slashes.

  Example:
    `flatten({"client_work": {"loss": 0.5}})` is `{"client_work/loss": 0.5}`.
  """
  if isinstance(metrics, Mapping):
    flat = {}
    for name, value in metrics.items():
      longer = f"{prefix}/{name}" if prefix else name
      flat.update(flatten(value, longer))
    return flat
  value = np.asarray(metrics)
  if value.ndim == 0 and value.dtype.kind in "iuf":
    return {prefix: value.item()}
  return {}


def read(directory: str | os.PathLike[str]) -> pd.DataFrame:
  """Reads the metrics of a run.

  Args:
    directory: Directory of the run.

  Returns:
    A row for each round on file, indexed by its number from 1. Without
    a row there are the columns that reports need.

  Raises:
    FileNotFoundError: If there is no such file.
  """
  path = pathlib.Path(directory) / _FILE_NAME
  found = pd.read_csv(path, index_col=ROUND)
  # A file that lost its rows has lost their columns too.
  return found.reindex(columns=_NEEDED) if found.empty else found


class MetricsLog:
  """Releases each round's metrics to a CSV file and to TensorBoard.

  `metrics.csv` has a row for each round. It is written as a whole each time, so
  that a run that goes on from a checkpoint replaces the rows of the rounds that
  run again.
  """

  def __init__(self, directory: str | os.PathLike[str]):
    """Opens the files in a run's directory.

    Args:
      directory: Gets `metrics.csv`, `tensorboard/` and a note on privacy.
    """
    self._directory = pathlib.Path(directory)
    note = self._directory / release_lib.NOTE
    note.write_text(release_lib.NOTE_TEXT)
    csv = tff.program.CSVFileReleaseManager(
      os.path.join(directory, _FILE_NAME),
      # The file is replaced as a whole, so a killed program leaves no half row.
      save_mode=tff.program.CSVSaveMode.WRITE,
      key_fieldname=ROUND,
    )
    tensorboard = tff.program.TensorBoardReleaseManager(
      os.path.join(directory, "tensorboard")
    )
    self._manager = tff.program.GroupingReleaseManager([csv, tensorboard])

  def release(self, metrics: Mapping[str, float], rounds_done: int) -> None:
    """Writes the metrics of a round, and drops later rounds on file.

    Args:
      metrics: Numbers by name.
      rounds_done: Number of the round, from 1.

    Raises:
      errors.StorageError: If the files cannot be written.
    """
    value = collections.OrderedDict(metrics)
    with storage.writing(self._directory):
      storage.wait_for(self._manager.release(value, rounds_done))

  def rounds_of_nobody(self, rounds_done: int) -> list[int]:
    """Returns the latest rounds in a row that accepted no client.

    Rounds that drew nobody neither count nor end the row.

    A row of such rounds means that every client fails, which is rarely wanted.

    Args:
      rounds_done: Number of the latest round.

    Returns:
      Numbers of the rounds, ascending; empty if the latest round that drew
      users accepted a client, or if there are no metrics yet.
    """
    if not (self._directory / _FILE_NAME).exists():
      return []
    frame = read(self._directory)
    frame = frame[frame.index <= rounds_done]
    if frame.empty:
      return []
    accepted = frame[NUM_ACCEPTED][frame[NUM_USERS] > 0]
    # Largest number of clients accepted by any round, from each round on.
    since = accepted[::-1].cummax()[::-1]
    return list(since.index[since == 0])
