"""Tests of shapes and colours, worked out by hand, and of cameras."""

import io

import numpy as np
from PIL import Image
import pytest

from tasks.synthetic import drawing

_X, _Y = np.array([-1.0, 0.0, 2.0, 4.0]), np.array([0.0, 1.0, 1.0, 0.0])


@pytest.mark.parametrize(
  ("function", "arguments", "expected"),
  [
    # Falls off within a pixel of the edge.
    (
      drawing.cover_of,
      (np.array([-2, -0.5, -0.25, 0, 0.25, 0.5, 2]) / 40, 40.0),
      [1, 1, 0.75, 0.5, 0.25, 0, 0],
    ),
    # Zero on the edge.
    (
      drawing.ellipse,
      (np.array([0, 0.3, 0, 0.6, 0]), np.array([0, 0, 0.1, 0, -0.2]), 0.3, 0.1),
      [-0.1, 0, 0, 0.1, 0.1],
    ),
    # From (0, 0) to (4, 0), half widths 0.5 to 0.1, or all of 0.5.
    (drawing.stroke, (_X, _Y, (0, 0), (4, 0), 0.5, 0.1), [0.5, 0.5, 0.7, -0.1]),
    (drawing.stroke, (_X, _Y, (0, 0), (4, 0), 0.5), [0.5, 0.5, 0.5, -0.5]),
    # Axes turned by 90 degrees: what was up is to the right.
    (
      drawing.rotate,
      (np.array([0.0, 1.0]), np.array([2.0, 0.0]), np.pi / 2),
      ([2, 0], [0, -1]),
    ),
  ],
)
def test_shapes(function, arguments, expected):
  np.testing.assert_allclose(function(*arguments), expected, atol=1e-12)


@pytest.mark.parametrize(
  ("colour", "expected"),
  [
    ((200, 100, 0), [[150, 200], [100, 100], [50, 0]]),
    (20, [[60, 20], [60, 20], [60, 20]]),
    # A colour for each image; another picture.
    (
      np.array([[10, 20], [30, 40], [50, 60]])[..., np.newaxis],
      [[55, 20], [65, 40], [75, 60]],
    ),
    (np.full((3, 2, 1), 200), [[150, 200]] * 3),
  ],
)
def test_paint_mixes_by_cover_and_channel(colour, expected):
  image = np.full((3, 2, 1), 100, np.float32)
  drawing.paint(image, np.array([[0.5], [1.0]], np.float32), colour)
  np.testing.assert_array_equal(image.reshape(3, 2), expected)


def _take(generator, owned, picture):
  return Image.open(io.BytesIO(owned.take(generator, picture)))


def test_formats_are_upright_and_wide():
  generator = np.random.default_rng(0)
  shapes = np.array(
    [drawing.Camera(generator).draw_shape(generator) for _ in range(200)]
  )
  assert shapes.min() >= 90 and shapes.max() <= 160
  assert 0.1 < np.mean(shapes[:, 0] > shapes[:, 1]) < 0.4


def test_cameras_differ_by_more_than_their_pictures():
  picture = np.full((3, 8, 8), 0.4, np.float32)
  generator = np.random.default_rng(0)
  means = np.empty((20, 10, 3))
  for own in means:
    owned = drawing.Camera(generator)
    for mean in own:
      image = _take(generator, owned, picture).convert("RGB")
      mean[:] = np.asarray(image).mean(axis=(0, 1))
  within = means.std(axis=1).mean()
  assert within > 1
  assert means.mean(axis=1).std() > within


def test_about_one_jpeg_in_a_hundred_is_grey():
  generator = np.random.default_rng(0)
  owned = drawing.Camera(generator)
  picture = np.full((3, 8, 8), 0.5, np.float32)
  modes = []
  for _ in range(1000):
    image = _take(generator, owned, picture)
    assert (image.format, image.size) == ("JPEG", (8, 8))
    modes.append(image.mode)
  # Binomial with mean 10 and standard deviation 3.1.
  assert 1 <= modes.count("L") <= 20
  assert modes.count("L") + modes.count("RGB") == 1000
