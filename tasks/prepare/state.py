"""What is known of a preparation so far, kept so that it can be taken up again.

A small sqlite file: which archives were looked through and found whole, where
the images that are needed lie, and what was left out. Which users are finished
is not in it: a user is finished when its file is there.
"""

from collections.abc import Iterable
from collections.abc import Iterator
import contextlib
import dataclasses
import json
import os
import pathlib
import sqlite3

from tasks.prepare import job as job_lib
from tff_fedemb import errors

_SCHEMA = """
BEGIN;
CREATE TABLE IF NOT EXISTS identity (value TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS archives (
    path TEXT PRIMARY KEY, size INTEGER NOT NULL, modified INTEGER NOT NULL,
    listed INTEGER NOT NULL DEFAULT 0, verified INTEGER NOT NULL DEFAULT 0);
CREATE TABLE IF NOT EXISTS images (
    image_id TEXT PRIMARY KEY, archive TEXT NOT NULL, path TEXT NOT NULL,
    first_byte INTEGER NOT NULL, size INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS left_out (
    file TEXT NOT NULL, image_id TEXT NOT NULL, line TEXT NOT NULL);
CREATE INDEX IF NOT EXISTS left_out_of_file ON left_out (file);
CREATE INDEX IF NOT EXISTS images_of_archive ON images (archive);
COMMIT;
"""


@dataclasses.dataclass(frozen=True)
class Location:
  """Where the bytes of an image are: a piece of a file.

  Attributes:
    path: The file: a tar, the image itself, or the spool.
    first_byte: Offset in it.
    size: Number of bytes.
  """

  path: str
  first_byte: int
  size: int

  def read(self) -> bytes:
    """The image as it was published.

    Raises:
      DataError: If the file became shorter.
    """
    with open(self.path, "rb", buffering=0) as file:
      file.seek(self.first_byte)
      content = file.read(self.size)
    if len(content) != self.size:
      raise errors.DataError(
        f"{self.path} must not change while it is read, found it shorter than"
        " it was."
      )
    return content


