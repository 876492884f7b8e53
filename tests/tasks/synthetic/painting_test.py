"""Tests of painting shapes, on numbers worked out by hand."""

import numpy as np

from tasks.synthetic import painting


def test_cover_falls_off_within_a_pixel_of_the_edge():
  pixel = 1 / 40
  distance = np.array([-2, -0.5, -0.25, 0, 0.25, 0.5, 2]) * pixel
  np.testing.assert_allclose(
    painting.cover_of(distance, 40.0),
    [1, 1, 0.75, 0.5, 0.25, 0, 0],
    atol=1e-12,
  )


def test_paint_mixes_by_cover_and_channel():
  image = np.full((3, 2, 1, 1), 100, np.float32)
  cover = np.array([0.5, 1.0], np.float32).reshape(2, 1, 1)
  painting.paint(image, cover, (200, 100, 0))
  np.testing.assert_array_equal(
    image.reshape(3, 2), [[150, 200], [100, 100], [50, 0]]
  )
  # A colour for each image.
  painting.paint(image, cover, np.array([[10, 20], [30, 40], [50, 60]]))
  np.testing.assert_array_equal(
    image.reshape(3, 2), [[80, 20], [65, 40], [50, 60]]
  )


def test_lay_over_mixes_by_cover():
  image = np.full((3, 1, 1, 2), 100, np.float32)
  cover = np.array([0.25, 1.0], np.float32).reshape(1, 1, 2)
  painting.lay_over(image, cover, np.full_like(image, 200))
  np.testing.assert_array_equal(image[0].ravel(), [125, 200])


def test_ellipse_is_zero_on_its_edge():
  across = np.array([0.0, 0.3, 0.0, 0.6, 0.0])
  down = np.array([0.0, 0.0, 0.1, 0.0, -0.2])
  np.testing.assert_allclose(
    painting.ellipse(across, down, 0.3, 0.1),
    [-0.1, 0, 0, 0.1, 0.1],
    atol=1e-12,
  )
