"""Federated EMNIST's file, filled with synthetic handwriting.

Federated EMNIST (Caldas et al., 2018, "LEAF: A Benchmark for Federated
Settings", arXiv 1812.01097; characters from Cohen et al., 2017, "EMNIST: an
extension of MNIST to handwritten letters") groups 62 handwritten characters by
the person who wrote them. TensorFlow Federated reads it from one SQLite file,
`emnist_all.sqlite`. This module writes such a file without any real data.
"""

from collections.abc import Iterator
from collections.abc import Mapping
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

_NUM_DIGITS = 10
_TEST_FRACTION = 0.11
# Of a character in the file, and again the share of it that is digits.
_EXAMPLE_BYTES = 5_000
# Raised whenever the same parameters start to give other data.
_GENERATOR_VERSION = 1


def _draw_labels(
  generator: np.random.Generator, num_examples: int
) -> np.ndarray:
  """Labels of one writer: most characters, unevenly often."""
  held = np.flatnonzero(generator.random(len(glyphs.CHARACTERS)) < 0.93)
  held = generator.permutation(held)[:num_examples]
  # Half of the real characters are digits, from a sixth of the classes.
  weights = generator.gamma(2.0, size=len(held))
  weights *= np.where(held < _NUM_DIGITS, 2.0, 1.0)
  repeats = generator.choice(
    held, size=num_examples - len(held), p=weights / weights.sum()
  )
  return generator.permutation(np.concatenate([held, repeats]))


@dataclasses.dataclass(frozen=True, kw_only=True)
class Config(store.Config):
  """What handwriting is made from.

  Attributes:
    examples_per_user: Expected number of characters a writer, both splits
      together; a writer has between half and one and a half times as many.
  """

  examples_per_user: int = config.field(112, minimum=16)


def _draw_writer(
  given: Config, user: int
) -> Iterator[tuple[str, str, list[bytes]]]:
  """Yields splits, the writer and examples, by the seed and number alone."""
  generator = np.random.default_rng(np.random.SeedSequence([given.seed, user]))
  client_id = f"f{user:04d}_{generator.integers(100):02d}"
  spread = generator.uniform(0.5, 1.5)
  num_examples = max(8, round(given.examples_per_user * spread))
  labels = _draw_labels(generator, num_examples)
  is_digit = labels < _NUM_DIGITS
  is_test = np.zeros(len(labels), bool)
  # Digits and letters are split apart so that either subset has both parts.
  for group in (is_digit, ~is_digit):
    members = generator.permutation(np.flatnonzero(group))
    if len(members) >= 2:
      is_test[members[: max(1, round(_TEST_FRACTION * len(members)))]] = True
  images = glyphs.draw_images(generator, labels)
  protos = [
    tfrecord_files.serialize_example({"label": label, "pixels": image})
    for label, image in zip(labels, images, strict=True)
  ]
  for split_name, chosen in (
    ("all_train", ~is_test),
    ("all_test", is_test),
    ("digits_only_train", ~is_test & is_digit),
    ("digits_only_test", is_test & is_digit),
  ):
    if chosen.any():
      yield split_name, client_id, list(itertools.compress(protos, chosen))


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
  the same for a given seed however many others there are. The file, whose path
  is returned, takes about 0.5 MB a writer. Fields are those of `Config`.

  Raises:
    errors.FieldError: If one of them is out of range.
    errors.DataError: If there is a file of another making.
  """
  given = Config(**fields)
  fields = {"generator_version": _GENERATOR_VERSION} | dataclasses.asdict(given)
  # The table holds texts.
  parameters = {name: str(value) for name, value in fields.items()}

  def write(partial, missing):
    # TensorFlow takes seconds to load; a program's help does without it.
    from tff_fedemb.data import sqlite_examples

    (name,) = missing
    users = store.progress(
      range(given.num_users), desc="writers", unit="writer"
    )
    sqlite_examples.write_examples(
      partial / name,
      itertools.chain.from_iterable(_draw_writer(given, u) for u in users),
    )
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
    num_bytes=given.num_users * given.examples_per_user * _EXAMPLE_BYTES,
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
        pixels = np.reshape(feature["pixels"].float_list.value, (size, size))
        row[1 : size + 1, left : left + size] = pixels
      rows.append(row)
  sheet = np.round(np.concatenate(rows) * 255).astype(np.uint8)
  Image.fromarray(sheet).save(output_png)
