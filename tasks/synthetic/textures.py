"""Made-up pictures: a pattern for each class in the style of each user.

A class is the outline of a sum of a few plane waves on a disc. A user has hues,
a brightness and a slant that all of their pictures are near to. Every picture
is moved, turned, scaled and lit differently, before a background of its own, so
that neither colours nor single pixels tell the class: a network has to learn
it. Random patterns teach a network something about real images as well: Baradad
et al. 2021, "Learning to See by Looking at Noise".
"""

import colorsys
import functools
import io

import numpy as np
from PIL import Image

_WAVES = 6
# Waves across the shorter side of a picture.
_FREQUENCIES = (0.8, 2.6)
# How bright a pattern is, what it is drawn on, and the background.
_VALUES = ((0.1, 0.6), (0.4, 1.0), (0.2, 1.0))
_GREY_SHARE = 0.01
# Classes, users and pictures are drawn independently.
_CLASS, _USER, _PICTURE = range(3)


def _pick_colour(
  generator: np.random.Generator, hue: float, values: tuple[float, float]
) -> np.ndarray:
  """Draws a colour near a hue, float32 `[3]` in [0, 1].

  Args:
    generator: Source of randomness.
    hue: Hue, of period 1.
    values: Range of the brightest channel.
  """
  near = (hue + generator.normal(0, 0.12)) % 1
  saturation = generator.uniform(0.1, 0.6)
  value = generator.uniform(*values)
  return np.array(colorsys.hsv_to_rgb(near, saturation, value), np.float32)


def light(
  generator: np.random.Generator, height: int, width: int
) -> np.ndarray:
  """Draws light from some side, about 1, float64 `[height, width, 1]`.

  Args:
    generator: Source of randomness.
    height: Height in pixels.
    width: Width in pixels.

  Returns:
    Factors for the pixels; they change evenly across the picture.
  """
  down = np.linspace(-1, 1, height)
  across = np.linspace(-1, 1, width)
  slopes = generator.normal(0, 0.15, 2)
  lit = 1 + slopes[0] * down[:, np.newaxis] + slopes[1] * across
  return lit[..., np.newaxis]


def _expose(
  picture: np.ndarray, generator: np.random.Generator, level: float = 1.0
) -> np.ndarray:
  """Lights a picture from some side.

  Args:
    picture: float32 `[height, width, 3]`, about 0 to 1.
    generator: Source of randomness.
    level: Brightness, about 1.

  Returns:
    uint8 `[height, width, 3]`.
  """
  height, width, _ = picture.shape
  brightness = light(generator, height, width)
  brightness *= level * generator.uniform(0.8, 1.1)
  lit = picture * brightness
  return (255 * np.clip(lit, 0, 1)).astype(np.uint8)


def _add_waves(
  generator: np.random.Generator, x: np.ndarray, y: np.ndarray
) -> np.ndarray:
  """Sums random plane waves at places; the mean is 0 and the variance 1.

  Args:
    generator: Source of frequencies, directions and phases.
    x: Places to the right, float32 `[height, width]`; the shorter side of a
      picture is 2.
    y: Places down, of the same shape.

  Returns:
    float32 `[height, width]`.
  """
  frequencies = np.pi * generator.uniform(*_FREQUENCIES, _WAVES)
  angles, phases = generator.uniform(0, 2 * np.pi, (2, _WAVES))
  phases = phases.astype(np.float32)
  by_x = (frequencies * np.cos(angles)).astype(np.float32)
  by_y = (frequencies * np.sin(angles)).astype(np.float32)
  waves = []
  for number in range(_WAVES):
    turned = by_x[number] * x + by_y[number] * y
    waves.append(np.cos(turned + phases[number]))
  return np.sum(waves, axis=0) * np.float32((2 / _WAVES) ** 0.5)


def _cover(field: np.ndarray, pixels: float) -> np.ndarray:
  """Returns how much of each pixel belongs to where a field is positive.

  Args:
    field: `[height, width]`, for example a sum of waves.
    pixels: Pixels of a unit of length; with more of them the edge is sharper.

  Returns:
    Shares in [0, 1], `[height, width, 1]`.
  """
  share = np.clip(0.5 + 0.25 * pixels * field, 0, 1)
  return share[..., np.newaxis]


def draw(
  size: tuple[int, int], *, seed: int, class_id: int, user: int, index: int
) -> np.ndarray:
  """Draws a picture, the same for the same arguments.

  Args:
    size: Height and width in pixels.
    seed: Seed of all classes and users, at least 0 as are the others.
    class_id: Class, which decides the pattern.
    user: User, who decides the style.
    index: Number of the picture among the user's of the class.

  Returns:
    uint8 `[*size, 3]`.
  """
  height, width = size
  style = np.random.default_rng([_USER, seed, user])
  hues = style.random(3)
  slant = style.normal(0, 0.15)
  level = style.uniform(0.75, 1.0)
  own = np.random.default_rng([_PICTURE, seed, class_id, user, index])
  radius = min(height, width) / 2
  x, y = np.meshgrid(
    (np.arange(width, dtype=np.float32) - (width - 1) / 2) / radius,
    (np.arange(height, dtype=np.float32) - (height - 1) / 2) / radius,
  )
  background = _add_waves(own, x, y)
  # The pattern's own axes are moved, turned and scaled.
  right = x - own.normal(0, 0.14)
  down = y - own.normal(0, 0.14)
  angle = slant + own.normal(0, 0.2)
  scale = own.uniform(0.75, 1.25)
  cosine = np.cos(angle) / scale
  sine = np.sin(angle) / scale
  x = cosine * right + sine * down
  y = cosine * down - sine * right
  pattern = _add_waves(np.random.default_rng([_CLASS, seed, class_id]), x, y)
  ink, paper, behind = map(functools.partial(_pick_colour, own), hues, _VALUES)
  picture = behind * (1 - 0.4 * _cover(background, radius))
  inside = paper + _cover(pattern, radius) * (ink - paper)
  disc = _cover(2 * (0.92 - np.hypot(x, y)), radius)
  return _expose(picture + disc * (inside - picture), own, level)


def take_photo(
  generator: np.random.Generator, size: tuple[int, int], **whose: int
) -> Image.Image:
  """Draws a picture; one in a hundred turns grey.

  Args:
    generator: Source of randomness.
    size: Height and width.
    **whose: Other arguments of `draw`: seed, class_id, user and index.

  Returns:
    The picture, in colour or grey.
  """
  image = Image.fromarray(draw(size, **whose))
  return image.convert("L") if generator.random() < _GREY_SHARE else image


def encode(image: Image.Image, name: str = "x.jpg") -> bytes:
  """Encodes an image.

  Args:
    image: The image.
    name: Name of the file; JPEG if it ends in ".jpg", else PNG.

  Returns:
    The contents of the file.
  """
  content = io.BytesIO()
  if name.endswith(".jpg"):
    image.save(content, "JPEG", quality=90)
  else:
    # At the usual level, compressing takes as long as drawing.
    image.save(content, "PNG", compress_level=1)
  return content.getvalue()
