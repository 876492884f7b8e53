"""Handwriting of any number of writers, from their numbers alone.

A writer's images follow from a seed, the writer's number and the image's
number, by TensorFlow operations that know no state: they may run
anywhere, in any order and as often as one likes. Nothing is kept for a writer.

A printed character, thinned to its centre line (`glyphs`), is bent, slanted and
traced with a pen. How much of that is the writer's habit, the writer's way with
one character and the chance of one image is a table, `_SPREADS`. All of it is
linear in the drawn numbers, so that the places on a distance map to which the
pixels of all images belong are two matrix products. The bends are smooth random
displacement fields (Simard et al., 2003, "Best Practices for Convolutional
Neural Networks Applied to Visual Document Analysis", section 2).
"""

import functools

import numpy as np
import tensorflow as tf

from tasks.synthetic import glyphs
from tff_fedemb import split_mix

NUM_LABELS = len(glyphs.CHARACTERS)
_SIDE = glyphs.IMAGE_SIZE
# A map's side, and a character's half height or width on it, if that is larger.
_MAP_SIDE = 56
_MAP_UNIT = 20.0
# Levels of a distance, for each pixel of a map.
_LEVELS = 16.0
# Displacement fields are given on a coarse grid of this side.
_GRID_SIDE = glyphs.GRID_SIZE
_GRID = _GRID_SIDE**2

# Standard deviations: of writers, of a writer's characters, of their images.
# Logarithms but for slant, rotation and the ink's shade; places in pixels.
_SPREADS = {
  "slant": (0.2, 0.0, 0.06),
  "aspect": (0.15, 0.08, 0.07),
  "rotation": (0.05, 0.05, 0.05),
  "size": (0.065, 0.0, 0.05),
  "down": (0.0, 0.0, 0.4),
  "right": (0.0, 0.0, 0.4),
  "thickness": (0.22, 0.0, 0.08),
  "softness": (0.13, 0.0, 0.0),
  "shade": (0.1, 0.0, 0.03),
}
_MEANS = {
  "aspect": -0.05,
  "size": np.log(8.5),
  "thickness": np.log(2.25),
  "softness": np.log(1.15),
}
_BEND = (0.6, 0.9, 0.55)
_PRESSURE = (0.0, 0.0, 0.15)
_NUM_SHAPE = len(_SPREADS) + 3 * _GRID


@functools.cache
def _basis() -> np.ndarray:
  """Returns the basis of the coordinates, float32 `[3 + _GRID, pixels]`.

  One, down, right, and the fields of the points of the coarse grid, which move
  no character as a whole out of the middle.
  """
  at = np.arange(_SIDE) - (_SIDE - 1) / 2
  down, right = np.meshgrid(at, at, indexing="ij")
  up = glyphs.upsampling()
  fields = np.einsum("yi,xj->ijyx", up, up).reshape(_GRID, -1)
  fields -= fields.mean(axis=1, keepdims=True)
  planes = np.stack([np.ones(_SIDE**2), down.ravel(), right.ravel()])
  return np.concatenate([planes, fields]).astype(np.float32)


