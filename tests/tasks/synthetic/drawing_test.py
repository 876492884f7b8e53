"""Tests of shapes and colours, on numbers worked out by hand."""

import numpy as np
import pytest

from tasks.synthetic import drawing


def test_cover_falls_off_within_a_pixel_of_the_edge():
  distance = np.array([-2, -0.5, -0.25, 0, 0.25, 0.5, 2]) / 40
  np.testing.assert_allclose(
    drawing.cover_of(distance, 40.0), [1, 1, 0.75, 0.5, 0.25, 0, 0], atol=1e-12
  )


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


def test_ellipse_is_zero_on_its_edge():
  across = np.array([0.0, 0.3, 0.0, 0.6, 0.0])
  down = np.array([0.0, 0.0, 0.1, 0.0, -0.2])
  np.testing.assert_allclose(
    drawing.ellipse(across, down, 0.3, 0.1), [-0.1, 0, 0, 0.1, 0.1], atol=1e-12
  )


def test_stroke_narrows():
  x, y = np.array([-1.0, 0.0, 2.0, 4.0]), np.array([0.0, 1.0, 1.0, 0.0])
  # From (0, 0) to (4, 0), half widths 0.5 to 0.1.
  np.testing.assert_allclose(
    drawing.stroke(x, y, (0, 0), (4, 0), 0.5, 0.1), [0.5, 0.5, 0.7, -0.1]
  )
  np.testing.assert_allclose(
    drawing.stroke(x, y, (0, 0), (4, 0), 0.5), [0.5, 0.5, 0.5, -0.5]
  )


def test_rotate_turns_the_axes():
  # Axes turned by 90 degrees: what was up is to the right.
  np.testing.assert_allclose(
    drawing.rotate(np.array([0.0, 1.0]), np.array([2.0, 0.0]), np.pi / 2),
    ([2, 0], [0, -1]),
    atol=1e-12,
  )
