"""The tables that say which user holds which image, and what is in it.

The federated splits of Google Landmarks v2 and iNaturalist 2017, see
`tasks.user_photos`, are published as CSV files: the training table has a column
of users, `image_id` and `class`; the test table has `image_id` and `class`. The
images are published elsewhere.
"""

from collections.abc import Sequence
import csv
import hashlib
import io
import pathlib
import zipfile

from tasks.prepare import output
from tff_fedemb import errors
from tff_fedemb import whole_files
from tff_fedemb.data import reading
from tff_fedemb.data import tfrecord_files

# What stands in the column of users for an image that is in no user's data.
_NO_USER = "NA"

# A CSV file as it was found, in a folder or in a zip.
Table = pathlib.Path | zipfile.Path


def _read(
  table: Table, columns: Sequence[str]
) -> tuple[list[tuple[str, output.Row]], str]:
  """Rows with the values of the first column, and the table's MD5."""
  try:
    content = table.read_bytes()
    lines = io.StringIO(content.decode("utf-8"), newline="")
    reader = csv.DictReader(lines)
    names = reader.fieldnames or []
    if not set(columns) <= set(names):
      raise errors.DataError(
        f"{table} must have the columns {', '.join(columns)}, found"
        f" {', '.join(names) or 'nothing'}."
      )
    parsed = [tuple(row[column] for column in columns) for row in reader]
  except (*reading.ARCHIVE_ERRORS, KeyError, csv.Error) as error:
    raise errors.DataError(
      f"{table} must be a CSV file in UTF-8, or in a whole zip archive, found:"
      f" {error}. Fetch it again."
    ) from error
  if not parsed:
    raise errors.DataError(f"{table} must have rows, found none.")
  rows = []
  for number, values in enumerate(parsed, start=1):
    label = values[-1] or ""
    is_label = label.isascii() and label.isdecimal() and int(label) < 2**63
    if not all(values) or not is_label:
      raise errors.DataError(
        f"{table} must have {', '.join(columns)} in every row, the last a whole"
        f" number from 0, found {list(values)} in row {number}."
      )
    rows.append((values[0], output.Row(values[-2], int(label))))
  return rows, hashlib.md5(content).hexdigest()


def _is_file_name(user_id: str) -> bool:
  return (
    user_id not in (".", "..")
    and not set(user_id) & set("/\\\0")
    and whole_files.PARTIAL not in user_id
    and len(user_id.encode()) <= 200
  )


def read_tables(
  train: Table, test: Table, *, user_column: str
) -> tuple[dict[str, list[output.Row]], dict[str, str]]:
  """Reads the tables of the users and of the test set of a split.

  Returns:
    Rows of each file, by its name below the folder of the variant: users and
    rows in the order of the table, then the test set. The MD5 of each table, by
    its file's name.

  Raises:
    DataError: If a table is unreadable, lacks a column, is empty, has a class
      that is no number or a user that cannot be the name of a file.
  """
  rows, train_md5 = _read(train, (user_column, "image_id", "class"))
  held_out, test_md5 = _read(test, ("image_id", "class"))
  files: dict[str, list[output.Row]] = {}
  for user_id, row in rows:
    if user_id == _NO_USER:
      continue
    if not _is_file_name(user_id):
      raise errors.DataError(
        f"{train} must have users that can be names of files, found"
        f" {user_id!r}."
      )
    file = f"{tfrecord_files.TRAIN_FOLDER}/{user_id}"
    files.setdefault(file, []).append(row)
  if not files:
    raise errors.DataError(
      f"{train} must have users in column {user_column}, found none."
    )
  files[tfrecord_files.TEST_FILE_NAME] = [row for _, row in held_out]
  md5 = {train.name: train_md5, test.name: test_md5}
  return files, dict(sorted(md5.items()))