class Handwriting:
  """Writers who are numbers.

  The same writer has the same images, whoever else is drawn, and in any order.
  """

  def __init__(self, seed: int, labels: range = range(NUM_LABELS)):
    """Initialises the writers.

    Args:
      seed: Seed of the population; other seeds have nothing in common with it.
      labels: The characters that they may write, of `glyphs.CHARACTERS`.
    """
    self._seed = seed
    self._labels = labels
    fonts = glyphs.font_maps(_MAP_SIDE, _MAP_UNIT)
    chosen = slice(labels.start, labels.stop)
    # The rows are characters, then fonts.
    maps = np.clip(np.round(_LEVELS * fonts.distances[chosen]), 0, 255)
    # Everything beyond a map is paper.
    inside = np.pad(np.ones([_MAP_SIDE - 2] * 2, bool), 1)
    maps = np.where(inside, maps, 255)
    self._num_fonts = maps.shape[1]
    self._maps = maps.astype(np.uint8).reshape(-1)
    self._extents = fonts.half_extents[chosen].reshape(-1, 2)
    self._fonts = fonts.fonts[chosen]
    self._means = np.zeros(_NUM_SHAPE, np.float32)
    for index, name in enumerate(_SPREADS):
      self._means[index] = _MEANS.get(name, 0.0)
    bends = [_BEND] * (2 * _GRID) + [_PRESSURE] * _GRID
    self._spreads = np.array([*_SPREADS.values(), *bends], np.float32).T
    is_digit = [glyphs.CHARACTERS[label].isdigit() for label in labels]
    self._repeats = np.where(is_digit, np.float32(2), np.float32(1))

  def _keys(self, users: tf.Tensor) -> tf.Tensor:
    """Returns the writers' keys, of which all their numbers are drawn.

    Args:
      users: The writers' numbers, int64 `[k]`.
    """
    return split_mix.derive_population_keys(self._seed, users)

  def _draw_for_number(self, users: tf.Tensor) -> tf.Tensor:
    """Draws what decides the number of images: uniforms `[k, 1, 4]`.

    Args:
      users: The writers' numbers, int64 `[k]`.
    """
    keys = split_mix.derive_keys(self._keys(users), users, 2)
    return split_mix.draw_uniforms(keys, 1)

  def count_images(self, users: tf.Tensor) -> tf.Tensor:
    """Draws how many images writers have, unevenly.

    The number is lognormal about 64 with a spread of 0.6, and at least 8.

    Args:
      users: The writers' numbers, int64 `[k]`.

    Returns:
      Int32 `[k]`.
    """
    uniforms = self._draw_for_number(users)
    drawn = split_mix.sum_to_normals(uniforms)[:, 0]
    number = tf.maximum(64.0 * tf.exp(0.6 * drawn), 8.0)
    return tf.cast(tf.round(number), tf.int32)

  def spread_images(self, users: tf.Tensor, mean: int) -> tf.Tensor:
    """Draws how many images writers have, uniformly about a mean.

    Args:
      users: The writers' numbers, int64 `[k]`.
      mean: Mean of the numbers, which are from half to one and a half times it,
        and at least 8.

    Returns:
      Int32 `[k]`.
    """
    drawn = self._draw_for_number(users)[:, 0, 0]
    number = tf.maximum(8.0, tf.round(mean * (0.5 + drawn)))
    return tf.cast(number, tf.int32)

  def draw(
    self,
    users: tf.Tensor,
    counts: tf.Tensor,
    *,
    labels: tf.Tensor | None = None,
  ) -> tuple[tf.Tensor, tf.Tensor]:
    """Draws images, writer by writer.

    Args:
      users: The writers' numbers, int64 `[k]`.
      counts: Number of images of each, int32 `[k]`, n in all.
      labels: Characters to write, int64 `[n]`; by default each holds most
        characters, unevenly often, and digits twice as often as letters.

    Returns:
      Images uint8 `[n, 28, 28, 1]`, paper 255 and ink towards 0, and labels
      int64 `[n]`.
    """
    keys = self._keys(users)
    rows, number = split_mix.number_parts(counts)
    keys_of_images = tf.gather(keys, rows)
    # Uniforms `[..., _NUM_SHAPE + 1, 4]` for each image, for the writer's way
    # with its character, and for each writer. The last row chooses labels and
    # fonts, the others decide the shape.
    example_keys = split_mix.derive_keys(keys_of_images, number, 3)
    example = split_mix.draw_uniforms(example_keys, _NUM_SHAPE + 1)
    if labels is None:
      shares = tf.gather(self._draw_shares(keys), rows)
      below = shares < example[:, -1, :1]
      index = tf.reduce_sum(tf.cast(below, tf.int32), -1)
    else:
      index = tf.cast(labels, tf.int32) - self._labels.start
    label = index + self._labels.start
    character_keys = split_mix.derive_keys(keys_of_images, label, 0)
    character = split_mix.draw_uniforms(character_keys, _NUM_SHAPE + 1)
    writer = split_mix.draw_uniforms(keys, _NUM_SHAPE + 1)
    usual_font = tf.gather(writer[:, -1, 1], rows)
    glyph = self._choose_glyphs(index, character[:, -1], usual_font)

    by_writer, by_character, by_example = self._spreads
    shape = split_mix.sum_to_normals(writer)[:, :-1] * by_writer + self._means
    shape = tf.gather(shape, rows)
    shape += split_mix.sum_to_normals(character)[:, :-1] * by_character
    shape += split_mix.sum_to_normals(example)[:, :-1] * by_example
    return self._trace(shape, glyph), tf.cast(label, tf.int64)

  def _choose_glyphs(
    self, index: tf.Tensor, drawn: tf.Tensor, usual_font: tf.Tensor
  ) -> tf.Tensor:
    """Chooses a font for each image.

    Args:
      index: Characters, as places in `labels`, int32 `[n]`.
      drawn: Uniforms of the writers' characters, `[n, 4]`.
      usual_font: Uniforms that stand for the writers' usual fonts, `[n]`.

    Returns:
      Rows of the maps, int32 `[n]`.
    """
    # Two of three characters are in the writer's usual font.
    quantile = tf.where(drawn[:, 0] < 0.65, usual_font, drawn[:, 1])
    resolution = self._fonts.shape[1]
    place = index * resolution + tf.cast(quantile * resolution, tf.int32)
    font = tf.gather(tf.constant(self._fonts.reshape(-1)), place)
    return index * self._num_fonts + font

  def _draw_shares(self, keys: tf.Tensor) -> tf.Tensor:
    """Draws cumulative shares of labels: float32 `[k, labels - 1]`.

    A writer lacks about seven in a hundred characters, and writes digits twice
    as often as letters.

    Args:
      keys: The writers' keys, `[k]`.
    """
    keys = split_mix.derive_keys(keys, tf.zeros_like(keys), 2)
    uniforms = split_mix.draw_uniforms(keys, len(self._labels))
    held = tf.cast(uniforms[..., 0] < 0.93, tf.float32)
    # Two-stage Erlang distribution.
    often = -tf.math.log(uniforms[..., 1] * uniforms[..., 2])
    sums = tf.cumsum(held * often * self._repeats, axis=-1)
    return sums[:, :-1] / sums[:, -1:]

  def _trace(self, shape: tf.Tensor, glyph: tf.Tensor) -> tf.Tensor:
    """Traces characters with a pen.

    Args:
      shape: Float32 `[n, _NUM_SHAPE]`.
      glyph: Rows of the maps, int32 `[n]`.

    Returns:
      Uint8 `[n, 28, 28, 1]`.
    """
    columns = tf.split(shape, [1] * len(_SPREADS) + [_GRID] * 3, axis=1)
    slant, aspect, rotation, size, down, right = columns[:6]
    thickness, softness, shade, bend_down, bend_right, pressure = columns[6:]
    aspect = tf.exp(aspect)
    extents = tf.gather(tf.constant(self._extents), glyph)
    tall = extents[:, :1]
    wide = extents[:, 1:]
    # Wide and slanted characters shrink until they fit.
    reach = tf.maximum(tall, aspect * (wide + tf.abs(slant) * tall))
    # Pixels of a map that one pixel of the image covers.
    scale = _MAP_UNIT * reach * tf.exp(-size)
    narrow = scale / aspect
    lean = slant * scale + rotation * narrow
    middle = (_MAP_SIDE - 1) / 2 + 0.5  # Half a pixel, as floors are taken.
    basis = tf.constant(_basis())

    def find_pixels(parts: list[tf.Tensor]) -> tf.Tensor:
      places = tf.matmul(tf.concat(parts, 1), basis)
      return tf.floor(tf.clip_by_value(places, 0.0, _MAP_SIDE - 0.5))

    y = find_pixels(
      [middle + scale * down, scale, -rotation * scale, scale * bend_down]
    )
    x = find_pixels(
      [middle + narrow * right, lean, narrow, narrow * bend_right]
    )
    first = tf.cast(glyph, tf.float32)[:, tf.newaxis] * float(_MAP_SIDE**2)
    place = tf.cast(y * float(_MAP_SIDE) + (x + first), tf.int32)
    to_line = tf.cast(tf.gather(tf.constant(self._maps), place), tf.float32)

    dark = 255.0 * (1.0 - tf.abs(shade))
    steep = tf.exp(-softness)
    half_width = dark * steep * tf.exp(thickness) / 2
    none = tf.zeros_like(steep)
    weights = tf.concat(
      [0.5 * dark + half_width, none, none, half_width * pressure], 1
    )
    fading = dark * steep / (_LEVELS * scale)
    ink = tf.matmul(weights, basis) - fading * to_line
    paper = 255.5 - tf.clip_by_value(ink, 0.0, dark)
    return tf.reshape(tf.cast(paper, tf.uint8), [-1, _SIDE, _SIDE, 1])
