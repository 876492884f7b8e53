"""Tests of the parts of a face, on numbers worked out by hand."""

import dataclasses

import numpy as np
import pytest

from tasks.synthetic import face_parts
from tasks.synthetic import faces


def _scene(**changes):
  values = dict.fromkeys(faces._SCENE, 0.0) | {"zoom": 1.0} | changes
  return {
    name: np.full((1, 1, 1), value, np.float32)
    for name, value in values.items()
  }


@pytest.mark.parametrize("yaw", [-0.4, 0.0, 0.4])
@pytest.mark.parametrize("pitch", [-0.2, 0.0, 0.2])
def test_a_turned_head_moves_its_middle_against_its_outline(yaw, pitch):
  person = faces.create_person(np.random.default_rng(0))
  shape = dict(person.shape, width=0.8, jaw=0.0, cheek=0.0)
  person = dataclasses.replace(person, shape=shape)
  view = face_parts.View(person, _scene(yaw=yaw, pitch=pitch))
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
