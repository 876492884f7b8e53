"""Symbols of pen strokes, any number of them, from their numbers alone.

Training on images that a random process makes costs no privacy and needs no
data: Baradad et al. 2021, "Learning to See by Looking at Noise"; Tang et al.
2023, "Differentially Private Image Classification by Learning Priors from
Random Processes". A symbol is one to four strokes. A stroke turns evenly, may
have two corners, and begins anywhere or at an earlier stroke. An image of it is
drawn by a shaky hand: all of that varies a little, and so do size, slant and
pen.

A symbol's images follow from a seed, the symbol's number and the image's
number, by TensorFlow operations that know no state. The ink is a sum of
Gaussians at points along the strokes. Each is a product of one along the rows
and one along the columns, so that all points of an image are one product of two
thin matrices. They are tabulated as small whole numbers, whose products and
sums single precision holds exactly: an image has the same bits wherever, and in
whatever company, it is drawn.
"""

import functools
import math
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from tff_fedemb import split_mix

SIDE = 28
_STROKES = 4
# Points of a stroke. They are no further apart than the pen is wide.
_POINTS = 24
_AT = ((np.arange(_POINTS) + 0.5) / _POINTS).astype(np.float32)
# Strokes are walked in steps of whole numbers, in one of this many directions.
_STEP = 1024
_DIRECTIONS = 4096
# Half of a symbol's larger side in pixels.
_MEAN_RADIUS = 10.0
# Standard deviations of the strokes of an image: of angles in radians and
# logarithms of lengths, of places, and of the places of corners on a stroke.
_HAND = 0.085
_PLACE = 0.05
_CORNER = 0.03
# Standard deviations of an image as a whole; that of its shift is in pixels.
_SLANT = 0.11
_ASPECT = 0.07
_SIZE = 0.09
_SHIFT = 0.8
# Chances that a stroke is straight, that it starts at an earlier one, and that
# it has a first and a second corner.
_STRAIGHT = 0.4
_JOINED = 0.5
_CORNERS = (0.35, 0.15)
# Widths of pens, in pixels, and their mean and spread as steps of the table.
_PENS = tuple(0.4 * 2 ** (step / 7) for step in range(8))
_MEAN_PEN = 1.9
_PEN_SPREAD = 1.5
# Points are placed in sixteenths of a pixel, up to three pixels outside.
_FINE = 16
_MARGIN = 3
_PLACES = (SIDE + 2 * _MARGIN) * _FINE
# Largest whole number of a table; steps of a point's weight for each pixel of
# its stroke; and the largest weight. 63 * 63 * 31 * 96 points are below 2^24,
# up to which float32 holds whole numbers exactly.
_LEVELS = 63
_COVER = 8.0
_MAX_WEIGHT = 31.0
# Ink in the middle of a stroke, of which a pixel holds at most 1.
_PRESSURE = 1.5


class _Symbols(NamedTuple):
  """Symbols by parameter `[k, strokes]`, of two corners or axes `[..., 2]`."""

  exists: tf.Tensor
  length: tf.Tensor
  angle: tf.Tensor
  turn: tf.Tensor
  corner_at: tf.Tensor
  corner: tf.Tensor
  middle: tf.Tensor
  is_joined: tf.Tensor
  there: tf.Tensor
  here: tf.Tensor


def _draw_symbols(keys: tf.Tensor) -> _Symbols:
  """Draws symbols of keys `[k]`.

  Args:
    keys: Keys of the symbols, from `split_mix.derive_population_keys`.

  Returns:
    Parameters with a leading dimension `[k]`; strokes that a symbol has not are
    drawn, too, and `exists` is 0 for them.
  """
  words = split_mix.draw_uniforms(keys, 1 + 5 * _STROKES)
  number = 1.0 + tf.floor(_STROKES * words[:, :1, 0])
  order = tf.range(_STROKES, dtype=tf.float32)
  strokes = tf.reshape(words[:, 1:], [-1, _STROKES, 5, 4])
  start, place, turn, *corners = tf.unstack(strokes, axis=2)
  is_straight, is_joined, there, here = tf.unstack(start, axis=-1)
  corners = tf.stack(corners, 2)
  side = tf.where(corners[..., 2] < 0.5, -1.0, 1.0)
  has_corner = corners[..., 3] < tf.constant(_CORNERS)
  middle = 1.6 * place[..., 2:] - 0.8
  # The first stroke stays nearer to the middle.
  damping = np.ones([_STROKES, 2], np.float32)
  damping[0, 0] = 0.5
  return _Symbols(
    exists=tf.cast(order < number, tf.float32),
    length=0.6 + 1.6 * place[..., 0],
    angle=2.0 * math.pi * place[..., 1],
    turn=tf.where(
      is_straight < _STRAIGHT, 0.0, 2.5 * split_mix.sum_to_normals(turn)
    ),
    corner_at=0.15 + 0.7 * corners[..., 0],
    corner=tf.where(has_corner, side * (0.8 + 1.6 * corners[..., 1]), 0.0),
    middle=middle * damping,
    is_joined=(is_joined < _JOINED) & (order > 0),
    there=tf.cast(there * order * _POINTS, tf.int32),
    here=tf.cast(here * _POINTS, tf.int32),
  )


