"""An index of photos: whose they are, what they show and where they lie.

A folder or a table of millions of files is gone through once. What was found is
kept in an sqlite database in the cache directory, so that a later start reads
numbers alone and a client of training the paths of its own users alone, in
TensorFlow operations.

Users are numbered, and their names stay in the index: a name may hold anything
that a disk lets it.
"""

import collections
from collections.abc import Iterable, Iterator
import contextlib
import functools
import json
import os
import pathlib
import sqlite3
import stat
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from tff_fedemb import errors
from tff_fedemb.data import encoded_images
from tff_fedemb.data import population
from tff_fedemb.data import reading

SPLITS = ("train", "validation", "test")
TRAIN, VALIDATION, TEST = range(3)
# The split of photos that are in none.
LEFT_OUT = 3

# To be raised when the same photos would give another index.
VERSION = 2
# Of more photos it is not noticed that one stands in another's place.
MAX_WATCHED = 100_000
_SCHEMA = """
PRAGMA journal_mode = OFF;
PRAGMA synchronous = OFF;
CREATE TABLE facts (value TEXT);
CREATE TABLE sources (path BLOB, size INTEGER, mtime_ns INTEGER);
CREATE TABLE users (
    id INTEGER PRIMARY KEY, name TEXT, slot INTEGER, split INTEGER);
CREATE TABLE classes (
    id INTEGER PRIMARY KEY, name TEXT, label INTEGER, split INTEGER);
CREATE TABLE photos (
    id INTEGER PRIMARY KEY, user INTEGER, class INTEGER, split INTEGER,
    size INTEGER, mtime_ns INTEGER, path BLOB, converted BLOB);
CREATE TABLE faults (photo INTEGER PRIMARY KEY, what TEXT);
CREATE TABLE held_out (photo INTEGER PRIMARY KEY, label INTEGER, split INTEGER);
"""
_INDICES = """
CREATE INDEX photos_of_user ON photos (user);
CREATE UNIQUE INDEX user_of_slot ON users (slot) WHERE slot IS NOT NULL;
"""
_OF_CLIENT = (
  " FROM users JOIN photos ON photos.user = users.id JOIN classes ON"
  " classes.id = photos.class WHERE users.slot IN ("
)
# A table's own split is of its rows; else it is users or classes that have one.
_USED_TO_TRAIN = (
  f") AND coalesce(photos.split, users.split, classes.split) = {TRAIN}"
  " AND photos.id NOT IN (SELECT photo FROM faults)"
  " ORDER BY users.slot, photos.id"
)


class Photo(NamedTuple):
  """A photo as it is listed.

  Attributes:
    user: Whose it is.
    label: What it shows.
    path: Below the root, as the disk has it.
    size: Bytes, or -1 if there is no file.
    mtime_ns: When it was changed last, or -1.
    split: Index into `SPLITS`, if the list says so.
    fault: What is wrong with it, if anything.
  """

  user: str
  label: str
  path: bytes
  size: int
  mtime_ns: int
  split: int | None = None
  fault: str | None = None


def find_facts(path: bytes | str | os.PathLike[str]) -> tuple[int, int]:
  """Size and time of a file, (-1, time) of a folder; (-1, -1) if it is gone."""
  try:
    return facts_of(os.stat(path))
  except OSError:
    return -1, -1


def facts_of(facts: os.stat_result) -> tuple[int, int]:
  """Size and time of a file, (-1, time) of a folder."""
  size = -1 if stat.S_ISDIR(facts.st_mode) else facts.st_size
  return size, facts.st_mtime_ns


