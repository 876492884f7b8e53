"""Federated EMNIST's file, filled with synthetic handwriting.

Federated EMNIST (Caldas et al., 2018, "LEAF: A Benchmark for Federated
Settings", arXiv 1812.01097; characters from Cohen et al., 2017, "EMNIST: an
extension of MNIST to handwritten letters") groups 62 handwritten characters by
the person who wrote them. TensorFlow Federated reads it from one SQLite file,
`emnist_all.sqlite`. This module writes such a file without any real data.
"""

from collections.abc import Iterator, Mapping
import contextlib
import dataclasses
import itertools
import operator
import os
import pathlib
import sqlite3
from typing import Any

import numpy as np
from PIL import Image

from tasks.synthetic import glyphs
from tasks.synthetic import store
from tff_fedemb import config
from tff_fedemb.data import tfrecord_files

FILE_NAME = "emnist_all.sqlite"
# Of a compact file: pixels as bytes, paper 255.
PIXEL_BYTES_FEATURE = "pixels_uint8"

_PIXELS = glyphs.IMAGE_SIZE**2
_NUM_DIGITS = 10
# Every ninth digit and every ninth letter of a writer is for the test.
_TEST_PERIOD = 9
# Of a character in the file, and again the share of it that is digits.
_EXAMPLE_BYTES = 5_000
_COMPACT_EXAMPLE_BYTES = 1_000
# Raised whenever the same parameters start to give other data.
_GENERATOR_VERSION = 2
# Writers that are drawn at once.
_DRAWN = 16


@dataclasses.dataclass(frozen=True, kw_only=True)
class Config(store.Config):
  """What handwriting is made from.

  Attributes:
    examples_per_user: Expected number of characters a writer, both splits
      together; a writer has between half and one and a half times as many.
    compact: Whether pixels are bytes, as `tasks.emnist` reads them but not
      TensorFlow Federated, and digits have no splits of their own: a fifth of
      the size.
  """

  examples_per_user: int = config.field(112, minimum=16)
  compact: bool = False


class _Serializer:
  """Makes serialised examples, which differ in a few places only."""

  def __init__(self, compact: bool):
    # Anything that the rest of an example does not contain.
    content = np.random.default_rng(0).random(_PIXELS, np.float32).tobytes()
    name = "pixels"
    value: np.ndarray | bytes = np.frombuffer(content, np.float32)
    if compact:
      content = content[:_PIXELS]
      name, value = PIXEL_BYTES_FEATURE, content
    examples = [
      tfrecord_files.serialize_example({"label": label, name: value})
      for label in (1, 2)
    ]
    self._dtype = np.uint8 if compact else np.float32
    self._image_at = examples[0].index(content)
    self._row, other = (np.frombuffer(one, np.uint8) for one in examples)
    (self._label_at,) = np.flatnonzero(self._row != other)

  def serialize(self, images: np.ndarray, labels: np.ndarray) -> list[bytes]:
    """Serialises images uint8 `[n, ...]` with labels below 128."""
    rows = np.repeat(self._row[np.newaxis], len(labels), axis=0)
    rows[:, self._label_at] = labels
    pixels = images.reshape(len(labels), -1)
    if self._dtype == np.float32:
      pixels = (pixels / np.float32(255)).view(np.uint8)
    rows[:, self._image_at : self._image_at + pixels.shape[1]] = pixels
    return [row.tobytes() for row in rows]


def _split(labels: np.ndarray, compact: bool) -> dict[str, np.ndarray]:
  """Which examples of a writer are in a split: bool `[n]`."""
  is_digit = labels < _NUM_DIGITS
  is_test = np.zeros(len(labels), bool)
  # Digits and letters are split apart so that either subset has both parts.
  for group in (is_digit, ~is_digit):
    is_test[np.flatnonzero(group)[1::_TEST_PERIOD]] = True
  splits = {"all_train": ~is_test, "all_test": is_test}
  if not compact:
    splits["digits_only_train"] = ~is_test & is_digit
    splits["digits_only_test"] = is_test & is_digit
  return splits


def _draw_writers(given: Config) -> Iterator[tuple[np.ndarray, np.ndarray]]:
  """Yields images and labels of the writers, on all cores and ahead."""
  # TensorFlow takes seconds to load; a program's help does without it.
  import tensorflow as tf

  from tasks.synthetic import handwriting

  hands = handwriting.Handwriting(given.seed)

  # There is nothing to convert, which TensorFlow would take long to find.
  @tf.autograph.experimental.do_not_convert
  def draw(users):
    counts = hands.spread_images(users, given.examples_per_user)
    return (*hands.draw(users, counts), counts)

  users = tf.data.Dataset.range(given.num_users).batch(_DRAWN)
  drawn = users.map(draw, num_parallel_calls=tf.data.AUTOTUNE).prefetch(2)
  for images, labels, counts in drawn.as_numpy_iterator():
    ends = np.cumsum(counts)[:-1]
    yield from zip(np.split(images, ends), np.split(labels, ends), strict=True)


