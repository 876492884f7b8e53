"""Tests of the easel: where shapes appear, what covers what, light."""

import numpy as np

from tasks.synthetic import easel as easels

_COLOURS = np.eye(4, 3, dtype=np.float32)


def _easel(**changes):
  arguments = dict(middle=(20, 30), radius=10.0, tilt=0.0, colours=_COLOURS)
  return easels.Easel((40, 50), **(arguments | changes))


def _paint(easel, **changes):
  picture = np.full((3, 40, 50), 0.5, np.float32)
  arguments = dict(hardness=0.0, shadow=0.0) | changes
  easel.paint_on(picture, np.random.default_rng(0), **arguments)
  return picture


def test_a_shape_appears_where_it_is():
  easel = _easel()
  easel.ellipse(1.0, 2.0, 0.5, 0.3, easel.mark)
  # 10 pixels to the right of the middle and 20 above.
  rows, columns = np.nonzero(_paint(easel)[1] > 0.8)
  assert abs(rows.mean() - 10) < 0.5 and abs(columns.mean() - 30) < 0.5
  assert 7 <= np.ptp(columns) <= 10 and 4 <= np.ptp(rows) <= 6


def test_tilt_turns_the_subject_clockwise():
  easel = _easel(tilt=-np.pi / 2)
  easel.ellipse(0.0, 1.0, 0.3, 0.3, easel.mark)
  rows, columns = np.nonzero(_paint(easel)[1] > 0.8)
  assert abs(rows.mean() - 30) < 0.5 and abs(columns.mean() - 30) < 0.5


def test_later_shapes_cover_earlier_ones_and_cuts_show_what_is_behind():
  easel = _easel()
  easel.ellipse(0, 0, 1.0, 1.0, easel.body)
  easel.stroke((-1, 0), (1, 0), 0.2, 0.2, easel.dark)
  easel.cut(np.hypot(easel.x + 0.6, easel.y + 0.6) - 0.15)
  picture = _paint(easel)
  assert picture[0, 25, 20] > 0.8 and picture[2, 25, 20] < 0.1
  assert picture[2, 30, 20] > 0.8 and picture[0, 30, 20] < 0.1
  np.testing.assert_allclose(picture[:, 36, 14], 0.5)


def test_a_relief_gets_light_and_shade_and_a_shadow():
  easel = _easel()
  dome = np.sqrt(np.clip(1 - easel.x**2 - easel.y**2, 0, 1))
  easel.ellipse(0, 0, 1.0, 1.0, np.full(3, 0.5, np.float32), dome)
  flat, lit = _paint(easel), _paint(easel, hardness=1.0, shadow=0.5)
  inside = np.hypot(easel.x, easel.y) < 0.9
  assert lit[0][inside].std() > 2 * flat[0][inside].std()
  around = np.hypot(easel.x, easel.y) > 1.1
  assert np.all(flat[:, around] == 0.5)
  assert lit[:, around].min() < 0.46
