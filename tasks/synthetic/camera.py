"""A photographer's camera, which turns a drawing into a JPEG.

Each has habits: how it balances white, how bright and how colourful its
pictures come out, in which format it is held. Its pictures vary around that,
colours above all: a class must not be known by its mean colour.
"""

import io

import numpy as np
from PIL import Image

_SHORT_SIDES = (90, 121)
_LONG_SIDE = 160
_ASPECTS = (1.0, 4 / 3, 3 / 2)
_GREY_FRACTION = 0.01


class Camera:
  """The camera of one user."""

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

    Args:
      generator: Source of randomness.
      picture: float32 `[3, height, width]`, about 0 to 1.

    Returns:
      A JPEG; one in a hundred has no colour.
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
