"""Tests of cameras: formats, habits, and what a JPEG holds."""

import io

import numpy as np
from PIL import Image

from tasks.synthetic import drawing


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
