"""Metrics of the rounds, through TFF's release managers.

Training metrics (loss, accuracy, update norms, counts) are computed from
unprotected client updates: no differential privacy guarantee covers them. The
files they are written to say so.
"""

import asyncio
import collections
from collections.abc import Mapping
import os
import pathlib
from typing import Any

import numpy as np
import pandas as pd
import tensorflow_federated as tff

ROUND = "round_num"
_FILE_NAME = "metrics.csv"
NOT_COVERED_NOTE = (
  "metrics.csv and tensorboard/ hold training metrics (loss, accuracy, update"
  " norms, clipped share, counts, participants); plots/loss.png and"
  " plots/overview.png show them. They are computed from unprotected client"
  " updates and are NOT covered by the differential privacy guarantee of the"
  " model. Nor is recall, here, in summary.json, evaluation.json,"
  " plots/recall.png and plots/roc.png, where evaluation_on_training_users is"
  " true. Nor are participation.trace and checkpoints/, which say who took"
  " part. Do not publish them for real users.\n"
)


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
    (directory / "METRICS_ARE_NOT_PRIVATE.txt").write_text(NOT_COVERED_NOTE)
    self._managers = [
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

  def release(self, metrics: Mapping[str, float], rounds_done: int) -> None:
    """Releases a round's metrics; later rounds on file are dropped.

    Args:
      metrics: Numbers by name.
      rounds_done: Number of the round, counted from 1.
    """
    value = collections.OrderedDict(metrics)

    async def release_all():
      await asyncio.gather(
        *(manager.release(value, rounds_done) for manager in self._managers)
      )

    asyncio.run(release_all())
