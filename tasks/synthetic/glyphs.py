"""Handwriting-like characters in the file format of federated EMNIST.

Federated EMNIST (Caldas et al., 2018, "LEAF: A Benchmark for Federated
Settings", arXiv 1812.01097; characters from Cohen et al., 2017, "EMNIST: an
extension of MNIST to handwritten letters") groups 62 handwritten characters by
the person who wrote them. TensorFlow Federated reads it from one SQLite file,
`emnist_all.sqlite`. This module writes such a file without any real data.

Handwriting comes from print in three steps. A printed glyph is thinned to its
centre line and kept as a map of distances to that line, so that a pen of any
width can trace it. A writer bends the lines: a habitual slant, width, size and
pen, and a shape of their own for every character. Each example then wobbles a
little. The warps are smooth random displacement fields (Simard et al., 2003,
"Best Practices for Convolutional Neural Networks Applied to Visual Document
Analysis", section 2).
"""

from collections.abc import Mapping
import contextlib
import dataclasses
import functools
import os
import pathlib
import sqlite3
import string

import matplotlib
import numpy as np
from PIL import Image, ImageDraw, ImageFont
from scipy import ndimage
import tqdm

# Character of each label, in EMNIST's order.
CHARACTERS = string.digits + string.ascii_uppercase + string.ascii_lowercase
IMAGE_SIZE = 28
FILE_NAME = 'emnist_all.sqlite'

_NUM_DIGITS = 10
_TEST_FRACTION = 0.11
# Raised whenever the same parameters start to give other data.
_GENERATOR_VERSION = 1

# Fonts whose 62 characters are all plain, and the weights with which writers
# choose them for digits and capitals, and for small letters. People print their
# capitals without serifs but write a single-storey "a" and "g" as italics do.
_FONT_WEIGHTS = {
    'DejaVuSans': (6, 2),
    'DejaVuSans-Oblique': (6, 2),
    'DejaVuSans-Bold': (3, 1),
    'DejaVuSansMono': (3, 2),
    'DejaVuSansMono-Oblique': (3, 2),
    'DejaVuSerif': (1, 1),
    'DejaVuSerif-Italic': (1, 3),
    'STIXGeneral': (1, 1),
    'STIXGeneralItalic': (2, 5),
    'STIXGeneralBolIta': (1, 2),
    'cmmi10': (3, 7),
    'cmr10': (1, 1),
    'cmss10': (6, 4),
    'cmtt10': (2, 2),
}
_FONTS = tuple(_FONT_WEIGHTS)

# Side of a distance map, and the height of a capital on it.
_MAP_SIZE = 88
_CAPITAL_HEIGHT = 44
# Random displacement fields are given on a coarse grid of this side.
_GRID_SIZE = 4


def _thin(masks: np.ndarray) -> np.ndarray:
  """Thins each mask to lines one pixel wide.

  The parallel thinning algorithm of Zhang and Suen, 1984, "A Fast Parallel
  Algorithm for Thinning Digital Patterns", on a whole stack of masks at once.

  Args:
    masks: Boolean array of shape `[num, height, width]`, False at the border.

  Returns:
    A boolean array of the same shape.
  """
  masks = masks.copy()
  changed = True
  while changed:
    changed = False
    for step in (0, 1):
      # Clockwise from the pixel above, as P2 ... P9 in the paper.
      ring = [
          np.roll(masks, (-dy, -dx), axis=(1, 2))
          for dy, dx in (
              (-1, 0), (-1, 1), (0, 1), (1, 1), (1, 0), (1, -1), (0, -1),
              (-1, -1),
          )
      ]  # fmt: skip
      up, right, down, left = ring[0], ring[2], ring[4], ring[6]
      neighbours = sum(pixel.astype(np.int8) for pixel in ring)
      transitions = sum(
          (~pixel & following).astype(np.int8)
          for pixel, following in zip(ring, ring[1:] + ring[:1], strict=True)
      )
      if step == 0:
        open_side = ~(up & right & down) & ~(right & down & left)
      else:
        open_side = ~(up & right & left) & ~(up & down & left)
      peel = (
          masks
          & (neighbours >= 2)
          & (neighbours <= 6)
          & (transitions == 1)
          & open_side
      )
      masks &= ~peel
      changed |= bool(peel.any())
  return masks


