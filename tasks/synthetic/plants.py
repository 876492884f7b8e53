"""Families of made-up plants and mushrooms.

A family takes the random numbers of a species and returns what draws its
specimens. The species fixes build and markings: how many petals, which lobes
and veins, which shape of cap. A specimen varies a little.
"""

import numpy as np

from tasks.synthetic import easel
from tasks.synthetic import photo


def create_flower(g: np.random.Generator) -> easel.Specimen:
  petals = int(g.choice([3, 4, 5, 5, 6, 7, 8, 10, 13, 16]))
  wide = g.uniform(0.75, 1.25) if petals < 10 else g.uniform(0.7, 0.95)
  power, bulge = g.uniform(1.2, 5.0), g.uniform(0.45, 1.0)
  notch, length = easel.pick(g, 0.0, 0.0, 0.12, 0.22), g.uniform(0.75, 0.95)
  middle = g.uniform(0.1, 0.3)
  layers = easel.pick(g, 1, 1, 2)
  kind = easel.pick(g, "ring", "tips", "lines", "plain", "dots")
  ring = g.uniform(0.35, 0.6)
  stamens = easel.pick(g, 0, 0, 5, 9)

  def draw(e: easel.Easel) -> None:
    away = np.hypot(e.x, e.y)
    angle = np.arctan2(e.y, e.x)
    for layer in range(layers):
      turns = angle * petals / (2 * np.pi) + 0.5 * layer
      index = np.round(turns).astype(int) % petals
      own = e.generator.normal(0, 0.05, (2, petals))
      t = 2 * (turns - np.round(turns)) + own[0][index]
      at = np.clip(np.abs(t / wide), 0, 1)
      edge = (1 - at**power) ** bulge - notch * np.exp(-((t / 0.22) ** 2))
      size = length * (1 - 0.3 * layer) * (1 + own[1][index])
      edge = size * np.clip(edge, 0.0, 1.0)
      part = away / size
      if kind == "ring":
        mark = photo.smoothstep(ring + 0.08, ring - 0.08, part)
      elif kind == "tips":
        mark = photo.smoothstep(0.72, 0.86, part)
      elif kind == "lines":
        mark = photo.smoothstep(0.3, 0.12, easel.away_from_whole(t * 2.5)) * (
          part < 0.8
        )
      elif kind == "dots":
        mark = photo.smoothstep(
          0.3,
          0.2,
          np.hypot(
            easel.away_from_whole(t * 2), easel.away_from_whole(part * 6)
          ),
        ) * (part < 0.75)
      else:
        mark = np.zeros_like(part)
      tone = 0.72 + 0.35 * part - 0.22 * np.abs(t) ** 3
      colour = photo.mix(np.broadcast_to(e.base, e.picture.shape), e.mark, mark)
      e.add(
        (away - edge) * 0.6,
        colour * tone[..., np.newaxis],
        0.25 * part - 0.22 * t * t + 0.03 * np.cos(14 * t) * part,
      )
    grain = np.sin(38 * e.x) * np.sin(38 * e.y)
    e.add(
      away - middle,
      e.extra * (0.85 + 0.3 * grain[..., np.newaxis]),
      0.4 - (away / middle) ** 2 * 0.2 + 0.02 * grain,
    )
    if stamens:
      turn = 2 * np.pi * np.arange(stamens) / stamens
      turn = turn + e.generator.normal(0, 0.08, stamens)
      tips = (middle + 0.16) * np.stack([np.cos(turn), np.sin(turn)], axis=1)
      lines = [easel.limb(e.x, e.y, (0, 0), tip, 0.012) for tip in tips]
      e.add(np.min(lines, axis=0), e.extra, 0.3)
      knobs = [np.hypot(e.x - u, e.y - v) - 0.04 for u, v in tips]
      e.add(np.min(knobs, axis=0), e.ink, 0.35)

  return draw


