"""Families of made-up animals.

A family takes the random numbers of a species and returns what draws its
specimens. The species fixes build and markings: which wings, where the spots
are, how long the beak. A specimen varies a little.
"""

import numpy as np

from tasks.synthetic import easel
from tasks.synthetic import photo


def create_butterfly(g: np.random.Generator) -> easel.Specimen:
  # Of the fore and the hind wing: direction, length, breadth, fullness.
  wings = (
    (
      -g.uniform(0.5, 0.8),
      g.uniform(0.62, 0.8),
      g.uniform(0.9, 1.3),
      g.uniform(0.5, 0.9),
    ),
    (
      g.uniform(0.45, 0.75),
      g.uniform(0.85, 1.0),
      g.uniform(1.1, 1.6),
      g.uniform(0.35, 0.7),
    ),
  )
  border, veins = g.uniform(0.0, 0.25), int(g.integers(0, 8))
  patterns = [easel.create_markings(g), easel.create_markings(g)]
  eyes = [
    (
      g.random() < 0.55,
      g.uniform(0.5, 0.75),
      g.uniform(-0.3, 0.3),
      g.uniform(0.09, 0.16),
    )
    for _ in wings
  ]
  tail = easel.pick(g, 0.0, 0.0, 0.22)
  scallop = easel.pick(g, 0.0, 0.0, 0.07)
  dots = easel.pick(g, 0, 4, 7)

  def draw(e: easel.Easel) -> None:
    opening = e.generator.uniform(0.6, 1.0)
    across = np.abs(e.x) / opening
    for (turn, length, breadth, full), marks, eye in zip(
      wings, patterns, eyes, strict=True
    ):
      up = e.y - 0.08
      away = np.hypot(across, up) + 1e-6
      angle = np.arctan2(up, across) - turn
      reach = (
        np.clip(np.cos(np.clip(angle * breadth, -np.pi / 2, np.pi / 2)), 0, 1)
        ** full
      )
      edge = length * reach * (1 + scallop * np.cos(angle * 22))
      part = away / np.maximum(edge, 0.02)
      spread = angle * breadth / np.pi + 0.5
      colour = np.broadcast_to(e.base, e.picture.shape)
      colour = photo.mix(colour, e.mark, marks(part, spread))
      if veins:
        lines = (
          easel.away_from_whole(spread * veins + 0.5)
          * away
          * np.pi
          / breadth
          / veins
        )
        colour = photo.mix(
          colour, e.ink, 0.7 * photo.smoothstep(0.022, 0.008, lines)
        )
      rim = photo.smoothstep(1 - border, 1.05 - border, part)
      colour = photo.mix(colour, e.ink, rim)
      if dots and border > 0.1:
        spot = np.hypot(
          (part - 1 + border / 2) * length,
          easel.away_from_whole(spread * dots) * length * 1.6 / dots,
        )
        colour = photo.mix(colour, e.extra, photo.smoothstep(0.045, 0.03, spot))
      if eye[0]:
        place = (
          length * eye[1] * np.cos(turn + eye[2]),
          length * eye[1] * np.sin(turn + eye[2]),
        )
        ring = np.hypot(across - place[0], up - place[1]) / eye[3]
        colour = photo.mix(colour, e.extra, photo.smoothstep(1.08, 0.95, ring))
        colour = photo.mix(colour, e.ink, photo.smoothstep(0.7, 0.58, ring))
        colour = photo.mix(colour, e.mark, photo.smoothstep(0.3, 0.2, ring))
      if tail and turn < 0:
        foot = (length * 0.6 * np.cos(turn), length * 0.75 * np.sin(turn))
        e.add(
          easel.limb(
            across, up, foot, (foot[0] + 0.06, foot[1] - tail), 0.05, 0.03
          ),
          e.ink,
        )
      e.add(away - edge, colour, 0.1 * part + 0.2 * across)
    e.add(
      easel.limb(e.x, e.y, (0, 0.28), (0, -0.35), 0.055, 0.035), e.ink, 0.3, 1.2
    )
    e.add(easel.ellipse(e.x, e.y, (0, 0.3), (0.055, 0.055)), e.ink, 0.3, 1.3)
    e.add(easel.limb(np.abs(e.x), e.y, (0.02, 0.33), (0.24, 0.7), 0.011), e.ink)
    e.add(easel.ellipse(np.abs(e.x), e.y, (0.24, 0.7), (0.025, 0.025)), e.ink)

  return draw


