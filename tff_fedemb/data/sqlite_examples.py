"""Client data in the sqlite format of `tff.simulation.datasets`.

Tables `examples(split_name, client_id, serialized_example_proto)` and
`client_metadata(client_id, split_name, num_examples)`. One query reads a
virtual client, however many users it merges.
"""

from collections.abc import Iterable, Iterator
import contextlib
import itertools
import os
import pathlib
import sqlite3

import tensorflow as tf

from tff_fedemb import errors
from tff_fedemb import progress as progress_lib
from tff_fedemb import whole_files
from tff_fedemb.data import population

_READING_BATCH = 512
# Split, user, and the user's serialised examples, if any.
_Rows = Iterable[tuple[str, str, Iterable[bytes]]]

_SCHEMA = """
CREATE TABLE examples (
    split_name TEXT NOT NULL,
    client_id TEXT NOT NULL,
    serialized_example_proto BLOB NOT NULL);
CREATE TABLE client_metadata (
    client_id TEXT NOT NULL,
    split_name TEXT NOT NULL,
    num_examples INTEGER NOT NULL);
"""
_INDEX = "CREATE INDEX examples_of_client ON examples (split_name, client_id);"


class SqliteExamples:
  """One split of a database, read by user.

  Attributes:
    user_ids: All users of the split, sorted, with those without examples.
    num_examples: Number of examples of the split.
  """

  def __init__(self, path: str | os.PathLike[str], split_name: str):
    """Opens the database and checks that it is whole.

    Args:
      path: The file, which stays as it is while this object is used.
      split_name: Name of the split, for example "train".

    Raises:
      DataError: If the file is no such database, is damaged, or has no example
        in the split.
    """
    self._path = pathlib.Path(path)
    self._split_name = split_name
    try:
      with self._connect() as connection:
        self._check_size(connection)
        users = connection.execute(
          "SELECT client_id, num_examples FROM client_metadata WHERE split_name"
          " = ? ORDER BY client_id",
          (split_name,),
        ).fetchall()
        example = connection.execute(
          "SELECT client_id, serialized_example_proto FROM examples WHERE"
          " split_name = ? LIMIT 1",
          (split_name,),
        ).fetchone()
    except (sqlite3.Error, OSError) as error:
      raise errors.DataError(
        f"{self._path} must be a sqlite database with tables examples and"
        f" client_metadata, found: {error}."
      ) from error
    if not users or not example:
      raise errors.DataError(
        f"{self._path} has no example in split {split_name!r}."
      )
    # A URI keeps TensorFlow's reader from locking the file and from checking
    # repeatedly whether it changed, which took half of a query's time. Files
    # are replaced as a whole, never modified.
    self._address = f"{self._path.resolve().as_uri()}?mode=ro&immutable=1"
    self.user_ids = [user_id for user_id, _ in users]
    self.num_examples = sum(number for _, number in users)

  def _check_size(self, connection: sqlite3.Connection) -> None:
    """Refuses a truncated file without reading its pages."""
    ((expected,),) = connection.execute(
      "SELECT page_count * page_size FROM pragma_page_count, pragma_page_size"
    )
    size = self._path.stat().st_size
    if size < expected:
      raise errors.DataError(
        f"{self._path} is truncated: {size} of {expected} bytes."
      )

  def _connect(self) -> contextlib.closing[sqlite3.Connection]:
    """Opens the database, only to read it."""
    uri = f"{self._path.resolve().as_uri()}?mode=ro"
    return contextlib.closing(sqlite3.connect(uri, uri=True))

  def create_dataset(self, client_id: tf.Tensor) -> tf.data.Dataset:
    """Reads a virtual client's examples, with TensorFlow operations only.

    Args:
      client_id: Identifier of the virtual client, a string scalar.

    Returns:
      Batches of up to 512 serialised examples, strings `[b]`, ordered by user.
    """
    users = tf.strings.regex_replace(client_id, population.SEPARATOR, "','")
    before = (
      "SELECT serialized_example_proto FROM examples WHERE split_name ="
      f" '{self._split_name}' AND client_id IN ('"
    )
    after = "') ORDER BY client_id, rowid"
    query = tf.strings.join([before, users, after])
    rows = tf.data.experimental.SqlDataset(
      "sqlite", self._address, query, (tf.string,)
    )
    return rows.batch(_READING_BATCH)

  def read_batches(
    self,
    description: str | None,
    *,
    limit: int = -1,
  ) -> Iterator[list[bytes]]:
    """Yields serialised examples of the split user by user, some at a time.

    Args:
      description: Name of the progress bar; None for no bar.
      limit: Largest number of examples; -1 for all.

    Yields:
      Lists of up to 512 examples.

    Raises:
      DataError: If the database is damaged.
    """
    try:
      with self._connect() as connection:
        rows = connection.execute(
          "SELECT serialized_example_proto FROM examples WHERE split_name = ?"
          " ORDER BY client_id, rowid LIMIT ?",
          (self._split_name, limit),
        )
        with progress_lib.create_bar(
          description, unit="examples", total=self.num_examples
        ) as progress:
          while batch := rows.fetchmany(_READING_BATCH):
            yield [example for (example,) in batch]
            progress.update(len(batch))
    except sqlite3.Error as error:
      raise errors.DataError(
        f"{self._path} must be a whole sqlite database, found: {error}."
      ) from error

  def read_serialized(self, *, limit: int = -1) -> list[bytes]:
    """Reads serialised examples of the split into one list.

    Args:
      limit: See `read_batches`.

    Returns:
      The examples, ordered by user.

    Raises:
      DataError: If the database is damaged.
    """
    batches = self.read_batches(None, limit=limit)
    return list(itertools.chain.from_iterable(batches))


def write_examples(path: str | os.PathLike[str], rows: _Rows) -> None:
  """Writes a database, whole or not at all.

  Args:
    path: Path of the database; an existing file is replaced. Its folder is
      made.
    rows: Split, user and serialised examples of each user, taken one at a
      time. A user without examples is listed all the same.

  Raises:
    OSError: If the folder cannot be made, or the file moved to its place.
    errors.StorageError: If the disk is full, or the file cannot be written.
  """
  path = pathlib.Path(path)
  path.parent.mkdir(parents=True, exist_ok=True)
  with whole_files.replacing(path) as partial:
    try:
      _write(partial, rows)
    except sqlite3.OperationalError as error:
      raise errors.StorageError(
        f"{path} cannot be written: {error}."
      ) from error


def _write(path: pathlib.Path, rows: _Rows) -> None:
  """Writes a database that is not there yet."""
  with (
    contextlib.closing(sqlite3.connect(path)) as connection,
    connection,
  ):
    # An incomplete file is removed, so that no rollback is needed.
    connection.execute("PRAGMA journal_mode = OFF")
    connection.executescript(_SCHEMA)
    for split_name, user_id, found in rows:
      examples = [(split_name, user_id, example) for example in found]
      connection.executemany("INSERT INTO examples VALUES (?, ?, ?)", examples)
      connection.execute(
        "INSERT INTO client_metadata VALUES (?, ?, ?)",
        (user_id, split_name, len(examples)),
      )
    connection.executescript(_INDEX)