@functools.cache
def _font_lines(font: str) -> tuple[np.ndarray, np.ndarray]:
  """Distance maps of a font's characters.

  Args:
    font: A key of `_FONT_WEIGHTS`.

  Returns:
    The distances to the centre line of each character, centred, in pixels of
    the map: float32 `[62, _MAP_SIZE, _MAP_SIZE]`; and the half extents
    (vertical, horizontal) of the centre line: float32 `[62, 2]`.
  """
  path = pathlib.Path(
      matplotlib.get_data_path(), 'fonts', 'ttf', f'{font}.ttf'
  )
  probe = ImageFont.truetype(path, 100)
  _, top, _, bottom = probe.getbbox('E')
  points = round(100 * _CAPITAL_HEIGHT / (bottom - top))
  loaded = ImageFont.truetype(path, points)

  masks = np.zeros((len(CHARACTERS), _MAP_SIZE, _MAP_SIZE), bool)
  for mask, character in zip(masks, CHARACTERS, strict=True):
    image = Image.new('L', (_MAP_SIZE, _MAP_SIZE))
    ImageDraw.Draw(image).text(
        (_MAP_SIZE / 2, _MAP_SIZE / 2), character, fill=255, font=loaded,
        anchor='mm',
    )  # fmt: skip
    mask[2:-2, 2:-2] = np.asarray(image)[2:-2, 2:-2] > 127

  distances = np.empty(masks.shape, np.float32)
  half_extents = np.empty((len(CHARACTERS), 2), np.float32)
  middle = (_MAP_SIZE - 1) / 2
  for index, line in enumerate(_thin(masks)):
    places = np.argwhere(line)
    low, high = places.min(axis=0), places.max(axis=0)
    half_extents[index] = (high - low) / 2
    shift = np.round(middle - (low + high) / 2).astype(int)
    # Smoothing takes the staircase of single pixels out of the line.
    distances[index] = ndimage.gaussian_filter(
        ndimage.distance_transform_edt(~np.roll(line, shift, axis=(0, 1))), 1.0
    )
  return distances, half_extents


@functools.cache
def _font_atlas() -> tuple[np.ndarray, np.ndarray]:
  """`_font_lines` of all fonts: `[fonts * 62, ...]`, font by font."""
  distances, half_extents = zip(*map(_font_lines, _FONTS), strict=True)
  return np.concatenate(distances), np.concatenate(half_extents)


@functools.cache
def _upsampling() -> np.ndarray:
  """Matrix `[28, _GRID_SIZE]` from a coarse grid to pixels (cubic splines)."""
  at = np.linspace(0, _GRID_SIZE - 1, IMAGE_SIZE)
  return np.stack(
      [
          ndimage.map_coordinates(unit, at[np.newaxis], mode='nearest')
          for unit in np.eye(_GRID_SIZE)
      ],
      axis=1,
  )


def _smooth_fields(
    generator: np.random.Generator, shape: tuple[int, ...]
) -> np.ndarray:
  """Smooth random fields `[*shape, 28, 28]` of about unit variance."""
  grid = generator.standard_normal((*shape, _GRID_SIZE, _GRID_SIZE))
  rows = _upsampling()
  return rows @ grid @ rows.T


def _draw_labels(
    generator: np.random.Generator, num_examples: int
) -> np.ndarray:
  """Labels of one writer: most characters, unevenly often."""
  held = np.flatnonzero(generator.random(len(CHARACTERS)) < 0.93)
  held = generator.permutation(held)[:num_examples]
  # Half of the real characters are digits, from a sixth of the classes.
  weights = generator.gamma(2.0, size=len(held))
  weights *= np.where(held < _NUM_DIGITS, 2.0, 1.0)
  repeats = generator.choice(
      held, size=num_examples - len(held), p=weights / weights.sum()
  )
  return generator.permutation(np.concatenate([held, repeats]))


def _choose_fonts(generator: np.random.Generator) -> np.ndarray:
  """Index of the font that one writer uses for each character: int64 `[62]`."""
  weights = np.array(list(_FONT_WEIGHTS.values()), float)
  weights /= weights.sum(axis=0)
  small = np.array([character.islower() for character in CHARACTERS])
  fonts = np.empty(len(CHARACTERS), int)
  for group, odds in zip((~small, small), weights.T, strict=True):
    usual = generator.choice(len(_FONTS), p=odds)
    other = generator.choice(len(_FONTS), size=group.sum(), p=odds)
    is_usual = generator.random(group.sum()) < 0.65
    fonts[group] = np.where(is_usual, usual, other)
  return fonts