def create_beetle(g: np.random.Generator) -> easel.Specimen:
  wide, long = g.uniform(0.32, 0.58), g.uniform(0.5, 0.62)
  power = g.uniform(1.7, 3.0)
  shield, shield_long = g.uniform(0.55, 0.95), g.uniform(0.13, 0.25)
  head = g.uniform(0.09, 0.17)
  jaws = easel.pick(g, 0.0, 0.0, 0.14, 0.3)
  feelers = g.uniform(0.25, 0.6)
  legs = g.uniform(0.25, 0.42)
  marks = easel.create_markings(g)
  grooves = easel.pick(g, 0, 0, 5, 8)
  shield_marked = g.random() < 0.5

  def draw(e: easel.Easel) -> None:
    side, low = np.abs(e.x), -0.2
    sway = e.generator.normal(0, 0.06, 6)
    for index, (y, drop) in enumerate(((0.2, 0.3), (-0.1, 0.0), (-0.35, -0.3))):
      knee = (wide + legs * 0.55, y + drop * 0.6 + sway[index])
      foot = (wide + legs, y + drop * 1.3 + sway[index + 3])
      e.add(
        easel.limb(side, e.y, (wide * 0.5, y), knee, 0.035, 0.028), e.ink, 0.1
      )
      e.add(easel.limb(side, e.y, knee, foot, 0.025, 0.013), e.ink, 0.05)
    top = low + long + shield_long
    e.add(
      easel.limb(
        side, e.y, (0.05, top + head), (0.2, top + head + feelers * 0.5), 0.017
      ),
      e.ink,
    )
    e.add(
      easel.limb(
        side,
        e.y,
        (0.2, top + head + feelers * 0.5),
        (0.42, top + head + feelers * 0.75),
        0.016,
      ),
      e.ink,
    )
    if jaws:
      e.add(
        easel.limb(
          side,
          e.y,
          (head * 0.6, top + head),
          (head, top + head + jaws),
          0.05,
          0.015,
        ),
        e.ink,
        0.1,
      )
    e.add(
      easel.ellipse(e.x, e.y, (0, top + 0.2 * head), (head * 1.2, head)),
      e.ink,
      0.3 - (e.x**2 + (e.y - top) ** 2) * 3,
    )
    ring = np.hypot(e.x / (wide * shield), (e.y - low - long) / shield_long)
    e.add(
      (ring - 1) * shield_long,
      e.mark if shield_marked else e.ink,
      0.5 - 0.3 * ring**2,
      0.9,
    )
    a, b = side / wide, (e.y - low) / long
    body = (a**power + np.abs(b) ** power) ** (1 / power)
    colour = photo.mix(
      np.broadcast_to(e.base, e.picture.shape),
      e.mark,
      marks(np.clip(a, 0, 1), np.clip(0.5 + 0.5 * b, 0, 1)),
    )
    if grooves:
      line = photo.smoothstep(0.2, 0.05, easel.away_from_whole(a * grooves))
      colour = colour * (1 - 0.35 * line[..., np.newaxis])
    split = photo.smoothstep(0.03, 0.01, side)
    colour = colour * (1 - 0.7 * split[..., np.newaxis])
    e.add((body - 1) * wide, colour, 0.75 - 0.6 * body**2)

  return draw


