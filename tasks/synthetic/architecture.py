"""Families of landmarks with rooms inside: each draws one building.

What is drawn here makes the class: how many towers, which roofs, how wide, how
high, which windows. Landmarks of one family are told apart by such details.
"""

import numpy as np

from tasks.synthetic import buildings


def pick(generator: np.random.Generator, *options):
  return options[generator.integers(len(options))]


def _dome(radius: float, z: float, style: str) -> list[tuple[float, float]]:
  """Profile of a dome from its foot upwards."""
  if style == "onion":
    shape = (
      (0.8, 0),
      (1.08, 0.3),
      (1.05, 0.6),
      (0.7, 1.0),
      (0.28, 1.35),
      (0.08, 1.7),
      (0, 2.0),
    )
  elif style == "pointed":
    shape = ((1, 0), (1.0, 0.45), (0.8, 0.85), (0.45, 1.2), (0, 1.5))
  elif style == "flat":
    shape = ((1, 0), (0.92, 0.25), (0.65, 0.45), (0.3, 0.55), (0, 0.58))
  else:
    shape = (
      (1, 0),
      (0.95, 0.35),
      (0.78, 0.65),
      (0.5, 0.87),
      (0.1, 1),
      (0, 1.25),
    )
  return [(radius * r, z + radius * h) for r, h in shape]


def _crenellate(b, centre, radius, z, sides, material="wall") -> None:
  """Battlements around the top of a tower."""
  count = 8 if sides > 4 else 4
  for angle in (np.arange(count) + 0.5) * 2 * np.pi / count:
    x = centre[0] + radius * 0.9 * np.cos(angle) * (1.3 if sides == 4 else 1)
    y = centre[1] + radius * 0.9 * np.sin(angle) * (1.3 if sides == 4 else 1)
    half = radius * 0.17
    b.box(
      (x - half, x + half),
      (y - half, y + half),
      (z, z + radius * 0.35),
      material,
    )


def add_top(b, centre, radius, z, sides, style, height) -> None:
  """Ends a tower: a spire, a dome, battlements or a flat roof."""
  if style == "spire":
    b.lathe(centre, [(radius * 1.08, z), (0, z + height)], sides, "roof")
  elif style == "bell":
    b.lathe(
      centre,
      [
        (radius * 1.1, z),
        (radius * 0.6, z + height * 0.25),
        (radius * 0.25, z + height * 0.55),
        (0, z + height),
      ],
      sides,
      "roof",
    )
  elif style == "battlements":
    b.lathe(
      centre,
      [(radius * 1.15, z), (radius * 1.15, z + radius * 0.3)],
      sides,
      "trim",
    )
    _crenellate(b, centre, radius * 1.15, z + radius * 0.3, sides)
  elif style == "flat":
    b.lathe(
      centre,
      [(radius * 1.1, z), (radius * 1.1, z + radius * 0.2)],
      sides,
      "trim",
    )
  else:
    b.lathe(centre, _dome(radius * 1.02, z, style), max(sides, 10), "roof")


