"""Tests of the made-up pictures: what a class, a user and a picture decide."""

import io

import numpy as np
from PIL import Image
import pytest
from sklearn import neighbors

from tasks.synthetic import textures
from tff_fedemb.evaluation import verification

_NUM_CLASSES, _NUM_IMAGES, _SIDE = 20, 12, 48


def _draw(shape=(_SIDE, _SIDE, 3), **changes):
  arguments = {"seed": 1, "class_id": 2, "user": 3, "index": 4}
  return textures.draw(shape, **arguments | changes)


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


@pytest.mark.parametrize(
  "shape", [(28, 28, 1), (112, 112, 3), (90, 160, 3), (20, 5, 1)]
)
def test_any_shape(shape):
  picture = _draw(shape)
  assert (picture.shape, picture.dtype) == (shape, np.uint8)
  assert picture.std() > 5


def test_grey_is_the_mean_of_the_channels():
  colour, grey = _draw(), _draw((_SIDE, _SIDE, 1))
  np.testing.assert_array_equal(grey[..., 0], np.floor(colour.mean(axis=-1)))


def test_users_differ_by_their_colours():
  means = np.array(
    [
      [_draw(user=user, class_id=k).mean(axis=(0, 1)) for k in range(10)]
      for user in range(20)
    ]
  )
  # Relative to the brightness, which the light changes.
  colours = means / means.sum(axis=-1, keepdims=True)
  assert colours.mean(axis=1).std() > 1.5 * colours.std(axis=1).mean() / 10**0.5


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
  result = verification.evaluate_pairs(colours - colours.mean(axis=0), labels)
  assert result.recall_at_far[1e-3] < 0.02
  assert result.auc < 0.6


def test_classes_are_known_by_their_edges(pictures):
  images, labels = pictures
  assert _nearest_neighbour_accuracy(_edges(images), labels) > 0.2


def test_light_comes_from_a_side():
  generator = np.random.default_rng(0)
  lit = textures.expose(np.full((9, 5, 3), 0.5, np.float32), generator)
  # A plane: the middle is the mean, and steps are even but for rounding.
  np.testing.assert_allclose(lit.mean(axis=(0, 1)), lit[4, 2], atol=1)
  assert np.ptp(np.diff(lit.astype(int), axis=0)) <= 1
  dark = textures.expose(
    np.full((9, 5, 3), 0.5, np.float32), np.random.default_rng(0), level=0.5
  )
  np.testing.assert_allclose(2.0 * dark, lit, atol=2)


def test_colours_are_near_a_hue_and_as_bright_as_asked():
  generator = np.random.default_rng(0)
  colours = np.array(
    [textures.pick_colour(generator, 1 / 3, (0.4, 0.6)) for _ in range(200)]
  )
  assert colours.max(axis=1).min() >= 0.4 and colours.max() <= 0.6
  # A third of the circle is green.
  assert np.mean(colours.argmax(axis=1) == 1) > 0.7


def test_about_one_jpeg_in_a_hundred_is_grey():
  generator = np.random.default_rng(0)
  picture = np.full((8, 9, 3), (10, 200, 30), np.uint8)
  modes = []
  for _ in range(1000):
    content = io.BytesIO(textures.encode_jpeg(picture, generator))
    image = Image.open(content)
    assert (image.format, image.size) == ("JPEG", (9, 8))
    modes.append(image.mode)
  # Binomial with mean 10 and standard deviation 3.1.
  assert 1 <= modes.count("L") <= 20
  assert modes.count("L") + modes.count("RGB") == 1000
