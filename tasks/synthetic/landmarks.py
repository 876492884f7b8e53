"""Photographs of made-up landmarks, as in Google Landmarks v2.

A class is one building: its kind, measures and colours. A picture shows it from
some distance, in some light and weather, before hills. Buildings are made of
blocks, whose outline tells how wide they are at each height. Of the easel's
colours, body is that of walls, mark of trim, dark of openings and bright of
roofs.
"""

from collections.abc import Callable

import numpy as np

from tasks.synthetic import drawing

# Sky above, sky at the horizon, strength of the sun, and how often it is so.
_WEATHERS = (
  ((0.25, 0.47, 0.80), (0.72, 0.84, 0.95), 1.0, 0.35),  # Clear.
  ((0.40, 0.58, 0.82), (0.86, 0.89, 0.92), 0.8, 0.25),  # Fair.
  ((0.62, 0.65, 0.70), (0.82, 0.83, 0.84), 0.2, 0.17),  # Overcast.
  ((0.30, 0.33, 0.55), (0.98, 0.62, 0.36), 0.9, 0.15),  # Sunset.
  ((0.08, 0.11, 0.28), (0.42, 0.36, 0.48), 0.2, 0.08),  # Dusk.
)
_GROUNDS = (
  (0.36, 0.46, 0.22),  # Grass.
  (0.58, 0.56, 0.53),  # Pavement.
  (0.76, 0.68, 0.52),  # Sand.
  (0.30, 0.42, 0.50),  # Water.
)

# Width at a height from 0 to 1, both as parts of the whole.
_OUTLINES: dict[str, Callable[[np.ndarray], np.ndarray]] = {
  "box": np.ones_like,
  "taper": lambda t: 1 - 0.4 * t,
  "cone": lambda t: 1 - t,
  "roof": lambda t: 1 - 0.6 * t**0.6,
  "dome": lambda t: np.sqrt(1 - t * t),
  "onion": lambda t: (1 + 1.2 * np.sin(3.5 * t)) * (1 - t) ** 0.8,
}


def _pick(g: np.random.Generator, *options):
  return options[g.integers(len(options))]


class _Site(drawing.Easel):
  """An easel for buildings, which stand on y = -1."""

  def block(
    self, x, low, tall, wide, outline: str, colour
  ) -> tuple[np.ndarray, np.ndarray]:
    """Adds a block around x whose foot is at `low`, `wide` to either side.

    Returns where each pixel lies on its front: from -1 to 1 and from 0 to 1.
    """
    t = (self.y - low) / tall
    half = wide * _OUTLINES[outline](np.clip(t, 0, 1)) + 1e-3
    ends = np.abs(self.y - low - tall / 2) - tall / 2
    u = (self.x - x) / half
    height = 0.5 * wide * np.sqrt(np.clip(1 - u * u, 0, 1))
    self.add(np.maximum((np.abs(u) - 1) * half, ends), colour, height)
    return u, t

  def tower(self, x, low, tall, wide, roof) -> None:
    """Adds a tower with windows and a roof, and a ledge below it."""
    place = self.block(x, low, tall, wide, "box", self.body)
    self.openings(place, 1, max(2, round(tall / wide / 2)), fill=(0.3, 0.4))
    self.block(x, low + tall, 0.12 * wide, 1.15 * wide, "box", self.mark)
    high = wide * (2.6 if roof == "cone" else 1.4 if roof == "onion" else 1)
    self.block(x, low + tall + 0.1 * wide, high, wide, roof, self.bright)

  def openings(
    self, place, columns, rows, fill=(0.5, 0.6), arched=True, colour=None
  ) -> None:
    """Adds a grid of windows, doors or columns at a place from `block`.

    Each takes a part of its cell, `fill` across and upwards, and has a round
    upper end if it is arched.
    """
    u, t = (place[0] + 1) / 2 * columns, place[1] * rows
    u, v = np.abs(u % 1 - 0.5) / fill[0], t % 1 / fill[1]
    if rows > 1:
      v -= 0.5 / fill[1] - 0.5
    round_top = np.sqrt(np.clip(1 - 4 * u * u, 0, 1))
    top = 0.6 + 0.4 * round_top if arched else np.ones_like(v)
    outside = np.maximum(np.abs(place[0]) - 1, np.abs(place[1] - 0.5) - 0.5)
    shape = np.maximum(np.maximum(u - 0.5, -v), np.maximum(v - top, outside))
    shape *= 1.5 / max(columns, rows)
    self.add(shape, self.dark if colour is None else colour)