def _draw_images(
    generator: np.random.Generator, labels: np.ndarray
) -> np.ndarray:
  """Draws characters in the hand of one writer.

  Args:
    generator: The writer's source of randomness.
    labels: int64 `[num]`, in 0..61.

  Returns:
    float32 `[num, 28, 28]`, paper 1.0 and ink towards 0.0.
  """
  num, num_classes = len(labels), len(CHARACTERS)
  distances, half_extents = _font_atlas()

  # The writer: the letter forms, then how the hand holds and moves the pen.
  fonts = _choose_fonts(generator)
  slant = generator.normal(0.0, 0.2)
  aspect = np.exp(generator.normal(-0.05, 0.15))
  rotation = generator.normal(0.0, 0.05)
  size = generator.uniform(7.6, 9.5)
  small_size = generator.uniform(0.75, 1.0)
  thickness = generator.uniform(1.5, 3.2)
  softness = generator.uniform(0.9, 1.4)
  habit = 0.6 * _smooth_fields(generator, (2,))
  habit_by_class = 0.9 * _smooth_fields(generator, (num_classes, 2))
  rotation_by_class = generator.normal(0.0, 0.05, num_classes)
  aspect_by_class = np.exp(generator.normal(0.0, 0.08, num_classes))

  # Each example: small deviations from all of that.
  slant = slant + generator.normal(0.0, 0.06, num)
  aspect = aspect * aspect_by_class[labels]
  aspect *= np.exp(generator.normal(0.0, 0.07, num))
  rotation = (
      rotation + rotation_by_class[labels] + generator.normal(0.0, 0.05, num)
  )
  size = size * np.exp(generator.normal(0.0, 0.05, num))
  shift = generator.normal(0.0, 0.4, (num, 2))
  bend = (
      habit
      + habit_by_class[labels]
      + 0.55 * _smooth_fields(generator, (num, 2))
  )
  # Bending moves no character as a whole out of the middle.
  bend -= bend.mean(axis=(-2, -1), keepdims=True)
  width = thickness * np.exp(generator.normal(0.0, 0.08, num))
  pressure = np.exp(0.15 * _smooth_fields(generator, (num,)))

  glyphs = fonts[labels] * num_classes + labels
  tall, wide = half_extents[glyphs].T
  # Wide and slanted characters shrink until they fit; characters without
  # ascender or descender stay somewhat smaller than the rest.
  leaning = aspect * (wide + np.abs(slant) * tall)
  low = np.clip(tall / (_CAPITAL_HEIGHT / 2), 0.0, 1.0)
  size *= small_size + (1 - small_size) * low
  scale = np.maximum(np.maximum(tall, leaning), 1.0) / size  # Map per pixel.

  # From a pixel of the example back to a place on the distance map.
  pixels = np.arange(IMAGE_SIZE) - (IMAGE_SIZE - 1) / 2
  column = (num, 1, 1)
  y = pixels[:, np.newaxis] + shift[:, 0].reshape(column) + bend[:, 0]
  x = pixels + shift[:, 1].reshape(column) + bend[:, 1]
  cosine = np.cos(rotation).reshape(column)
  sine = np.sin(rotation).reshape(column)
  y, x = cosine * y + sine * x, cosine * x - sine * y
  x = x / aspect.reshape(column) + slant.reshape(column) * y
  middle = (_MAP_SIZE - 1) / 2
  y = np.clip(y * scale.reshape(column) + middle, 0, _MAP_SIZE - 1)
  x = np.clip(x * scale.reshape(column) + middle, 0, _MAP_SIZE - 1)
  # The maps lie below one another, as one tall image.
  rows = y + (glyphs * _MAP_SIZE).reshape(column)
  to_line = ndimage.map_coordinates(
      distances.reshape(-1, _MAP_SIZE), (rows, x), order=1
  )

  to_line = to_line / scale.reshape(column)
  width = width.reshape(column) * pressure
  ink = np.clip(0.5 + (width / 2 - to_line) / softness, 0.0, 1.0)
  return (1.0 - ink).astype(np.float32)


