"""Where organisms are drawn: shapes, markings and the easel that holds them.

Shapes are given by signed distances to their outlines, negative inside.
"""

from collections.abc import Callable
import dataclasses

import numpy as np

from tasks.synthetic import photo


@dataclasses.dataclass
class Easel:
  """Where a specimen is drawn, in its own coordinates.

  Attributes:
    x: float32 `[height, width]`, to the specimen's right.
    y: float32 `[height, width]`, upwards, towards its head or tip. The specimen
      fits into a circle of radius 1.
    pixel: Side of a pixel in these units.
    generator: Of this specimen's own deviations.
    base: Colours `[3]`, as are the following: of the body,
    mark: of the markings,
    ink: of the dark parts,
    extra: of what stands out.
  """

  x: np.ndarray
  y: np.ndarray
  pixel: float
  generator: np.random.Generator
  base: np.ndarray
  mark: np.ndarray
  ink: np.ndarray
  extra: np.ndarray

  def __post_init__(self):
    self.picture = np.zeros((*self.x.shape, 3), np.float32)
    self.mask = np.zeros(self.x.shape, np.float32)
    self.relief = np.zeros(self.x.shape, np.float32)

  def cover(self, distance: np.ndarray) -> np.ndarray:
    """How far a shape covers each pixel, 0 to 1."""
    return np.clip(0.5 - distance / self.pixel, 0.0, 1.0)

  def add(
    self,
    distance: np.ndarray,
    colour: np.ndarray,
    relief: np.ndarray | float = 0.0,
    shade: float = 1.0,
  ) -> None:
    """Paints a shape over what is there; `relief` is its height."""
    cover = self.cover(distance)
    self.picture = photo.mix(self.picture, colour * shade, cover)
    self.mask = np.maximum(self.mask, cover)
    self.relief = self.relief + cover * (relief - self.relief)


# Draws one specimen of a species.
Specimen = Callable[[Easel], None]


def ellipse(x, y, centre, radii, turn=0.0) -> np.ndarray:
  """About the distance to an ellipse, turned counterclockwise."""
  x, y = x - centre[0], y - centre[1]
  if turn:
    cosine, sine = np.cos(turn), np.sin(turn)
    x, y = cosine * x + sine * y, cosine * y - sine * x
  return (np.hypot(x / radii[0], y / radii[1]) - 1) * min(radii)


def limb(x, y, start, end, thick, thin=None) -> np.ndarray:
  """Distance to a line that grows from `thick` to `thin` (half widths)."""
  across, up = end[0] - start[0], end[1] - start[1]
  x, y = x - start[0], y - start[1]
  at = np.clip((x * across + y * up) / (across**2 + up**2), 0, 1)
  radius = thick if thin is None else thick + (thin - thick) * at
  return np.hypot(x - at * across, y - at * up) - radius


def pick(generator: np.random.Generator, *options):
  return options[generator.integers(len(options))]


def away_from_whole(value: np.ndarray) -> np.ndarray:
  """Distance to the nearest integer."""
  return np.abs(value - np.round(value))


def hump(at: np.ndarray, skew: float) -> np.ndarray:
  """From 0 at 0 up to 1 and down to 0 at 1."""
  # Rounding makes the sine of pi times one negative.
  return np.maximum(np.sin(np.pi * at**skew), 0.0)


def create_markings(
  g: np.random.Generator,
) -> Callable[[np.ndarray, np.ndarray], np.ndarray]:
  """A pattern on the square of a in [0, 1] (off the middle) and b in [0, 1].

  Returns:
    A function from a and b to how strongly the mark shows, 0 to 1.
  """
  kind = pick(
    g, "spots", "spots", "bands", "stripes", "edge", "chevrons", "saddle"
  )
  number = int(g.integers(2, 6))
  phase, width = g.random(), g.uniform(0.15, 0.32)
  soft = 0.06
  if kind == "spots":
    spots = np.stack(
      [
        g.uniform(0.05, 0.85, number),
        g.uniform(0.1, 0.9, number),
        g.uniform(0.08, 0.2, number),
      ],
      axis=1,
    )

    def marks(a, b):
      away = np.min(
        [np.hypot((a - u) * 0.6, b - v) / r for u, v, r in spots], axis=0
      )
      return photo.smoothstep(1.12, 0.88, away)

  elif kind == "bands":
    bend = g.uniform(-0.35, 0.35)

    def marks(a, b):
      at = away_from_whole(b * number + bend * number * 0.4 * a * a + phase)
      return photo.smoothstep(width + soft, width - soft, at)

  elif kind == "stripes":

    def marks(a, b):
      at = away_from_whole(a * number * 0.7 + 0.5 * phase)
      return photo.smoothstep(width + soft, width - soft, at)

  elif kind == "edge":

    def marks(a, b):
      return photo.smoothstep(1 - width * 1.6, 1.06 - width * 1.6, a)

  elif kind == "chevrons":
    slope = g.choice([-0.5, 0.5])

    def marks(a, b):
      at = away_from_whole((b + slope * a) * number + phase)
      return photo.smoothstep(width + soft, width - soft, at)

  else:
    low = g.uniform(0.15, 0.5)
    high = low + g.uniform(0.2, 0.4)

    def marks(a, b):
      return photo.smoothstep(low, low + soft, b) * photo.smoothstep(
        high + soft, high, b
      )

  return marks
