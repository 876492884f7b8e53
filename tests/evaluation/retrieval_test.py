"""Tests of the metrics beside recall at a false accept rate."""

import json

import numpy as np
import pytest

from tests.evaluation import make_reference_metrics as reference
from tff_fedemb.evaluation import retrieval
from tff_fedemb.evaluation import verification


def _evaluate(embeddings, labels):
  result = verification.evaluate_pairs(
    np.asarray(embeddings), np.asarray(labels), with_metrics=True
  )
  return dict(result.metrics)


def test_hand_computed():
  # At 0 and 10 degrees a, at 5 and 100 b, at 40 c: who is alone asks nothing.
  degrees = np.radians([0, 10, 5, 100, 40])
  embeddings = np.stack([np.cos(degrees), np.sin(degrees)], axis=1)
  metrics = _evaluate(embeddings, [0, 0, 1, 1, 2])
  # At 0 degrees: 5, then 10. At 10: 5, then 0. At 5: 0 and 10, 40, then 100.
  # At 100: 40, 10, then 5.
  assert metrics["precision_at_1"] == metrics["r_precision"] == 0
  assert metrics["mean_reciprocal_rank"] == pytest.approx(
    (1 / 2 + 1 / 2 + 1 / 4 + 1 / 3) / 4
  )
  # Pairs of one class are 10 and 95 degrees apart, of two 5, 5, 30, 35, 40, 60,
  # 90 and 100: between the second and the seventh, half are rejected.
  assert metrics["equal_error_rate"] == pytest.approx(0.5)


def test_precision_up_to_each_that_is_right():
  degrees = np.radians([0, 10, 31, 50, 21, 200])
  embeddings = np.stack([np.cos(degrees), np.sin(degrees)], axis=1)
  metrics = _evaluate(embeddings, [0, 0, 0, 0, 1, 1])
  # The three nearest are right at 1 and 3 for those at 0 and 50 degrees, 1 and
  # 3 at 10, 2 and 3 at 31; the two others find none.
  assert metrics["r_precision"] == pytest.approx(4 * (2 / 3) / 6)
  assert metrics["map_at_r"] == pytest.approx(
    (3 * (1 + 2 / 3) / 3 + (1 / 2 + 2 / 3) / 3) / 6
  )


def test_ties_count_as_wrong():
  metrics = _evaluate(np.ones([40, 3]), np.arange(40) // 20)
  assert metrics["precision_at_1"] == metrics["map_at_r"] == 0
  assert metrics["mean_reciprocal_rank"] == pytest.approx(1 / 21)
  assert metrics["d_prime"] is None


@pytest.mark.parametrize("name", ["random", "trained"])
def test_equal_to_other_implementations(name):
  embeddings, labels = reference.load()[name]
  expected = json.loads(reference.VALUES.read_text())[name]
  result = verification.evaluate_pairs(embeddings, labels, with_metrics=True)
  found = dict(result.metrics) | {"auc": result.auc}
  found["nmi"] = retrieval.nmi(labels, reference.assign(embeddings))
  assert found == pytest.approx(expected, abs=1e-6)


def test_what_single_precision_cannot_tell_apart_is_exact():
  """All but the last digits are shared: cosines are within 1e-8 of 1."""
  generator = np.random.default_rng(3)
  embeddings = 1 + 1e-5 * generator.normal(size=(300, 8))
  labels = np.repeat(np.arange(30), 10)
  metrics = _evaluate(embeddings, labels)
  unit = embeddings / np.linalg.norm(embeddings, axis=1, keepdims=True)
  # On the grid, and of another class first.
  levels = np.rint(unit @ unit.T * 2.0**40)
  np.fill_diagonal(levels, -np.inf)
  wrong = labels[:, None] != labels
  order = np.lexsort((~wrong, -levels))
  right = np.take_along_axis(~wrong, order, axis=1)[:, :9]
  precision = np.cumsum(right, axis=1) / np.arange(1, 10)
  assert metrics["r_precision"] == pytest.approx(np.mean(right))
  assert metrics["map_at_r"] == pytest.approx(np.mean(precision * right))
