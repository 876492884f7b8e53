"""The drawing kit: shapes, colours, noise, an easel and a camera.

A picture is float32 `[3, ...]`, a plane for each channel; it may be one image,
`[3, height, width]`, or a stack of them. A shape is the distance of each pixel
to its edge, negative inside.
"""

import colorsys
import functools
import io

import numpy as np
import numpy.typing as npt
from PIL import Image

_TILE_SIZE = 256
_SHORT_SIDES = (90, 121)
_LONG_SIDE = 160
_ASPECTS = (1.0, 4 / 3, 3 / 2)
_GREY_FRACTION = 0.01


def cover_of(distance: np.ndarray, scale: float) -> np.ndarray:
  """How much of each pixel a shape covers; `scale` pixels are in a unit."""
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

  Its half width and half height may be those of all or of each image.
  """
  reach = np.sqrt((across / wide) ** 2 + (down / tall) ** 2)
  return (reach - 1.0) * np.minimum(wide, tall)


def stroke(x, y, start, end, thick, thin=None) -> np.ndarray:
  """Distance to the edge of a line from a start to an end, `(x, y)` each.

  It narrows evenly from half its width at the start to that at the end.
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
  """A random patch of fractal noise, about standard normal.

  Args:
    generator: Source of randomness.
    shape: Height and width.
    extent: Width of the patch, as a part of the noise's period, in (0, 1]; the
      smaller, the larger the blobs.
    exponent: Of the amplitude spectrum: the higher, the smoother.
    stretch: How many times wider than high the blobs are.
  """
  height, width = shape
  across = extent * _TILE_SIZE
  down = min(across * stretch * height / width, _TILE_SIZE)
  left, top = generator.random(2) * _TILE_SIZE
  box = (left, top, left + across, top + down)
  bicubic = Image.Resampling.BICUBIC
  return np.asarray(_tile(exponent).resize((width, height), bicubic, box))


def periodic(value: np.ndarray) -> np.ndarray:
  """Distance to the nearest integer."""
  return np.abs(value - np.round(value))


def marks(g: np.random.Generator, a: np.ndarray, b: np.ndarray) -> np.ndarray:
  """A pattern at places in the unit square: spots, a border or stripes.

  `a` is 0 in the middle, `b` at one end. Returns how strongly the pattern of
  this subject's generator shows, in [0, 1].
  """
  kind, number = g.integers(4), int(g.integers(2, 6))
  phase, width = g.random(), g.uniform(0.14, 0.3)
  spots = g.uniform((0.05, 0.1, 0.1), (0.85, 0.9, 0.24), (number + 2, 3))
  if kind == 0:
    away = [np.hypot((a - u) * 0.7, b - v) / r for u, v, r in spots]
    return smoothstep(1.12, 0.88, np.min(away, axis=0))
  if kind == 1:
    return smoothstep(1 - 1.6 * width, 1.06 - 1.6 * width, a)
  at = periodic((b if kind == 2 else a) * number + phase)
  return smoothstep(width + 0.06, width - 0.06, at)


