"""Tests for pairs."""

from unittest import mock

import numpy as np
import pytest

from tests.evaluation import clusters
from tff_fedemb.evaluation import pairs


def sorted_images():
  embeddings, classes = clusters.draw(12, 6, spread=1.0)
  return pairs.Images(pairs.normalize(embeddings), classes, np.full(12, 6))


@mock.patch.object(pairs, "_BLOCK_ROWS", 9)
class TestCountPairs:
  @pytest.mark.parametrize("num_bins", [2, 64, 1024])
  @pytest.mark.parametrize("range_sample", [5, 1000])
  def test_wide_bins_leave_recall_exact_and_bound_the_auc(
    self, num_bins, range_sample
  ):
    images = sorted_images()
    rates = (0.001, 0.01, 0.1, 0.5)
    with mock.patch.multiple(
      pairs,
      _NUM_BINS=num_bins,
      _RANGE_SAMPLE=range_sample,
      _MAX_REFINED_PAIRS=0,
    ):
      counts = pairs.count_pairs(images, rates)
    exact = pairs.count_pairs(images, rates).steps
    for rate in rates:
      assert counts.steps.recall(rate) == exact.recall(rate)
      assert counts.steps.threshold(rate) == exact.threshold(rate)
    error = abs(counts.steps.auc() - exact.auc())
    assert error <= counts.auc_error_bound

  def test_accepts_by_image(self):
    images = sorted_images()
    rate = 0.1
    counts = pairs.count_pairs(images, (rate,), image_rates=(rate,))
    similarities = images.embeddings @ images.embeddings.T
    np.fill_diagonal(similarities, -1)
    accepted = similarities >= counts.steps.threshold(rate)
    same = images.classes[:, None] == images.classes
    for found, kind in (
      (counts.true_accepts, same),
      (counts.false_accepts, ~same),
    ):
      np.testing.assert_array_equal(found[0], np.sum(accepted & kind, axis=1))
