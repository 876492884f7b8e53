"""Photographs of made-up species, as in iNaturalist.

A class is one plant or animal, see `plants` and `animals`, with its colours. A
picture shows a specimen of it in some pose and light, on soil, grass, bark,
leaves, stone, sand, in the water or before a blurred background.
"""

import functools

import numpy as np
from PIL import ImageDraw
from scipy import ndimage

from tasks.synthetic import animals
from tasks.synthetic import easel as easels
from tasks.synthetic import photo
from tasks.synthetic import plants

# Two colours, fractal exponent, stretch (wide over high) and extent.
_HABITATS = {
  "soil": ((0.22, 0.16, 0.11), (0.48, 0.38, 0.28), 0.8, 1.0, 0.8),
  "grass": ((0.12, 0.20, 0.06), (0.45, 0.55, 0.22), 0.9, 0.3, 0.7),
  "bark": ((0.20, 0.16, 0.13), (0.52, 0.45, 0.38), 1.0, 0.22, 0.5),
  "foliage": ((0.08, 0.15, 0.06), (0.32, 0.46, 0.20), 1.4, 1.0, 0.6),
  "stone": ((0.40, 0.39, 0.37), (0.66, 0.64, 0.60), 1.1, 1.0, 0.9),
  "sand": ((0.62, 0.54, 0.42), (0.82, 0.75, 0.62), 0.7, 1.6, 0.9),
  "blur": ((0.16, 0.24, 0.14), (0.62, 0.66, 0.48), 2.4, 1.0, 0.35),
  "sky": ((0.55, 0.68, 0.82), (0.85, 0.90, 0.95), 2.2, 2.0, 0.4),
  "water": ((0.05, 0.20, 0.28), (0.28, 0.52, 0.56), 1.7, 2.2, 0.5),
}
_AT_HOME = {
  "any": ("soil", "grass", "bark", "foliage", "stone", "sand", "blur"),
  "upright": ("grass", "foliage", "blur", "blur", "sky", "soil", "bark"),
  "sideways": ("water", "water", "water", "sand", "stone", "blur"),
}
# With each the directions in which specimens turn up: any, about upright, or,
# for a fish, which is drawn along y, about sideways.
_FAMILIES = (
  (plants.create_flower, "any"),
  (animals.create_butterfly, "any"),
  (animals.create_bird, "upright"),
  (plants.create_leaf, "any"),
  (animals.create_beetle, "any"),
  (plants.create_mushroom, "upright"),
  (animals.create_fish, "sideways"),
  (animals.create_snail, "upright"),
)


@functools.lru_cache(maxsize=4096)
def _species(
  seed: int, class_id: int
) -> tuple[easels.Specimen, str, np.ndarray]:
  """How a class is drawn, how it turns, and its four colours `[4, 3]`."""
  generator = np.random.default_rng(
    np.random.SeedSequence([seed, 2_000_003, class_id])
  )
  families = _FAMILIES
  family, turns = families[(class_id * 3 + seed) % len(families)]
  draw = family(generator)
  # Whether markings are darker or lighter than the body belongs to a species;
  # hues do too, but a specimen's differ from them by more than species do.
  base = generator.uniform(0.45, 0.85)
  mark = (
    base * generator.uniform(0.25, 0.5) if generator.random() < 0.6 else 0.95
  )
  hues = [0.02, 0.08, 0.13, 0.25, 0.6, 0.8]
  if family is plants.create_leaf:
    hues = [0.1, 0.2, 0.26, 0.32]
  hue = generator.choice(hues)
  return (
    draw,
    turns,
    np.array(
      [
        [hue, generator.uniform(0.2, 0.75), base],
        [
          hue + generator.choice([0.0, 0.1, 0.5]),
          generator.uniform(0, 0.6),
          mark,
        ],
        [0.08, 0.3, 0.12],
        [
          generator.choice([0.05, 0.12, 0.15]),
          generator.uniform(0.3, 0.8),
          0.8,
        ],
      ]
    ),
  )


