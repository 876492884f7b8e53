"""Photographs of made-up species, as in iNaturalist.

A class is one plant or animal: its kind, and its build, markings and colours,
which are drawn from a generator of its own. A picture shows a specimen in some
pose and light on soil, grass, leaves, stone, sand or before a blurred
background. Each kind is a function that draws the species' numbers from `g`,
always the same, and lays shapes on an easel; the specimen fits into a circle of
radius 1 and looks upwards, but for fish, which look right.
"""

import numpy as np

from tasks.synthetic import drawing

# Two colours; exponent, stretch (wide over high) and extent of the noise.
_HABITATS = (
  ((0.20, 0.15, 0.11), (0.50, 0.40, 0.29), 0.8, 1.0, 0.8),  # Soil.
  ((0.12, 0.20, 0.06), (0.46, 0.56, 0.24), 0.9, 0.3, 0.7),  # Grass.
  ((0.08, 0.15, 0.06), (0.34, 0.48, 0.22), 1.4, 1.0, 0.6),  # Leaves.
  ((0.40, 0.39, 0.37), (0.66, 0.64, 0.60), 1.1, 1.0, 0.9),  # Stone.
  ((0.62, 0.54, 0.42), (0.82, 0.75, 0.62), 0.7, 1.6, 0.9),  # Sand.
  ((0.16, 0.24, 0.14), (0.62, 0.66, 0.48), 2.4, 1.0, 0.35),  # Far away.
  ((0.10, 0.26, 0.36), (0.36, 0.60, 0.66), 2.0, 2.2, 0.5),  # Water or sky.
)


def _flower(e: drawing.Easel, g: np.random.Generator) -> None:
  petals, pointed = int(g.integers(3, 13)), g.uniform(0.3, 1.6)
  rings, heart = int(g.integers(1, 3)), g.uniform(0.12, 0.32)
  notch, pattern = g.choice([0.0, 0.0, 0.2]), g.integers(2**31)
  away, angle = np.hypot(e.x, e.y), np.arctan2(e.x, e.y) / (2 * np.pi)
  for ring in range(rings):
    off = 2 * drawing.periodic(angle * petals + 0.5 * ring)
    reach = (0.92 - 0.3 * ring) * (1 - off**2) ** pointed
    reach *= 1 - notch * np.exp(-((off / 0.15) ** 2))
    part = away / np.maximum(reach, 0.02)
    same = np.random.default_rng(pattern)
    marks = drawing.marks(same, off, np.clip(part, 0, 1))
    colour = e.blend(marks) * (1 - 0.25 * ring)
    e.add(0.6 * (away - reach), colour, 0.2 * ring + 0.15 * (1 - off))
  dots = np.cos(40 * e.x) * np.cos(40 * e.y)
  colour = e.blend(dots > 0.3, e.dark, e.bright)
  e.ellipse(0, 0, heart, heart, colour, 0.4 - away)


def _butterfly(e: drawing.Easel, g: np.random.Generator) -> None:
  tail = g.choice([0.0, 0.0, 0.25])
  # The hind wings first, then the fore wings, which lie over them.
  for turn, length in (
    (-g.uniform(0.55, 0.8), g.uniform(0.6, 0.8)),
    (g.uniform(0.45, 0.75), g.uniform(0.85, 1.0)),
  ):
    breadth, full = g.uniform(0.95, 1.5), g.uniform(0.35, 0.8)
    border, eye = g.uniform(0.0, 0.25), g.uniform(0.5, 0.75)
    away = np.hypot(e.side, e.y) + 1e-6
    angle = np.clip((np.arctan2(e.y, e.side) - turn) * breadth, -1.57, 1.57)
    edge = length * np.maximum(np.cos(angle), 0) ** full
    part = np.clip(away / np.maximum(edge, 0.02), 0, 2)
    colour = e.blend(drawing.marks(g, part, angle / np.pi + 0.5))
    colour = e.blend(part > 1 - border, e.dark, colour)
    if g.random() < 0.6:
      x, y = eye * length * np.cos(turn), eye * length * np.sin(turn)
      ring = np.hypot(e.side - x, e.y - y)
      colour = e.blend(ring < 0.14, e.bright, colour)
      colour = e.blend(ring < 0.08, e.dark, colour)
    if tail and turn < 0:
      e.stroke((0.4, -0.5), (0.45, -0.6 - tail), 0.06, 0.03, e.dark, True)
    e.add(away - edge, colour, 0.1 * part + 0.2 * e.side)
  e.stroke((0, 0.28), (0, -0.38), 0.065, 0.035, e.dark)
  e.stroke((0.02, 0.3), (0.24, 0.7), 0.018, 0.018, e.dark, True)