def add_church(g: np.random.Generator, b: buildings.Builder) -> None:
  half = g.uniform(0.3, 0.42)
  wall, roof = g.uniform(0.35, 0.6), g.uniform(0.2, 0.4)
  towers = pick(g, 1, 2, 2)
  sides = pick(g, 4, 4, 8)
  radius = g.uniform(0.1, 0.17)
  height = wall + g.uniform(0.15, 0.5)
  style = pick(g, "spire", "bell", "battlements", "onion", "flat", "round")
  spire = g.uniform(0.25, 0.6)
  windows = pick(g, buildings.ROUND_ARCH, buildings.POINTED_ARCH)
  rows = pick(g, 1, 2, 3)
  b.part()
  walls = b.box((-half, half), (0, 1.1), (0, wall))
  b.gable((-half, half), (0, 1.1), (wall, wall + roof), along_y=True)
  for side in (walls[1], walls[3]):
    b.ornaments(side, 5, 1, windows, fill=(0.4, 0.7))
  portals = pick(g, 1, 3)
  b.ornaments(
    walls[0],
    portals,
    1,
    windows,
    area=(0.24, 0.76, 0.0, 0.45),
    fill=(0.6, 0.95),
  )
  if g.random() < 0.75:
    size = g.uniform(0.15, 0.22)
    for scale, material in ((1, "trim"), (0.8, "opening"), (0.3, "accent")):
      b.ornament(
        walls[0],
        (
          0.5 - size * scale,
          0.5 + size * scale,
          0.73 - size * scale,
          0.73 + size * scale,
        ),
        buildings.CIRCLE,
        material,
      )
  else:
    b.ornaments(walls[0], 3, 1, windows, area=(0.25, 0.75, 0.52, 0.95))
  places = [0.0] if towers == 1 else [-half, half]
  front = g.uniform(-0.1, 0.05)
  for x in places:
    b.part()
    steps = b.lathe((x, front), [(radius, 0), (radius * 0.94, height)], sides)
    for side in (steps[0][0], steps[0][1], steps[0][-1]):
      b.ornaments(side, 1, rows, windows, area=(0.2, 0.8, 0.3, 0.97))
    b.lathe(
      (x, front),
      [(radius * 1.05, height), (radius * 1.05, height + 0.03)],
      sides,
      "trim",
    )
    add_top(b, (x, front), radius * 0.94, height + 0.03, sides, style, spire)


def add_temple(g: np.random.Generator, b: buildings.Builder) -> None:
  columns = int(g.integers(4, 10))
  half, deep = 0.5, g.uniform(0.5, 0.9)
  steps = int(g.integers(1, 6))
  rise = g.uniform(0.02, 0.045)
  height = g.uniform(0.28, 0.55)
  beam, pediment = g.uniform(0.05, 0.1), g.uniform(0.08, 0.25)
  b.part()
  for step in range(steps):
    out = (steps - step) * rise * 1.4
    b.box(
      (-half - out, half + out),
      (-out, deep + out),
      (step * rise, (step + 1) * rise),
      "trim",
      1 - 0.05 * (step % 2),
    )
  base = steps * rise
  inner = b.box(
    (-half * 0.8, half * 0.8), (0.15, deep), (base, base + height), "wall", 0.75
  )
  b.ornament(inner[0], (0.38, 0.62, 0, 0.75))
  radius = g.uniform(0.22, 0.36) / columns
  for y in (deep - 0.05, *([deep / 2] if columns < 8 else []), 0.05):
    for x in (-half + 0.06, half - 0.06):
      b.lathe((x, y), [(radius * 1.1, base), (radius * 0.85, base + height)], 6)
  for x in buildings.spread(-half + 0.06, half - 0.06, columns):
    b.lathe(
      (x, 0.05), [(radius * 1.1, base), (radius * 0.85, base + height)], 7
    )
    b.box(
      (x - radius * 1.3, x + radius * 1.3),
      (0.0, 0.1),
      (base + height - 0.02, base + height),
      "trim",
    )
  top = base + height
  beams = b.box((-half, half), (0, deep), (top, top + beam), "trim")
  if g.random() < 0.5:
    b.ornaments(
      beams[0], columns * 2 - 1, 1, fill=(0.4, 0.7), material="accent"
    )
  style = pick(g, "pediment", "pediment", "dome", "flat")
  if style == "pediment":
    gable = b.gable(
      (-half * 1.04, half * 1.04),
      (-0.02, deep),
      (top + beam, top + beam + pediment),
      along_y=True,
      pediment="trim",
    )
    middle = gable.mean(axis=0)
    b.face(middle + 0.72 * (gable - middle) - [0, 1e-3, 0], "wall", 0.8)
  elif style == "dome":
    radius = g.uniform(0.2, 0.34)
    b.lathe(
      (0, deep / 2), [(radius, top + beam), (radius, top + beam + 0.1)], 12
    )
    b.lathe(
      (0, deep / 2),
      _dome(radius, top + beam + 0.1, pick(g, "round", "flat", "pointed")),
      12,
      "roof",
    )
  else:
    b.box(
      (-half * 0.7, half * 0.7),
      (0.1, deep),
      (top + beam, top + beam + pediment),
    )