@functools.cache
def _directions() -> np.ndarray:
  """Tabulates steps in all directions: int32 `[directions, 2]`, right, down."""
  angles = 2.0 * math.pi * np.arange(_DIRECTIONS) / _DIRECTIONS
  steps = np.stack([np.cos(angles), np.sin(angles)], -1)
  return np.round(_STEP * steps).astype(np.int32)


def _walk(
  symbols: _Symbols, hand: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
  """Walks along the strokes of images.

  Args:
    symbols: Symbols of the images, `[n, ...]`.
    hand: Standard normal numbers `[n, strokes, 7]`.

  Returns:
    Places of the points from the stroke's start `[n, strokes, points, 2]`, the
    mean of each stroke `[n, strokes, 2]`, and how long a step is, `[n,
    strokes]`.
  """
  angle = symbols.angle + _HAND * hand[..., 0]
  turn = symbols.turn + _HAND * hand[..., 1]
  angles = angle[..., tf.newaxis] + turn[..., tf.newaxis] * _AT
  for number in range(len(_CORNERS)):
    corner = symbols.corner[..., number]
    shaken = corner + _HAND * hand[..., 2 + number]
    bent = tf.where(tf.equal(corner, 0.0), 0.0, shaken)
    place = symbols.corner_at[..., number] + _CORNER * hand[..., 4 + number]
    # A corner takes a tenth of a stroke.
    share = 10.0 * (_AT - place[..., tf.newaxis]) + 0.5
    angles += bent[..., tf.newaxis] * tf.clip_by_value(share, 0.0, 1.0)
  index = tf.floor(angles * (_DIRECTIONS / (2.0 * math.pi)) + 0.5)
  index = tf.math.floormod(tf.cast(index, tf.int32), _DIRECTIONS)
  directions = tf.constant(_directions())
  steps = tf.cumsum(tf.gather(directions, index), axis=2)
  step = symbols.length * _grow(_HAND * hand[..., 6]) / _POINTS
  unit = (step / _STEP)[..., tf.newaxis]
  mean = tf.cast(tf.reduce_sum(steps, axis=2), tf.float32) / _POINTS * unit
  paths = tf.cast(steps, tf.float32) * unit[..., tf.newaxis]
  return paths, mean, step


def _grow(logarithm: tf.Tensor) -> tf.Tensor:
  """Returns about the exponential of small numbers, by exact operations."""
  return 1.0 + logarithm + 0.5 * logarithm * logarithm


def _join(
  symbols: _Symbols, paths: tf.Tensor, mean: tf.Tensor, shake: tf.Tensor
) -> tf.Tensor:
  """Places strokes where they are free, or at a point of an earlier one.

  Args:
    symbols: Symbols of the images, `[n, ...]`.
    paths: `[n, strokes, points, 2]`.
    mean: Mean of each, `[n, strokes, 2]`.
    shake: Standard normal numbers `[n, strokes, 2]`.

  Returns:
    All points `[n, strokes * points, 2]`; those of strokes that a symbol has
    not lie on its first one.
  """
  shake = _PLACE * shake
  free = symbols.middle + shake - mean
  points = paths[:, 0] + free[:, :1]
  for stroke in range(1, _STROKES):
    path = paths[:, stroke]
    there = tf.gather(points, symbols.there[:, stroke], batch_dims=1)
    here = tf.gather(path, symbols.here[:, stroke], batch_dims=1)
    is_joined = symbols.is_joined[:, stroke, tf.newaxis]
    shift = tf.where(
      is_joined, shake[:, stroke] + there - here, free[:, stroke]
    )
    points = tf.concat([points, path + shift[:, tf.newaxis]], axis=1)
  exists = tf.repeat(symbols.exists, _POINTS, axis=1)[..., tf.newaxis]
  return tf.where(exists > 0, points, points[:, :1])


def _place(
  points: tf.Tensor, hand: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
  """Fits points into images, slanted, turned and shifted.

  Args:
    points: `[n, points, 2]`, right and down.
    hand: Standard normal numbers `[n, 6]`.

  Returns:
    Columns and rows in pixels, `[n, points]` each, and pixels for a unit of the
    symbol, `[n, 1]`.
  """
  low = tf.reduce_min(points, axis=1)
  high = tf.reduce_max(points, axis=1)
  sides = high - low
  # Symbols that are nearly dots stay small.
  extent = tf.maximum(tf.reduce_max(sides, axis=1, keepdims=True) / 2.0, 0.5)
  centre = (low + high) / 2.0
  right, down = tf.unstack(points - centre[:, tf.newaxis], axis=2)
  slant, angle, aspect, size, *shift = tf.split(hand, 6, axis=1)
  size = _MEAN_RADIUS * _grow(_SIZE * size) / extent
  aspect = _grow(_ASPECT * aspect)
  angle = _HAND * angle
  cosine = 1.0 - 0.5 * angle * angle
  sine = angle
  across = right * aspect + down * (_SLANT * slant)
  down = down / aspect
  middle = (SIDE - 1) / 2.0
  columns = (across * cosine - down * sine) * size + _SHIFT * shift[0] + middle
  rows = (across * sine + down * cosine) * size + _SHIFT * shift[1] + middle
  return columns, rows, size


@functools.cache
def _profiles() -> np.ndarray:
  """Tabulates how a point inks a row of pixels, `[pens * places, SIDE]`.

  Returns:
    Whole numbers up to 63, as float32: a Gaussian as wide as the pen.
  """
  places = (np.arange(_PLACES) + 0.5) / _FINE - _MARGIN
  apart = np.arange(SIDE) - places[:, np.newaxis]
  tables = [np.exp(-0.5 * np.square(apart / pen)) for pen in _PENS]
  return np.round(_LEVELS * np.concatenate(tables)).astype(np.float32)


def _trace(
  columns: tf.Tensor, rows: tf.Tensor, weights: tf.Tensor, pen: tf.Tensor
) -> tf.Tensor:
  """Traces points with pens.

  Args:
    columns: Places in pixels, `[n, points]`.
    rows: The same, `[n, points]`.
    weights: Whole numbers `[n, points]`.
    pen: Rows of the table of pens, int32 `[n, 1]`.

  Returns:
    Uint8 `[n, SIDE, SIDE, 1]`, paper 255 and ink towards 0.
  """
  table = tf.constant(_profiles())

  def look_up(places: tf.Tensor) -> tf.Tensor:
    index = tf.floor((places + _MARGIN) * _FINE)
    index = tf.clip_by_value(index, 0.0, _PLACES - 1.0)
    return tf.gather(table, tf.cast(index, tf.int32) + pen * _PLACES)

  by_row = look_up(rows) * weights[..., tf.newaxis]
  ink = tf.linalg.matmul(by_row, look_up(columns), transpose_a=True)
  # A straight stroke sums to this in its middle.
  full = _COVER * _LEVELS**2 * np.sqrt(2.0 * np.pi) * np.array(_PENS)
  scale = tf.gather(tf.constant(_PRESSURE / full, tf.float32), pen[:, 0])
  ink = tf.minimum(ink * scale[:, tf.newaxis, tf.newaxis], 1.0)
  return tf.cast(255.5 - 255.0 * ink, tf.uint8)[..., tf.newaxis]


class Symbols:
  """Symbols that are numbers.

  The same symbol has the same images, whoever else is drawn, and on any
  processor.
  """

  def __init__(self, seed: int):
    """Initialises the symbols.

    Args:
      seed: Seed of all of them; other seeds have nothing in common with it.
    """
    self._seed = seed

  def count_images(self, numbers: tf.Tensor) -> tf.Tensor:
    """Draws how many images there are of symbols.

    The number is about lognormal, with mean 8 and a spread of 0.35, and at
    least 4.

    Args:
      numbers: The symbols, int64 `[k]`.

    Returns:
      Int32 `[k]`.
    """
    keys = split_mix.derive_population_keys(self._seed, numbers)
    keys = split_mix.derive_keys(keys, 0, 2)
    drawn = split_mix.sum_to_normals(split_mix.draw_uniforms(keys, 1))[:, 0]
    count = tf.floor(7.5 * _grow(0.35 * drawn) + 0.5)
    return tf.cast(tf.maximum(count, 4.0), tf.int32)

  def draw(self, numbers: tf.Tensor, counts: tf.Tensor) -> tf.Tensor:
    """Draws images, symbol by symbol.

    Args:
      numbers: The symbols, int64 `[k]`.
      counts: Number of images of each, int32 `[k]`, n in all.

    Returns:
      Uint8 `[n, 28, 28, 1]`, paper 255 and ink towards 0.
    """
    keys = split_mix.derive_population_keys(self._seed, numbers)
    of, number = split_mix.number_parts(counts)
    symbols = _Symbols(*(tf.gather(part, of) for part in _draw_symbols(keys)))
    keys_of_images = split_mix.derive_keys(tf.gather(keys, of), number, 3)
    uniforms = split_mix.draw_uniforms(keys_of_images, 9 * _STROKES + 7)
    hand = split_mix.sum_to_normals(uniforms)
    by_stroke = tf.reshape(hand[:, : 9 * _STROKES], [-1, _STROKES, 9])
    paths, mean, step = _walk(symbols, by_stroke[..., :7])
    points = _join(symbols, paths, mean, by_stroke[..., 7:])
    columns, rows, pixels = _place(points, hand[:, -7:-1])
    cover = tf.floor(_COVER * step * pixels + 0.5)
    weights = tf.clip_by_value(cover, 1.0, _MAX_WEIGHT) * symbols.exists
    pen = tf.floor(_MEAN_PEN + _PEN_SPREAD * hand[:, -1:] + 0.5)
    pen = tf.cast(tf.clip_by_value(pen, 0.0, len(_PENS) - 1.0), tf.int32)
    return _trace(columns, rows, tf.repeat(weights, _POINTS, axis=1), pen)
