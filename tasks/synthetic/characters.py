"""Random characters in the format of Omniglot: images from a process alone.

Training on images that a random process makes costs no privacy and needs no
data: Baradad et al. 2021, "Learning to See by Looking at Noise"; Tang et al.
2023, "Differentially Private Image Classification by Learning Priors from
Random Processes". A character is one to four strokes, each a path that turns
evenly and may have corners, and begins anywhere or at an earlier stroke. An
image of it is drawn by a shaky hand: all of that varies a little, and so do
size, slant and the pen.
"""

import math
import pathlib
from typing import Any

import numpy as np

from tasks.synthetic import store

FILE_NAME = "omniglot_background_28.npz"
_SIDE = 28
_IMAGES = 20
# They take characters in turn, so held-out alphabets are like the others.
_NUM_ALPHABETS = 30
_MAX_STROKES = 4
# Points of a stroke; they are no further apart than the pen is wide.
_POINTS = 32
# Half of a character's larger side, and the pen's width, both in pixels.
_MEAN_RADIUS, _MEAN_PEN = 10.0, 0.85
# Angles in radians, places and logarithms of lengths, in one image.
_HAND, _PLACE = 0.085, 0.05
_PIXELS = np.arange(_SIDE, dtype=np.float32)
_AT = (np.arange(_POINTS) + 0.5) / _POINTS


def _turns(rng: np.random.Generator, num: int) -> np.ndarray:
  """Angles by which strokes turn altogether: two of five are straight."""
  return np.where(rng.random(num) < 0.4, 0.0, rng.normal(0.0, 2.5, num))


def _corners(
  rng: np.random.Generator, num: int, share: float
) -> tuple[np.ndarray, np.ndarray]:
  """Places of corners on strokes, in [0, 1], and their angles or 0."""
  angles = rng.choice([-1.0, 1.0], num) * rng.uniform(0.8, 2.4, num)
  return rng.uniform(0.15, 0.85, num), angles * (rng.random(num) < share)


def _draw_paths(rng: np.random.Generator, count: int) -> np.ndarray:
  """Draws a character's strokes: places in images `[count, points, 2]`."""
  num = int(rng.integers(1, _MAX_STROKES + 1))

  def vary(values, spread):
    noise = rng.normal(0.0, spread, (count, *np.shape(values)))
    return values + noise

  length = rng.uniform(0.6, 2.2, num) * np.exp(vary(np.zeros(num), _HAND))
  turn = vary(_turns(rng, num), _HAND)
  angle = vary(rng.uniform(0.0, 2.0 * math.pi, num), _HAND)[..., np.newaxis]
  angle = angle + turn[..., np.newaxis] * _AT
  for share in (0.35, 0.15):
    at, corner = _corners(rng, num, share)
    # A corner takes a tenth of a stroke.
    steps = 40.0 * (_AT - vary(at, 0.03)[..., np.newaxis])
    bent = vary(corner, _HAND * (corner != 0))[..., np.newaxis]
    angle = angle + bent / (1.0 + np.exp(-steps))
  moves = np.stack([np.cos(angle), np.sin(angle)], -1)
  paths = np.cumsum(moves * (length / _POINTS)[..., np.newaxis, np.newaxis], 2)
  middle = vary(rng.uniform(-0.8, 0.8, (num, 2)), _PLACE)
  middle[:, 0] /= 2.0
  free = middle - paths.mean(axis=2)
  paths[:, 0] += free[:, 0, np.newaxis]
  for stroke in range(1, num):
    shift = free[:, stroke]
    if rng.random() < 0.5:
      there, here = rng.integers(_POINTS, size=2)
      earlier = paths[:, rng.integers(stroke), there]
      shift = vary(np.zeros(2), _PLACE) + earlier - paths[:, stroke, here]
    paths[:, stroke] += shift[:, np.newaxis]
  return _place(rng, paths.reshape(count, -1, 2))