def _beetle(e: drawing.Easel, g: np.random.Generator) -> None:
  wide, long = g.uniform(0.32, 0.58), g.uniform(0.5, 0.62)
  neck, legs = g.uniform(0.55, 0.95), g.uniform(0.25, 0.4)
  jaws, feelers = g.choice([0.0, 0.0, 0.25]), g.uniform(0.2, 0.5)
  for up in (0.25, -0.1, -0.45):
    knee = (wide + 0.5 * legs, up + 0.3 * (up + 0.1))
    foot = (wide + legs, up + 1.2 * (up + 0.1))
    e.stroke((0.5 * wide, up), knee, 0.04, 0.03, e.dark, True)
    e.stroke(knee, foot, 0.03, 0.02, e.dark, True)
  e.stroke((0.05, 0.7), (0.2 + feelers, 0.98), 0.02, 0.02, e.dark, True)
  if jaws:
    e.stroke((0.1, 0.65), (0.05, 0.7 + jaws), 0.06, 0.02, e.dark, True)
  e.ellipse(0, 0.62, 0.45 * wide, 0.17, e.dark, 0.1)
  e.ellipse(0, 0.4, neck * wide, 0.22, e.bright * 0.6, 0.3 - e.side)
  low = e.y + 0.2
  marks = drawing.marks(g, np.clip(e.side / wide, 0, 1), low / (2 * long) + 0.5)
  seam = np.maximum(marks, 0) * (e.side > 0.02)
  dome = np.sqrt(np.clip(1 - (e.x / wide) ** 2 - (low / long) ** 2, 0, 1))
  e.ellipse(0, -0.2, wide, long, e.blend(seam), 0.6 * dome)


def _leaf(e: drawing.Easel, g: np.random.Generator) -> None:
  wide, skew = g.uniform(0.28, 0.75), g.uniform(0.6, 1.5)
  teeth, depth = g.integers(3, 12), g.choice([0.0, 0.12, 0.35])
  veins, rise = int(g.integers(4, 9)), g.uniform(0.3, 1.2)
  edge, variegated = g.random() < 0.3, g.random() < 0.4
  along = np.clip((e.y + 0.75) / 1.6, 0, 1)
  outline = wide * np.maximum(np.sin(np.pi * along**skew), 0)
  outline *= 1 - depth * 2 * drawing.periodic(along * teeth)
  part = e.side / np.maximum(outline, 0.02)
  ribs = drawing.periodic((e.y - rise * e.side) * veins / 1.6)
  lines = np.minimum(ribs * 1.6 / veins, e.side)
  colour = e.blend(drawing.smoothstep(0.035, 0.02, lines))
  if variegated:
    marks = drawing.marks(g, np.clip(part, 0, 1), along)
    colour = e.blend(marks, e.bright, colour)
  if edge:
    colour = e.blend(part > 0.8, e.bright, colour)
  e.stroke((0, -0.7), (0.08, -1.0), 0.03, 0.02, e.dark)
  e.add(0.7 * (e.side - outline), colour, 0.3 * e.side + 0.2 * ribs)


