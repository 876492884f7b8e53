"""Tests of the synthetic photographs: what tells their classes apart."""

import io

import numpy as np
from PIL import Image
import pytest
from sklearn import neighbors

from tasks.synthetic import drawing
from tasks.synthetic import landmarks
from tasks.synthetic import species
from tff_fedemb.evaluation import verification

_NUM_CLASSES = 16
_NUM_IMAGES = 12
_SIDE = 64
_DRAW = {"landmarks": landmarks.draw_landmark, "species": species.draw_species}


def _take(draw, class_id, index):
  """The square in the middle of a photograph, `[64, 64, 3]`, 0 to 1."""
  generator = np.random.default_rng([class_id, index])
  owned = drawing.Camera(generator)
  picture = draw(generator, 0, class_id, owned.draw_shape(generator))
  image = Image.open(io.BytesIO(owned.take(generator, picture))).convert("RGB")
  side = min(image.size)
  left, top = ((length - side) // 2 for length in image.size)
  square = image.crop((left, top, left + side, top + side))
  return np.asarray(square.resize((_SIDE, _SIDE), Image.Resampling.BOX)) / 255


@pytest.fixture(scope="module", params=sorted(_DRAW))
def pictures(request):
  """Pictures `[num, 64, 64, 3]` and their classes `[num]`."""
  labels = np.repeat(np.arange(_NUM_CLASSES), _NUM_IMAGES)
  images = [
    _take(_DRAW[request.param], label, index)
    for index, label in enumerate(labels)
  ]
  return np.stack(images), labels


def _gradients(images):
  """Directions of the edges in 8 x 8 cells, `[num, 576]`."""
  down, across = np.gradient(images.mean(axis=-1), axis=(1, 2))
  strength = np.hypot(down, across)
  sector = np.floor(np.arctan2(down, across) % np.pi / np.pi * 9) % 9
  cells = np.stack(
    [
      (strength * (sector == index))
      .reshape(len(images), 8, 8, 8, 8)
      .sum(axis=(2, 4))
      for index in range(9)
    ],
    axis=-1,
  )
  cells /= np.linalg.norm(cells, axis=-1, keepdims=True) + 0.3
  return np.sqrt(cells).reshape(len(images), -1)


def _nearest_neighbour_accuracy(features, labels):
  """How often the most similar other picture is of the same class."""
  features = (features - features.mean(axis=0)) / features.std(axis=0)
  finder = neighbors.NearestNeighbors(n_neighbors=2).fit(features)
  nearest = finder.kneighbors(features, return_distance=False)[:, 1]
  return np.mean(labels[nearest] == labels)


def test_classes_are_not_known_by_their_mean_colour(pictures):
  images, labels = pictures
  colours = images.mean(axis=(1, 2))
  # Chance is 11 / 191, or 0.058, with a standard error of 0.017.
  assert _nearest_neighbour_accuracy(colours, labels) < 0.16
  result = verification.evaluate_pairs(colours - colours.mean(axis=0), labels)
  assert result.recall_at_far[1e-3] < 0.02
  assert result.auc < 0.62


def test_classes_are_known_better_by_their_edges(pictures):
  images, labels = pictures
  colours = _nearest_neighbour_accuracy(images.mean(axis=(1, 2)), labels)
  edges = _nearest_neighbour_accuracy(_gradients(images), labels)
  assert edges > 1.7 * colours
  assert edges > 0.14


@pytest.mark.parametrize("draw", _DRAW.values(), ids=_DRAW)
def test_subject_can_be_seen(draw):
  # Of every kind more than one, and one far from the others.
  for class_id in (*range(20), 5_000):
    picture = draw(np.random.default_rng(0), 0, class_id, (100, 140))
    assert picture.dtype == np.float32
    assert picture.shape == (3, 100, 140)
    assert np.isfinite(picture).all()
    assert 0.1 < picture.mean() < 0.9
    assert picture.std() > 0.04
