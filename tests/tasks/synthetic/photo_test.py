"""Tests of textures, colours and canvases of the synthetic photographs."""

import colorsys
import io

import numpy as np
from PIL import Image
from PIL import ImageDraw
import pytest

from tasks.synthetic import photo


@pytest.mark.parametrize("hue", [0.0, 0.1, 0.35, 0.5, 0.77, 1.2, -0.1])
def test_hsv_is_that_of_the_standard_library(hue):
  expected = colorsys.hsv_to_rgb(hue % 1.0, 0.6, 0.8)
  np.testing.assert_allclose(photo.hsv(hue, 0.6, 0.8), expected, atol=1e-6)


def test_smoothstep():
  values = photo.smoothstep(1.0, 3.0, np.array([0.0, 1.5, 2.0, 4.0]))
  # 3 / 16 - 2 / 64 at a quarter of the way.
  np.testing.assert_allclose(values, [0.0, 0.15625, 0.5, 1.0])
  # Downwards if the bounds are swapped.
  assert photo.smoothstep(3.0, 1.0, np.array(1.0)) == 1.0


def test_noise_is_standard_and_smoother_with_the_exponent():
  generator = np.random.default_rng(0)
  steps = []
  for exponent in (0.7, 2.0):
    fields = np.stack(
      [
        photo.noise(generator, (60, 90), extent=1.0, exponent=exponent)
        for _ in range(20)
      ]
    )
    assert fields.shape == (20, 60, 90)
    assert abs(fields.mean()) < 0.3
    assert 0.5 < fields.std() < 1.3
    steps.append(np.abs(np.diff(fields, axis=2)).mean())
  assert steps[1] < 0.3 * steps[0]


def test_noise_stretches():
  field = photo.noise(
    np.random.default_rng(0), (64, 64), extent=0.3, exponent=0.8, stretch=4.0
  )
  down, across = (np.abs(np.diff(field, axis=axis)).mean() for axis in (0, 1))
  assert down > 1.5 * across


def test_layer_covers_by_area():
  layer = photo.new_layer((2, 3))
  assert layer.size == (6, 4)
  # The left upper pixel, and half of the pixel to its right.
  ImageDraw.Draw(layer).rectangle([0, 0, 2, 1], fill=(255, 0, 0, 255))
  picture, cover = photo.lay_over(np.full((2, 3, 3), 0.5), layer)
  np.testing.assert_allclose(
    cover, [[1.0, 0.5, 0.0], [0.0, 0.0, 0.0]], atol=0.01
  )
  np.testing.assert_allclose(picture[0, 0], [1.0, 0.0, 0.0], atol=0.01)
  np.testing.assert_allclose(picture[0, 1], [0.75, 0.25, 0.25], atol=0.01)
  np.testing.assert_allclose(picture[0, 2], 0.5)


def test_fill_is_clipped():
  assert photo.to_fill(np.array([0.5, -1.0, 2.0])) == (127, 0, 255, 255)


def test_blur_keeps_the_mean():
  picture = np.random.default_rng(0).random((8, 9, 3))
  blurred = photo.blur(picture, 1.0)
  np.testing.assert_allclose(blurred.mean(), picture.mean())
  assert blurred.std() < 0.5 * picture.std()
  np.testing.assert_allclose(photo.blur(picture, 0.0), picture)


def test_about_one_jpeg_in_a_hundred_is_grey():
  generator = np.random.default_rng(0)
  picture = np.zeros((8, 8, 3), np.uint8)
  picture[..., 0] = 255
  modes = []
  for _ in range(1000):
    content = photo.encode_jpeg(generator, picture)
    with Image.open(io.BytesIO(content)) as image:
      modes.append(image.mode)
  # Binomial with mean 10 and standard deviation 3.1.
  assert 1 <= modes.count("L") <= 20
  assert modes.count("L") + modes.count("RGB") == 1000


def test_sizes_are_upright_and_wide():
  generator = np.random.default_rng(0)
  sizes = np.array([photo.draw_size(generator) for _ in range(200)])
  assert sizes.min() >= 90 and sizes.max() <= 160
  upright = np.mean(sizes[:, 0] > sizes[:, 1])
  assert 0.1 < upright < 0.4
