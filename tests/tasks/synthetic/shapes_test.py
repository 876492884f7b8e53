"""Tests of the made-up things: what a thing, a family and a picture decide."""

import numpy as np
from PIL import Image
import pytest

from tasks.synthetic import shapes

_SIDE = 48


def _draw(**changes):
  return shapes.draw(_SIDE, **{"seed": 1, "thing": 2, "index": 3} | changes)


@pytest.mark.parametrize("name", ["seed", "thing", "index"])
def test_every_argument_changes_the_picture_and_nothing_else_does(name):
  np.testing.assert_array_equal(_draw(), _draw())
  assert _draw().shape == (_SIDE, _SIDE, 3)
  assert np.mean(_draw() != _draw(**{name: 7})) > 0.5


def _mean_picture(thing):
  pictures = [_draw(thing=thing, index=index) for index in range(40)]
  # The middle has less of the background.
  return np.mean(pictures, axis=0)[12:36, 12:36]


def test_a_family_is_alike_and_its_things_differ():
  first, brother, stranger = map(_mean_picture, (0, 5, 8))
  same = _mean_picture(0)
  np.testing.assert_array_equal(first, same)
  near = np.abs(first - brother).mean()
  far = np.abs(first - stranger).mean()
  assert 3 < near < 0.6 * far


def test_a_camera_lights_tints_and_turns_some_grey():
  plain = Image.new("RGB", (_SIDE, _SIDE), (120, 120, 120))
  generator = np.random.default_rng(1)
  taken = [shapes.expose(generator, plain) for _ in range(200)]
  is_grey = [bool(np.all(x == x[..., :1])) for x in taken]
  assert 0.15 < np.mean(is_grey) < 0.35
  levels = np.array([x.mean() for x in taken])
  # Light is uniform from 0.6 to 1.3.
  assert np.mean(levels) == pytest.approx(0.95 * 120, rel=0.05)
  assert np.std(levels) == pytest.approx(0.7 * 120 / 12**0.5, rel=0.15)
