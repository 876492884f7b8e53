"""Photographs of made-up landmarks, as in Google Landmarks v2.

A class is one building, see `architecture` and `monuments`, with its materials.
A picture shows it from some side and distance, at some time of day and in some
weather, before some background, with whoever walks by in front.
"""

import functools

import numpy as np
from PIL import Image
from PIL import ImageDraw

from tasks.synthetic import architecture
from tasks.synthetic import buildings
from tasks.synthetic import monuments
from tasks.synthetic import photo

# Sky above, sky at the horizon, sunlight, skylight; and how often it is so.
_WEATHERS = {
  "clear": ((0.25, 0.47, 0.80), (0.72, 0.84, 0.95), 0.75, 0.42, 5),
  "fair": ((0.40, 0.58, 0.82), (0.84, 0.88, 0.92), 0.62, 0.46, 4),
  "overcast": ((0.62, 0.65, 0.70), (0.82, 0.83, 0.84), 0.12, 0.72, 3),
  "haze": ((0.75, 0.76, 0.76), (0.90, 0.88, 0.84), 0.28, 0.62, 2),
  "sunset": ((0.30, 0.33, 0.55), (0.98, 0.62, 0.36), 0.62, 0.36, 2),
  "dusk": ((0.10, 0.14, 0.32), (0.50, 0.40, 0.50), 0.06, 0.34, 0.8),
  "night": ((0.02, 0.03, 0.09), (0.10, 0.10, 0.18), 0.0, 0.40, 0.6),
}
_GROUNDS = {
  "grass": (0.36, 0.44, 0.22),
  "pavement": (0.58, 0.56, 0.53),
  "sand": (0.76, 0.68, 0.52),
  "water": (0.25, 0.35, 0.42),
}
_MAX_YAW = 0.7
_FAMILIES = (
  architecture.add_church,
  architecture.add_temple,
  architecture.add_mosque,
  architecture.add_pagoda,
  architecture.add_castle,
  monuments.add_lighthouse,
  monuments.add_skyscraper,
  monuments.add_triumphal_arch,
  monuments.add_pyramid,
  monuments.add_bridge,
  monuments.add_column,
  monuments.add_windmill,
  monuments.add_lattice_tower,
)


@functools.lru_cache(maxsize=4096)
def _landmark(seed: int, class_id: int) -> tuple[buildings.Model, np.ndarray]:
  """The model of a class and the colours of its materials."""
  generator = np.random.default_rng(
    np.random.SeedSequence([seed, 1_000_003, class_id])
  )
  # In a shuffled order, so that neighbours on the ring of classes differ.
  families = _FAMILIES
  family = families[(class_id * 5 + seed) % len(families)]
  builder = buildings.Builder()
  family(generator, builder)
  model = builder.build()
  wall = generator.uniform(0.55, 0.85)
  trim = wall * generator.choice([0.78, 1.15])
  roof = wall * generator.choice([0.45, 0.6, 0.75])
  accent = wall * generator.choice([0.4, 0.55, 1.3])
  colours = np.stack(
    [
      photo.hsv(
        generator.normal(0.1, 0.02), generator.uniform(0.05, 0.3), wall
      ),
      photo.hsv(0.1, generator.uniform(0.0, 0.2), trim),
      photo.hsv(
        generator.choice([0.03, 0.06, 0.4, 0.6]),
        generator.uniform(0.1, 0.5),
        roof,
      ),
      photo.hsv(0.6, 0.2, 0.16),
      photo.hsv(
        generator.choice([0.0, 0.07, 0.13, 0.6]),
        generator.uniform(0.1, 0.6),
        accent,
      ),
      np.zeros(3),
    ]
  )
  return model, colours


