"""Tests of solid models, their view, and the shapes of organisms."""

import numpy as np
import pytest

from tasks.synthetic import buildings
from tasks.synthetic import easel
from tasks.synthetic import photo

_COLOURS = np.array(
  [
    [0.5, 0.0, 0.0],  # wall
    [0.0, 0.5, 0.0],  # trim
    [0.0, 0.0, 0.5],  # roof
    [0.1, 0.1, 0.1],  # opening
    [0.4, 0.4, 0.0],  # accent
    [0.0, 0.0, 0.0],  # air
  ]
)


def _view(**overrides):
  arguments = dict(
    yaw=0.0,
    roll=0.0,
    distance=4.0,
    eye=0.25,
    scale=40.0,
    origin=(32.0, 60.0),
    sun=np.array([0.0, -1.0, 0.0]),
    sunlight=np.ones(3),
    skylight=np.ones(3),
  )
  return buildings.View(**{**arguments, **overrides})


def _paint(builder, **overrides):
  layer = photo.new_layer((64, 64))
  buildings.paint(
    np.random.default_rng(0),
    layer,
    builder.build(),
    _COLOURS,
    _view(**overrides),
  )
  return photo.lay_over(np.zeros((64, 64, 3)), layer)


def _outward(model):
  """Whether each face looks away from the middle of all."""
  middle = (model.points.min(axis=0) + model.points.max(axis=0)) / 2
  return np.einsum("ij,ij->i", model.normals, model.centres - middle) > 0


class TestBuilder:
  def test_box_has_five_faces_that_look_outwards(self):
    builder = buildings.Builder()
    builder.part()
    front, right, _, left = builder.box((-1, 1), (0, 1), (0, 1))
    assert np.all(front[:, 1] == 0)
    assert np.all(right[:, 0] == 1)
    assert np.all(left[:, 0] == -1)
    model = builder.build()
    # Front, right, back, left, top.
    np.testing.assert_allclose(
      model.normals,
      [[0, -1, 0], [1, 0, 0], [0, 1, 0], [-1, 0, 0], [0, 0, 1]],
      atol=1e-12,
    )

  @pytest.mark.parametrize("sides", [4, 5, 8, 12])
  def test_lathe_looks_outwards_and_at_the_viewer(self, sides):
    builder = buildings.Builder()
    builder.part()
    (walls,) = builder.lathe((0, 0), [(1.0, 0.0), (0.5, 2.0)], sides)
    model = builder.build()
    assert len(walls) == sides
    assert _outward(model).all()
    # The first side faces the viewer, more or less upwards.
    assert model.normals[0][1] < -0.8
    assert abs(model.normals[0][0]) < 1e-9

  @pytest.mark.parametrize("along_y", [False, True])
  def test_gable_looks_outwards(self, along_y):
    builder = buildings.Builder()
    builder.part()
    front = builder.gable((-1, 1), (0, 2), (0, 1), along_y=along_y)
    assert _outward(builder.build()).all()
    assert np.all(front[:2, 1] == 0)

  def test_model_has_unit_size_and_stands_on_the_ground(self):
    builder = buildings.Builder()
    builder.part()
    builder.box((3, 5), (3, 4), (0, 8))
    model = builder.build()
    np.testing.assert_allclose(model.points.min(axis=0), [-0.125, -0.0625, 0])
    np.testing.assert_allclose(model.points.max(axis=0), [0.125, 0.0625, 1])

  def test_ornament_lies_in_its_box(self):
    builder = buildings.Builder()
    builder.part()
    front = builder.box((0, 2), (0, 1), (0, 1))[0]
    builder.ornament(front, (0.25, 0.5, 0.0, 0.5))
    model = builder.build()
    points = model.points[model.starts[5] : model.starts[6]]
    # Scaled by 1/2 and moved by 1/2 to the left.
    np.testing.assert_allclose(points.min(axis=0), [-0.25, -0.25, 0])
    np.testing.assert_allclose(points.max(axis=0), [0, -0.25, 0.25])


class TestPaint:
  def test_box_appears_where_it_stands(self):
    builder = buildings.Builder()
    builder.part()
    builder.box((-1, 1), (-1e-6, 1e-6), (0, 1))
    _, cover = _paint(builder)
    rows, columns = np.nonzero(cover > 0.5)
    # 40 pixels wide and 20 high, with its foot at row 60.
    assert abs(columns.min() - 12) <= 1 and abs(columns.max() - 51) <= 1
    assert abs(rows.min() - 40) <= 1 and abs(rows.max() - 59) <= 1

  def test_near_part_covers_the_far_one(self):
    for nearer in ("wall", "trim"):
      builder = buildings.Builder()
      for material in ("wall", "trim"):
        builder.part()
        y = 0.0 if material == nearer else 1.0
        builder.box((-1, 1), (y, y + 0.1), (0, 1), material)
      picture, _ = _paint(builder)
      channel = ("wall", "trim").index(nearer)
      assert picture[50, 32, channel] > 0.5
      assert picture[50, 32, 1 - channel] < 0.01

  def test_light_falls_from_the_sun(self):
    builder = buildings.Builder()
    builder.part()
    builder.box((-1, 1), (0, 1), (0, 1))
    lit, _ = _paint(builder)
    shaded, _ = _paint(builder, sun=np.array([0.0, 1.0, 0.0]))
    # 0.85 from the sky, and 1 from the sun; faces vary by some percent.
    assert lit[50, 32, 0] / shaded[50, 32, 0] == pytest.approx(
      1.85 / 0.85, rel=0.05
    )

  def test_one_sees_through_a_passage(self):
    builder = buildings.Builder()
    builder.part()
    front = builder.box((-1, 1), (0, 0.1), (0, 1))[0]
    builder.passage(front, (0.25, 0.75, 0, 0.8), buildings.SQUARE)
    _, cover = _paint(builder)
    assert cover[55, 32] == 0.0
    assert cover[55, 15] == pytest.approx(1.0)


class TestShapes:
  def test_ellipse(self):
    x, y = np.array([0.0, 2.0, 0.0, 4.0]), np.array([0.0, 0.0, 1.0, 0.0])
    np.testing.assert_allclose(
      easel.ellipse(x, y, (0, 0), (2.0, 1.0)), [-1.0, 0.0, 0.0, 1.0]
    )
    np.testing.assert_allclose(
      easel.ellipse(y, x, (0, 0), (2.0, 1.0), np.pi / 2),
      [-1.0, 0.0, 0.0, 1.0],
      atol=1e-9,
    )

  def test_limb_tapers(self):
    x, y = np.array([-1.0, 0.0, 2.0, 4.0]), np.array([0.0, 1.0, 1.0, 0.0])
    # From (0, 0) to (4, 0), half widths 0.5 to 0.1.
    np.testing.assert_allclose(
      easel.limb(x, y, (0, 0), (4, 0), 0.5, 0.1), [0.5, 0.5, 0.7, -0.1]
    )

  @pytest.mark.parametrize("seed", range(20))
  def test_markings_are_a_mask_that_shows(self, seed):
    marks = easel.create_markings(np.random.default_rng(seed))
    a, b = np.meshgrid(np.linspace(0, 1, 50), np.linspace(0, 1, 50))
    mask = marks(a, b)
    assert mask.shape == (50, 50)
    assert mask.min() >= 0 and mask.max() <= 1
    assert 0.005 < mask.mean() < 0.9
