"""Tests of the metrics log."""

import collections

import numpy as np
import pytest

from tff_fedemb.records import metrics


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
  assert log.rounds_of_nobody(0) == []
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
  assert "NOT covered" in note


def test_a_file_that_lost_its_rows_has_the_columns_that_reports_need(tmp_path):
  (tmp_path / "metrics.csv").write_text(f"{metrics.ROUND}\n")
  frame = metrics.read(tmp_path)
  assert frame.empty
  assert frame[metrics.NUM_SKIPPED_CLIENTS].sum() == 0
  assert list(frame[metrics.LOSS]) == []


def test_a_file_without_rounds_is_damaged(tmp_path):
  (tmp_path / "metrics.csv").write_text("loss\n1.0\n")
  with pytest.raises(ValueError, match=metrics.ROUND):
    metrics.read(tmp_path)
