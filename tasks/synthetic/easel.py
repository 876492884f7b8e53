"""The easel on which landmarks and species are drawn, and their light.

A subject is what belongs to a class: a landmark, a species. Its numbers are
drawn from a generator of its own, always the same; what differs between its
pictures is in the view and the light.
"""

import numpy as np
from scipy import ndimage

from tasks.synthetic import drawing


class Easel:
  """Where a subject is drawn.

  Attributes:
    x: float32 `[height, width]`, to the subject's right.
    y: float32 `[height, width]`, upwards. The subject fits into |x| < 1 and
      |y| < 1.
    side: The absolute value of x, for what is the same on both sides.
    yaw: By how much the subject is turned, in radians, for what has a depth.
    body: Colour `[3]`, as are the following: of most of the subject,
    mark: of its markings,
    dark: of its dark parts,
    bright: of what stands out.
  """

  def __init__(
    self, shape, *, middle, radius, tilt, squeeze=(1.0, 0.0), yaw=0.0, colours
  ):
    """Creates an empty easel.

    Args:
      shape: Height and width of the picture.
      middle: Where the subject's middle appears: x and y in pixels.
      radius: Pixels in a unit.
      tilt: Angle by which the subject is turned in the picture.
      squeeze: How much shorter it appears, and in which direction.
      yaw: See above.
      colours: Of body, mark, dark and bright: `[4, 3]`.
    """
    rows, columns = (np.arange(length, dtype=np.float32) for length in shape)
    x = (columns - middle[0]) / radius
    x, y = np.meshgrid(x, (middle[1] - rows) / radius)
    factor, direction = squeeze
    x, y = drawing.rotate(x, y, direction)
    x, y = drawing.rotate(factor * x, y, tilt - direction)
    self.x, self.y, self.side, self.yaw = x, y, np.abs(x), yaw
    self.body, self.mark, self.dark, self.bright = colours
    self._picture = np.zeros((3, *shape), np.float32)
    self._mask = np.zeros(shape, np.float32)
    self._relief = np.zeros(shape, np.float32)
    self._radius = radius

  def add(self, distance, colour, height=0.0) -> None:
    """Lays a shape over what is there; `height` makes its light and shade."""
    cover = drawing.cover_of(distance, 0.85 * self._radius)
    drawing.paint(self._picture, cover, colour)
    self._mask = np.maximum(self._mask, cover)
    self._relief += cover * (height - self._relief)

  def cut(self, distance) -> None:
    """Cuts a hole, through which one sees what lies behind."""
    self._mask *= 1 - drawing.cover_of(distance, self._radius)

  def blend(self, cover, colour=None, below=None) -> np.ndarray:
    """A picture of `below` (the body's colour) with `colour` where covered."""
    below = self.body if below is None else below
    picture = np.empty_like(self._picture)
    picture[:] = below.reshape(3, *below.shape[1:] or (1, 1))
    drawing.paint(picture, cover, self.mark if colour is None else colour)
    return picture

  def ellipse(self, x, y, wide, tall, colour, height=0.0, angle=0.0) -> None:
    """Lays an ellipse around (x, y) over what is there."""
    across, up = drawing.rotate(self.x - x, self.y - y, angle)
    self.add(drawing.ellipse(across, up, wide, tall), colour, height)

  def stroke(self, start, end, thick, thin, colour, paired=False) -> None:
    """Lays a line over what is there; a pair of them mirrors it."""
    x = self.side if paired else self.x
    self.add(drawing.stroke(x, self.y, start, end, thick, thin), colour, 0.1)

  def paint_on(self, picture, generator, *, hardness, shadow=0.55) -> None:
    """Lays the subject and its shadow on a picture, in place.

    Args:
      picture: float32 `[3, height, width]`.
      generator: Of the light.
      hardness: Strength of light and shade, in [0, 1].
      shadow: How dark the shadow is on what is behind, in [0, 1].
    """
    angle = generator.uniform(0, 2 * np.pi)
    sun = np.array([np.sin(angle), -np.cos(angle)])
    slopes = np.gradient(self._relief, 1 / self._radius)
    slope = np.clip(sun[0] * slopes[0] + sun[1] * slopes[1], -2.5, 2.5)
    light = 1 + 0.28 * hardness * slope
    mottles = drawing.noise(generator, light.shape, extent=0.8, exponent=1.1)
    light += 0.05 * mottles
    reach = generator.uniform(0.03, 0.12) * self._radius
    away = ndimage.shift(self._mask, sun * reach, order=0)
    away = ndimage.uniform_filter(away, max(2, int(0.1 * self._radius)))
    picture *= 1 - shadow * hardness * away
    drawing.paint(picture, self._mask, self._picture * light)


def periodic(value: np.ndarray) -> np.ndarray:
  """Distance to the nearest integer."""
  return np.abs(value - np.round(value))


def marks(g: np.random.Generator, a: np.ndarray, b: np.ndarray) -> np.ndarray:
  """A pattern at places in the unit square: spots, a border or stripes.

  Args:
    g: Of the subject.
    a: Of each pixel, 0 in the middle.
    b: The same, 0 at one end.

  Returns:
    How strongly the pattern shows, in [0, 1].
  """
  kind, number = g.integers(5), int(g.integers(2, 6))
  phase, width = g.random(), g.uniform(0.14, 0.3)
  spots = g.uniform((0.05, 0.1, 0.1), (0.85, 0.9, 0.24), (number + 2, 3))
  slope = g.choice([-0.6, 0.6])
  if kind == 0:
    away = [np.hypot((a - u) * 0.7, b - v) / r for u, v, r in spots]
    return drawing.smoothstep(1.12, 0.88, np.min(away, axis=0))
  if kind == 1:
    return drawing.smoothstep(1 - 1.6 * width, 1.06 - 1.6 * width, a)
  stripes = (b * number, a * number * 0.8, (b + slope * a) * number)
  at = periodic(stripes[kind - 2] + phase)
  return drawing.smoothstep(width + 0.06, width - 0.06, at)
