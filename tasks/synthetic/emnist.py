"""Federated EMNIST's file, filled with synthetic handwriting.

Federated EMNIST (Caldas et al., 2018, "LEAF: A Benchmark for Federated
Settings", arXiv 1812.01097; characters from Cohen et al., 2017, "EMNIST: an
extension of MNIST to handwritten letters") groups 62 handwritten characters by
the person who wrote them. TensorFlow Federated reads it from one SQLite file,
`emnist_all.sqlite`. This module writes such a file without any real data.
"""

from collections.abc import Mapping
import contextlib
import dataclasses
import os
import pathlib
import sqlite3

import numpy as np
from PIL import Image
import tqdm

from tasks.synthetic import glyphs
from tasks.synthetic import store
from tff_fedemb import checks

FILE_NAME = "emnist_all.sqlite"

_NUM_DIGITS = 10
_TEST_FRACTION = 0.11
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
  client_id = f"f{user_index:04d}_{generator.integers(100):02d}"
  spread = generator.uniform(0.5, 1.5)
  labels = _draw_labels(generator, max(8, round(examples_per_user * spread)))
  is_test = np.zeros(len(labels), bool)
  # Digits and letters are split apart so that either subset has both parts.
  for group in (labels < _NUM_DIGITS, labels >= _NUM_DIGITS):
    members = generator.permutation(np.flatnonzero(group))
    if len(members) >= 2:
      is_test[members[: max(1, round(_TEST_FRACTION * len(members)))]] = True
  images = glyphs.draw_images(generator, labels)
  return _Writer(client_id, labels, images, is_test)


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
  pixels_feature = _field(2, _field(1, image.astype("<f4").tobytes()))
  return _field(
    1,
    _field(1, _field(1, b"label") + _field(2, label_feature))
    + _field(1, _field(1, b"pixels") + _field(2, pixels_feature)),
  )


def read_generator(path: str | os.PathLike[str]) -> Mapping[str, str]:
  """Returns what a file says about its making; nothing if not made here."""
  uri = pathlib.Path(path).resolve().as_uri() + "?mode=ro"
  try:
    with contextlib.closing(sqlite3.connect(uri, uri=True)) as connection:
      return dict(connection.execute("SELECT key, value FROM generator"))
  except sqlite3.DatabaseError:
    return {}


def _insert_writer(connection: sqlite3.Connection, writer: _Writer) -> None:
  """Adds a writer's examples to all splits that hold any of them."""
  protos = [
    _serialize(int(label), image)
    for label, image in zip(writer.labels, writer.images, strict=True)
  ]
  is_digit = writer.labels < _NUM_DIGITS
  for split_name, chosen in (
    ("all_train", ~writer.is_test),
    ("all_test", writer.is_test),
    ("digits_only_train", ~writer.is_test & is_digit),
    ("digits_only_test", writer.is_test & is_digit),
  ):
    if not chosen.any():
      continue
    connection.executemany(
      "INSERT INTO examples VALUES (?, ?, ?)",
      (
        (split_name, writer.client_id, protos[index])
        for index in np.flatnonzero(chosen)
      ),
    )
    connection.execute(
      "INSERT INTO client_metadata VALUES (?, ?, ?)",
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
    errors.FieldError: If an argument is out of range.
    errors.DataError: If the file exists and was made with other arguments, or
      not by this function.
    OSError: If `output_dir` cannot be created or written.
  """
  checks.check_integer("num_users", num_users, minimum=1)
  checks.check_integer("seed", seed, minimum=0)
  checks.check_integer("examples_per_user", examples_per_user, minimum=16)
  parameters = {
    "generator_version": str(_GENERATOR_VERSION),
    "num_users": str(num_users),
    "seed": str(seed),
    "examples_per_user": str(examples_per_user),
  }
  output_dir = store.create_dir(output_dir)
  path = output_dir / FILE_NAME
  if store.is_made(path, parameters, read_generator(path)):
    return str(path)
  with store.partial_dir(output_dir) as partial:
    with contextlib.closing(sqlite3.connect(partial / FILE_NAME)) as connection:
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
        "INSERT INTO generator VALUES (?, ?)", parameters.items()
      )
      for user in tqdm.trange(
        num_users, desc="writers", unit="writer", disable=None
      ):
        _insert_writer(
          connection, _create_writer(seed, user, examples_per_user)
        )
      connection.execute(
        "CREATE INDEX examples_by_client ON examples (split_name, client_id)"
      )
      connection.commit()
    store.move(partial / FILE_NAME, path)
  return str(path)


def contact_sheet(
  output_dir: str | os.PathLike[str],
  output_png: str | os.PathLike[str],
  *,
  num_users: int = 12,
  split_name: str = "all_train",
) -> None:
  """Draws one row a writer and one column a character.

  Args:
    output_dir: Directory of the file, generated or real.
    output_png: Where to write the picture.
    num_users: Number of writers to show, the first in the order of their ids.
    split_name: The split to show.
  """
  import tensorflow as tf  # Takes seconds to load; only this needs it.

  size = glyphs.IMAGE_SIZE
  cell = size + 2
  path = os.path.join(output_dir, FILE_NAME)
  with contextlib.closing(sqlite3.connect(path)) as connection:
    clients = connection.execute(
      "SELECT DISTINCT client_id FROM client_metadata WHERE split_name = ?"
      " ORDER BY client_id LIMIT ?",
      (split_name, num_users),
    ).fetchall()
    sheet = np.full((len(clients) * cell, len(glyphs.CHARACTERS) * cell), 0.8)
    for top, client in zip(range(1, len(sheet), cell), clients, strict=True):
      for (proto,) in connection.execute(
        "SELECT serialized_example_proto FROM examples"
        " WHERE split_name = ? AND client_id = ?",
        (split_name, *client),
      ):
        feature = tf.train.Example.FromString(proto).features.feature
        label = feature["label"].int64_list.value[0]
        left = label * cell + 1
        sheet[top : top + size, left : left + size] = np.reshape(
          feature["pixels"].float_list.value, (size, size)
        )
  Image.fromarray(np.round(sheet * 255).astype(np.uint8)).save(output_png)