def _fish(e: drawing.Easel, g: np.random.Generator) -> None:
  tall, fork = g.uniform(0.25, 0.52), g.uniform(0.15, 0.5)
  fin, back = g.uniform(0.15, 0.5), g.uniform(-0.3, 0.3)
  for side in (-1, 1):
    e.stroke((-0.55, 0), (-0.95, side * fork), 0.05, 0.13, e.bright)
  e.stroke((back, 0), (back - 0.3, tall + fin), 0.3, 0.04, e.mark)
  e.stroke((0.1, 0), (-0.2, -tall - 0.5 * fin), 0.2, 0.03, e.mark)
  along = np.clip((e.x + 0.75) / 1.6, 0, 1)
  outline = tall * np.maximum(np.sin(np.pi * along**1.3), 0) ** 0.8 + 0.04
  marks = drawing.marks(g, np.abs(e.y) / tall, along)
  colour = e.blend(marks * (e.x < 0.45))
  colour *= 1 - 0.35 * np.clip(e.y / tall, -1, 1)
  shape = np.maximum(np.abs(e.y) - outline, np.abs(e.x - 0.05) - 0.8)
  e.add(shape, colour, 0.4 * np.sqrt(np.clip(1 - (e.y / tall) ** 2, 0, 1)))
  e.stroke((0.1, -0.1), (-0.15, -0.25), 0.03, 0.1, e.bright)
  e.ellipse(0.6, 0.06, 0.08, 0.08, e.bright)
  e.ellipse(0.6, 0.06, 0.045, 0.045, e.dark)


# Neighbours on the ring of classes, which one user photographs, differ.
_KINDS = (_flower, _fish, _butterfly, _leaf, _beetle)


def _draw_habitat(generator: np.random.Generator, shape: tuple) -> np.ndarray:
  habitat = _HABITATS[generator.integers(len(_HABITATS))]
  dark, light, exponent, stretch, extent = habitat
  extent *= generator.uniform(0.7, 1.1)
  field = drawing.noise(
    generator, shape, extent=extent, exponent=exponent, stretch=stretch
  )
  tones = np.exp(generator.normal(0, 0.2, (2, 1)))
  tones = tones * np.exp(generator.normal(0, 0.08, (2, 3))) * (dark, light)
  picture = np.empty((3, *shape), np.float32)
  picture[:] = tones[0][:, np.newaxis, np.newaxis]
  drawing.paint(picture, drawing.smoothstep(-1.6, 1.6, field), tones[1])
  return picture


def _draw_colours(generator, g, is_leaf: bool) -> np.ndarray:
  """Of body, marks, dark and outstanding parts of a specimen: `[4, 3]`."""
  hue = g.choice([0.15, 0.22, 0.28, 0.34] if is_leaf else np.arange(8) / 8)
  body = g.uniform(0.5, 0.9)
  mark = body * g.uniform(0.2, 0.5) if g.random() < 0.6 else 0.98
  whole = (hue, g.uniform(0.3, 0.85), body)
  marks = (hue + g.choice([0.0, 0.1, 0.5]), g.uniform(0, 0.7), mark)
  hue = g.choice([0.02, 0.12, 0.15, 0.6])
  outstanding = (hue, g.uniform(0.2, 0.8), 0.85)
  colours = np.array([whole, marks, (0.08, 0.3, 0.12), outstanding])
  # Specimens of a species differ, too.
  colours[:, 0] += generator.normal(0, 0.05)
  colours[:, 1:] *= np.exp(generator.normal(0, 0.1, (4, 2)))
  return np.stack([drawing.hsv(*row) for row in colours.clip(-1, 1)])


def draw_species(
  generator: np.random.Generator, seed: int, class_id: int, shape: tuple
) -> np.ndarray:
  """Draws a picture of a species, see `tfrecord_twin.Twin.draw`."""
  g = np.random.default_rng(np.random.SeedSequence([seed, 2, class_id]))
  kind = _KINDS[(class_id + seed) % len(_KINDS)]
  colours = _draw_colours(generator, g, kind is _leaf)
  easel = drawing.Easel(
    shape,
    middle=generator.uniform(0.42, 0.58, 2) * shape[::-1],
    radius=0.5 * min(shape) * generator.uniform(0.8, 1.15),
    tilt=generator.normal(0, 0.15 if kind is _fish else 0.5),
    # Seen a little from the side, it is narrower.
    squeeze=generator.uniform(1.0, 1.25) * generator.choice([-1, 1]),
    colours=colours,
  )
  kind(easel, g)
  picture = _draw_habitat(generator, shape)
  easel.paint_on(picture, generator, hardness=generator.uniform(0.3, 1.0))
  return picture
