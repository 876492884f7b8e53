"""Tests of what a run decides before it starts."""

import numpy as np
import pytest

from experiments import held_out
from tff_fedemb.evaluation import embedding


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
  by_split, sample = held_out.load_images(_Task([0, 0, 1, 1] * 10), 0)
  assert set(by_split) == {"validation", "test"}
  assert len(sample.labels) == 40
  _, sample = held_out.load_images(_Task([0, 0, 1, 1] * 10), 12)
  assert len(sample.labels) == 12


@pytest.mark.parametrize(
  ("labels", "max_images", "message"),
  [
    ([0, 0, 0], 0, "found 1 classes of at most 3 images"),
    ([0, 1, 2], 0, "found 3 classes of at most 1 images"),
    ([0, 0, 1, 1], 1, "found 1 classes of at most 1 images in its valid"),
  ],
)
def test_images_without_pairs_are_refused(labels, max_images, message):
  with pytest.raises(ValueError, match=message):
    held_out.load_images(_Task(labels), max_images)