def create_leaf(g: np.random.Generator) -> easel.Specimen:
  compound = g.random() < 0.35
  wide = g.uniform(0.22, 0.6)
  skew, full = g.uniform(0.6, 1.5), g.uniform(0.6, 1.3)
  lobes, lobed = int(g.integers(3, 7)), easel.pick(g, 0.0, 0.0, 0.3, 0.55)
  teeth, toothed = int(g.integers(14, 30)), easel.pick(g, 0.0, 0.05, 0.1)
  veins, slope = int(g.integers(4, 11)), g.uniform(0.35, 1.2)
  pairs, lean = int(g.integers(3, 8)), g.uniform(0.5, 1.2)
  variegated = easel.pick(g, "no", "no", "edge", "middle", "blotch")
  inside = g.uniform(0.25, 0.65)

  def blade(e, u, v, scale):
    """A blade from v = 0 to 1 along the line u = 0."""
    at = np.clip(v, 0, 1)
    half = wide * easel.hump(at, skew) ** full
    if lobed:
      half = half * (
        1
        - lobed
        * (0.5 + 0.5 * np.cos(2 * np.pi * lobes * (at - 0.4 * np.abs(u))))
      )
    if toothed:
      half = half * (1 - toothed * ((at * teeth - np.abs(u)) % 1.0))
    side = np.abs(u)
    beyond = np.maximum(-v, v - 1)
    distance = np.maximum(side - half, beyond) * scale * 0.7
    part = side / np.maximum(half, 0.02)
    rib = np.minimum(
      easel.away_from_whole((v - side * slope) * veins) / veins, side * 0.8
    )
    line = photo.smoothstep(0.02, 0.004, rib)
    if variegated == "edge":
      mark = photo.smoothstep(inside, inside + 0.15, part)
    elif variegated == "middle":
      mark = photo.smoothstep(inside, inside - 0.15, part)
    elif variegated == "blotch":
      mark = photo.smoothstep(
        0.3, 0.2, easel.away_from_whole((v - side * slope) * veins + 0.5)
      )
    else:
      mark = np.zeros_like(part)
    colour = photo.mix(np.broadcast_to(e.base, e.picture.shape), e.mark, mark)
    colour = photo.mix(colour, e.base * 0.5 + 0.45, 0.55 * line)
    e.add(distance, colour, (0.15 * np.clip(part, 0, 1) - 0.06 * line) * scale)

  def draw(e: easel.Easel) -> None:
    bend = e.generator.normal(0, 0.15)
    x = e.x - bend * (e.y * e.y - 0.3)
    e.add(
      easel.limb(x, e.y, (0, -1.0), (0, 0.3), 0.03, 0.012), e.base, 0.1, 0.75
    )
    if not compound:
      blade(e, x / 1.75, (e.y + 0.75) / 1.75, 1.75)
      return
    size = 0.62
    for pair in range(pairs):
      foot = -0.75 + 1.1 * pair / max(pairs - 1, 1)
      turn = lean + e.generator.normal(0, 0.07)
      shrink = size * (1 - 0.3 * abs(pair / pairs - 0.4))
      u, v = np.abs(x), e.y - foot
      along = (u * np.sin(turn) + v * np.cos(turn)) / shrink
      over = (u * np.cos(turn) - v * np.sin(turn)) / shrink
      blade(e, over, along, shrink)
    blade(e, x / size, (e.y - 0.38) / size, size)

  return draw


def create_mushroom(g: np.random.Generator) -> easel.Specimen:
  wide, tall = g.uniform(0.4, 0.85), g.uniform(0.2, 0.75)
  power = g.uniform(1.3, 3.5)
  rim = g.uniform(0.05, 0.2)
  stem, foot = g.uniform(0.07, 0.18), g.uniform(0.9, 2.0)
  ring, cup = g.random() < 0.4, g.random() < 0.35
  knob = easel.pick(g, 0.0, 0.0, 0.12)
  gills = int(g.integers(8, 20))
  kind = easel.pick(g, "warts", "rings", "radial", "plain", "centre")
  warts, wart = int(g.integers(6, 18)), g.uniform(0.035, 0.08)
  fleshy = g.random() < 0.5

  def draw(e: easel.Easel) -> None:
    lean = e.generator.normal(0, 0.08)
    low = 0.05
    x = e.x - lean * (e.y - low)
    down = np.clip((low - e.y) / 0.95, 0, 1)
    half = stem * (1 + (foot - 1) * down**2)
    pale = 0.45 + 0.5 * e.base if fleshy else e.extra
    fibre = 1 + 0.1 * np.sin(70 * x / (1 + down))[..., np.newaxis]
    e.add(
      np.maximum(np.abs(x) - half, np.abs(e.y + 0.42) - 0.5),
      pale * fibre,
      0.4 - 0.4 * (x / half) ** 2,
    )
    if cup:
      e.add(
        easel.ellipse(x, e.y, (0, -0.88), (half.max() * 1.35, 0.13)),
        pale,
        0.2,
        0.85,
      )
    if ring:
      e.add(
        easel.ellipse(x, e.y, (0, -0.15), (stem * 1.9, 0.06)), pale, 0.3, 1.1
      )
    under = easel.ellipse(x, e.y, (0, low), (wide, rim))
    lines = np.sin(gills * 3 * np.arctan2(x, e.y - low - 0.5))
    e.add(under, pale * (0.68 + 0.18 * lines[..., np.newaxis]), 0.1)
    across = np.clip(np.abs(x) / wide, 0, 1)
    roof = low + tall * (1 - across**power) + knob * np.exp(-((x / 0.12) ** 2))
    lower = low - rim * 0.25 + rim * 0.9 * (1 - across**2)
    cap = np.max([e.y - roof, lower - e.y, np.abs(x) - wide], axis=0)
    rise = np.clip((e.y - low) / tall, 0, 1)
    away = np.hypot(x / wide, (1 - rise) * 0.9)
    if kind == "rings":
      mark = photo.smoothstep(0.3, 0.18, easel.away_from_whole(away * 4))
    elif kind == "radial":
      mark = photo.smoothstep(
        0.3, 0.15, easel.away_from_whole(np.arctan2(x, 1.3 - rise) * gills / 3)
      )
    elif kind == "centre":
      mark = photo.smoothstep(0.55, 0.35, away)
    else:
      mark = np.zeros_like(away)
    colour = photo.mix(np.broadcast_to(e.base, e.picture.shape), e.mark, mark)
    bulge = 0.5 - 0.35 * across**2 - 0.25 * (1 - rise) ** 2
    if kind == "warts":
      u = e.generator.uniform(-0.85, 0.85, warts)
      v = e.generator.uniform(0.1, 0.95, warts)
      spots = np.min(
        [
          np.hypot(
            (x - wide * a) * (1 + abs(a)),
            e.y - low - tall * b * (1 - abs(a) ** power),
          )
          for a, b in zip(u, v, strict=True)
        ],
        axis=0,
      )
      shown = photo.smoothstep(wart * 1.15, wart * 0.85, spots)
      colour = photo.mix(colour, e.mark, shown)
      bulge = bulge + 0.05 * shown
    e.add(cap, colour, bulge)

  return draw
