"""Tests of what a run decides before it starts."""

import numpy as np
import pytest

from tff_fedemb.evaluation import embedding
from tff_fedemb.run import spec as spec_lib
from tff_fedemb.training import held_out


class _Task:
  """As much of a task as loading its images needs."""

  name = "tiny"

  def __init__(self, labels):
    self._labels = np.array(labels)

  def load_images(self, split):
    del split  # The same for all.
    images = np.zeros([len(self._labels), 1, 1, 1], np.uint8)
    return embedding.LabelledImages(images, self._labels)


def _load(labels, max_evaluation_images=0, max_held_out_images=0):
  config = spec_lib.Evaluation(
    max_evaluation_images=max_evaluation_images,
    max_held_out_images=max_held_out_images,
  )
  return held_out.load_images(_Task(labels), config)


def test_of_many_images_the_same_sample_each_time():
  labels = np.random.default_rng(0).integers(0, 4, size=60)
  by_split, sample = _load(labels, 12, 40)
  again, _ = _load(labels, 12, 40)
  for split, images in by_split.items():
    assert (len(images.labels), images.num_found) == (40, 60)
    np.testing.assert_array_equal(images.labels, again[split].labels)
  assert (len(sample.labels), sample.num_found) == (12, 60)
  by_split, _ = _load(labels, 0, 60)
  assert by_split["test"].num_found is None


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
    _load(labels, max_images)
