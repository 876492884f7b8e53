"""Solid models of landmarks and a painter's view of them.

A landmark is a list of parts (a tower with its roof, a nave, a flight of
steps), each a list of flat faces with a material. It is 1 unit wide or high,
stands on the plane z = 0 and faces the viewer, who looks along y. Parts are
painted from the farthest to the nearest, their faces in the order in which they
were added, so that ornaments cover the wall that they decorate.
"""

from collections.abc import Iterable
from collections.abc import Sequence
import dataclasses

import numpy as np
from PIL import Image
from PIL import ImageDraw

from tasks.synthetic import photo

# Through 'air' one sees what lies behind the landmark.
MATERIALS = ("wall", "trim", "roof", "opening", "accent", "air")
_Points = Sequence[Sequence[float]]

# Openings with the unit square as their box; v is upwards.
_ARC = np.linspace(0, np.pi, 7)
SQUARE = ((0, 0), (1, 0), (1, 1), (0, 1))
ROUND_ARCH = (
  (0, 0),
  (1, 0),
  *((0.5 + 0.5 * np.cos(a), 0.62 + 0.38 * np.sin(a)) for a in _ARC),
)
POINTED_ARCH = (
  (0, 0),
  (1, 0),
  (1, 0.5),
  (0.82, 0.8),
  (0.5, 1),
  (0.18, 0.8),
  (0, 0.5),
)
ARCHES = (SQUARE, ROUND_ARCH, POINTED_ARCH)
CIRCLE = tuple(
  (0.5 + 0.5 * np.cos(a), 0.5 + 0.5 * np.sin(a))
  for a in np.linspace(0, 2 * np.pi, 14, endpoint=False)
)


@dataclasses.dataclass(frozen=True)
class Model:
  """Faces of all parts, side by side.

  Attributes:
    points: float64 `[points, 3]`.
    starts: int64 `[faces + 1]`: where each face's points start.
    normals: float64 `[faces, 3]`, outwards; all zeros if seen from both sides.
    centres: float64 `[faces, 3]`.
    materials: int64 `[faces]`, index into `MATERIALS`.
    shades: float64 `[faces]`, factor of the material's lightness.
    parts: int64 `[faces]`.
    part_centres: float64 `[parts, 3]`.
  """

  points: np.ndarray
  starts: np.ndarray
  normals: np.ndarray
  centres: np.ndarray
  materials: np.ndarray
  shades: np.ndarray
  parts: np.ndarray
  part_centres: np.ndarray