def create_fish(g: np.random.Generator) -> easel.Specimen:
  tall, full = g.uniform(0.2, 0.48), g.uniform(0.6, 1.1)
  fork, tail = g.uniform(0.0, 0.16), g.uniform(0.2, 0.4)
  fin, fin_at, fin_long = (
    g.uniform(0.1, 0.38),
    g.uniform(0, 0.3),
    g.uniform(0.3, 0.6),
  )
  marks = easel.create_markings(g)
  fins = easel.pick(g, "mark", "base", "ink")
  snout = g.uniform(0.8, 1.3)
  mask = g.random() < 0.4

  def draw(e: easel.Easel) -> None:
    # Here the fish swims along y; its back is at positive x.
    swing = e.generator.normal(0, 0.1)
    x = e.x - swing * np.sin(2.2 * e.y) * 0.6
    colour = getattr(e, fins)
    ray = 0.8 + 0.2 * np.sin(60 * e.y + 20 * x)[..., np.newaxis]
    at = np.clip((e.y + 0.55) / 1.45, 0, 1)
    half = tall * easel.hump(at, snout) ** full + 0.05 * (1 - at)
    back = np.clip((e.y - fin_at + fin_long) / (2 * fin_long), 0, 1)
    for side, size in ((1.0, fin), (-1.0, fin * 0.6)):
      sail = half + size * easel.hump(back, 1.4) ** 0.7
      ends = np.abs(e.y - 0.05) - 0.6
      e.add(
        np.max([side * x - sail, -side * x, ends], axis=0) * 0.7,
        colour * ray,
        0.1,
      )
    flare = (-0.48 - e.y) / 0.3
    edge = 0.05 + tail * np.clip(flare, 0, 1) ** 0.8
    hollow = fork * (1 - np.abs(x) / (tail + 0.05)) * 2
    rear = np.maximum(-0.92 + hollow - e.y, e.y + 0.48)
    e.add(np.maximum(np.abs(x) - edge, rear) * 0.8, colour * ray, 0.1)
    body = np.maximum(np.abs(x) - half, np.abs(e.y - 0.17) - 0.72)
    part = x / np.maximum(half, 0.02)
    pattern = marks(np.clip(0.5 - 0.5 * part, 0, 1), at)
    skin = photo.mix(np.broadcast_to(e.base, e.picture.shape), e.mark, pattern)
    scales = np.sin(55 * e.y + 30 * x) * np.sin(55 * e.y - 30 * x)
    belly = 1.05 - 0.3 * part + 0.07 * scales
    if mask:
      skin = photo.mix(
        skin, e.ink, photo.smoothstep(0.07, 0.05, np.abs(e.y - 0.62))
      )
    e.add(body * 0.8, skin * belly[..., np.newaxis], 0.45 - 0.4 * part**2)
    gill = np.abs(np.hypot(e.y - 0.75, x) - 0.3) + 9 * (e.y > 0.6)
    e.add(np.maximum(gill - 0.012, np.abs(x) - half * 0.7), skin, 0, 0.55)
    e.add(
      easel.limb(x, e.y, (-0.03, 0.3), (-0.12, 0.08), 0.05, 0.08),
      colour,
      0.3,
      0.9,
    )
    eye = (tall * 0.2, 0.66)
    e.add(
      easel.ellipse(x, e.y, eye, (0.055, 0.055)), np.array([0.95, 0.92, 0.8])
    )
    e.add(
      easel.ellipse(x, e.y, eye, (0.032, 0.032)), np.array([0.03, 0.03, 0.04])
    )

  return draw