def _place(rng: np.random.Generator, points: np.ndarray) -> np.ndarray:
  """Fits points `[count, points, 2]` into images, slanted, turned, shifted."""
  low, high = points.min(axis=1), points.max(axis=1)
  # Characters that are nearly dots stay small.
  extent = np.maximum((high - low).max(axis=1) / 2.0, 0.5)
  points = points - ((low + high) / 2.0)[:, np.newaxis]
  points /= extent[:, np.newaxis, np.newaxis]
  slant, angle, aspect, size = rng.normal(
    0.0, 1.0, (4, len(points))
  ) * np.array([[0.11], [_HAND], [0.07], [0.09]])
  aspect, size = np.exp(aspect), _MEAN_RADIUS * np.exp(size)
  cosine, sine = size * np.cos(angle), size * np.sin(angle)
  lean = np.stack([aspect, np.zeros_like(slant), slant, 1.0 / aspect], -1)
  turn = np.stack([cosine, sine, -sine, cosine], -1)
  placed = points @ lean.reshape(-1, 2, 2) @ turn.reshape(-1, 2, 2)
  shift = rng.normal(0.0, 0.8, (len(points), 1, 2))
  return placed + (_SIDE - 1) / 2.0 + shift


def _trace(rng: np.random.Generator, points: np.ndarray) -> np.ndarray:
  """Traces points `[count, points, 2]`: uint8 `[count, 28, 28]`, paper 255."""
  points = points.astype(np.float32)
  x, y = points[..., np.newaxis, 0], points[..., np.newaxis, 1]
  # Squares of distances are sums of those along rows and along columns.
  by_column, by_row = np.square(_PIXELS - x), np.square(_PIXELS - y)
  squares = np.full((len(points), _SIDE, _SIDE), np.inf, np.float32)
  for point in range(points.shape[1]):
    here = by_row[:, point, :, np.newaxis] + by_column[:, point, np.newaxis]
    np.minimum(squares, here, out=squares)
  pen = _MEAN_PEN * np.exp(rng.normal(0.0, 0.25, (len(points), 1, 1)))
  # Thin lines have no gaps between their points.
  pen = np.maximum(pen, 0.65)
  ink = np.clip(pen + 0.3 - np.sqrt(squares), 0.0, 1.0)
  return np.round(255.0 * (1.0 - ink)).astype(np.uint8)


def draw_images(seed: int, number: int, count: int = _IMAGES) -> np.ndarray:
  """Draws images of one character, the same for the same seed and number.

  Args:
    seed: Seed of all characters.
    number: Number of the character.
    count: Number of images.

  Returns:
    Uint8 `[count, 28, 28]`, paper 255 and ink towards 0.
  """
  rng = np.random.default_rng([seed, number])
  return _trace(rng, _draw_paths(rng, count))


def write_characters(output_dir: store.Path, **fields: Any) -> str:
  """Writes random characters as Omniglot's compact file; returns its path.

  A user is a character, which is the same for a given seed however many others
  there are. There are 20 images of each, and 30 alphabets, which take
  characters in turn. Fields are those of `store.Config`.

  Raises:
    errors.FieldError: If one of them is out of range.
    errors.DataError: If the folder holds something else.
  """
  given = store.Config(**fields)

  def write(folder: pathlib.Path) -> None:
    characters = np.repeat(np.arange(given.num_users), _IMAGES)
    num_alphabets = min(_NUM_ALPHABETS, given.num_users)
    np.savez_compressed(
      folder / FILE_NAME,
      images=np.concatenate(
        [
          draw_images(given.seed, number)
          for number in store.show_progress(given.num_users)
        ]
      ),
      character_id=characters,
      alphabet_id=characters % num_alphabets,
      alphabets=np.array([f"random_{n:02}" for n in range(num_alphabets)]),
    )

  folder = store.write_data(output_dir, given, write, name="omniglot")
  return str(folder / FILE_NAME)
