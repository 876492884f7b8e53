"""An index of photos: their users, classes and files.

A folder or a table of millions of files is read once. The index is kept in the
cache directory. A later start reads only counts, and a client in training reads
only the paths of its own users. It is an sqlite database because TensorFlow
operations can query one, as `tff.simulation.datasets` does.

The index holds numbers of users, not their names, which may contain any
character.
"""

from __future__ import annotations

import collections
import contextlib
import json
import os
import pathlib
import sqlite3
import stat
from typing import Any

from etils import epy
import numpy as np

from tff_fedemb import errors
from tff_fedemb.data import bad_examples
from tff_fedemb.data import population

with epy.lazy_imports():
  import pandas as pd
  import tensorflow as tf

  from tff_fedemb.data import encoded_images

SPLITS = ("train", "validation", "test")
TRAIN, VALIDATION, TEST = range(3)
# The split of photos that are not used.
LEFT_OUT = 3

# A task holds out whole classes, whole users, or what a table's column says.
HOLD_OUT = ("classes", "users", "split_column")

# Above this number, converted copies are found by name alone, so that a million
# photos are listed in seconds; a photo replaced under the same name is not
# noticed.
MAX_LOOKED_INTO = 100_000

# Raise this when the same photos would give a different index.
VERSION = 8

# The query for the training photos of some users; their slots go between.
_BEFORE_SLOTS = "SELECT file, label FROM photos WHERE slot IN ("
_AFTER_SLOTS = f") AND split = {TRAIN} ORDER BY slot, rowid"


def look_at(path: bytes | str) -> tuple[int, int, str | None]:
  """Examines a file that may be a photo, without opening it.

  Args:
    path: The file.

  Returns:
    Its size in bytes, or -1 if it is a folder; its time of change in
    nanoseconds; and its fault, or None. Both numbers are -1 if it does not
    exist or cannot be examined.
  """
  try:
    facts = os.stat(path)
  except OSError as error:
    return -1, -1, bad_examples.describe_fault(error)
  size = -1 if stat.S_ISDIR(facts.st_mode) else facts.st_size
  if not stat.S_ISREG(facts.st_mode):
    return size, facts.st_mtime_ns, "no file"
  return size, facts.st_mtime_ns, None if size else "empty"


def write(
  path: pathlib.Path,
  *,
  photos: pd.DataFrame,
  watched: pd.DataFrame,
  facts: dict[str, Any],
) -> None:
  """Writes an index.

  Args:
    path: The file of the index, which is new or empty.
    photos: A row for each photo that is used: `slot`, the place of its user
      among those who train, `label`, `split` and `file`, a path in bytes.
    watched: Files and folders that were read, with `file`, `size` and
      `mtime_ns`. While these do not change, neither do the photos.
    facts: Further facts, as JSON values by name.
  """
  tables = {
    "photos": photos,
    "watched": watched,
    "facts": pd.DataFrame({"value": [json.dumps(facts)]}),
  }
  with contextlib.closing(sqlite3.connect(path)) as connection, connection:
    for name, table in tables.items():
      table.to_sql(name, connection, index=False)
    connection.execute("CREATE INDEX photos_of_slot ON photos (slot)")


class PhotoIndex:
  """An index that was written.

  Attributes:
    facts: The facts that were given to `write`.
  """

  def __init__(self, path: pathlib.Path):
    """Opens an index.

    Args:
      path: The file that `write` wrote.

    Raises:
      DataError: If it is damaged.
    """
    self._path = path.resolve()
    facts = self._read("SELECT value FROM facts")
    self.facts = json.loads(facts["value"][0])

  def _read(self, query: str) -> pd.DataFrame:
    """Returns the rows that a query finds.

    Raises:
      DataError: If the index is damaged.
    """
    uri = f"{self._path.as_uri()}?mode=ro"
    try:
      with contextlib.closing(sqlite3.connect(uri, uri=True)) as connection:
        return pd.read_sql_query(query, connection)
    except (sqlite3.Error, pd.errors.DatabaseError) as error:
      raise errors.DataError(
        f"{self._path} must be an index of photos, found:"
        f" {errors.first_line(error)}. Remove it; it is made again."
      ) from error

  def is_fresh(self) -> bool:
    """Whether no watched file or folder has changed.

    Compares sizes and times of change, not contents.

    Raises:
      DataError: If the index is damaged.
    """
    watched = self._read("SELECT file, size, mtime_ns FROM watched")
    for file, size, mtime_ns in watched.itertuples(index=False):
      if look_at(file)[:2] != (size, mtime_ns):
        return False
    return True

  def create_dataset(self, client_id: tf.Tensor) -> tf.data.Dataset:
    """Reads a virtual client's photos, with TensorFlow operations only.

    Args:
      client_id: The slots of its users, joined as a population does.

    Returns:
      Batches `OrderedDict(x=string [b] (encoded images), y=int64 [b])`, user by
      user.
    """
    slots = tf.strings.regex_replace(client_id, population.SEPARATOR, ",")
    query = tf.strings.join([_BEFORE_SLOTS, slots, _AFTER_SLOTS])
    rows = tf.data.experimental.SqlDataset(
      "sqlite", str(self._path), query, (tf.string, tf.int64)
    )

    def read_photo(path: tf.Tensor, label: tf.Tensor) -> dict[str, tf.Tensor]:
      return collections.OrderedDict(x=tf.io.read_file(path), y=label)

    return rows.map(read_photo).batch(encoded_images.READING_BATCH)

  def find_bad_examples(self, client_id: str) -> list[str]:
    """Reads the photos of a virtual client anew and decodes each.

    Args:
      client_id: Identifier of the virtual client.

    Returns:
      A line "file: fault" for each photo that the index lists and that cannot
      be used.

    Raises:
      DataError: If the index is damaged.
    """
    slots = ",".join(population.user_ids_of(client_id))
    files = self._read(_BEFORE_SLOTS + slots + _AFTER_SLOTS)["file"]
    lines = []
    for row, what in encoded_images.find_faults(files):
      lines.append(f"{os.fsdecode(files[row])}: {what}")
    return lines

  def held_out(self, split: int) -> tuple[np.ndarray, np.ndarray]:
    """Lists the photos of a split that is held out, ordered by label.

    Args:
      split: `VALIDATION` or `TEST`.

    Returns:
      Files, paths in bytes, `[n]`; and their labels, int64 `[n]`.

    Raises:
      DataError: If the index is damaged.
    """
    rows = self._read(
      f"SELECT file, label FROM photos WHERE split = {split} ORDER BY label,"
      " rowid"
    )
    return rows["file"].to_numpy(), rows["label"].to_numpy(np.int64)