class Writer:
  """Writes an index, photo by photo."""

  def __init__(self, path: pathlib.Path):
    self._connection = sqlite3.connect(path, isolation_level=None)
    self._connection.executescript(_SCHEMA)
    self._connection.execute("BEGIN")
    self._numbers: dict[str, dict[str, int]] = {"users": {}, "classes": {}}
    self._num_photos = 0
    # Of each photo, int `[n, 5]`; the paths are in the database alone.
    self._numbers_of_photos: list[np.ndarray] = []

  def close(self) -> None:
    """Closes the database."""
    self._connection.close()

  def add(self, photos: Iterable[Photo]) -> None:
    """Adds photos, some thousands at a time."""
    users, classes = self._numbers["users"], self._numbers["classes"]
    rows, faults = [], []
    for photo in photos:
      number = self._num_photos + len(rows)
      rows.append(
        (
          number,
          users.setdefault(photo.user, len(users)),
          classes.setdefault(photo.label, len(classes)),
          photo.split,
          photo.size,
          photo.mtime_ns,
          photo.path,
        )
      )
      if photo.fault:
        faults.append((number, photo.fault))
    if not rows:
      return
    self._connection.executemany(
      "INSERT INTO photos VALUES (?, ?, ?, ?, ?, ?, ?, NULL)", rows
    )
    self.add_faults(faults)
    self._num_photos += len(rows)
    self._numbers_of_photos.append(
      np.array(
        [
          (user, label, -1 if split is None else split, size, hash(path))
          for _, user, label, split, size, _, path in rows
        ],
        np.int64,
      )
    )

  def add_faults(self, faults: Iterable[tuple[int, str]]) -> None:
    """Notes photos and what is wrong with them."""
    self._connection.executemany(
      "INSERT OR IGNORE INTO faults VALUES (?, ?)", faults
    )

  def set_converted(self, photo: int, path: bytes) -> None:
    """Says where the copy of a photo is that is to be read in its place."""
    self._connection.execute(
      "UPDATE photos SET converted = ? WHERE id = ?", (path, photo)
    )

  def query(self, statement: str) -> Iterator[tuple[Any, ...]]:
    """Reads what has been written up to now."""
    return self._connection.execute(statement)

  @property
  def names(self) -> tuple[list[str], list[str]]:
    """Names of users and of classes, by number."""
    return list(self._numbers["users"]), list(self._numbers["classes"])

  @functools.cached_property
  def _joined(self) -> np.ndarray:
    none = np.zeros([0, 5], np.int64)
    return np.concatenate([none, *self._numbers_of_photos])

  # To be asked for when all photos are added.

  @property
  def columns(self) -> np.ndarray:
    """int64 `[photos, 3]`: user, class and the list's own split, or -1."""
    return self._joined[:, :3]

  @property
  def sizes(self) -> np.ndarray:
    """int64 `[photos]`, bytes."""
    return self._joined[:, 3]

  @property
  def path_hashes(self) -> np.ndarray:
    """int64 `[photos]`, of this process alone."""
    return self._joined[:, 4]

  def leave_out(self, photo: int) -> None:
    """Has a photo be in no split."""
    self._connection.execute(
      f"UPDATE photos SET split = {LEFT_OUT} WHERE id = ?", (photo,)
    )
    self.columns[photo, 2] = LEFT_OUT

  def finish(
    self,
    *,
    slots: np.ndarray,
    labels: np.ndarray,
    splits: dict[str, np.ndarray],
    split_of_photo: np.ndarray,
    sources: Iterable[tuple[bytes, int, int]],
    facts: dict[str, Any],
  ) -> None:
    """Writes what follows from all photos.

    Args:
      slots: By user, their place among those who train, or -1.
      labels: By class.
      splits: Of users or of classes, whichever are held out whole.
      split_of_photo: What follows from that and from the list's own split.
      sources: Paths, sizes and times of what was looked at: while they are the
        same, so are the photos.
      facts: Of any kind, to be kept.
    """
    execute_all = self._connection.executemany
    for table, names, numbers in zip(
      ("users", "classes"), self.names, (slots, labels), strict=True
    ):
      split = splits.get(table, np.full(len(names), -1))
      execute_all(
        f"INSERT INTO {table} VALUES (?, ?, ?, ?)",
        (
          (i, name, n if n >= 0 else None, s if s >= 0 else None)
          for i, (name, n, s) in enumerate(
            zip(names, numbers.tolist(), split.tolist(), strict=True)
          )
        ),
      )
    held_out = np.flatnonzero(np.isin(split_of_photo, (VALIDATION, TEST)))
    execute_all(
      "INSERT INTO held_out VALUES (?, ?, ?)",
      zip(
        held_out.tolist(),
        labels[self.columns[held_out, 1]].tolist(),
        split_of_photo[held_out].tolist(),
        strict=True,
      ),
    )
    execute_all("INSERT INTO sources VALUES (?, ?, ?)", sources)
    self._connection.execute(
      "INSERT INTO facts VALUES (?)", (json.dumps(facts),)
    )
    self._connection.execute("COMMIT")
    self._connection.executescript(_INDICES)


