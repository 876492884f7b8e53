"""Tests of the synthetic photographs: what tells their classes apart."""

import numpy as np
from PIL import Image
import pytest
from sklearn import neighbors

from tasks.synthetic import scenes
from tasks.synthetic import species
from tff_fedemb.evaluation import verification

_NUM_CLASSES = 16
_NUM_IMAGES = 12
_SIDE = 64


def _draw(draw, class_id, index, seed=0):
  return draw(np.random.default_rng([class_id, index]), seed, class_id)


def _read(picture):
  """The square in the middle, `[64, 64, 3]`, 0 to 1."""
  height, width, _ = picture.shape
  side = min(height, width)
  top, left = (height - side) // 2, (width - side) // 2
  square = Image.fromarray(picture[top : top + side, left : left + side])
  square = square.resize((_SIDE, _SIDE), Image.Resampling.BOX)
  return np.asarray(square) / 255


@pytest.fixture(
  scope="module",
  params=[scenes.draw_scene, species.draw_species],
  ids=["landmarks", "species"],
)
def pictures(request):
  """Pictures `[num, 64, 64, 3]` and their classes `[num]`."""
  labels = np.repeat(np.arange(_NUM_CLASSES), _NUM_IMAGES)
  images = [
    _read(_draw(request.param, label, index))
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


def test_colours_vary_more_within_classes_than_between(pictures):
  images, _ = pictures
  colours = images.mean(axis=(1, 2)).reshape(_NUM_CLASSES, _NUM_IMAGES, 3)
  within = colours.var(axis=1).mean()
  # Without classes, the means of 12 pictures have a twelfth of the variance.
  between = colours.mean(axis=1).var(axis=0).mean() - within / _NUM_IMAGES
  assert between < 0.3 * within


def test_classes_are_known_better_by_their_edges(pictures):
  images, labels = pictures
  colours = _nearest_neighbour_accuracy(images.mean(axis=(1, 2)), labels)
  edges = _nearest_neighbour_accuracy(_gradients(images), labels)
  assert edges > 1.7 * colours
  assert edges > 0.14


@pytest.mark.parametrize("draw", [scenes.draw_scene, species.draw_species])
class TestDraw:
  def test_pictures_are_of_the_size_of_small_photos(self, draw):
    for class_id in range(26):
      picture = _draw(draw, class_id, 0)
      assert picture.dtype == np.uint8
      assert picture.shape[2] == 3
      assert 90 <= min(picture.shape[:2]) <= 120
      assert max(picture.shape[:2]) <= 160
      # Neither black nor white nor empty.
      assert 20 < picture.mean() < 235
      assert picture.std() > 8

  def test_same_arguments_give_the_same_picture(self, draw):
    assert np.array_equal(_draw(draw, 3, 0), _draw(draw, 3, 0))
    assert not np.array_equal(_draw(draw, 3, 0), _draw(draw, 3, 1))

  def test_seed_makes_other_classes(self, draw):
    first, second = (draw(np.random.default_rng(0), seed, 3) for seed in (0, 1))
    assert first.shape == second.shape
    assert not np.array_equal(first, second)

  def test_high_class_ids_do(self, draw):
    assert _draw(draw, 5_000, 0).std() > 8
