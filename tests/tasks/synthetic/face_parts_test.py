"""Tests of the parts of a face, on numbers worked out by hand."""

import numpy as np
import pytest

from tasks.synthetic import face_parts
from tasks.synthetic import faces


def _shape():
  return dict(faces.create_person(np.random.default_rng(0)).shape)


def _scene(**changes):
  values = dict.fromkeys(faces._SCENE, 0.0) | {"zoom": 1.0} | changes
  return {
    name: np.full((1, 1, 1), value, np.float32)
    for name, value in values.items()
  }


@pytest.mark.parametrize("yaw", [-0.4, 0.0, 0.4])
@pytest.mark.parametrize("pitch", [-0.2, 0.0, 0.2])
def test_a_turned_head_moves_its_middle_against_its_outline(yaw, pitch):
  shape = dict(_shape(), width=0.8, jaw=0.0, cheek=0.0)
  view = face_parts.view_head(shape, _scene(yaw=yaw, pitch=pitch))
  distance = np.where(view.reach < 1, view.u**2 + view.v**2, 9)
  row, column = np.unravel_index(np.argmin(distance[0]), distance[0].shape)
  # A point of a unit ball, turned about the upright axis, then nodded.
  scale = face_parts.SCALE
  expected_row = 55.5 + 6 + scale * np.sin(pitch)
  expected_column = 55.5 + 0.8 * scale * np.cos(pitch) * np.sin(yaw)
  assert abs(row - expected_row) <= 1
  assert abs(column - expected_column) <= 1
  # The outline stays.
  inside = view.reach[0] < 1
  np.testing.assert_array_equal(inside, inside[:, ::-1])


def test_crop_is_a_window_of_the_same_view():
  view = face_parts.view_head(_shape(), _scene(yaw=0.3, roll=0.1))
  part = view.crop(face_parts.EYE_ROWS)
  window = (slice(None), face_parts.EYE_ROWS, face_parts.FACE_COLUMNS)
  np.testing.assert_array_equal(part.u, view.u[window])
  np.testing.assert_array_equal(part.normal[1], view.normal[1][window])
  # It misses no eye and no brow.
  assert np.min(np.abs(view.u[window])) < 0.02
  beyond = np.ones(view.u.shape, bool)
  beyond[window] = False
  near = (np.abs(view.u) < 0.6) & (view.v > -0.5) & (view.v < 0.1)
  assert not np.any(near & beyond & (view.reach < 1))