class PhotoIndex:
  """An index that was written."""

  def __init__(self, path: pathlib.Path, root: bytes):
    """Opens an index of the photos below a folder, `root`.

    Raises:
      DataError: If it is damaged.
    """
    self._path = path.resolve()
    self._root = root
    # An SQL text of any bytes.
    folder = f"CAST(X'{os.path.join(root, b'').hex()}' AS TEXT)"
    self._path_of_photo = f"coalesce(photos.converted, {folder} || photos.path)"
    # What the writer was given to keep.
    self.facts = json.loads(self._query("SELECT value FROM facts")[0][0])

  def _query(self, statement: str, values: Any = ()) -> list[tuple[Any, ...]]:
    uri = f"{self._path.as_uri()}?mode=ro"
    try:
      with contextlib.closing(sqlite3.connect(uri, uri=True)) as connection:
        return connection.execute(statement, values).fetchall()
    except sqlite3.Error as error:
      raise errors.DataError(
        f"{self._path} must be an index of photos, found: {error}. Remove it;"
        " it is made again."
      ) from error

  def is_fresh(self) -> bool:
    """Whether folders, table and photos are what they were.

    Of photos beyond `MAX_WATCHED`, those that are at fault or converted.
    """
    photos = (
      "SELECT path, size, mtime_ns FROM photos WHERE"
      f" (SELECT max(id) FROM photos) < {MAX_WATCHED} OR converted IS NOT NULL"
      " OR id IN (SELECT photo FROM faults)"
    )
    return all(
      find_facts(os.path.join(self._root, path)) == tuple(facts)
      for statement in ("SELECT path, size, mtime_ns FROM sources", photos)
      for path, *facts in self._query(statement)
    ) and all(
      os.path.exists(path)
      for (path,) in self._query(
        "SELECT converted FROM photos WHERE converted IS NOT NULL"
      )
    )

  def faults(self) -> list[tuple[str, str]]:
    """The photos that cannot be used, and why."""
    return [
      (os.fsdecode(path), what)
      for path, what in self._query(
        "SELECT CAST(path AS BLOB), what FROM faults JOIN photos ON photos.id ="
        " photo ORDER BY photo"
      )
    ]

  def class_names(self, labels: Iterable[int]) -> list[str]:
    """What the classes of some labels are called."""
    names = dict(self._query("SELECT label, name FROM classes"))
    return [names[int(label)] for label in labels]

  def create_dataset(self, client_id: tf.Tensor) -> tf.data.Dataset:
    """Photos of a virtual client, in TensorFlow operations only.

    Args:
      client_id: The slots of its users, joined as a population does.

    Returns:
      Batches `OrderedDict(x=string [b] (encoded images), y=int64 [b])`, user by
      user.
    """
    slots = tf.strings.regex_replace(client_id, population.SEPARATOR, ",")
    query = tf.strings.join(
      [
        f"SELECT {self._path_of_photo}, classes.label{_OF_CLIENT}",
        slots,
        _USED_TO_TRAIN,
      ]
    )
    rows = tf.data.experimental.SqlDataset(
      "sqlite", str(self._path), query, (tf.string, tf.int64)
    )
    return rows.map(
      lambda path, label: collections.OrderedDict(
        x=tf.io.read_file(path), y=label
      )
    ).batch(encoded_images.READING_BATCH)

  def find_bad_examples(self, client_id: str) -> list[str]:
    """Reads the photos of a virtual client anew and decodes each.

    Returns:
      A line for each that cannot be used and is not left out.
    """
    slots = ",".join(population.user_ids_of(client_id))
    rows = self._query(
      f"SELECT CAST({self._path_of_photo} AS BLOB), photos.path{_OF_CLIENT}"
      f"{slots}{_USED_TO_TRAIN}"
    )
    return [
      f"{os.fsdecode(rows[row][1])}: {what}"
      for row, what in encoded_images.find_faults([path for path, _ in rows])
    ]

  def held_out(self, split: int) -> tuple[np.ndarray, np.ndarray]:
    """Photos of a split and their labels, int64 `[n]` both."""
    rows = self._query(
      "SELECT photo, label FROM held_out WHERE split = ? AND photo NOT IN"
      " (SELECT photo FROM faults) ORDER BY label, photo",
      (split,),
    )
    photos, labels = np.array(rows, np.int64).reshape(-1, 2).T
    return photos, labels

  def paths(self, photos: np.ndarray) -> list[str]:
    """The files to read of some photos, int64 `[m]`."""
    numbers = ",".join(map(str, photos.tolist()))
    found = dict(
      self._query(
        f"SELECT id, CAST({self._path_of_photo} AS BLOB) FROM photos WHERE id"
        f" IN ({numbers})"
      )
    )
    return [os.fsdecode(found[photo]) for photo in photos.tolist()]

  def read(self, photos: np.ndarray) -> list[bytes]:
    """Reads some photos, int64 `[m]`, as they are encoded."""
    contents = []
    for path in self.paths(photos):
      try:
        contents.append(pathlib.Path(path).read_bytes())
      except OSError as error:
        raise reading.create_error(path, error) from error
    return contents
