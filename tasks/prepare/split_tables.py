"""The tables that say which user holds which image, and what is in it.

The federated splits of Google Landmarks v2 and iNaturalist 2017 (Hsu et al.,
2020, ECCV, https://arxiv.org/abs/2003.08082) are published as CSV files: the
training table has a column of users, `image_id` and `class`; the test table has
`image_id` and `class`. The images are published elsewhere.
"""

import collections
from collections.abc import Mapping
from collections.abc import Sequence
import csv
import dataclasses
import hashlib
import io
import pathlib
import zipfile

from tff_fedemb import errors
from tff_fedemb.data import reading
from tff_fedemb.data import tfrecord_writing

IMAGE_COLUMN = "image_id"
CLASS_COLUMN = "class"

# What stands in the column of users for an image that is in no user's data.
_NO_USER = "NA"


@dataclasses.dataclass(frozen=True, slots=True)
class Row:
  """One labelled image of a user or of the test set."""

  image_id: str
  label: int


@dataclasses.dataclass(frozen=True)
class SplitTables:
  """A federated split.

  Attributes:
    users: Rows of each user, users and rows in the order of the table.
    test: Rows of the test set.
    md5: MD5 of each table by its file's name.
  """

  users: Mapping[str, Sequence[Row]]
  test: Sequence[Row]
  md5: Mapping[str, str]

  @property
  def image_ids(self) -> set[str]:
    """All images that are named."""
    return {row.image_id for rows in self.users.values() for row in rows} | {
      row.image_id for row in self.test
    }


@dataclasses.dataclass(frozen=True)
class TableFile:
  """A CSV file as it was found, in a folder or in a zip.

  Attributes:
    path: The file, or the zip.
    member: Name inside the zip; None for a plain file.
  """

  path: pathlib.Path
  member: str | None = None

  @property
  def name(self) -> str:
    """The table's own file name."""
    return pathlib.PurePosixPath(self.member or self.path.name).name

  def __str__(self) -> str:
    return f"{self.path}/{self.member}" if self.member else str(self.path)

  def read(self) -> bytes:
    """Its content.

    Raises:
      DataError: If the zip is damaged.
    """
    if self.member is None:
      return self.path.read_bytes()
    try:
      with zipfile.ZipFile(self.path) as archive:
        return archive.read(self.member)
    except (*reading.ARCHIVE_ERRORS, KeyError) as error:
      raise errors.DataError(
        f"{self} must be in a whole zip archive, found: {error}. Fetch it"
        " again."
      ) from error


def _parse(
  file: TableFile, content: bytes, columns: Sequence[str]
) -> list[tuple[str, ...]]:
  """Values of the columns, row by row."""
  try:
    lines = io.StringIO(content.decode("utf-8"), newline="")
    reader = csv.DictReader(lines)
    names = reader.fieldnames or []
    if not set(columns) <= set(names):
      raise errors.DataError(
        f"{file} must have the columns {', '.join(columns)}, found"
        f" {', '.join(names) or 'nothing'}."
      )
    rows = [tuple(row[column] for column in columns) for row in reader]
  except (UnicodeDecodeError, csv.Error) as error:
    raise errors.DataError(
      f"{file} must be a CSV file in UTF-8, found: {error}."
    ) from error
  if not rows:
    raise errors.DataError(f"{file} must have rows, found none.")
  for number, row in enumerate(rows, start=1):
    if not all(row):
      raise errors.DataError(
        f"{file} must have {', '.join(columns)} in every row, found"
        f" {list(row)} in row {number}."
      )
  return rows


def _label(file: TableFile, number: int, text: str) -> int:
  try:
    label = int(text)
  except ValueError:
    label = -1
  if not 0 <= label < 2**63:
    raise errors.DataError(
      f"{file} must have whole numbers from 0 as {CLASS_COLUMN}, found"
      f" {text!r} in row {number}."
    )
  return label


def _check_user_id(file: TableFile, user_id: str) -> None:
  """A user's id becomes the name of a file."""
  if (
    user_id in (".", "..")
    or any(character in user_id for character in "/\\\0")
    or user_id.endswith(tfrecord_writing.PARTIAL_SUFFIX)
    or len(user_id.encode()) > 200
  ):
    raise errors.DataError(
      f"{file} must have users that can be names of files, found {user_id!r}."
    )


def read_tables(
  train: TableFile, test: TableFile, *, user_column: str
) -> SplitTables:
  """Reads the two tables of a split.

  Args:
    train: Table of the users.
    test: Table of the test set.
    user_column: Name of the column of users.

  Returns:
    The split.

  Raises:
    DataError: If a table is unreadable, lacks a column, is empty, has a class
      that is no number or a user that cannot be the name of a file.
  """
  md5, users, held_out = {}, collections.defaultdict(list), []
  content = train.read()
  md5[train.name] = hashlib.md5(content).hexdigest()
  parsed = _parse(train, content, (user_column, IMAGE_COLUMN, CLASS_COLUMN))
  for number, (user_id, image_id, label) in enumerate(parsed, start=1):
    if user_id != _NO_USER:
      users[user_id].append(Row(image_id, _label(train, number, label)))
  if not users:
    raise errors.DataError(
      f"{train} must have users in column {user_column}, found none."
    )
  for user_id in users:
    _check_user_id(train, user_id)
  content = test.read()
  md5[test.name] = hashlib.md5(content).hexdigest()
  parsed = _parse(test, content, (IMAGE_COLUMN, CLASS_COLUMN))
  for number, (image_id, label) in enumerate(parsed, start=1):
    held_out.append(Row(image_id, _label(test, number, label)))
  return SplitTables(dict(users), held_out, md5)
