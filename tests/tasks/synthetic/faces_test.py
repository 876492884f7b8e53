"""Tests of the drawn faces: what stays, what changes, and no short cut."""

import dataclasses

import numpy as np
import pytest

from tasks.synthetic import faces
from tff_fedemb.evaluation import verification

_NUM_PEOPLE = 30
_NUM_IMAGES = 8


def _person(seed):
  return faces.create_person(np.random.default_rng(seed))


@pytest.fixture(scope="module")
def people():
  """Images uint8 `[people, images, 112, 112, 3]`."""
  images = []
  for index in range(_NUM_PEOPLE):
    generator = np.random.default_rng([5, index])
    person = faces.create_person(generator)
    images.append(faces.draw_images(person, generator, _NUM_IMAGES))
  return np.stack(images)


def test_images_are_rgb_and_bright_enough(people):
  assert people.dtype == np.uint8
  assert people.shape == (_NUM_PEOPLE, _NUM_IMAGES, 112, 112, 3)
  spread = people.reshape(_NUM_PEOPLE * _NUM_IMAGES, -1)
  assert np.all(spread.std(axis=1) > 10)
  assert len(np.unique(spread, axis=0)) == _NUM_PEOPLE * _NUM_IMAGES


def test_strangers_take_the_same_poses():
  first = faces.draw_images(_person(1), np.random.default_rng(3), 7)
  stranger = faces.draw_images(_person(2), np.random.default_rng(3), 7)
  # The same poses before the same backgrounds: the corners are alike.
  np.testing.assert_array_equal(first[:, :3, :3], stranger[:, :3, :3])
  assert np.all(np.any(first != stranger, axis=(1, 2, 3)))


@pytest.mark.parametrize(
  ("change", "least"),
  [
    ({"glasses": (0.2, 0.15, 0.03, 0.5)}, 100),
    ({"beard": (0.9, 0.0)}, 30),
    ({"beard": (0.0, 0.9)}, 150),
    ({"iris": np.array([255, 0, 0], np.float32)}, 20),
    ({"skin": np.array([60, 40, 30], np.float32)}, 1500),
    ({"hair": np.array([255, 0, 0], np.float32)}, 150),
  ],
)
def test_what_makes_a_person_can_be_seen(change, least):
  person = dataclasses.replace(
    _person(8),
    glasses=None,
    beard=(0.0, 0.0),
    iris=np.array([0, 0, 255], np.float32),
    hair=np.zeros(3, np.float32),
    skin=np.full(3, 220, np.float32),
  )
  images = [
    faces.draw_images(p, np.random.default_rng(2), 4).astype(int)
    for p in (person, dataclasses.replace(person, **change))
  ]
  changed = np.any(np.abs(images[0] - images[1]) > 8, axis=-1)
  # Pixels of an image in the mean: not all poses show all.
  assert changed.sum(axis=(1, 2)).mean() >= least


class TestNoShortCut:
  """People are not told apart by what a network should learn to ignore."""

  def _nearest_are_the_same(self, features):
    distances = np.sum((features[:, np.newaxis] - features) ** 2, axis=-1)
    np.fill_diagonal(distances, np.inf)
    labels = np.repeat(np.arange(_NUM_PEOPLE), _NUM_IMAGES)
    return np.mean(labels[np.argmin(distances, axis=1)] == labels)

  @pytest.mark.parametrize(("side", "most"), [(112, 0.1), (14, 0.2)])
  def test_colours_and_coarse_pixels_tell_little(self, people, side, most):
    grid = 112 // side
    features = people.reshape(-1, grid, side, grid, side, 3).mean(
      axis=(2, 4), dtype=np.float64
    )
    features = features.reshape(len(features), -1)
    # By chance: 7 of 239.
    assert self._nearest_are_the_same(features) <= most
    labels = np.repeat(np.arange(_NUM_PEOPLE), _NUM_IMAGES)
    result = verification.evaluate_pairs(
      features - features.mean(axis=0), labels
    )
    assert result.recall_at_far[1e-3] < 0.03
    assert result.auc < 0.7
