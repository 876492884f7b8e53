"""Centre lines of printed characters, of which handwriting is made.

A printed glyph is thinned to its centre line and kept as a map of distances to
that line, so that a pen of any width can trace it (`handwriting`).
"""

import dataclasses
import functools
import pathlib
import string

import matplotlib
import numpy as np
from PIL import Image
from PIL import ImageDraw
from PIL import ImageFont
from scipy import ndimage

# Character of each label, in EMNIST's order.
CHARACTERS = string.digits + string.ascii_uppercase + string.ascii_lowercase
IMAGE_SIZE = 28

# Fonts whose 62 characters are all plain, and the weights with which writers
# choose them for digits and capitals, and for small letters. People print their
# capitals without serifs but write a single-storey "a" and "g" as italics do.
_FONT_WEIGHTS = {
  "DejaVuSans": (6, 2),
  "DejaVuSans-Oblique": (6, 2),
  "DejaVuSans-Bold": (3, 1),
  "DejaVuSansMono": (3, 2),
  "DejaVuSansMono-Oblique": (3, 2),
  "DejaVuSerif": (1, 1),
  "DejaVuSerif-Italic": (1, 3),
  "STIXGeneral": (1, 1),
  "STIXGeneralItalic": (2, 5),
  "STIXGeneralBolIta": (1, 2),
  "cmmi10": (3, 7),
  "cmr10": (1, 1),
  "cmss10": (6, 4),
  "cmtt10": (2, 2),
}
_FONTS = tuple(_FONT_WEIGHTS)

# Side of a distance map, and the height of a capital on it.
_MAP_SIZE = 88
_CAPITAL_HEIGHT = 44
# Random displacement fields are given on a coarse grid of this side.
GRID_SIZE = 4


def _thin(masks: np.ndarray) -> np.ndarray:
  """Thins masks `[num, height, width]` to lines one pixel wide.

  The parallel thinning algorithm of Zhang and Suen, 1984, "A Fast Parallel
  Algorithm for Thinning Digital Patterns", on a whole stack of masks at once.

  Args:
    masks: Ink, bool `[num, height, width]`.

  Returns:
    The lines, of the same shape.
  """
  masks = masks.copy()
  _, height, width = masks.shape
  changed = True
  while changed:
    changed = False
    for step in (0, 1):
      padded = np.pad(masks, ((0, 0), (1, 1), (1, 1)))
      # Clockwise from the pixel above, as P2 ... P9 in the paper.
      ring = []
      for place in (1, 2, 5, 8, 7, 6, 3, 0):
        y, x = divmod(place, 3)
        ring.append(padded[:, y : y + height, x : x + width])
      up, right, down, left = ring[::2]
      neighbours = sum(pixel.view(np.int8) for pixel in ring)
      # A step from paper to ink around the ring: `False < True`.
      transitions = sum(
        (pixel < following).view(np.int8)
        for pixel, following in zip(ring, ring[1:] + ring[:1], strict=True)
      )
      if step == 0:
        closed_side = right & down & (up | left)
      else:
        closed_side = up & left & (right | down)
      peel = masks & (neighbours >= 2) & (neighbours <= 6)
      peel &= (transitions == 1) & ~closed_side
      masks &= ~peel
      changed |= bool(peel.any())
  return masks


def _font_lines(font: str) -> tuple[np.ndarray, np.ndarray]:
  """Computes the distance of each pixel to the centre line of a character.

  Args:
    font: Name of a font that Matplotlib has, without `.ttf`.

  Returns:
    Distances for each character of the font, centred, in pixels of a map:
    float32 `[62, _MAP_SIZE, _MAP_SIZE]`; and half the height and width of the
    centre lines, `[62, 2]`.
  """
  path = pathlib.Path(matplotlib.get_data_path(), "fonts", "ttf", f"{font}.ttf")
  _, top, _, bottom = ImageFont.truetype(path, 100).getbbox("E")
  points = round(100 * _CAPITAL_HEIGHT / (bottom - top))
  loaded = ImageFont.truetype(path, points)
  masks = np.zeros((len(CHARACTERS), _MAP_SIZE, _MAP_SIZE), bool)
  for mask, character in zip(masks, CHARACTERS, strict=True):
    image = Image.new("L", (_MAP_SIZE, _MAP_SIZE))
    place = (_MAP_SIZE / 2, _MAP_SIZE / 2)
    ImageDraw.Draw(image).text(place, character, 255, loaded, anchor="mm")
    mask[2:-2, 2:-2] = np.asarray(image)[2:-2, 2:-2] > 127

  distances = np.empty(masks.shape, np.float32)
  half_extents = np.empty((len(CHARACTERS), 2), np.float32)
  for index, line in enumerate(_thin(masks)):
    places = np.argwhere(line)
    low = places.min(axis=0)
    high = places.max(axis=0)
    half_extents[index] = (high - low) / 2
    shift = np.round((_MAP_SIZE - 1) / 2 - (low + high) / 2).astype(int)
    away = ndimage.distance_transform_edt(~np.roll(line, shift, axis=(0, 1)))
    # Smoothing takes the staircase of single pixels out of the line.
    distances[index] = ndimage.gaussian_filter(away, 1.0)
  return distances, half_extents


