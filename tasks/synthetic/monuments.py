"""Families of landmarks of which the outside matters: towers, bridges, arches.

As in `architecture`, what is drawn here makes the class.
"""

import numpy as np

from tasks.synthetic import architecture
from tasks.synthetic import buildings


def add_lighthouse(g: np.random.Generator, b: buildings.Builder) -> None:
  low, high = g.uniform(0.1, 0.17), g.uniform(0.055, 0.1)
  sides = architecture.pick(g, 8, 12, 4)
  bands = int(g.integers(1, 8))
  waist = architecture.pick(g, 0.0, 0.0, 0.12)
  b.part()
  if g.random() < 0.6:
    x = architecture.pick(g, -0.22, 0.22)
    house = b.box((x - 0.16, x + 0.16), (0.05, 0.35), (0, 0.16))
    b.ornaments(house[0], 3, 1, fill=(0.4, 0.5))
    b.gable((x - 0.18, x + 0.18), (0.03, 0.37), (0.16, 0.28), along_y=False)
  b.part()
  for band in range(bands):
    at0, at1 = band / bands, (band + 1) / bands
    radii = [
      low + (high - low) * (at + waist * np.sin(np.pi * at))
      for at in (at0, at1)
    ]
    steps = b.lathe(
      (0, 0),
      [(radii[0], at0 * 0.8), (radii[1], at1 * 0.8)],
      sides,
      "accent" if band % 2 else "wall",
    )
    if bands < 4 or band % 2 == 0:
      b.ornaments(steps[0][0], 1, 2 if bands < 3 else 1, fill=(0.3, 0.35))
  deck = g.uniform(1.3, 1.8)
  b.lathe(
    (0, 0),
    [(high, 0.8), (high * deck, 0.82), (high * deck, 0.845)],
    sides,
    "trim",
  )
  lamp = b.lathe((0, 0), [(high * 0.7, 0.845), (high * 0.7, 0.93)], 8)
  for side in lamp[0]:
    b.ornament(side, (0.12, 0.88, 0.1, 0.9))
  architecture.add_top(
    b,
    (0, 0),
    high * 0.8,
    0.93,
    8,
    architecture.pick(g, "spire", "round", "onion"),
    g.uniform(0.08, 0.14),
  )