@dataclasses.dataclass(frozen=True)
class _Writer:
  """All examples of one writer: labels `[num]`, images, and test or not."""

  client_id: str
  labels: np.ndarray
  images: np.ndarray
  is_test: np.ndarray


def _create_writer(
    seed: int, user_index: int, examples_per_user: int
) -> _Writer:
  """Creates a writer, who depends on nothing but the arguments."""
  generator = np.random.default_rng(np.random.SeedSequence([seed, user_index]))
  client_id = f'f{user_index:04d}_{generator.integers(100):02d}'
  spread = generator.uniform(0.5, 1.5)
  labels = _draw_labels(generator, max(8, round(examples_per_user * spread)))
  is_test = np.zeros(len(labels), bool)
  # Digits and letters are split apart so that either subset has both parts.
  for group in (labels < _NUM_DIGITS, labels >= _NUM_DIGITS):
    members = generator.permutation(np.flatnonzero(group))
    if len(members) >= 2:
      is_test[members[: max(1, round(_TEST_FRACTION * len(members)))]] = True
  return _Writer(client_id, labels, _draw_images(generator, labels), is_test)


def _field(number: int, content: bytes) -> bytes:
  """A field of a protocol buffer whose content is shorter than 16 KiB."""
  length = len(content)
  size = [length] if length < 128 else [length & 127 | 128, length >> 7]
  return bytes([number << 3 | 2, *size]) + content


def _serialize(label: int, image: np.ndarray) -> bytes:
  """The bytes of a `tf.train.Example` with `label` and `pixels`.

  Put together by hand because loading TensorFlow would take longer than the
  rest of the work; tests compare them with TensorFlow's own.
  """
  label_feature = _field(3, _field(1, bytes([label])))
  pixels_feature = _field(2, _field(1, image.astype('<f4').tobytes()))
  return _field(
      1,
      _field(1, _field(1, b'label') + _field(2, label_feature))
      + _field(1, _field(1, b'pixels') + _field(2, pixels_feature)),
  )


def read_generator(path: str | os.PathLike[str]) -> Mapping[str, str]:
  """Returns what a file says about its making; nothing if not made here."""
  uri = pathlib.Path(path).resolve().as_uri() + '?mode=ro'
  try:
    with contextlib.closing(sqlite3.connect(uri, uri=True)) as connection:
      return dict(connection.execute('SELECT key, value FROM generator'))
  except sqlite3.DatabaseError:
    return {}


def _describe(parameters: Mapping[str, str]) -> str:
  return ', '.join(f'{key}={value}' for key, value in parameters.items())


def _insert_writer(connection: sqlite3.Connection, writer: _Writer) -> None:
  """Adds a writer's examples to all splits that hold any of them."""
  protos = [
      _serialize(int(label), image)
      for label, image in zip(writer.labels, writer.images, strict=True)
  ]
  is_digit = writer.labels < _NUM_DIGITS
  for split_name, chosen in (
      ('all_train', ~writer.is_test),
      ('all_test', writer.is_test),
      ('digits_only_train', ~writer.is_test & is_digit),
      ('digits_only_test', writer.is_test & is_digit),
  ):
    if not chosen.any():
      continue
    connection.executemany(
        'INSERT INTO examples VALUES (?, ?, ?)',
        (
            (split_name, writer.client_id, protos[index])
            for index in np.flatnonzero(chosen)
        ),
    )
    connection.execute(
        'INSERT INTO client_metadata VALUES (?, ?, ?)',
        (writer.client_id, split_name, int(chosen.sum())),
    )