def create_bird(g: np.random.Generator) -> easel.Specimen:
  plump, long = g.uniform(0.24, 0.36), g.uniform(0.42, 0.54)
  head, neck = g.uniform(0.15, 0.22), g.uniform(0.3, 0.62)
  beak, stout = g.uniform(0.12, 0.42), g.uniform(0.035, 0.075)
  hook = easel.pick(g, 0.0, 0.0, -0.1)
  tail, tail_wide = g.uniform(0.25, 0.6), g.uniform(0.04, 0.12)
  legs = g.uniform(0.15, 0.42)
  crest = easel.pick(g, 0.0, 0.0, 0.22)
  wing = easel.create_markings(g)
  breast = easel.pick(g, "plain", "spots", "bib", "bars")
  face = easel.pick(g, "plain", "cap", "stripe", "cheek", "hood")

  def draw(e: easel.Easel) -> None:
    turn = e.generator.normal(0.45, 0.12)
    nod = e.generator.normal(0, 0.05)
    skull = np.array([0.36 + 0.15 * neck + nod, 0.12 + neck])
    for x in (-0.03, 0.1):
      e.add(
        easel.limb(e.x, e.y, (x, -0.2), (x + 0.02, -0.3 - legs), 0.018), e.extra
      )
      e.add(
        easel.limb(
          e.x, e.y, (x - 0.05, -0.3 - legs), (x + 0.11, -0.3 - legs), 0.016
        ),
        e.extra,
      )
    end = (-0.42 - tail * np.cos(turn), -0.22 - tail * np.sin(turn))
    e.add(
      easel.limb(e.x, e.y, (-0.3, -0.12), end, tail_wide * 0.7, tail_wide),
      e.ink,
      0.1,
      1.3,
    )
    e.add(
      easel.limb(
        e.x, e.y, skull, skull + [head + beak, hook - 0.03], stout, 0.012
      ),
      e.extra,
      0.2,
    )
    if crest:
      e.add(
        easel.limb(
          e.x,
          e.y,
          skull + [0, head * 0.6],
          skull + [-0.16, head * 0.6 + crest],
          0.06,
          0.01,
        ),
        e.mark,
      )
    body = easel.ellipse(e.x, e.y, (0, 0), (long, plump), turn * 0.8)
    throat = easel.limb(
      e.x, e.y, (0.18, 0.08), skull, plump * 0.75, head * 0.85
    )
    body = np.minimum(body, throat)
    belly = photo.smoothstep(0.12, -0.2, e.y - 0.75 * e.x)
    colour = photo.mix(
      np.broadcast_to(e.base, e.picture.shape), 0.4 * e.base + 0.5, 0.8 * belly
    )
    if breast == "spots":
      spots = np.hypot(
        easel.away_from_whole(e.x * 7 + 3 * e.y),
        easel.away_from_whole(e.y * 7 - 3 * e.x),
      )
      colour = photo.mix(
        colour, e.ink, belly * photo.smoothstep(0.3, 0.2, spots)
      )
    elif breast == "bars":
      bars = easel.away_from_whole(e.y * 8 - 3 * e.x)
      colour = photo.mix(
        colour, e.ink, belly * photo.smoothstep(0.28, 0.18, bars)
      )
    elif breast == "bib":
      spot = easel.ellipse(e.x, e.y, (0.4, 0.05), (0.2, 0.26))
      colour = photo.mix(colour, e.mark, e.cover(spot))
    e.add(body, colour, -1.2 * np.maximum(body, -0.3))
    up = easel.ellipse(e.x, e.y, skull, (head, head * 0.93))
    colour = np.broadcast_to(e.base, e.picture.shape)
    above = e.y - skull[1]
    if face == "cap":
      colour = photo.mix(colour, e.mark, e.cover(0.04 - above))
    elif face == "stripe":
      colour = photo.mix(colour, e.ink, e.cover(np.abs(above - 0.02) - 0.045))
    elif face == "cheek":
      spot = easel.ellipse(e.x, e.y, skull + [-0.02, -0.07], (0.11, 0.08))
      colour = photo.mix(colour, e.mark, e.cover(spot))
    elif face == "hood":
      colour = photo.mix(colour, e.ink, e.cover(-up - 0.5))
    e.add(up, colour, -1.2 * up)
    e.add(
      easel.ellipse(e.x, e.y, skull + [head * 0.35, 0.03], (0.042, 0.042)),
      np.array([0.9, 0.88, 0.8]),
    )
    e.add(
      easel.ellipse(e.x, e.y, skull + [head * 0.35, 0.03], (0.032, 0.032)),
      np.array([0.02, 0.02, 0.02]),
    )
    cosine, sine = np.cos(turn * 0.9), np.sin(turn * 0.9)
    along = cosine * (e.x + 0.12) + sine * e.y
    over = cosine * e.y - sine * (e.x + 0.12)
    feather = easel.ellipse(along, over, (0, 0), (0.44, plump * 0.62))
    a, b = np.clip(0.5 - over / plump, 0, 1), np.clip(0.5 - along / 0.88, 0, 1)
    colour = photo.mix(
      np.broadcast_to(e.base * 0.7, e.picture.shape), e.mark, wing(a, b)
    )
    barbs = 0.9 + 0.12 * np.sin(40 * along + 30 * over)
    e.add(feather, colour * barbs[..., np.newaxis], 0.35 - 0.8 * feather)

  return draw