def add_skyscraper(g: np.random.Generator, b: buildings.Builder) -> None:
  tiers = int(g.integers(1, 5))
  half, z = g.uniform(0.14, 0.24), 0.0
  sides = architecture.pick(g, 4, 4, 4, 6, 8)
  twist = architecture.pick(g, "step", "step", "taper")
  columns = int(g.integers(3, 7))
  for tier in range(tiers):
    b.part()
    height = g.uniform(0.6, 1.3) / tiers
    upper = half * (g.uniform(0.6, 0.95) if twist == "taper" else 1.0)
    steps = b.lathe((0, 0), [(half, z), (upper, z + height)], sides)
    rows = max(3, round(height * g.uniform(10, 16)))
    kind = architecture.pick(g, (0.55, 0.6), (0.6, 0.98), (0.98, 0.5))
    across = columns if sides == 4 else max(1, columns // 2)
    for side in steps[0]:
      if kind[0] > 0.9:
        b.ornaments(side, 1, rows, fill=kind)
      elif kind[1] > 0.9:
        b.ornaments(side, across, 1, fill=kind)
      else:
        b.ornaments(side, across, rows, fill=kind)
    z += height
    half = upper * (g.uniform(0.6, 0.88) if tier < tiers - 1 else 1.0)
  top = architecture.pick(g, "spire", "flat", "mast", "slope")
  b.part()
  if top == "slope":
    b.gable(
      (-half, half), (-half, half), (z, z + half), along_y=g.random() < 0.5
    )
  elif top == "mast":
    b.lathe((0, 0), [(half * 0.5, z), (half * 0.4, z + 0.06)], 4)
    b.lathe(
      (0, 0), [(0.012, z + 0.06), (0, z + g.uniform(0.2, 0.4))], 4, "trim"
    )
  else:
    architecture.add_top(b, (0, 0), half, z, sides, top, g.uniform(0.15, 0.35))


def add_triumphal_arch(g: np.random.Generator, b: buildings.Builder) -> None:
  gates = architecture.pick(g, 1, 1, 3)
  half, deep = g.uniform(0.38, 0.52), g.uniform(0.2, 0.35)
  height, attic = g.uniform(0.45, 0.75), g.uniform(0.08, 0.2)
  shape = architecture.pick(g, *buildings.ARCHES)
  b.part()
  walls = b.box((-half, half), (0, deep), (0, height))
  big = g.uniform(0.16, 0.23) * (1 if gates == 1 else 0.75)
  b.ornament(
    walls[0], (0.5 - big * 1.2, 0.5 + big * 1.2, 0, 0.87), shape, "trim"
  )
  b.passage(walls[0], (0.5 - big, 0.5 + big, 0, 0.8), shape)
  if gates == 3:
    for u in (0.18, 0.82):
      b.passage(walls[0], (u - 0.085, u + 0.085, 0, 0.5), shape)
      b.ornament(walls[0], (u - 0.09, u + 0.09, 0.6, 0.75), material="accent")
  else:
    pillars = architecture.pick(g, 1, 2)
    for u in (0.13, 0.87):
      b.ornaments(
        walls[0],
        pillars,
        1,
        area=(u - 0.1, u + 0.1, 0.05, 0.92),
        fill=(0.4, 1),
        material="trim",
      )
  for side in (walls[1], walls[3]):
    b.ornament(side, (0.25, 0.75, 0.1, 0.7), shape, "trim")
  b.box(
    (-half * 1.06, half * 1.06),
    (-0.03, deep + 0.03),
    (height, height + 0.04),
    "trim",
  )
  upper = b.box(
    (-half * 0.97, half * 0.97),
    (0.01, deep),
    (height + 0.04, height + 0.04 + attic),
  )
  b.ornaments(
    upper[0],
    architecture.pick(g, 1, 3, 5),
    1,
    fill=(0.75, 0.55),
    material="accent",
  )
  z = height + 0.04 + attic
  if g.random() < 0.6:
    for x in buildings.spread(
      -half * 0.6, half * 0.6, architecture.pick(g, 1, 2, 3)
    ):
      b.box((x - 0.06, x + 0.06), (0.08, 0.16), (z, z + 0.05), "trim")
      b.lathe(
        (x, 0.12),
        [(0.05, z + 0.05), (0.03, z + 0.15), (0.035, z + 0.2), (0, z + 0.25)],
        6,
        "accent",
      )


def add_pyramid(g: np.random.Generator, b: buildings.Builder) -> None:
  steps = architecture.pick(g, 1, 3, 4, 5, 7, 9)
  half, height = 0.5, g.uniform(0.35, 0.75)
  top = 0.0 if steps == 1 else g.uniform(0.08, 0.2)
  b.part()
  for step in range(steps):
    z0, z1 = height * step / steps, height * (step + 1) / steps
    low = half + (top - half) * step / steps
    high = low * 0.94 if steps > 1 else 0.0
    b.lathe((0, 0), [(low, z0), (high, z1)], 4, "wall", 1 - 0.1 * (step % 2))
  if steps > 1:
    wide = g.uniform(0.05, 0.12)
    back = half - top
    b.face(
      [
        (-wide, -half - 0.08, 0),
        (wide, -half - 0.08, 0),
        (wide * 0.8, -half + back, height),
        (-wide * 0.8, -half + back, height),
      ],
      "trim",
    )
    if g.random() < 0.7:
      hut = g.uniform(0.6, 0.95) * top
      walls = b.box((-hut, hut), (-hut, hut), (height, height + 0.12))
      b.ornaments(
        walls[0], architecture.pick(g, 1, 3), 1, area=(0.1, 0.9, 0, 0.85)
      )
      b.box(
        (-hut * 1.1, hut * 1.1),
        (-hut * 1.1, hut * 1.1),
        (height + 0.12, height + 0.12 + g.uniform(0.03, 0.1)),
        "roof",
      )
  elif g.random() < 0.6:
    b.ornament(
      np.array(
        [(-0.1, -0.55, 0), (0.1, -0.55, 0), (0.1, -0.5, 0.1), (-0.1, -0.5, 0.1)]
      ),
      (0, 1, 0, 1),
    )


def add_bridge(g: np.random.Generator, b: buildings.Builder) -> None:
  if g.random() < 0.5:  # An aqueduct of one to three tiers.
    tiers, arches = architecture.pick(g, 1, 2, 3), int(g.integers(3, 8))
    shape = architecture.pick(g, buildings.ROUND_ARCH, buildings.POINTED_ARCH)
    height = g.uniform(0.18, 0.34)
    deep = 0.12
    b.part()
    for tier in range(tiers):
      z0 = height * tier * 0.85
      side = b.box((-0.62, 0.62), (0, deep), (z0, z0 + height))[0]
      count = arches * (2 if tier == 2 else 1)
      b.ornaments(
        side,
        count,
        1,
        shape,
        area=(0.02, 0.98, 0.0, 0.85),
        fill=(0.78, 1.0),
        material="air",
      )
      b.box(
        (-0.63, 0.63), (-0.02, deep), (z0 + height * 0.93, z0 + height), "trim"
      )
    if tiers == 1 and g.random() < 0.7:
      for x in (-0.45, 0.45):
        b.lathe((x, 0.05), [(0.08, 0), (0.08, height * 1.8)], 4)
        architecture.add_top(
          b,
          (x, 0.05),
          0.08,
          height * 1.8,
          4,
          architecture.pick(g, "spire", "flat"),
          0.2,
        )
    return
  deck, top = g.uniform(0.12, 0.2), g.uniform(0.45, 0.75)
  towers = (-g.uniform(0.24, 0.34), g.uniform(0.24, 0.34))
  sag = g.uniform(0.05, 0.15)
  fan = g.random() < 0.45
  hangers = int(g.integers(5, 10))
  b.part()
  for x in towers:
    for y in (0.0, 0.12):
      b.box((x - 0.025, x + 0.025), (y, y + 0.03), (0, top))
  b.box((-0.75, 0.75), (0, 0.15), (deck, deck + 0.035), "trim")
  for x in towers:
    for z in np.linspace(deck + 0.1, top - 0.02, architecture.pick(g, 1, 2, 3)):
      b.box((x - 0.02, x + 0.02), (0, 0.15), (z - 0.02, z + 0.02))
    b.box((x - 0.03, x + 0.03), (-0.01, 0.02), (0, top))
  spans = (
    (-0.75, towers[0], False),
    (towers[0], towers[1], True),
    (towers[1], 0.75, True),
  )
  for x0, x1, _ in spans:
    middle = x0 < 0 < x1
    last = None
    for at in np.linspace(0, 1, hangers + 1):
      x = x0 + at * (x1 - x0)
      if middle:
        z = deck + sag + (top - deck - sag) * (2 * at - 1) ** 2
      else:
        z = deck + (top - deck) * (at if x1 < 0 else 1 - at) ** 1.5
      if fan:
        near = min(towers, key=lambda tower: abs(tower - x))
        b.bar((x, 0, deck), (near, 0, top), 0.008, "trim")
      else:
        b.bar((x, 0, deck), (x, 0, z), 0.006, "trim")
        if last is not None:
          b.bar(last, (x, 0, z), 0.014, "accent")
        last = (x, 0, z)


def add_column(g: np.random.Generator, b: buildings.Builder) -> None:
  tall = g.uniform(0.55, 0.8)
  sides = architecture.pick(g, 4, 4, 10, 10)
  radius = g.uniform(0.045, 0.09)
  b.part()
  z, out = 0.0, g.uniform(0.18, 0.3)
  for _ in range(int(g.integers(1, 5))):
    rise = g.uniform(0.02, 0.08)
    b.lathe(
      (0, 0), [(out, z), (out, z + rise)], architecture.pick(g, 4, 8), "trim"
    )
    z, out = z + rise, out * 0.75
  wide = max(out, radius * 1.2)
  base = b.lathe((0, 0), [(wide, z), (wide, z + 0.1)], 4)
  b.ornaments(base[0][0], 1, 1, fill=(0.7, 0.6), material="accent")
  z += 0.1
  bands = architecture.pick(g, 1, 1, 5, 7)
  taper = g.uniform(0.55, 0.95)
  for band in range(bands):
    radii = [radius * (1 - (1 - taper) * at / bands) for at in (band, band + 1)]
    b.lathe(
      (0, 0),
      [
        (radii[0], z + tall * band / bands),
        (radii[1], z + tall * (band + 1) / bands),
      ],
      sides,
      "accent" if band % 2 else "wall",
    )
  z += tall
  radius *= taper
  top = architecture.pick(g, "point", "statue", "statue", "ball")
  if top == "point":
    b.lathe((0, 0), [(radius, z), (0, z + radius * 1.8)], sides, "roof")
    return
  b.lathe(
    (0, 0),
    [(radius, z), (radius * 1.6, z + 0.03), (radius * 1.6, z + 0.05)],
    8,
    "trim",
  )
  z += 0.05
  if top == "ball":
    b.lathe(
      (0, 0),
      [
        (r * 0.09, z + 0.09 - h * 0.09)
        for r, h in ((0.2, 1), (0.8, 0.6), (1, 0), (0.8, -0.6), (0, -1))
      ],
      10,
      "accent",
    )
    return
  b.lathe(
    (0, 0),
    [
      (0.05, z),
      (0.03, z + 0.1),
      (0.045, z + 0.16),
      (0.015, z + 0.19),
      (0.025, z + 0.21),
      (0, z + 0.25),
    ],
    8,
    "accent",
  )
  if g.random() < 0.6:
    reach = g.uniform(-0.12, 0.12)
    b.bar((0, -0.02, z + 0.15), (reach, -0.02, z + 0.28), 0.02, "accent")
  if g.random() < 0.5:
    for x in (-0.12, 0.12):
      b.face(
        [(0, 0, z + 0.16), (x, 0.02, z + 0.24), (x * 0.6, 0.02, z + 0.08)],
        "accent",
        two_sided=True,
      )


def add_windmill(g: np.random.Generator, b: buildings.Builder) -> None:
  low, high = g.uniform(0.17, 0.24), g.uniform(0.09, 0.15)
  tall = g.uniform(0.5, 0.75)
  sails, length = architecture.pick(g, 4, 4, 4, 6, 8), g.uniform(0.36, 0.5)
  angle = g.uniform(0, 2 * np.pi / sails)
  sides = architecture.pick(g, 8, 12)
  b.part()
  steps = b.lathe((0, 0), [(low, 0), (high, tall)], sides)
  for side in steps[0][::2]:
    b.ornaments(side, 1, int(g.integers(2, 4)), fill=(0.3, 0.2))
  b.ornament(steps[0][0], (0.25, 0.75, 0, 0.22), material="accent")
  if g.random() < 0.5:
    at = g.uniform(0.3, 0.5)
    ring = low + (high - low) * at
    b.lathe(
      (0, 0),
      [
        (ring, tall * at),
        (ring * 1.5, tall * at + 0.02),
        (ring * 1.5, tall * at + 0.04),
      ],
      sides,
      "trim",
    )
  architecture.add_top(
    b,
    (0, 0),
    high,
    tall,
    sides,
    architecture.pick(g, "spire", "round", "bell"),
    g.uniform(0.12, 0.2),
  )
  hub = np.array([0.0, -high * 1.25, tall + 0.04])
  width = g.uniform(0.06, 0.1)
  for sail in range(sails):
    turn = angle + sail * 2 * np.pi / sails
    out = np.array([np.cos(turn), 0, np.sin(turn)])
    side = np.array([-out[2], 0, out[0]])
    b.bar(hub, hub + length * out, 0.018, "accent")
    b.face(
      [
        hub + 0.2 * length * out,
        hub + length * out,
        hub + length * out + width * side,
        hub + 0.2 * length * out + width * side,
      ],
      "trim",
      two_sided=True,
    )
    for at in np.linspace(0.25, 0.95, 5):
      foot = hub + at * length * out
      b.bar(foot, foot + width * side, 0.008, "accent")


def add_lattice_tower(g: np.random.Generator, b: buildings.Builder) -> None:
  low, waist = g.uniform(0.22, 0.34), g.uniform(0.06, 0.12)
  levels = int(g.integers(4, 8))
  curve = g.uniform(1.5, 3.0)
  decks = set(
    g.choice(
      np.arange(1, levels), size=architecture.pick(g, 1, 2), replace=False
    )
  )
  b.part()
  heights = np.linspace(0, 1, levels + 1) ** 0.9
  widths = waist * 0.35 + (low - waist * 0.35) * (1 - heights) ** curve
  for level in range(levels):
    z0, z1 = heights[level], heights[level + 1]
    w0, w1 = widths[level], widths[level + 1]
    for y in (w0, -w0):
      for x in (-1, 1):
        b.bar((x * w0, y, z0), (x * w1, y * w1 / w0, z1), 0.035, "wall")
      b.bar((-w0, y, z0), (w1, y * w1 / w0, z1), 0.014, "wall")
      b.bar((w0, y, z0), (-w1, y * w1 / w0, z1), 0.014, "wall")
    if level in decks:
      out = w0 * 1.12 + 0.01
      b.box((-out, out), (-out, out), (z0 - 0.02, z0 + 0.025), "trim")
  wide = float(widths[-1])
  b.lathe((0, 0), [(wide * 1.6, 1.0), (wide * 1.6, 1.03)], 4, "trim")
  architecture.add_top(
    b,
    (0, 0),
    wide,
    1.03,
    4,
    architecture.pick(g, "spire", "round", "onion"),
    0.1,
  )
