"""The drawing kit: shapes with smooth edges, colours and fractal noise.

A picture is float32 `[3, ...]`, a plane for each channel; it may be one image,
`[3, height, width]`, or a stack of them. A shape is the distance of each pixel
to its edge, negative inside.
"""

import colorsys
import functools

import numpy as np
import numpy.typing as npt
from PIL import Image

_TILE_SIZE = 256


def cover_of(distance: np.ndarray, scale: float) -> np.ndarray:
  """How much a shape covers each pixel, from the distance to its edge.

  Args:
    distance: Negative inside.
    scale: Pixels in a unit of the distance.

  Returns:
    An array of the same shape, in [0, 1].
  """
  return np.clip(0.5 - scale * distance, 0.0, 1.0)


def paint(image: np.ndarray, cover: np.ndarray, colour: npt.ArrayLike) -> None:
  """Lays a colour or another picture on an image in place.

  Args:
    image: float32 `[3, ...]`.
    cover: How much of each pixel, in [0, 1]; of a channel's shape.
    colour: A value for all channels, or one for each: `[3]`, or `[3, ...]` of
      whatever a channel can be broadcast with.
  """
  colours = np.asarray(colour, np.float32)
  if not colours.ndim:
    colours = np.broadcast_to(colours, 3)
  for channel, value in zip(image, colours, strict=True):
    change = value - channel
    change *= cover
    channel += change


def ellipse(across, down, wide, tall) -> np.ndarray:
  """About the distance to the edge of an ellipse around the origin.

  Args:
    across: Of each pixel.
    down: The same.
    wide: Half width of the ellipse.
    tall: Half height, of all or of each image.

  Returns:
    The distance, negative inside; exact on the edge.
  """
  reach = np.sqrt((across / wide) ** 2 + (down / tall) ** 2)
  return (reach - 1.0) * np.minimum(wide, tall)


def stroke(x, y, start, end, thick, thin=None) -> np.ndarray:
  """Distance to the edge of a line that narrows evenly.

  Args:
    x: Of each pixel.
    y: The same.
    start: Where the line starts, as x and y.
    end: Where it ends.
    thick: Half its width at the start.
    thin: Half its width at the end; the same by default.

  Returns:
    The distance, negative inside.
  """
  across, up = end[0] - start[0], end[1] - start[1]
  x, y = x - start[0], y - start[1]
  at = np.clip((x * across + y * up) / (across**2 + up**2), 0, 1)
  radius = thick + ((thick if thin is None else thin) - thick) * at
  return np.hypot(x - at * across, y - at * up) - radius


def rotate(x, y, angle) -> tuple[np.ndarray, np.ndarray]:
  """Coordinates along axes that are turned by an angle in radians."""
  cosine, sine = np.cos(angle), np.sin(angle)
  return cosine * x + sine * y, cosine * y - sine * x


def smoothstep(low: float, high: float, value: np.ndarray) -> np.ndarray:
  """0 at `low` and beyond, 1 at `high` and beyond, smooth in between."""
  at = np.clip((value - low) / (high - low), 0.0, 1.0)
  return at * at * (3.0 - 2.0 * at)


def hsv(hue: float, saturation: float, value: float) -> np.ndarray:
  """float32 `[3]`, red, green and blue; the hue has period 1."""
  return np.array(colorsys.hsv_to_rgb(hue % 1, saturation, value), np.float32)


@functools.cache
def _tile(exponent: float) -> Image.Image:
  """A periodic field of spectrum 1 / f^exponent, mean 0 and variance 1."""
  frequencies = np.fft.fftfreq(_TILE_SIZE) * _TILE_SIZE
  radius = np.hypot(frequencies[:, np.newaxis], frequencies)
  radius[0, 0] = np.inf
  white = np.random.default_rng(0).standard_normal((_TILE_SIZE, _TILE_SIZE))
  field = np.fft.ifft2(np.fft.fft2(white) / radius**exponent).real
  field = np.tile((field - field.mean()) / field.std(), (2, 2))
  return Image.fromarray(field.astype(np.float32))


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
  bicubic = Image.Resampling.BICUBIC
  return np.asarray(_tile(exponent).resize((width, height), bicubic, box))