@functools.cache
def _font_atlas() -> tuple[np.ndarray, np.ndarray]:
  """Returns `_font_lines` of all fonts, `[fonts * 62, ...]`, font by font."""
  distances, half_extents = zip(*map(_font_lines, _FONTS), strict=True)
  return np.concatenate(distances), np.concatenate(half_extents)


@functools.cache
def upsampling() -> np.ndarray:
  """Computes the matrix `[28, GRID_SIZE]` of cubic splines, grid to pixels.

  Returns:
    float64; the product with values on the grid is smooth along 28 pixels.
  """
  at = np.linspace(0, GRID_SIZE - 1, IMAGE_SIZE)[np.newaxis]
  splines = []
  for unit in np.eye(GRID_SIZE):
    splines.append(ndimage.map_coordinates(unit, at, mode="nearest"))
  return np.stack(splines, axis=1)


@dataclasses.dataclass(frozen=True)
class FontMaps:
  """Centre lines of all characters in all fonts, each as large as the others.

  A distance map lets a pen of any width trace the line: ink is where the
  distance is small.

  Attributes:
    distances: To the centre line, in pixels of the map, float32 `[62, fonts,
      side, side]`.
    half_extents: Half the height and width of the centre lines, of which the
      larger is 1 (less for small letters without ascender or descender, which
      stay smaller than the rest), float32 `[62, fonts, 2]`.
    fonts: Fonts by the uniform number that chooses one for a character: int32
      `[62, numbers]`.
  """

  distances: np.ndarray
  half_extents: np.ndarray
  fonts: np.ndarray


@functools.cache
def font_maps(side: int, unit: float) -> FontMaps:
  """Makes maps of the characters in all fonts.

  Args:
    side: Side of a map in pixels.
    unit: Half the height or width of a centre line on it in pixels, whichever
      is larger.

  Returns:
    The maps, which are made once for the same arguments.
  """
  distances, half_extents = _font_atlas()
  larger = np.maximum(half_extents.max(axis=1), 1.0)
  pixels = (np.arange(side) - (side - 1) / 2) / unit
  maps = np.empty((len(distances), side, side), np.float32)
  for index, (source, half) in enumerate(zip(distances, larger, strict=True)):
    at = np.clip(pixels * half + (_MAP_SIZE - 1) / 2, 0, _MAP_SIZE - 1)
    places = np.broadcast_arrays(at[:, np.newaxis], at)
    maps[index] = ndimage.map_coordinates(source, places, order=1)
    maps[index] *= unit / half
  low = np.clip(half_extents[:, :1] / (_CAPITAL_HEIGHT / 2), 0.0, 1.0)
  relative = half_extents / larger[:, np.newaxis] / (0.87 + 0.13 * low)
  # A font gets more of the numbers, the more often it is chosen.
  small = np.array([character.islower() for character in CHARACTERS])
  shares = np.cumsum(list(_FONT_WEIGHTS.values()), axis=0)
  shares = shares / shares[-1]
  numbers = (np.arange(256) + 0.5) / 256
  of_large = np.searchsorted(shares[:, 0], numbers)
  of_small = np.searchsorted(shares[:, 1], numbers)
  fonts = np.where(small[:, np.newaxis], of_small, of_large)

  def by_character(array: np.ndarray) -> np.ndarray:
    grouped = array.reshape(len(_FONTS), len(CHARACTERS), *array.shape[1:])
    return np.swapaxes(grouped, 0, 1).astype(np.float32)

  return FontMaps(
    distances=by_character(maps),
    half_extents=by_character(relative),
    fonts=fonts.astype(np.int32),
  )