def write_emnist(
    output_dir: str | os.PathLike[str],
    *,
    num_users: int = 200,
    seed: int = 0,
    examples_per_user: int = 112,
) -> str:
  """Writes handwriting-like data as federated EMNIST's `emnist_all.sqlite`.

  `tff.simulation.datasets.emnist.load_data(cache_dir=output_dir)` reads it. The
  splits are `all_train` and `all_test` (about one example in nine), and
  `digits_only_train` and `digits_only_test`, the digits among them. A writer is
  the same for a given seed however many others there are. The file takes about
  0.5 MB a writer. It appears under its name only when it is complete.

  Args:
    output_dir: Directory of the file, created if missing.
    num_users: Number of writers, at least 1.
    seed: Seed of all randomness, at least 0.
    examples_per_user: Expected number of characters a writer, both splits
      together, at least 16; a writer has between half and one and a half times
      as many.

  Returns:
    The path of the file. One that was made with the same arguments is kept.

  Raises:
    ValueError: If an argument is out of range.
    FileExistsError: If the file exists and was made with other arguments, or
      not by this function.
    OSError: If `output_dir` cannot be created or written.
  """
  for name, value, least in (
      ('num_users', num_users, 1),
      ('seed', seed, 0),
      ('examples_per_user', examples_per_user, 16),
  ):
    if value < least:
      raise ValueError(f'{name} must be at least {least}, found {value}')
  parameters = {
      'generator_version': str(_GENERATOR_VERSION),
      'num_users': str(num_users),
      'seed': str(seed),
      'examples_per_user': str(examples_per_user),
  }
  output_dir = pathlib.Path(output_dir)
  if output_dir.exists() and not output_dir.is_dir():
    raise NotADirectoryError(f'output_dir must be a directory: {output_dir}')
  output_dir.mkdir(parents=True, exist_ok=True)
  path = output_dir / FILE_NAME
  if path.exists():
    found = read_generator(path)
    if found == parameters:
      print(f'{path} is there already, made with the same parameters; kept')
      return str(path)
    raise FileExistsError(
        f'{path} must be absent or made with {_describe(parameters)}, found'
        f' {_describe(found) if found else "a file from elsewhere"}'
    )

  partial_path = output_dir / f'.{FILE_NAME}.{os.getpid()}.partial'
  try:
    # Reports an unwritable directory as an ordinary OSError, which SQLite's own
    # errors are not, and empties what an earlier process may have left.
    partial_path.write_bytes(b'')
    with contextlib.closing(sqlite3.connect(partial_path)) as connection:
      # A file that nobody sees before it is complete needs no journal.
      connection.executescript(
          """
          PRAGMA journal_mode = OFF;
          PRAGMA synchronous = OFF;
          CREATE TABLE examples (
              split_name TEXT, client_id TEXT, serialized_example_proto BLOB);
          CREATE TABLE client_metadata (
              client_id TEXT, split_name TEXT, num_examples INTEGER);
          CREATE TABLE generator (key TEXT, value TEXT);
          """
      )
      connection.executemany(
          'INSERT INTO generator VALUES (?, ?)', parameters.items()
      )
      for user_index in tqdm.trange(
          num_users, desc='writers', unit='writer', disable=None
      ):
        _insert_writer(
            connection, _create_writer(seed, user_index, examples_per_user)
        )
      connection.execute(
          'CREATE INDEX examples_by_client ON examples (split_name, client_id)'
      )
      connection.commit()
    os.replace(partial_path, path)
    print(f'Wrote {path}')
  finally:
    partial_path.unlink(missing_ok=True)
  return str(path)


def contact_sheet(
    path: str | os.PathLike[str],
    output_png: str | os.PathLike[str],
    *,
    num_users: int = 12,
    split_name: str = 'all_train',
) -> None:
  """Draws one row a writer and one column a character.

  Args:
    path: A file in the format of federated EMNIST, generated or real.
    output_png: Where to write the picture.
    num_users: Number of writers to show, the first in the order of their ids.
    split_name: The split to show.
  """
  import tensorflow as tf  # Takes seconds to load; only this needs it.

  cell = IMAGE_SIZE + 2
  with contextlib.closing(sqlite3.connect(path)) as connection:
    clients = connection.execute(
        'SELECT DISTINCT client_id FROM client_metadata WHERE split_name = ?'
        ' ORDER BY client_id LIMIT ?',
        (split_name, num_users),
    ).fetchall()
    sheet = np.full((len(clients) * cell, len(CHARACTERS) * cell), 0.8)
    for row, client in enumerate(clients):
      for (proto,) in connection.execute(
          'SELECT serialized_example_proto FROM examples'
          ' WHERE split_name = ? AND client_id = ?',
          (split_name, *client),
      ):
        feature = tf.train.Example.FromString(proto).features.feature
        label = feature['label'].int64_list.value[0]
        top, left = row * cell + 1, label * cell + 1
        sheet[top : top + IMAGE_SIZE, left : left + IMAGE_SIZE] = np.reshape(
            feature['pixels'].float_list.value, (IMAGE_SIZE, IMAGE_SIZE)
        )
  Image.fromarray(np.round(sheet * 255).astype(np.uint8)).save(output_png)