def _church(e: _Site, g: np.random.Generator) -> None:
  wide, tall = g.uniform(0.4, 0.65), g.uniform(0.4, 0.8)
  roof, radius = _pick(g, "cone", "onion", "dome"), g.uniform(0.13, 0.22)
  nave = e.block(0, -1, tall, wide, "box", e.body)
  e.openings(nave, int(g.integers(3, 6)), 1, fill=(0.45, 0.7))
  top = _pick(g, "cone", "dome")
  e.block(0, tall - 1, g.uniform(0.2, 0.6), 1.05 * wide, top, e.bright)
  for x in _pick(g, (-wide,), (wide,), (-wide, wide), (0,)):
    e.tower(x, -1, tall * g.uniform(1.2, 1.6), radius, roof)


def _pagoda(e: _Site, g: np.random.Generator) -> None:
  wide, floors, low = g.uniform(0.4, 0.6), int(g.integers(3, 7)), -1.0
  step, eaves, taper = 1.7 / floors, g.uniform(1.3, 1.7), g.uniform(0.75, 0.9)
  for _ in range(floors):
    walls = e.block(0, low, 0.7 * step, wide, "box", e.body)
    e.openings(walls, 3, 1, fill=(0.5, 0.8), arched=False)
    e.block(0, low + 0.6 * step, 0.4 * step, eaves * wide, "roof", e.bright)
    wide, low = taper * wide, low + step
  e.block(0, low, 0.3, 0.05, "cone", e.mark)


def _lighthouse(e: _Site, g: np.random.Generator) -> None:
  wide, bands = g.uniform(0.2, 0.35), int(g.integers(2, 8))
  u, t = e.block(0, -1, 1.5, wide, "taper", e.body)
  rising = _pick(g, 0.0, 1.0) * e.x
  stripes = 0.03 - 0.06 * ((t * bands + 2 * rising) % 1 > 0.5)
  inside = np.maximum((np.abs(u) - 1) * wide, np.abs(t - 0.5) - 0.5)
  e.add(np.maximum(stripes, inside), e.bright, 0.5 * wide - e.side**2 / wide)
  e.block(0, 0.5, 0.05, 0.8 * wide, "box", e.mark)
  e.tower(0, 0.55, 0.2, 0.45 * wide, _pick(g, "dome", "cone", "onion"))
  if g.random() < 0.6:
    e.tower(_pick(g, -0.6, 0.6), -1, 0.3, 0.22, "cone")


def _skyscraper(e: _Site, g: np.random.Generator) -> None:
  wide, low, floors = g.uniform(0.3, 0.5), -1.0, int(g.integers(1, 5))
  columns, arched = int(g.integers(3, 7)), g.random() < 0.3
  for _ in range(floors):
    tall = 1.6 / floors
    front = e.block(0, low, tall, wide, "box", e.body)
    e.openings(front, columns, round(9 * tall), fill=(0.6, 0.6), arched=arched)
    low, wide = low + tall, wide * g.uniform(0.6, 0.85)
  tall, outline = g.uniform(0.1, 0.4), _pick(g, "cone", "box")
  e.block(0, low, tall, wide / 2, outline, e.mark)


def _temple(e: _Site, g: np.random.Generator) -> None:
  wide, tall = g.uniform(0.65, 0.85), g.uniform(0.5, 0.9)
  for index in range(3):
    edge = wide + 0.15 - 0.05 * index
    e.block(0, -1 + 0.06 * index, 0.06, edge, "box", e.mark)
  front = e.block(0, -0.82, tall, wide, "box", e.dark)
  columns = int(g.integers(3, 9))
  e.openings(front, columns, 1, fill=(0.5, 1), arched=False, colour=e.body)
  e.block(0, tall - 0.82, 0.1, 1.06 * wide, "box", e.mark)
  roof = _pick(g, "cone", "dome")
  width = wide if roof == "cone" else 0.6 * wide
  e.block(0, tall - 0.72, g.uniform(0.25, 0.5), width, roof, e.bright)