def _paint_habitat(
  generator: np.random.Generator, shape: tuple[int, int], name: str
) -> np.ndarray:
  """What lies around the specimen: `[height, width, 3]`."""
  dark, light, exponent, stretch, extent = _HABITATS[name]
  extent *= generator.uniform(0.7, 1.2)
  field = photo.noise(
    generator,
    shape,
    extent=min(extent, 1.0),
    exponent=exponent,
    stretch=stretch,
  )
  tone = np.exp(generator.normal(0, 0.07, (2, 3))) * np.exp(
    generator.normal(0, 0.15, (2, 1))
  )
  level = photo.smoothstep(-1.6, 1.6, field)
  height, width = shape
  picture = photo.mix(
    np.broadcast_to(dark * tone[0], (height, width, 3)), light * tone[1], level
  ).astype(np.float32)
  if name in ("grass", "foliage", "soil", "blur"):
    layer = photo.new_layer(shape)
    draw = ImageDraw.Draw(layer)
    _draw_litter(draw, generator, layer.size, name, np.array(light) * tone[1])
    picture, _ = photo.lay_over(picture, layer)
    if name == "blur":
      size = height // 14 + 2
      picture = ndimage.uniform_filter(picture, (size, size, 1))
      picture = ndimage.uniform_filter(picture, (size // 2, size // 2, 1))
  if name == "water":
    rays = photo.noise(generator, shape, extent=0.5, exponent=1.8, stretch=0.3)
    fade = np.linspace(1, 0.2, height)[:, np.newaxis]
    picture = picture * (1 + 0.18 * rays * fade)[..., np.newaxis]
  return picture


def _draw_litter(draw, generator, size, name, colour) -> None:
  """Blades, leaves, pebbles or spots of light."""
  width, height = size
  for _ in range({"grass": 45, "foliage": 16, "soil": 20, "blur": 9}[name]):
    x, y = generator.random(2) * size
    tone = colour * generator.uniform(0.45, 1.15)
    length = generator.uniform(0.05, 0.35) * height
    if name == "grass":
      lean, half = generator.normal(0, 0.35) * length, 0.008 * width
      draw.polygon(
        [x - half, y, x + half, y, x + lean, y - length],
        fill=photo.to_fill(tone),
      )
    elif name == "foliage":
      turn = generator.uniform(0, 2 * np.pi)
      along = 0.7 * length * np.array([np.cos(turn), np.sin(turn)])
      over = 0.3 * np.array([-along[1], along[0]])
      middle = np.array([x, y])
      draw.polygon(
        [
          *(middle - along),
          *(middle - 0.3 * along + over),
          *(middle + 0.4 * along + 0.8 * over),
          *(middle + along),
          *(middle + 0.4 * along - 0.8 * over),
          *(middle - 0.3 * along - over),
        ],
        fill=photo.to_fill(tone),
      )
    else:
      half = generator.uniform(0.1, 0.3) * length
      if name == "blur":
        half *= 1.6
      draw.ellipse(
        [x - half, y - half * 0.8, x + half, y + half * 0.8],
        fill=photo.to_fill(tone),
      )


def _paint_specimen(
  generator: np.random.Generator,
  picture: np.ndarray,
  draw: easels.Specimen,
  turns: str,
  colours: np.ndarray,
  sun: np.ndarray,
  hardness: float,
  size: float,
) -> np.ndarray:
  """Lays one specimen and its shadow over a picture."""
  height, width, _ = picture.shape
  short = min(height, width)
  radius = 0.5 * short * size
  if turns == "any":
    turn = generator.uniform(0, 2 * np.pi)
  else:
    turn = generator.normal(0.0, 0.17)
  if turns == "sideways":
    turn += np.pi / 2
  middle = 0.5 + generator.uniform(-0.14, 0.14, 2)
  x = (np.arange(width, dtype=np.float32) - middle[0] * width) / radius
  y = (middle[1] * height - np.arange(height, dtype=np.float32)) / radius
  x, y = np.meshgrid(x, y)
  # Seen a little from the side: shortened in some direction, and by distance.
  if turns == "any":
    lean = generator.uniform(0, np.pi)
    short_by = generator.uniform(0.0, 0.35)
    cosine, sine = np.cos(lean), np.sin(lean)
    along = (cosine * x + sine * y) * short_by / (1 - short_by)
    x, y = x + cosine * along, y + sine * along
  depth = (
    1 + generator.uniform(-0.15, 0.15) * y + generator.uniform(-0.15, 0.15) * x
  )
  x, y = x * depth, y * depth
  cosine, sine = np.cos(turn), np.sin(turn)
  x, y = cosine * x + sine * y, cosine * y - sine * x
  if generator.random() < 0.5:
    if turns == "upright":
      x = -x
    elif turns == "sideways":
      y = -y
  hue = generator.normal(0, 0.06)
  easel = easels.Easel(
    x.astype(np.float32),
    y.astype(np.float32),
    1.2 / radius,
    generator,
    *(
      photo.hsv(
        h + hue,
        np.clip(s * np.exp(generator.normal(0, 0.25)), 0, 1),
        min(v * np.exp(generator.normal(0, 0.1)), 1.0),
      )
      for h, s, v in colours
    ),
  )
  draw(easel)
  down, across = np.gradient(easel.relief, 1 / radius)
  light = 1 + hardness * np.clip(
    0.28 * (sun[1] * down - sun[0] * across), -0.9, 1
  )
  mottled = photo.noise(generator, (height, width), extent=0.8, exponent=1.1)
  light = light * (1 + 0.05 * mottled)
  # Glossy where the surface faces the sun.
  gloss = photo.smoothstep(0.55, 1.0, light - 0.6) * 0.12 * hardness
  shaded = easel.picture * light[..., np.newaxis] + gloss[..., np.newaxis]
  reach = generator.uniform(0.03, 0.14) * radius
  shadow = ndimage.shift(easel.mask, (sun[1] * reach, -sun[0] * reach), order=0)
  shadow = ndimage.uniform_filter(shadow, max(2, int(0.1 * radius)))
  picture = picture * (1 - 0.55 * hardness * shadow)[..., np.newaxis]
  return photo.mix(picture, shaded, easel.mask)


def draw_species(
  generator: np.random.Generator, seed: int, class_id: int
) -> np.ndarray:
  """Draws a photograph of a species.

  Args:
    generator: Of everything that differs between pictures of a class.
    seed: Of everything that is the same in all of them.
    class_id: Which species, at least 0.

  Returns:
    uint8 `[height, width, 3]`, sides of 90 to 160 pixels.
  """
  draw, turns, colours = _species(seed, class_id)
  shape = photo.draw_size(generator)
  habitat = str(generator.choice(_AT_HOME[turns]))
  picture = _paint_habitat(generator, shape, habitat)
  angle = generator.uniform(0, 2 * np.pi)
  sun = np.array([np.cos(angle), np.sin(angle)])
  hardness = generator.uniform(0.3, 1.0)
  if generator.random() < 0.15:
    # Another one, smaller, that the first may hide.
    picture = _paint_specimen(
      generator,
      picture,
      draw,
      turns,
      colours,
      sun,
      hardness,
      generator.uniform(0.3, 0.5),
    )
  picture = _paint_specimen(
    generator,
    picture,
    draw,
    turns,
    colours,
    sun,
    hardness,
    generator.uniform(0.7, 1.3),
  )
  if generator.random() < 0.25:
    # Dappled light under trees.
    spots = photo.noise(generator, shape, extent=0.35, exponent=1.6)
    dapple = 0.65 + 0.5 * photo.smoothstep(-0.4, 0.6, spots)
    picture = picture * dapple[..., np.newaxis]
  if generator.random() < 0.25:
    layer = photo.new_layer(shape)
    canvas = ImageDraw.Draw(layer)
    width, height = layer.size
    green = np.array([0.3, 0.42, 0.16]) * generator.uniform(0.5, 1.2)
    for _ in range(int(generator.integers(2, 7))):
      x, top = generator.random() * width, generator.uniform(0.1, 0.8) * height
      lean, half = generator.normal(0, 0.2) * height, 0.012 * width
      canvas.polygon(
        [x - half, height, x + half, height, x + lean, top],
        fill=photo.to_fill(green * generator.uniform(0.7, 1.3)),
      )
    picture, _ = photo.lay_over(picture, layer)
  return photo.develop(generator, picture, cast=0.06)