def _paint_sky(
  generator: np.random.Generator,
  shape: tuple[int, int],
  horizon: int,
  weather: str,
) -> tuple[np.ndarray, np.ndarray]:
  """Returns a sky for the whole picture, and its colour at the horizon."""
  height, width = shape
  zenith, low, _, _, _ = _WEATHERS[weather]
  tint = np.exp(generator.normal(0.0, 0.05, 3))
  zenith, low = np.array(zenith) * tint, np.array(low) * tint
  at = np.clip(np.arange(height) / max(horizon, 1), 0, 1) ** 1.3
  sky = zenith + at[:, np.newaxis, np.newaxis] * (low - zenith)
  sky = np.broadcast_to(sky, (height, width, 3)).astype(np.float32)
  if weather == "night":
    if generator.random() < 0.3:
      rows, columns = np.indices(shape)
      x, y = generator.random() * width, generator.random() * horizon * 0.5
      away = np.hypot(rows - y, columns - x) / width
      sky = photo.mix(
        sky,
        np.array([0.95, 0.94, 0.85]),
        photo.smoothstep(0.034, 0.026, away) + 0.2 * np.exp(-away / 0.05),
      )
    return sky, low
  if weather in ("sunset", "clear", "haze") and generator.random() < 0.6:
    rows, columns = np.indices(shape)
    x = generator.uniform(-0.2, 1.2) * width
    glow = np.hypot((columns - x) / width, (rows - horizon) / width)
    sky = sky + (0.35 * np.exp(-((glow / 0.35) ** 2)))[..., np.newaxis] * low
  if weather != "clear" or generator.random() < 0.5:
    clouds = photo.noise(
      generator,
      shape,
      extent=generator.uniform(0.25, 0.7),
      exponent=generator.choice([1.5, 2.0]),
      stretch=generator.uniform(1.2, 3.0),
    )
    cover = generator.uniform(-0.8, 1.0)
    mask = photo.smoothstep(cover, cover + generator.uniform(0.6, 2.0), clouds)
    bright = np.clip(low * 1.12 + 0.1, 0, 1)
    shade = 1 - 0.18 * photo.smoothstep(cover + 0.6, cover + 2.2, clouds)
    thick = 0.85 if weather != "overcast" else 0.5
    sky = photo.mix(sky, bright * shade[..., np.newaxis], thick * mask)
  return sky, low


def _ridge(
  generator: np.random.Generator, width: int, roughness: float
) -> np.ndarray:
  """A random outline of unit height: float64 `[width]`."""
  places = np.linspace(0, 1, width)
  waves = 2.0 ** np.arange(6)
  phases = generator.random(6)[:, np.newaxis] + places * waves[:, np.newaxis]
  line = (waves[:, np.newaxis] ** -roughness * np.sin(2 * np.pi * phases)).sum(
    0
  )
  return (line - line.min()) / max(np.ptp(line), 1e-6)