def add_mosque(g: np.random.Generator, b: buildings.Builder) -> None:
  half, wall = g.uniform(0.3, 0.42), g.uniform(0.2, 0.4)
  style = pick(g, "round", "onion", "pointed", "flat")
  drum, radius = g.uniform(0.05, 0.2), g.uniform(0.55, 0.85) * half
  minarets = pick(g, 1, 2, 2, 4, 4)
  slender = g.uniform(0.025, 0.05)
  height = g.uniform(0.6, 1.2)
  balconies = pick(g, 1, 2, 3)
  out = half + g.uniform(0.06, 0.25)
  top = pick(g, "spire", "onion")
  places = [(-out, 0.0), (out, 0.0), (-out, 2 * half), (out, 2 * half)]
  if minarets == 2 and g.random() < 0.4:
    places = [(-half * 0.45, -0.08), (half * 0.45, -0.08)]
  for x, y in places[:minarets]:
    b.part()
    z, thick = 0.0, slender
    for floor in range(balconies):
      z1 = height * (floor + 1) / (balconies + 0.25)
      b.lathe((x, y), [(thick, z), (thick * 0.92, z1)], 7)
      b.lathe(
        (x, y),
        [
          (thick * 1.2, z1),
          (thick * 1.5, z1 + 0.02),
          (thick * 1.5, z1 + 0.035),
        ],
        7,
        "trim",
      )
      z, thick = z1 + 0.035, thick * 0.85
    b.lathe((x, y), [(thick, z), (thick, height)], 7)
    add_top(b, (x, y), thick, height, 7, top, 0.16)
  b.part()
  walls = b.box((-half, half), (0, 2 * half), (0, wall))
  arches = int(g.integers(3, 8))
  shape = pick(g, buildings.ROUND_ARCH, buildings.POINTED_ARCH)
  for side in (walls[0], walls[1], walls[3]):
    b.ornaments(side, arches, 1, shape, fill=(0.62, 0.75))
  gate = g.uniform(0.1, 0.2)
  b.ornament(walls[0], (0.5 - gate, 0.5 + gate, 0, 0.98), material="trim")
  b.ornament(walls[0], (0.5 - gate * 0.7, 0.5 + gate * 0.7, 0, 0.85), shape)
  sub = g.random() < 0.45
  if sub:
    for x in (-half * 0.72, half * 0.72):
      b.lathe((x, half * 0.3), _dome(half * 0.25, wall, style), 10, "roof")
  drums = b.lathe((0, half), [(radius, wall), (radius, wall + drum)], 12)
  for side in drums[0]:
    b.ornament(side, (0.3, 0.7, 0.2, 0.8), shape)
  b.lathe((0, half), _dome(radius, wall + drum, style), 14, "roof")
  if g.random() < 0.3:
    b.lathe(
      (0, half),
      [(radius * 1.02, wall + drum), (radius * 1.02, wall + drum + 0.03)],
      14,
      "accent",
    )


