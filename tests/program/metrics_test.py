"""Tests of the metrics log."""

import collections

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from tff_fedemb import errors
from tff_fedemb.program import metrics


def test_flatten_keeps_numbers_by_path():
  nested = collections.OrderedDict(
    client_work=collections.OrderedDict(loss=np.float32(0.5), count=3),
    distributor=(),
    aggregator={"dp": {}, "histogram": np.ones(3), "text": "x"},
  )
  assert metrics.flatten(nested) == {
    "client_work/loss": 0.5,
    "client_work/count": 3,
  }


def test_rounds_are_one_row_each_and_rewound_on_resume(tmp_path):
  log = metrics.MetricsLog(tmp_path)
  for number in (1, 2, 3):
    log.release({"loss": 1.0 / number}, number)
  log = metrics.MetricsLog(tmp_path)
  log.release({"loss": 9.0, "recall": 0.25}, 2)
  frame = metrics.read(tmp_path)
  assert list(frame.index) == [1, 2]
  assert list(frame["loss"]) == [1.0, 9.0]
  assert np.isnan(frame["recall"][1])
  assert frame["recall"][2] == 0.25
  assert list((tmp_path / "tensorboard").iterdir())
  note = (tmp_path / "METRICS_ARE_NOT_PRIVATE.txt").read_text()
  assert "metrics.csv" in note


@pytest.mark.parametrize(
  ("manager", "error"),
  [
    ("CSV", tf.errors.ResourceExhaustedError(None, None, "No space left")),
    ("TensorBoard", OSError(28, "No space left on device")),
  ],
)
def test_a_full_disk_is_one_line(tmp_path, monkeypatch, manager, error):
  manager += "FileReleaseManager" if manager == "CSV" else "ReleaseManager"

  async def fail(*arguments):
    raise error

  log = metrics.MetricsLog(tmp_path)
  monkeypatch.setattr(getattr(tff.program, manager), "release", fail)
  with pytest.raises(errors.StorageError, match="bytes are free"):
    log.release({"loss": 1.0}, 1)