# Neighbours on the ring of classes, which one user photographs, differ.
_KINDS = (_church, _lighthouse, _temple, _skyscraper, _pagoda)


def _paint_background(generator, picture, horizon, weather) -> None:
  """Paints sky, clouds, hills or trees, and the ground."""
  _, height, width = picture.shape
  tint = np.exp(generator.normal(0.0, 0.05, 3))
  zenith, low = np.array(weather[0]) * tint, np.array(weather[1]) * tint
  picture[:] = zenith[:, np.newaxis, np.newaxis]
  rows = np.arange(height)[:, np.newaxis]
  drawing.paint(picture, np.clip(rows / horizon, 0, 1) ** 1.3, low)
  shape = (height, width)
  clouds = drawing.noise(generator, shape, extent=0.5, stretch=2.0)
  edge = generator.uniform(-0.5, 1.5)
  cover = 0.8 * drawing.smoothstep(edge, edge + 1.5, clouds)
  drawing.paint(picture, cover, np.clip(low * 1.1 + 0.08, 0, 1))

  rough = {"extent": 0.9, "exponent": 0.8, "stretch": 2.0}
  texture = 1 + 0.14 * drawing.noise(generator, shape, **rough)
  ground = _GROUNDS[generator.integers(len(_GROUNDS))]
  ground = ground * np.exp(generator.normal(0, 0.1, 3)) * low
  # A ridge, and the ground.
  line = drawing.noise(
    generator, (8, width), extent=generator.uniform(0.1, 0.9), exponent=1.5
  )[0]
  ridge = horizon - height * (generator.uniform(-0.1, 0.15) + 0.03 * line)
  for colour, top in ((0.5 * low, ridge), (ground, horizon)):
    cover = np.clip(rows - top + 0.5, 0, 1)
    drawing.paint(picture, cover, colour[:, np.newaxis, np.newaxis] * texture)


def _draw_colours(generator, g) -> np.ndarray:
  """Of walls, trim, openings and roofs: `[4, 3]`."""
  wall = g.uniform(0.5, 0.9)
  hues = (_pick(g, 0.02, 0.08, 0.12, 0.55), 0.1, 0.6, _pick(g, 0.02, 0.4, 0.6))
  walls, trim, roofs = g.uniform((0.05, 0, 0.1), (0.4, 0.3, 0.6))
  saturations = (walls, trim, 0.2, roofs)
  values = (wall, wall * _pick(g, 0.65, 1.15), 0.16, g.uniform(0.3, 0.6))
  tone = np.exp(generator.normal(0, 0.08, 3))
  return tone * list(map(drawing.hsv, hues, saturations, values))


def draw_landmark(
  generator: np.random.Generator, seed: int, class_id: int, shape: tuple
) -> np.ndarray:
  """Draws a picture of a landmark, see `tfrecord_twin.Twin.draw`."""
  g = np.random.default_rng(np.random.SeedSequence([seed, 1, class_id]))
  height, width = shape
  odds = [weather[-1] for weather in _WEATHERS]
  weather = _WEATHERS[generator.choice(len(_WEATHERS), p=odds)]
  horizon = generator.uniform(0.68, 0.85) * height
  picture = np.empty((3, *shape), np.float32)
  _paint_background(generator, picture, horizon, weather)
  # What lies outside the square in the middle is cut off when it is read.
  radius = min(0.5 * width, 0.53 * horizon) * generator.uniform(0.85, 1.1)
  foot = horizon + generator.uniform(0.05, 0.3) * (height - horizon)
  # The light is tinted like the sky above the horizon, but less.
  light = np.sqrt(weather[1])
  site = _Site(
    shape,
    middle=(width * generator.uniform(0.45, 0.55), foot - radius),
    radius=radius,
    tilt=generator.normal(0, 0.02),
    squeeze=generator.uniform(1.0, 1.3),
    colours=_draw_colours(generator, g) * light,
  )
  _KINDS[(class_id + seed) % len(_KINDS)](site, g)
  site.paint_on(picture, generator, hardness=weather[2])
  return picture
