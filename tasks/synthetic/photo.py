"""What turns a drawing into a photograph: texture, weather, lens and JPEG.

Shared by the synthetic landmarks and species. Pictures are float32
`[height, width, 3]` with values about 0 to 1 until they are developed. Whatever
says nothing about the class is drawn here anew for every picture, colours
above all: a landmark or a species must not be known by its mean colour.
"""

import functools
import io

import numpy as np
from PIL import Image

# Polygons are drawn on a canvas this many times larger, then averaged.
SUPERSAMPLING = 2

_TILE_SIZE = 256
_SHORT_SIDES = (90, 121)
_LONG_SIDE = 160
# Width over height; upright and square pictures are rarer than wide ones.
_ASPECTS = (4 / 3, 3 / 2, 1.0, 3 / 4, 2 / 3)
_ASPECT_WEIGHTS = (0.4, 0.22, 0.13, 0.15, 0.1)
_GREY_FRACTION = 0.01


@functools.cache
def _tile(exponent: float) -> Image.Image:
  """A periodic field of spectrum 1 / f^exponent, mean 0 and variance 1."""
  frequencies = np.fft.fftfreq(_TILE_SIZE) * _TILE_SIZE
  radius = np.hypot(frequencies[:, np.newaxis], frequencies)
  radius[0, 0] = np.inf
  white = np.random.default_rng(0).standard_normal((_TILE_SIZE, _TILE_SIZE))
  field = np.fft.ifft2(np.fft.fft2(white) / radius**exponent).real
  field = (field - field.mean()) / field.std()
  return Image.fromarray(np.tile(field, (2, 2)).astype(np.float32))


def noise(
  generator: np.random.Generator,
  shape: tuple[int, int],
  *,
  extent: float,
  exponent: float = 1.5,
  stretch: float = 1.0,
) -> np.ndarray:
  """A random patch of fractal noise.

  Args:
    generator: Source of randomness.
    shape: Height and width.
    extent: Width of the patch, as a part of the noise's period, in (0, 1]; the
      smaller, the larger the blobs.
    exponent: Of the amplitude spectrum 1 / f^exponent: the higher, the
      smoother.
    stretch: How many times wider than high the blobs are.

  Returns:
    float32 of the shape, about standard normal.
  """
  height, width = shape
  across = extent * _TILE_SIZE
  down = min(across * stretch * height / width, _TILE_SIZE)
  left, top = generator.random(2) * _TILE_SIZE
  box = (left, top, left + across, top + down)
  box = tuple(min(edge, 2 * _TILE_SIZE) for edge in box)
  patch = _tile(exponent).resize(
    (width, height), Image.Resampling.BICUBIC, box=box
  )
  return np.asarray(patch)


def draw_size(generator: np.random.Generator) -> tuple[int, int]:
  """Height and width of a picture, in pixels."""
  aspect = generator.choice(_ASPECTS, p=_ASPECT_WEIGHTS)
  short = int(generator.integers(*_SHORT_SIDES))
  long = min(round(short * max(aspect, 1 / aspect)), _LONG_SIDE)
  return (short, long) if aspect >= 1 else (long, short)


def smoothstep(low: float, high: float, value: np.ndarray) -> np.ndarray:
  """0 below `low`, 1 above `high`, smooth in between."""
  at = np.clip((value - low) / (high - low), 0.0, 1.0)
  return at * at * (3.0 - 2.0 * at)


def hsv(hue: float, saturation: float, value: float) -> np.ndarray:
  """float32 `[3]`; the hue is periodic with period 1."""
  turns = np.array([5.0, 3.0, 1.0]) + 6.0 * (hue % 1.0)
  ramp = np.clip(np.minimum(turns % 6, 4 - turns % 6), 0.0, 1.0)
  return (value * (1.0 - saturation * ramp)).astype(np.float32)


def mix(below: np.ndarray, above: np.ndarray, mask: np.ndarray) -> np.ndarray:
  """Lays `above` (a picture or a colour) over `below` where `mask` is 1."""
  mask = mask[..., np.newaxis]
  return below + mask * (above - below)