def create_snail(g: np.random.Generator) -> easel.Specimen:
  growth, size = g.uniform(0.1, 0.2), g.uniform(0.6, 0.74)
  bands = int(g.integers(1, 5))
  ribs = easel.pick(g, 0, 0, 14, 24)
  marked = g.uniform(0.15, 0.33)
  flat = g.uniform(0.75, 1.0)
  horns = g.uniform(0.2, 0.35)
  broken = easel.pick(g, 0, 0, 9)

  def draw(e: easel.Easel) -> None:
    stretch = e.generator.uniform(0.75, 1.0)
    skin = 0.6 * e.extra + 0.15
    back, front = -0.85 * stretch, 0.75 * stretch
    e.add(
      easel.limb(e.x, e.y, (front - 0.35, -0.42), (front, -0.2), 0.15, 0.11),
      skin,
      0.2,
    )
    e.add(
      easel.limb(e.x, e.y, (back, -0.56), (front - 0.3, -0.48), 0.03, 0.13),
      skin,
      0.15,
      0.9,
    )
    for x, scale in ((0.05, 1.0), (-0.06, 0.85)):
      tip = (front + x + 0.12, -0.1 + horns * scale)
      e.add(
        easel.limb(e.x, e.y, (front + x, -0.15), tip, 0.022, 0.015), skin, 0.1
      )
      e.add(easel.ellipse(e.x, e.y, tip, (0.03, 0.03)), e.ink)
    x, y = e.x + 0.1, (e.y - 0.1) / flat
    away = np.hypot(x, y) + 1e-3
    angle = np.arctan2(y, x)
    turn = np.log(away / size) / (2 * np.pi * growth) - (angle + 2.2) / (
      2 * np.pi
    )
    whorl = turn - np.floor(turn)
    outer = size * np.exp(growth * (((angle + 2.2) % (2 * np.pi)) - 2 * np.pi))
    mark = photo.smoothstep(
      marked + 0.06, marked - 0.06, easel.away_from_whole(whorl * bands + 0.5)
    )
    if broken:
      mark = mark * (np.sin(angle * broken) > -0.3)
    colour = photo.mix(np.broadcast_to(e.base, e.picture.shape), e.mark, mark)
    if ribs:
      colour = colour * (0.88 + 0.16 * np.sin(angle * ribs))[..., np.newaxis]
    seam = photo.smoothstep(0.1, 0.0, np.minimum(whorl, 1 - whorl))
    colour = colour * (1 - 0.5 * seam[..., np.newaxis])
    bulge = 0.35 - 0.9 * (whorl - 0.5) ** 2 * np.clip(away / size, 0.2, 1)
    e.add(away - np.maximum(outer, size * 0.6), colour, bulge - 0.15 * away)

  return draw
