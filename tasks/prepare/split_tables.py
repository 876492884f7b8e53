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
import re
import zipfile

from tasks.prepare import output
from tff_fedemb import errors
from tff_fedemb import whole_files
from tff_fedemb.data import reading
from tff_fedemb.data import tfrecord_files

# Marks, in the column of users, an image that no user has.
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
    reader = csv.DictReader(lines, restval="")
    found = list(reader)
  except (*reading.ARCHIVE_ERRORS, KeyError, csv.Error) as error:
    raise errors.DataError(
      f"{table} must be a CSV file in UTF-8, or in a whole zip archive, found:"
      f" {error}. Fetch it again."
    ) from error
  names = reader.fieldnames or ()
  if not set(columns) <= set(names) or not found:
    raise errors.DataError(
      f"{table} must have rows, and the columns {', '.join(columns)}, found"
      f" {len(found)} rows of {', '.join(names) or 'nothing'}."
    )
  rows = []
  for number, row in enumerate(found, start=1):
    *texts, label = (row[column] for column in columns)
    is_label = re.fullmatch("[0-9]+", label) and int(label) < 2**63
    if not all(texts) or not is_label:
      raise errors.DataError(
        f"{table} must have {', '.join(columns)} in every row, the last a whole"
        f" number from 0, found {[*texts, label]} in row {number}."
      )
    rows.append((texts[0], output.Row(texts[-1], int(label))))
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
