"""Tests of what a run decides before it starts."""

import numpy as np
import pytest

from binaries import training_run
from tff_fedemb.evaluation import embedding


@pytest.mark.parametrize(
    ("num_users", "delta"),
    [(1, 0.5), (2, 0.25), (200, 0.003), (639, 8e-4), (10_000_000, 2e-8)],
)
def test_default_delta_is_below_one_over_the_number_of_users(num_users, delta):
  found = training_run.default_delta(num_users)
  assert found == delta
  assert found < 1.0 / num_users


class _Task:
  """As much of a task as loading its images needs."""

  name = "tiny"

  def __init__(self, labels):
    self._labels = np.array(labels)

  def load_images(self, split):
    del split  # The same for all.
    images = np.zeros([len(self._labels), 1, 1, 1], np.uint8)
    return embedding.LabelledImages(images, self._labels)


def test_all_images_or_a_sample():
  by_split, sample = training_run.load_images(_Task([0, 0, 1, 1] * 10), 0)
  assert set(by_split) == {"validation", "test"}
  assert len(sample.labels) == 40
  _, sample = training_run.load_images(_Task([0, 0, 1, 1] * 10), 12)
  assert len(sample.labels) == 12


@pytest.mark.parametrize(
    ("labels", "max_images", "message"),
    [
        ([0, 0, 1], -1, "max_evaluation_images must be at least 0, found -1"),
        ([0, 0, 0], 0, "found 1 classes of at most 3 images"),
        ([0, 1, 2], 0, "found 3 classes of at most 1 images"),
        ([0, 0, 1, 1], 1, "found 1 classes of at most 1 images in its valid"),
    ],
)
def test_images_without_pairs_are_refused(labels, max_images, message):
  with pytest.raises(ValueError, match=message):
    training_run.load_images(_Task(labels), max_images)