class Builder:
  """Collects faces; `part` starts the next part."""

  def __init__(self):
    self._faces: list[np.ndarray] = []
    self._materials: list[int] = []
    self._shades: list[float] = []
    self._two_sided: list[bool] = []
    self._parts: list[int] = []
    self._part = -1

  def part(self) -> None:
    """What is added from now on is painted together."""
    self._part += 1

  def face(
    self,
    points: _Points,
    material: str,
    shade: float = 1.0,
    two_sided: bool = False,
  ) -> None:
    """A flat polygon, counterclockwise when seen from outside."""
    self._faces.append(np.asarray(points, float))
    self._materials.append(MATERIALS.index(material))
    self._shades.append(shade)
    self._two_sided.append(two_sided)
    self._parts.append(self._part)

  def box(
    self,
    x: tuple[float, float],
    y: tuple[float, float],
    z: tuple[float, float],
    material: str = "wall",
    shade: float = 1.0,
  ) -> list[np.ndarray]:
    """A box without a floor; returns front, right, back and left `[4, 3]`."""
    (x0, x1), (y0, y1), (z0, z1) = x, y, z
    ring = ((x0, y0), (x1, y0), (x1, y1), (x0, y1))
    sides = self._walls(ring, ring, z0, z1, material, shade)
    self.face([(*place, z1) for place in ring], material, shade)
    return sides

  def _walls(self, low, high, z0, z1, material, shade) -> list[np.ndarray]:
    sides = []
    for index in range(len(low)):
      after = (index + 1) % len(low)
      side = [(*low[index], z0), (*low[after], z0)]
      side += [(*high[after], z1), (*high[index], z1)]
      self.face(side, material, shade)
      sides.append(np.asarray(side, float))
    return sides

  def lathe(
    self,
    centre: tuple[float, float],
    profile: Sequence[tuple[float, float]],
    sides: int,
    material: str = "wall",
    shade: float = 1.0,
  ) -> list[list[np.ndarray]]:
    """Turns a profile of (radius, z) about an upright axis.

    With four sides the radius is half the side and a side faces the viewer.

    Returns:
      For each step of the profile its sides, `[4, 3]`, the front ones first.
    """
    angles = (np.arange(sides) - 0.5) * 2 * np.pi / sides - np.pi / 2
    unit = np.stack([np.cos(angles), np.sin(angles)], axis=1)
    if sides == 4:
      unit *= 2**0.5
    rings = [np.asarray(centre) + radius * unit for radius, _ in profile]
    steps = []
    for index in range(len(profile) - 1):
      z0, z1 = profile[index][1], profile[index + 1][1]
      steps.append(
        self._walls(rings[index], rings[index + 1], z0, z1, material, shade)
      )
    if profile[-1][0] > 0:
      self.face(
        [(*place, profile[-1][1]) for place in rings[-1]], material, shade
      )
    return steps

  def gable(
    self,
    x: tuple[float, float],
    y: tuple[float, float],
    z: tuple[float, float],
    *,
    along_y: bool,
    material: str = "roof",
    pediment: str = "wall",
  ) -> np.ndarray:
    """A ridged roof; returns the front gable or slope."""
    (x0, x1), (y0, y1), (z0, z1) = x, y, z
    if along_y:
      middle = (x0 + x1) / 2
      a, b = (middle, y0, z1), (middle, y1, z1)
      self.face([(x1, y0, z0), (x1, y1, z0), b, a], material)
      self.face([(x0, y1, z0), (x0, y0, z0), a, b], material)
      front = [(x0, y0, z0), (x1, y0, z0), a]
      self.face([(x1, y1, z0), (x0, y1, z0), b], pediment)
      self.face(front, pediment)
    else:
      middle = (y0 + y1) / 2
      a, b = (x0, middle, z1), (x1, middle, z1)
      front = [(x0, y0, z0), (x1, y0, z0), b, a]
      self.face([(x1, y1, z0), (x0, y1, z0), a, b], material)
      self.face([(x1, y0, z0), (x1, y1, z0), b], pediment)
      self.face([(x0, y1, z0), (x0, y0, z0), a], pediment)
      self.face(front, material)
    return np.asarray(front, float)

  def ornament(
    self,
    side: np.ndarray,
    box: tuple[float, float, float, float],
    shape: _Points = SQUARE,
    material: str = "opening",
    shade: float = 1.0,
  ) -> None:
    """A shape on a side `[4, 3]`, in (u0, u1, v0, v1) of its unit square."""
    u0, u1, v0, v1 = box
    at = np.asarray(shape, float)
    u = (u0 + at[:, :1] * (u1 - u0)).clip(0, 1)
    v = (v0 + at[:, 1:] * (v1 - v0)).clip(0, 1)
    low = side[0] + u * (side[1] - side[0])
    high = side[3] + u * (side[2] - side[3])
    self.face(low + v * (high - low), material, shade)

  def ornaments(
    self,
    side: np.ndarray,
    columns: int,
    rows: int,
    shape: _Points = SQUARE,
    *,
    area: tuple[float, float, float, float] = (0.06, 0.94, 0.06, 0.94),
    fill: tuple[float, float] = (0.5, 0.6),
    material: str = "opening",
  ) -> None:
    """A grid of shapes on a side; `fill` is their part of width and height.

    Those of air are passages.
    """
    u0, u1, v0, v1 = area
    wide, tall = (u1 - u0) / columns, (v1 - v0) / rows
    for row in range(rows):
      for column in range(columns):
        u = u0 + (column + 0.5) * wide
        v = v0 + (row + 0.5) * tall
        du, dv = wide * fill[0] / 2, tall * fill[1] / 2
        box = (u - du, u + du, v - dv, v + dv)
        if material == "air":
          self.passage(side, box, shape)
        else:
          self.ornament(side, box, shape, material)

  def passage(
    self,
    side: np.ndarray,
    box: tuple[float, float, float, float],
    shape: _Points,
  ) -> None:
    """An arch that one sees through, with a shaded reveal around it."""
    u0, u1, v0, v1 = box
    inset = 0.09 * (u1 - u0)
    self.ornament(side, box, shape, "wall", 0.45)
    self.ornament(
      side, (u0 + inset, u1 - inset, v0, v1 - 0.05 * (v1 - v0)), shape, "air"
    )

  def bar(
    self,
    start: Sequence[float],
    end: Sequence[float],
    width: float,
    material: str = "trim",
  ) -> None:
    """A thin straight bar, seen from both sides."""
    a, b = np.asarray(start, float), np.asarray(end, float)
    along = b - a
    across = np.array([-along[2], 0.0, along[0]])
    norm = np.linalg.norm(across)
    across = across / norm if norm > 1e-9 else np.array([0.0, 0.0, 1.0])
    across *= width / 2
    self.face(
      [a - across, b - across, b + across, a + across], material, two_sided=True
    )

  def build(self) -> Model:
    """Returns the model, scaled to a box of side 1 and centred."""
    sizes = [len(face) for face in self._faces]
    points = np.concatenate(self._faces)
    low, high = points.min(axis=0), points.max(axis=0)
    middle = (low + high) / 2
    middle[2] = 0.0
    scale = 1.0 / max(high[0] - low[0], high[2])
    faces = [(face - middle) * scale for face in self._faces]
    normals = []
    for face, two_sided in zip(faces, self._two_sided, strict=True):
      # Newell's sum is right for any flat polygon, degenerate corners too.
      total = np.cross(face, np.roll(face, -1, axis=0)).sum(axis=0)
      norm = np.linalg.norm(total)
      normals.append(total / norm if norm > 0 and not two_sided else 0 * total)
    centres = np.stack([face.mean(axis=0) for face in faces])
    names, parts = np.unique(self._parts, return_inverse=True)
    return Model(
      points=np.concatenate(faces),
      starts=np.cumsum([0] + sizes),
      normals=np.stack(normals),
      centres=centres,
      materials=np.array(self._materials),
      shades=np.array(self._shades),
      parts=parts,
      part_centres=np.stack(
        [centres[parts == part].mean(axis=0) for part in range(len(names))]
      ),
    )