def add_pagoda(g: np.random.Generator, b: buildings.Builder) -> None:
  tiers = int(g.integers(2, 8))
  sides = pick(g, 4, 4, 6, 8)
  radius, shrink = g.uniform(0.14, 0.26), g.uniform(0.78, 0.95)
  wall, eave = g.uniform(0.07, 0.13), g.uniform(1.35, 1.9)
  roof = g.uniform(0.05, 0.11)
  openings = pick(g, 1, 3)
  b.part()
  base = g.uniform(0.02, 0.1)
  b.lathe((0, 0), [(radius * 1.7, 0), (radius * 1.6, base)], sides, "trim")
  z = base
  for tier in range(tiers):
    last = tier == tiers - 1
    steps = b.lathe((0, 0), [(radius, z), (radius, z + wall)], sides)
    for side in steps[0]:
      b.ornaments(side, openings, 1, fill=(0.55, 0.7))
    z += wall
    # Eaves that turn upwards: the lowest ring lies a little higher.
    b.lathe(
      (0, 0),
      [
        (radius * eave, z + roof * 0.12),
        (radius * (eave * 0.55 + 0.4), z + roof * 0.3),
        (
          radius * shrink * (0.3 if last else 0.98),
          z + roof * (1.8 if last else 1.0),
        ),
      ],
      sides,
      "roof",
    )
    z += roof * (1.8 if last else 1.0)
    radius *= shrink
  b.lathe(
    (0, 0),
    [
      (0.02, z),
      (0.02, z + 0.04),
      (0.008, z + 0.05),
      (0, z + g.uniform(0.08, 0.3)),
    ],
    6,
    "accent",
  )


def add_castle(g: np.random.Generator, b: buildings.Builder) -> None:
  half, deep = 0.5, g.uniform(0.5, 0.9)
  wall = g.uniform(0.18, 0.35)
  sides = pick(g, 4, 10)
  radius, height = g.uniform(0.08, 0.14), wall + g.uniform(0.08, 0.4)
  style = pick(g, "spire", "battlements", "battlements", "bell")
  spire = g.uniform(0.18, 0.4)
  keep = g.random() < 0.65
  if keep:
    b.part()
    wide, x = g.uniform(0.12, 0.24), pick(g, -0.15, 0.0, 0.18)
    high = height + g.uniform(0.0, 0.3)
    steps = b.lathe((x, deep * 0.6), [(wide, 0), (wide, high)], 4)
    b.ornaments(
      steps[0][0], 2, 3, area=(0.15, 0.85, 0.5, 0.97), fill=(0.25, 0.5)
    )
    add_top(
      b,
      (x, deep * 0.6),
      wide,
      high,
      4,
      pick(g, "spire", "battlements", "flat"),
      spire,
    )
  for x, y in ((-half, deep), (half, deep), (-half, 0.0), (half, 0.0)):
    b.part()
    steps = b.lathe(
      (x, y), [(radius * 1.1, 0), (radius, 0.1), (radius, height)], sides
    )
    for side in (steps[1][0], steps[1][2 % sides], steps[1][-2]):
      b.ornaments(side, 1, 2, fill=(0.25, 0.25), area=(0, 1, 0.3, 1))
    add_top(b, (x, y), radius, height, sides, style, spire)
  b.part()
  walls = b.box((-half, half), (0, deep), (0, wall))
  teeth = int(g.integers(7, 13))
  for x in buildings.spread(-half + 0.12, half - 0.12, teeth):
    b.box((x - 0.25 / teeth, x + 0.25 / teeth), (0, 0.04), (wall, wall + 0.05))
  gate = g.uniform(0.06, 0.1)
  shape = pick(g, buildings.ROUND_ARCH, buildings.POINTED_ARCH)
  b.ornaments(
    walls[0],
    int(g.integers(2, 6)) * 2,
    1,
    fill=(0.14, 0.3),
    area=(0.1, 0.9, 0.4, 1),
  )
  if g.random() < 0.6:
    b.part()
    wide, high = gate * 1.6, wall * g.uniform(1.1, 1.5)
    house = b.box((-wide, wide), (-0.1, 0.1), (0, high), "wall", 0.95)
    b.ornament(house[0], (0.25, 0.75, 0, 0.65), shape)
    if g.random() < 0.5:
      b.gable((-wide, wide), (-0.1, 0.1), (high, high + 0.12), along_y=True)
  else:
    b.ornament(walls[0], (0.5 - gate, 0.5 + gate, 0, 0.75), shape)
