"""Tests of the made-up pictures: what a class, a user and a picture decide."""

import numpy as np
import pytest
from sklearn import neighbors

from tasks.synthetic import textures

_NUM_CLASSES, _NUM_IMAGES, _SIDE = 20, 12, 48


def _draw(size=(_SIDE, _SIDE), **changes):
  arguments = {"seed": 1, "class_id": 2, "user": 3, "index": 4}
  return textures.draw(size, **arguments | changes)


@pytest.fixture(name="pictures", scope="module")
def _pictures():
  """Pictures in styles of their own, in [0, 1], and their classes."""
  labels = np.repeat(np.arange(_NUM_CLASSES), _NUM_IMAGES)
  images = [
    _draw(class_id=label, user=number) for number, label in enumerate(labels)
  ]
  return np.stack(images) / 255, labels


@pytest.mark.parametrize("name", ["seed", "class_id", "user", "index"])
def test_every_argument_changes_the_picture_and_nothing_else_does(name):
  np.testing.assert_array_equal(_draw(), _draw())
  assert np.mean(_draw() != _draw(**{name: 7})) > 0.5


def _edges(images):
  """Directions of the edges in 8 x 8 cells, `[num, 576]`."""
  down, across = np.gradient(images.mean(axis=-1), axis=(1, 2))
  sector = np.floor(np.arctan2(down, across) % np.pi / np.pi * 9) % 9
  by_sector = np.hypot(down, across)[..., np.newaxis] * (
    sector[..., np.newaxis] == np.arange(9)
  )
  cells = by_sector.reshape(len(images), 8, 6, 8, 6, 9).sum(axis=(2, 4))
  cells /= np.linalg.norm(cells, axis=-1, keepdims=True) + 0.3
  return np.sqrt(cells).reshape(len(images), -1)


def _nearest_neighbour_accuracy(features, labels):
  """How often the most similar other picture is of the same class."""
  features = (features - features.mean(axis=0)) / features.std(axis=0)
  finder = neighbors.NearestNeighbors(n_neighbors=2).fit(features)
  nearest = finder.kneighbors(features, return_distance=False)[:, 1]
  return np.mean(labels[nearest] == labels)


def test_classes_are_not_known_by_their_colours(pictures):
  images, labels = pictures
  colours = images.mean(axis=(1, 2))
  # Chance is 11 / 239, or 0.046, with a standard error of 0.014.
  assert _nearest_neighbour_accuracy(colours, labels) < 0.1


def test_classes_are_known_by_their_edges(pictures):
  images, labels = pictures
  assert _nearest_neighbour_accuracy(_edges(images), labels) > 0.2