def _draw_rows(given: Config) -> Iterator[tuple[str, str, list[bytes]]]:
  """Yields splits, the writer and examples, by the seed and number alone."""
  serializer = _Serializer(given.compact)
  users = store.progress(range(given.num_users), desc="writers", unit="writer")
  for user, (images, labels) in zip(users, _draw_writers(given), strict=True):
    suffix = np.random.default_rng([given.seed, user]).integers(100)
    examples = serializer.serialize(images, labels)
    for split_name, chosen in _split(labels, given.compact).items():
      if chosen.any():
        kept = list(itertools.compress(examples, chosen))
        yield split_name, f"f{user:04d}_{suffix:02d}", kept


def _read_generator(path: pathlib.Path) -> Mapping[str, object]:
  uri = path.resolve().as_uri() + "?mode=ro"
  try:
    with contextlib.closing(sqlite3.connect(uri, uri=True)) as connection:
      return dict(connection.execute("SELECT key, value FROM generator"))
  except sqlite3.DatabaseError:
    return {}


def write_emnist(output_dir: store.Path, **fields: Any) -> str:
  """Writes handwriting-like data as federated EMNIST's `emnist_all.sqlite`.

  `tff.simulation.datasets.emnist.load_data(cache_dir=output_dir)` reads it. The
  splits are `all_train` and `all_test` (about one example in nine), and
  `digits_only_train` and `digits_only_test`, the digits among them. A writer is
  the same for a given seed however many others there are, and writes in the
  hand of the same user of task handwriting. The file, whose path is returned,
  takes about 0.5 MB a writer. Fields are those of `Config`.

  Raises:
    errors.FieldError: If one of them is out of range.
    errors.DataError: If there is a file of another making.
  """
  given = Config(**fields)
  found = given.parameters(_GENERATOR_VERSION)
  # The table holds texts.
  parameters = {name: str(value) for name, value in found.items()}

  def write(partial, missing):
    # TensorFlow takes seconds to load; a program's help does without it.
    from tff_fedemb.data import sqlite_examples

    (name,) = missing
    sqlite_examples.write_examples(partial / name, _draw_rows(given))
    opened = contextlib.closing(sqlite3.connect(partial / name))
    with opened as connection, connection:
      connection.execute("CREATE TABLE generator (key TEXT, value TEXT)")
      connection.executemany(
        "INSERT INTO generator VALUES (?, ?)", parameters.items()
      )

  (path,) = store.write_missing(
    output_dir,
    {FILE_NAME: parameters},
    _read_generator,
    write,
    num_bytes=given.num_users
    * given.examples_per_user
    * (_COMPACT_EXAMPLE_BYTES if given.compact else _EXAMPLE_BYTES),
  )
  return path


def contact_sheet(output_dir: store.Path, output_png: store.Path) -> None:
  """Draws the first 12 writers, one a row, with a column for each character."""
  import tensorflow as tf  # As above.

  size = glyphs.IMAGE_SIZE
  cell = size + 2
  path, rows = os.path.join(output_dir, FILE_NAME), []
  with contextlib.closing(sqlite3.connect(path)) as connection:
    found = connection.execute(
      "SELECT client_id, serialized_example_proto FROM examples"
      " WHERE split_name = 'all_train' ORDER BY client_id, rowid"
    )
    writers = itertools.groupby(found, operator.itemgetter(0))
    for _, examples in itertools.islice(writers, 12):
      row = np.full((cell, len(glyphs.CHARACTERS) * cell), 0.8)
      for _, proto in examples:
        feature = tf.train.Example.FromString(proto).features.feature
        left = feature["label"].int64_list.value[0] * cell + 1
        if PIXEL_BYTES_FEATURE in feature:
          content = feature[PIXEL_BYTES_FEATURE].bytes_list.value[0]
          pixels = np.frombuffer(content, np.uint8) / 255
        else:
          pixels = np.array(feature["pixels"].float_list.value)
        row[1 : size + 1, left : left + size] = pixels.reshape(size, size)
      rows.append(row)
  sheet = np.round(np.concatenate(rows) * 255).astype(np.uint8)
  Image.fromarray(sheet).save(output_png)