def new_layer(shape: tuple[int, int]) -> Image.Image:
  """An empty canvas for a picture of the shape, to be drawn on with Pillow."""
  height, width = shape
  return Image.new("RGBA", (width * SUPERSAMPLING, height * SUPERSAMPLING))


def lay_over(
  picture: np.ndarray, layer: Image.Image, tint: np.ndarray | float = 1.0
) -> tuple[np.ndarray, np.ndarray]:
  """Lays a canvas over a picture.

  Args:
    picture: `[height, width, 3]`.
    layer: From `new_layer`; drawn on with opaque colours only.
    tint: Factor of the layer's colours, broadcast to the picture.

  Returns:
    The picture, and how far the layer covers it: `[height, width]`, 0 to 1.
  """
  pixels = np.asarray(layer.reduce(SUPERSAMPLING), np.float32) / 255
  cover = pixels[..., 3]
  return mix(picture, pixels[..., :3] * tint, cover), cover


def to_fill(colour: np.ndarray) -> tuple[int, int, int, int]:
  """An opaque Pillow colour of an array `[3]`."""
  red, green, blue = (min(max(int(255 * part), 0), 255) for part in colour)
  return red, green, blue, 255


def blur(picture: np.ndarray, amount: float) -> np.ndarray:
  """Blurs by averaging over neighbours; `amount` is 0 to 1."""
  weight = amount / 3
  picture = (1 - 2 * weight) * picture + weight * (
    np.roll(picture, 1, 0) + np.roll(picture, -1, 0)
  )
  return (1 - 2 * weight) * picture + weight * (
    np.roll(picture, 1, 1) + np.roll(picture, -1, 1)
  )


def develop(
  generator: np.random.Generator, picture: np.ndarray, *, cast: float
) -> np.ndarray:
  """Gives a picture the marks of a camera.

  Args:
    generator: Source of randomness.
    picture: `[height, width, 3]`.
    cast: Standard deviation of the logarithm of each channel's gain: how far
      the white balance misses.

  Returns:
    uint8 of the same shape.
  """
  height, width, _ = picture.shape
  gain = np.exp(generator.normal(0.0, cast, 3)).astype(np.float32)
  # Bright pictures get dark and dark ones bright: an automatic exposure.
  level = generator.uniform(0.47, 0.66)
  exposure = (level / max(float(picture.mean()), 0.08)) ** 0.8
  picture = picture * (gain * min(exposure, 1.8))
  saturation = generator.uniform(0.65, 1.12)
  grey = picture.mean(axis=-1, keepdims=True)
  picture = grey + saturation * (picture - grey)
  if generator.random() < 0.4:
    picture = blur(picture, generator.uniform(0.2, 1.0))
  rows = np.linspace(-1, 1, height, dtype=np.float32)[:, np.newaxis]
  columns = np.linspace(-1, 1, width, dtype=np.float32)
  vignette = 1 - generator.uniform(0.0, 0.16) * (rows**2 + columns**2)
  picture = picture * vignette[..., np.newaxis]
  contrast = generator.uniform(0.85, 1.15)
  picture = 0.5 + contrast * (picture - 0.5)
  grain = generator.uniform(0.003, 0.016)
  picture = picture + grain * generator.standard_normal(
    (height, width, 1), dtype=np.float32
  )
  return (255 * np.clip(picture, 0.0, 1.0)).astype(np.uint8)


def encode_jpeg(generator: np.random.Generator, picture: np.ndarray) -> bytes:
  """A JPEG of uint8 `[height, width, 3]`; one in a hundred has no colour."""
  image = Image.fromarray(picture)
  if generator.random() < _GREY_FRACTION:
    image = image.convert("L")
  buffer = io.BytesIO()
  image.save(buffer, "JPEG", quality=int(generator.integers(85, 96)))
  return buffer.getvalue()