class State:
  """The sqlite file, or a copy of it in memory."""

  def __init__(self, path: pathlib.Path, *, in_memory: bool = False):
    """Opens or creates the state.

    Args:
      path: The file.
      in_memory: Whether to work on a copy in memory and write nothing.

    Raises:
      DataError: If the file is no such database.
    """
    self._path = path
    try:
      self._connection = sqlite3.connect(":memory:" if in_memory else path)
      if in_memory and path.exists():
        with contextlib.closing(sqlite3.connect(path)) as stored:
          stored.backup(self._connection)
      self._connection.executescript(_SCHEMA)
    except sqlite3.DatabaseError as error:
      raise errors.DataError(
        f"{path} must be the state of a preparation, found: {error}. Remove"
        f" {path.parent} to start again."
      ) from error

  def close(self) -> None:
    """Closes the file."""
    self._connection.close()

  def check_identity(self, identity: dict[str, object]) -> None:
    """Notes what is prepared, or checks that it is what was begun.

    Args:
      identity: The task, the variant and the checksums of the tables.

    Raises:
      DataError: If something else was begun.
    """
    row = self._connection.execute("SELECT value FROM identity").fetchone()
    value = json.dumps(identity, sort_keys=True)
    if row is None:
      with self._connection:
        self._connection.execute("INSERT INTO identity VALUES (?)", (value,))
    elif row[0] != value:
      raise errors.DataError(
        f"{self._path.parent} must be of {job_lib.describe_tables(identity)},"
        " found that it was begun from"
        f" {job_lib.describe_tables(json.loads(row[0]))}. Remove it, or"
        " choose another --output_dir."
      )

  def forget_changed(self, paths: Iterable[pathlib.Path]) -> None:
    """Forgets archives that are gone or changed, and where their images lay.

    Args:
      paths: Archives that are there now.
    """
    now = {os.fspath(path): path.stat() for path in paths}
    with self._connection:
      known = self._connection.execute(
        "SELECT path, size, modified FROM archives"
      ).fetchall()
      for path, size, modified in known:
        found = now.get(path)
        if found is None or (size, modified) != (
          found.st_size,
          found.st_mtime_ns,
        ):
          for table, column in (("archives", "path"), ("images", "archive")):
            self._connection.execute(
              f"DELETE FROM {table} WHERE {column} = ?", (path,)
            )
      self._connection.executemany(
        "INSERT OR IGNORE INTO archives (path, size, modified)"
        " VALUES (?, ?, ?)",
        [(p, s.st_size, s.st_mtime_ns) for p, s in now.items()],
      )

  def forget_lost(self) -> None:
    """Forgets images whose file is gone, or ends before them."""
    pieces = self._connection.execute(
      "SELECT path, archive, MAX(first_byte + size) FROM images"
      " GROUP BY path, archive"
    ).fetchall()
    with self._connection:
      for path, archive, length in pieces:
        if not os.path.exists(path) or os.path.getsize(path) < length:
          self._connection.execute("DELETE FROM images WHERE path = ?", (path,))
          self._connection.execute(
            "UPDATE archives SET listed = 0 WHERE path = ?", (archive,)
          )

  def is_marked(self, path: pathlib.Path, mark: str) -> bool:
    """Whether an archive is "listed" or "verified"."""
    row = self._connection.execute(
      f"SELECT {mark} FROM archives WHERE path = ?", (os.fspath(path),)
    ).fetchone()
    return bool(row and row[0])

  def mark(self, path: pathlib.Path, mark: str) -> None:
    """Notes that an archive was "listed" or "verified"."""
    with self._connection:
      self._connection.execute(
        f"UPDATE archives SET {mark} = 1 WHERE path = ?", (os.fspath(path),)
      )

  def add_images(
    self,
    archive: pathlib.Path,
    locations: Iterable[tuple[str, Location]],
  ) -> None:
    """Notes where images lie; an image that is known stays where it is.

    Args:
      archive: What the images came in.
      locations: Pairs of an image's id and where it lies.
    """
    with self._connection:
      self._connection.executemany(
        "INSERT OR IGNORE INTO images VALUES (?, ?, ?, ?, ?)",
        [
          (image_id, os.fspath(archive), at.path, at.first_byte, at.size)
          for image_id, at in locations
        ],
      )

  def forget_images(self, archive: pathlib.Path) -> None:
    """Forgets where the images of an archive or a folder lie."""
    with self._connection:
      self._connection.execute(
        "DELETE FROM images WHERE archive = ?", (os.fspath(archive),)
      )

  def find(self, image_id: str) -> Location | None:
    """Where an image lies, if it was found."""
    row = self._connection.execute(
      "SELECT path, first_byte, size FROM images WHERE image_id = ?",
      (image_id,),
    ).fetchone()
    return Location(*row) if row else None

  def image_sizes(self) -> dict[str, int]:
    """Bytes of each image that was found, by its id."""
    return dict(self._connection.execute("SELECT image_id, size FROM images"))

  def archives_in_use(self) -> set[str]:
    """Archives and folders that some image lies in."""
    rows = self._connection.execute("SELECT DISTINCT archive FROM images")
    return {row[0] for row in rows}

  def length_of(self, path: pathlib.Path) -> int:
    """Bytes of a file up to the end of the last image that lies in it."""
    (length,) = self._connection.execute(
      "SELECT MAX(first_byte + size) FROM images WHERE path = ?",
      (os.fspath(path),),
    ).fetchone()
    return length or 0

  def set_left_out(self, file: str, lines: Iterable[tuple[str, str]]) -> None:
    """Notes what a file of the output lacks, in place of what was noted.

    Args:
      file: Name of the file, such as "train/17".
      lines: Pairs of an image's id and a line that says why.
    """
    lines = list(lines)
    query = "SELECT 1 FROM left_out WHERE file = ?"
    if not lines and not self._connection.execute(query, (file,)).fetchone():
      return
    with self._connection:
      self._connection.execute("DELETE FROM left_out WHERE file = ?", (file,))
      self._connection.executemany(
        "INSERT INTO left_out VALUES (?, ?, ?)",
        [(file, image_id, line) for image_id, line in lines],
      )

  def left_out(self) -> Iterator[tuple[str, str, str]]:
    """Yields file, image's id and line of all that was left out."""
    yield from self._connection.execute(
      "SELECT file, image_id, line FROM left_out ORDER BY rowid"
    ).fetchall()