def _paint_background(
  generator: np.random.Generator,
  picture: np.ndarray,
  horizon: int,
  haze: np.ndarray,
  light: np.ndarray,
) -> np.ndarray:
  """Hills, trees or a skyline behind the landmark, each in its haze."""
  height, width, _ = picture.shape
  rows = np.arange(height)[:, np.newaxis]
  for depth in sorted(generator.random(generator.integers(0, 4)), reverse=True):
    kind = generator.choice(["hills", "trees", "city"], p=[0.35, 0.4, 0.25])
    if kind == "hills":
      top = (
        _ridge(generator, width, 1.3) * generator.uniform(0.1, 0.35) * height
      )
      colour = np.array([0.33, 0.4, 0.28]) * generator.uniform(0.7, 1.2)
    elif kind == "trees":
      top = (0.25 + _ridge(generator, width, 0.55)) * height
      top = top * generator.uniform(0.06, 0.2)
      colour = np.array([0.2, 0.3, 0.14]) * generator.uniform(0.7, 1.3)
    else:
      size = int(generator.integers(4, 12))
      blocks = generator.random(width // size + 2) ** 2
      top = (
        np.repeat(blocks, size)[:width] * generator.uniform(0.1, 0.4) * height
      )
      colour = np.array([0.5, 0.48, 0.46]) * generator.uniform(0.7, 1.2)
    mask = np.clip(rows - (horizon - top) + 0.5, 0, 1)
    texture = 1 + 0.22 * photo.noise(
      generator, (height, width), extent=0.5, exponent=0.8
    )
    lit = colour * light * texture[..., np.newaxis]
    fog = 0.15 + 0.7 * depth
    picture = photo.mix(picture, lit + fog * (haze - lit), mask)
  return picture


def _paint_ground(
  generator: np.random.Generator,
  picture: np.ndarray,
  horizon: int,
  kind: str,
  light: np.ndarray,
) -> np.ndarray:
  """Covers what lies below the horizon; water mirrors what stands above."""
  height, width, _ = picture.shape
  tall = height - horizon
  if tall < 2:
    return picture
  picture = picture.copy()
  depth = np.linspace(0, 1, tall)[:, np.newaxis]
  texture = photo.noise(
    generator, (tall, width), extent=0.9, exponent=0.8, stretch=2.5
  )
  if kind == "water":
    mirrored = np.clip(horizon - 1 - np.arange(tall), 0, None)
    ripple = (texture * (1 + 5 * depth)).round().astype(int)
    columns = np.clip(np.arange(width) + ripple, 0, width - 1)
    lines = np.clip(mirrored[:, np.newaxis] + ripple // 2, 0, horizon - 1)
    image = picture[lines, columns]
    water = np.array(_GROUNDS["water"]) * light
    strength = generator.uniform(0.45, 0.85)
    surface = water + strength * (image - water)
    surface = surface * (0.9 + 0.06 * texture[..., np.newaxis])
  else:
    colour = np.array(_GROUNDS[kind]) * np.exp(generator.normal(0, 0.12, 3))
    shade = 1 + (0.14 if kind == "grass" else 0.07) * texture
    shade = shade * (0.85 + 0.25 * depth)
    surface = colour * light * shade[..., np.newaxis]
    if kind == "grass" and generator.random() < 0.5:
      # A path towards the landmark.
      middle = generator.uniform(0.3, 0.7) * width
      away = np.abs(np.arange(width) - middle) / width
      path = photo.smoothstep(0.04 + 0.35 * depth, 0.02 + 0.33 * depth, away)
      stone = np.array(_GROUNDS["sand"]) * light * shade[..., np.newaxis]
      surface = photo.mix(surface, stone, 0.8 * path)
  picture[horizon:] = surface
  return picture


def _draw_person(draw, generator, x, foot, size, light) -> None:
  """A walker in coat and trousers."""
  coat, legs = (
    photo.to_fill(
      photo.hsv(
        generator.random(),
        generator.uniform(0.1, 0.7),
        generator.uniform(0.15, 0.7),
      )
      * light
    )
    for _ in range(2)
  )
  skin = photo.to_fill(
    np.array([0.85, 0.64, 0.5]) * generator.uniform(0.4, 1.0) * light
  )
  stride = generator.uniform(0.02, 0.14) * size
  draw.polygon(
    [x, foot - 0.5 * size, x - stride, foot, x - stride + 0.1 * size, foot],
    fill=legs,
  )
  draw.polygon(
    [x, foot - 0.5 * size, x + stride, foot, x + stride - 0.1 * size, foot],
    fill=legs,
  )
  draw.rounded_rectangle(
    [x - 0.13 * size, foot - 0.84 * size, x + 0.13 * size, foot - 0.4 * size],
    radius=0.08 * size,
    fill=coat,
  )
  draw.ellipse(
    [x - 0.07 * size, foot - size, x + 0.07 * size, foot - 0.84 * size],
    fill=skin,
  )


def _draw_tree(draw, generator, x, foot, size, light) -> None:
  """A broad tree or a slim one."""
  trunk = photo.to_fill(np.array([0.3, 0.22, 0.16]) * light)
  draw.rectangle(
    [x - 0.04 * size, foot - 0.4 * size, x + 0.04 * size, foot], fill=trunk
  )
  green = np.array([0.30, 0.42, 0.18]) * np.exp(generator.normal(0, 0.15, 3))
  slim = generator.random() < 0.35
  for step in range(18):
    rise = 0.25 + 0.75 * step / 18
    reach = (0.12 if slim else 0.34) * np.sin(np.pi * min(rise, 0.97)) ** 0.7
    left = x + generator.normal(0, 0.55) * reach * size
    top = foot - rise * size
    radius = generator.uniform(0.06, 0.13) * size * (0.8 if slim else 1.1)
    tone = (0.6 + 0.5 * rise) * generator.uniform(0.8, 1.2)
    draw.ellipse(
      [left - radius, top - radius, left + radius, top + radius],
      fill=photo.to_fill(green * tone * light),
    )


def _draw_lamp(draw, generator, x, foot, size, light) -> None:
  """A lamp post."""
  iron = photo.to_fill(np.array([0.16, 0.17, 0.18]) * light)
  half = 0.012 * size
  draw.rectangle([x - half, foot - size, x + half, foot], fill=iron)
  draw.ellipse(
    [x - 5 * half, foot - 1.08 * size, x + 5 * half, foot - 0.96 * size],
    fill=photo.to_fill(np.array([0.95, 0.9, 0.7]) * generator.uniform(0.7, 1)),
  )


def _draw_branch(draw, generator, width, light) -> None:
  """Leaves that hang into the picture from above."""
  green = np.array([0.2, 0.3, 0.12]) * light
  side = generator.choice([0.0, 1.0]) * width
  reach = generator.uniform(0.15, 0.4) * width
  for _ in range(45):
    x = side + generator.normal() * reach
    y = abs(generator.normal()) * reach * 0.35
    radius = generator.uniform(0.008, 0.025) * width
    draw.ellipse(
      [x - radius, y - 0.6 * radius, x + radius, y + 0.6 * radius],
      fill=photo.to_fill(green * generator.uniform(0.5, 1.3)),
    )


def _draw_foreground(
  generator: np.random.Generator,
  layer: Image.Image,
  foot: float,
  kind: str,
  light: np.ndarray,
) -> None:
  """People, trees, lamp posts and leaves between viewer and landmark."""
  draw = ImageDraw.Draw(layer)
  width, height = layer.size
  foot *= photo.SUPERSAMPLING
  below = height - foot
  things = []
  if kind != "water":
    people = generator.choice([0, 0, 1, 2, 5])
    things += [(_draw_person, 0.07, 0.28)] * people
    things += [(_draw_tree, 0.25, 0.6)] * generator.choice([0, 0, 0, 1, 2])
    things += [(_draw_lamp, 0.3, 0.7)] * generator.choice([0, 0, 0, 1])
  placed = []
  for thing, least, most in things:
    near = generator.random() ** 2
    x = generator.random() * width
    if thing is _draw_tree:
      # Mostly beside the landmark, which is what the picture is of.
      x = width * (generator.beta(0.4, 0.4) * 1.1 - 0.05)
    placed.append((near, thing, x, (least + (most - least) * near) * height))
  for near, thing, x, size in sorted(placed, key=lambda item: item[0]):
    thing(draw, generator, x, foot + (0.1 + 0.9 * near) * below, size, light)
  if generator.random() < 0.15:
    _draw_branch(draw, generator, width, light)


def draw_scene(
  generator: np.random.Generator, seed: int, class_id: int
) -> np.ndarray:
  """Draws a photograph of a landmark.

  Args:
    generator: Of everything that differs between pictures of a class.
    seed: Of everything that is the same in all of them.
    class_id: Which landmark, at least 0.

  Returns:
    uint8 `[height, width, 3]`, sides of 90 to 160 pixels.
  """
  model, colours = _landmark(seed, class_id)
  height, width = shape = photo.draw_size(generator)
  names = list(_WEATHERS)
  odds = np.array([_WEATHERS[name][-1] for name in names], float)
  weather = str(generator.choice(names, p=odds / odds.sum()))
  _, _, sun, ambient, _ = _WEATHERS[weather]

  horizon = int(generator.uniform(0.62, 0.86) * height)
  picture, haze = _paint_sky(generator, shape, horizon, weather)
  warm = np.array(
    {
      "sunset": (1.25, 0.85, 0.55),
      "dusk": (0.85, 0.85, 1.1),
      "night": (1.1, 0.85, 0.5),
    }.get(weather, (1.05, 1.0, 0.92))
  )
  cool = 0.6 + 0.4 * haze / haze.mean()
  if weather == "night":
    cool = warm  # Floodlight.
  azimuth = generator.uniform(-1.5, 1.5)
  rise = (
    generator.uniform(0.1, 0.35)
    if weather == "sunset"
    else (generator.uniform(0.4, 1.1))
  )
  direction = np.array(
    [
      np.sin(azimuth) * np.cos(rise),
      -np.cos(azimuth) * np.cos(rise),
      np.sin(rise),
    ]
  )
  around = (ambient + 0.6 * sun) * (cool if sun < 0.2 else warm)
  if weather in ("dusk", "night"):
    around = around * (0.55 if weather == "dusk" else 0.25)
  picture = _paint_background(generator, picture, horizon, haze, around)

  kind = str(generator.choice(list(_GROUNDS), p=[0.35, 0.35, 0.12, 0.18]))
  foot = horizon + generator.uniform(0.0, 0.35) * (height - horizon) * (
    kind != "water"
  )
  extent = np.ptp(model.points, axis=0)
  # What lies outside the square in the middle is cut off when it is read.
  breadth = 0.92 * min(width, 1.15 * height)
  room = min(breadth / extent[0], 0.97 * foot / extent[2])
  # A close-up cuts something off now and then.
  scale = room * generator.uniform(0.78, 1.1)
  spare = max(0.0, min(width, height) - extent[0] * scale) / 2
  view = buildings.View(
    yaw=float(np.clip(generator.normal(0, 0.28), -_MAX_YAW, _MAX_YAW)),
    roll=generator.normal(0, 0.025),
    distance=generator.uniform(1.6, 4.0),
    eye=generator.choice([0.05, 0.1, 0.25, 0.5]) * extent[2],
    scale=scale,
    origin=(
      width / 2 + generator.uniform(-1, 1) * (0.7 * spare + 0.03 * width),
      foot,
    ),
    sun=direction,
    sunlight=sun * warm,
    skylight=ambient * cool,
    lit_windows={"dusk": 0.7, "night": 0.5}.get(weather, 0.0),
  )
  if kind != "water":
    picture = _paint_ground(generator, picture, horizon, kind, around)
  layer = photo.new_layer(shape)
  hues = np.exp(generator.normal(0, 0.09, 3)) * np.exp(
    generator.normal(0, 0.16)
  )
  jitter = np.exp(generator.normal(0, 0.08, colours.shape))
  buildings.paint(generator, layer, model, colours * hues * jitter, view)
  coarse = photo.noise(generator, shape, extent=0.9, exponent=1.0)
  tint = 1 + generator.uniform(0.03, 0.09) * coarse
  if weather == "night":
    # Floodlights shine from below.
    tint = tint * np.linspace(0.6, 1.15, height)[:, np.newaxis]
  picture, cover = photo.lay_over(picture, layer, tint[..., np.newaxis])
  fog = {"haze": generator.uniform(0.15, 0.5), "overcast": 0.1}.get(
    weather, 0.03
  )
  picture = photo.mix(picture, haze, fog * cover)
  if kind == "water":
    picture = _paint_ground(generator, picture, horizon, kind, around)
  front = photo.new_layer(shape)
  _draw_foreground(generator, front, foot, kind, around)
  picture, _ = photo.lay_over(picture, front)
  return photo.develop(generator, picture, cast=0.07)