class Easel:
  """Where a subject is drawn: a building, an animal, a plant.

  What belongs to its class is always the same; the view and the light differ
  between its pictures.

  Attributes:
    x: float32 `[height, width]`, to the subject's right.
    y: float32 `[height, width]`, upwards. The subject fits into |x| < 1 and
      |y| < 1.
    side: The absolute value of x, for what is the same on both sides.
    body: Colour `[3]`, as are the following: of most of the subject,
    mark: of its markings,
    dark: of its dark parts,
    bright: of what stands out.
  """

  def __init__(self, shape, *, middle, radius, tilt, squeeze, colours):
    """Creates an empty easel for a picture of a shape, height and width.

    The subject's middle appears at x and y in pixels, of which `radius` are in
    a unit; it is turned by an angle, `tilt`, and `squeeze` times narrower.
    Colours are those of body, mark, dark and bright: `[4, 3]`.
    """
    rows, columns = (np.arange(length, dtype=np.float32) for length in shape)
    x = (columns - middle[0]) / radius
    x, y = np.meshgrid(x, (middle[1] - rows) / radius)
    x, self.y = rotate(x, y, tilt)
    self.x = squeeze * x
    self.side = np.abs(self.x)
    self.body, self.mark, self.dark, self.bright = colours
    self._picture = np.zeros((3, *shape), np.float32)
    self._mask = np.zeros(shape, np.float32)
    self._relief = np.zeros(shape, np.float32)
    self._radius = radius

  def add(self, distance, colour, height=0.0) -> None:
    """Lays a shape over what is there; `height` makes its light and shade."""
    cover = cover_of(distance, 0.85 * self._radius)
    paint(self._picture, cover, colour)
    self._mask = np.maximum(self._mask, cover)
    self._relief += cover * (height - self._relief)

  def blend(self, cover, colour=None, below=None) -> np.ndarray:
    """A picture of `below` (the body's colour) with `colour` where covered."""
    below = self.body if below is None else below
    picture = np.empty_like(self._picture)
    picture[:] = below.reshape(3, *below.shape[1:] or (1, 1))
    paint(picture, cover, self.mark if colour is None else colour)
    return picture

  def ellipse(self, x, y, wide, tall, colour, height=0.0) -> None:
    """Lays an ellipse around (x, y) over what is there."""
    self.add(ellipse(self.x - x, self.y - y, wide, tall), colour, height)

  def stroke(self, start, end, thick, thin, colour, paired=False) -> None:
    """Lays a line over what is there; a pair of them mirrors it."""
    x = self.side if paired else self.x
    self.add(stroke(x, self.y, start, end, thick, thin), colour, 0.1)

  def paint_on(self, picture, generator, *, hardness) -> None:
    """Lays the subject on a picture in place, in light of a `hardness`."""
    angle = generator.uniform(0, 2 * np.pi)
    down, right = np.gradient(self._relief, 1 / self._radius)
    slope = np.clip(np.sin(angle) * down - np.cos(angle) * right, -2.5, 2.5)
    mottles = noise(generator, slope.shape, extent=0.8, exponent=1.1)
    light = 1 + 0.28 * hardness * slope + 0.05 * mottles
    paint(picture, self._mask, self._picture * light)


class Camera:
  """The camera of one user, which turns a picture into a JPEG.

  It has habits: how it balances white, how bright and how colourful its
  pictures come out, in which format it is held. Its pictures vary around that,
  colours above all: a class must not be known by its mean colour.
  """

  def __init__(self, generator: np.random.Generator):
    """Creates a camera of random habits."""
    self._white_balance = generator.normal(0.0, 0.05, 3)
    self._level = generator.uniform(0.47, 0.64)
    self._saturation = generator.uniform(0.7, 1.1)
    self._aspect = generator.choice(_ASPECTS)
    self._upright = generator.beta(1.0, 2.5)

  def draw_shape(self, generator: np.random.Generator) -> tuple[int, int]:
    """Height and width of a picture: sides of 90 to 160 pixels."""
    # Now and then a picture is cropped to another shape.
    is_usual = generator.random() < 0.7
    aspect = self._aspect if is_usual else generator.choice(_ASPECTS)
    short = int(generator.integers(*_SHORT_SIDES))
    long = min(round(short * aspect), _LONG_SIDE)
    is_upright = generator.random() < self._upright
    return (long, short) if is_upright else (short, long)

  def take(self, generator: np.random.Generator, picture: np.ndarray) -> bytes:
    """Exposes a picture, with the marks that a lens and a sensor leave.

    The picture is float32 `[3, height, width]`, about 0 to 1. Returns a JPEG;
    one in a hundred has no colour.
    """
    _, height, width = picture.shape
    # Bright pictures get dark and dark ones bright: an automatic exposure.
    level = self._level * np.exp(generator.normal(0.0, 0.06))
    exposure = min((level / max(float(picture.mean()), 0.08)) ** 0.8, 1.8)
    gain = np.exp(self._white_balance + generator.normal(0.0, 0.04, 3))
    picture = picture * (exposure * gain)[:, np.newaxis, np.newaxis]
    grey = picture.mean(axis=0)
    picture = grey + self._saturation * (picture - grey)
    rows = np.linspace(-1, 1, height)[:, np.newaxis]
    columns = np.linspace(-1, 1, width)
    picture *= 1 - generator.uniform(0.0, 0.16) * (rows**2 + columns**2)
    grain = generator.uniform(0.003, 0.016)
    picture += grain * generator.standard_normal((height, width))
    pixels = (255 * np.clip(picture, 0.0, 1.0)).astype(np.uint8)
    image = Image.fromarray(np.moveaxis(pixels, 0, -1))
    if generator.random() < _GREY_FRACTION:
      image = image.convert("L")
    buffer = io.BytesIO()
    image.save(buffer, "JPEG", quality=int(generator.integers(85, 96)))
    return buffer.getvalue()