@dataclasses.dataclass(frozen=True)
class View:
  """Where the viewer stands and what the light is like.

  Attributes:
    yaw: By which the landmark is turned, in radians.
    roll: By which the camera is turned, in radians.
    distance: From the landmark's middle, at least 1.2.
    eye: Height of the viewer.
    scale: Pixels a unit at the landmark's middle.
    origin: Where the middle of the landmark's foot appears: x, y in pixels.
    sun: Direction to the sun, float64 `[3]` of length 1.
    sunlight: Colour of the direct light, `[3]`.
    skylight: Colour of the light in the shade, `[3]`.
    lit_windows: Part of the openings that shine, in [0, 1].
  """

  yaw: float
  roll: float
  distance: float
  eye: float
  scale: float
  origin: tuple[float, float]
  sun: np.ndarray
  sunlight: np.ndarray
  skylight: np.ndarray
  lit_windows: float = 0.0


def _project(points: np.ndarray, view: View) -> np.ndarray:
  """Turned points `[n, 3]` to pixels `[n, 2]`."""
  depth = view.distance / (view.distance + points[:, 1])
  x = points[:, 0] * depth * view.scale
  # A camera held level, as architects do: uprights stay upright.
  y = -((points[:, 2] - view.eye) * depth + view.eye) * view.scale
  cosine, sine = np.cos(view.roll), np.sin(view.roll)
  return np.stack(
    [
      view.origin[0] + cosine * x - sine * y,
      view.origin[1] + sine * x + cosine * y,
    ],
    axis=1,
  )


def paint(
  generator: np.random.Generator,
  layer: Image.Image,
  model: Model,
  colours: np.ndarray,
  view: View,
) -> None:
  """Paints a model on a canvas from `photo.new_layer`.

  Args:
    generator: Source of randomness.
    layer: The canvas.
    model: What to paint.
    colours: `[len(MATERIALS), 3]` under white light; that of air is unused.
    view: In pixels of the picture, not of the canvas.
  """
  cosine, sine = np.cos(view.yaw), np.sin(view.yaw)
  turn = np.array([[cosine, -sine, 0], [sine, cosine, 0], [0, 0, 1]])
  points = _project(model.points @ turn.T, view) * photo.SUPERSAMPLING
  normals, centres = model.normals @ turn.T, model.centres @ turn.T
  to_eye = np.array([0.0, -view.distance, view.eye]) - centres
  facing = np.einsum("ij,ij->i", normals, to_eye)
  two_sided = ~normals.any(axis=1)
  visible = (facing > 1e-9) | two_sided

  light = np.maximum(normals @ view.sun, 0.0) + 0.5 * two_sided
  # The ground and the sky light the shade from below and above.
  ambient = 0.85 + 0.15 * normals[:, 2]
  shaded = colours[model.materials] * model.shades[:, np.newaxis]
  shaded = shaded * (
    light[:, np.newaxis] * view.sunlight
    + ambient[:, np.newaxis] * view.skylight
  )
  shaded *= 1 + 0.05 * generator.standard_normal((len(shaded), 1))
  if view.lit_windows:
    lit = generator.random(len(shaded)) < view.lit_windows
    lit &= model.materials == MATERIALS.index("opening")
    shaded[lit] = np.array([1.0, 0.82, 0.45]) * generator.uniform(0.6, 1)
  fills = (255 * shaded).clip(0, 255).astype(int).tolist()

  away = np.linalg.norm(
    model.part_centres @ turn.T - [0.0, -view.distance, view.eye], axis=1
  )
  draw = ImageDraw.Draw(layer)
  starts, flat = model.starts.tolist(), points.ravel().tolist()
  is_air = (model.materials == MATERIALS.index("air")).tolist()
  order = np.lexsort((np.arange(len(fills)), -away[model.parts]))
  for index in order[visible[order]].tolist():
    draw.polygon(
      flat[2 * starts[index] : 2 * starts[index + 1]],
      fill=(0, 0, 0, 0) if is_air[index] else (*fills[index], 255),
    )


def spread(low: float, high: float, number: int) -> Iterable[float]:
  """Evenly spaced places, the middle for one."""
  return np.linspace(low, high, number) if number > 1 else [(low + high) / 2]
