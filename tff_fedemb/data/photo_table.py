"""Lists photos from a table with columns image, user, label and maybe split.

The table is text in UTF-8, separated by commas, semicolons or tabs, or a
Parquet file. Images are named relative to the table's folder and lie below it,
so that a table from elsewhere cannot make the program read other files.
Several owners of an image are separated by "|" in the column user.
"""

from collections.abc import Collection
import csv
import os
import pathlib
import re
from typing import TextIO
import unicodedata

import pandas as pd
import pyarrow as pa
from pyarrow import parquet
import pyarrow.compute as pc

from tff_fedemb import errors
from tff_fedemb import progress as progress_lib
from tff_fedemb.data import bad_examples
from tff_fedemb.data import photo_folder
from tff_fedemb.data import photo_index

_REQUIRED = ("image", "user", "label")
_SPLIT = "split"
_PARQUET = (".parquet", ".pq")
_DRIVE = re.compile(r"[A-Za-z]:/")
# Separates the owners of an image.
OWNERS = "|"
# Line breaks, tabs, NUL.
_CONTROL = r"[\x00-\x1f\x7f]"


def _has_rows(cells: list[str], num_columns: int, separator: str) -> bool:
  """Whether a cell contains the end of its row and the start of a later one.

  That is how a stray quotation mark shows: `cells` are those of one row, which
  the reader ended too late.
  """
  for column, cell in enumerate(cells):
    separators = [line.count(separator) for line in cell.splitlines()]
    if len(separators) > 1:
      is_end = separators[0] == num_columns - 1 - column
      is_start = separators[-1] == column + num_columns - len(cells)
      if is_end and is_start and set(separators[1:-1]) <= {num_columns - 1}:
        return True
  return False


def check_quotes(file: TextIO, separator: str) -> None:
  """Checks that quotation marks enclose cells, and no rows.

  A mark at the beginning of a cell hides all rows up to the next one.

  Args:
    file: A table of texts, opened with its line breaks as they are.
    separator: Character between cells.

  Raises:
    ValueError: If there is another mark; it names the row, counted from 1.
  """
  reader = csv.reader(
    file, delimiter=separator, strict=True, skipinitialspace=True
  )
  num_columns = 0
  # Numbers of rows and lines that were read without an error.
  row = 0
  line = 0
  try:
    for cells in reader:
      num_columns = num_columns or len(cells)
      has_several_lines = reader.line_num > line + 1
      if has_several_lines and _has_rows(cells, num_columns, separator):
        raise csv.Error("rows in a cell")
      row += 1
      line = reader.line_num
  except csv.Error as error:
    raise ValueError(
      f"a quotation mark in row {row + 1} that does not enclose its cell"
      f" ({error})"
    ) from error


def _read_csv(path: pathlib.Path) -> pd.DataFrame:
  """Reads cells as texts; the first row has the names of the columns.

  The separator is the most frequent of comma, semicolon and tab in that row.

  Raises:
    ValueError: If it is not UTF-8, or a quotation mark is misplaced.
  """
  with open(path, encoding="utf-8-sig", newline="") as file:
    separator = max(",;\t", key=file.readline().count)
    file.seek(0)
    check_quotes(file, separator)
  return pd.read_csv(
    path,
    sep=separator,
    header=None,
    dtype=str,
    na_filter=False,
    skip_blank_lines=False,
    # A quotation mark may follow a space.
    skipinitialspace=True,
    encoding="utf-8-sig",
  ).fillna("")


def _to_texts(column: pa.ChunkedArray) -> list[str]:
  """Converts a column to texts; gaps become "", whole numbers stay whole."""
  # In a column with gaps, pandas turns 3 into 3.0, and gaps into NaN.
  is_none = column.is_null(nan_is_null=True)
  return pc.if_else(is_none, "", column.cast(pa.string())).to_pylist()


def _read_parquet(
  path: pathlib.Path,
  wanted: Collection[str],
) -> tuple[list[str], pd.DataFrame]:
  """Reads the names of all columns, and the cells of those wanted as texts.

  `wanted` has names in small letters, which match capitals too.
  """
  names = parquet.read_schema(path).names
  chosen = [name for name in names if name.strip().casefold() in wanted]
  table = parquet.read_table(path, columns=chosen)
  texts = map(_to_texts, table.itercolumns())
  # Numbers as keys, because several columns may have one name.
  cells = pd.DataFrame(dict(enumerate(texts)), dtype=object)
  return names, cells.set_axis(chosen, axis=1)


def _read(
  path: pathlib.Path,
  wanted: Collection[str],
  optional: Collection[str] = (),
) -> pd.DataFrame:
  """Reads columns as texts, without space around them.

  Column names may be written in capitals. Rows are numbered as in a
  spreadsheet, but from 0; a Parquet file has no row of names. Optional columns
  may be missing.

  Raises:
    FieldError: If the table cannot be read, or lacks a column.
  """
  try:
    if path.suffix.lower() in _PARQUET:
      names, cells = _read_parquet(path, wanted)
    else:
      cells = _read_csv(path)
      names = cells.iloc[0].tolist()
      cells = cells.iloc[1:].set_axis(names, axis=1)
  except OSError as error:
    raise errors.FieldError(
      "table",
      "be a file that can be read",
      f"{path}: {error.strerror or errors.first_line(error)}",
    ) from error
  except (ValueError, pa.ArrowNotImplementedError) as error:
    raise errors.FieldError(
      "table",
      "be CSV in UTF-8, or Parquet of texts and numbers",
      f"{errors.first_line(error)} in {path}",
    ) from error
  cells.columns = [name.strip().casefold() for name in cells]
  found = {}
  for name in wanted:
    number = list(cells).count(name)
    if number == 1:
      found[name] = cells[name].str.strip()
    elif number or name not in optional:
      raise errors.FieldError(
        "table",
        f"have one column {name}",
        f"{number} among {', '.join(names)[:200] or 'none'} in {path}",
        "A table has columns image (a path relative to it), user and label.",
      )
  return pd.DataFrame(found)


def _split_owners(rows: pd.DataFrame) -> pd.DataFrame:
  """Returns a row for each owner of an image, split at `OWNERS`."""
  owners = rows["user"].str.split(OWNERS, regex=False)
  rows = rows.assign(user=owners).explode("user")
  return rows.assign(user=rows["user"].str.strip())


def read_groups(path: pathlib.Path, column: str) -> pd.DataFrame:
  """Reads groups of images, for example countries, with owners and classes.

  Args:
    path: The table.
    column: The column of groups; it may be written in capitals.

  Returns:
    A row for each owner of an image: `user`, the class `label`, and `group`,
      all
    texts. Rows that lack one of these are left out.

  Raises:
    FieldError: If there is no such column, or the table cannot be read.
  """
  plain = column.strip().casefold()
  rows = _split_owners(_read(path, ("user", "label", plain)))
  rows = rows.assign(group=rows[plain])[["user", "label", "group"]]
  rows = rows[(rows != "").all(axis=1)]
  return rows.apply(lambda names: names.map(photo_folder.show_name))


def _find_faults(rows: pd.DataFrame) -> pd.Series:
  """Returns the faults of rows that cannot be used, by their index."""
  # A later fault replaces an earlier one of the same row.
  faults = pd.Series(None, rows.index, object)
  if _SPLIT in rows:
    known = rows[_SPLIT].isin(photo_index.SPLITS)
    what = f", which is none of {', '.join(photo_index.SPLITS)}"
    faults[~known] = "split " + rows[_SPLIT].map(repr) + what
  for name in ("user", "label"):
    faults[rows[name].str.contains(_CONTROL)] = f"a control character in {name}"
  for name in reversed(_REQUIRED):
    faults[rows[name] == ""] = f"no {name}"
  # A path cannot contain NUL.
  faults[rows["image"].str.contains("\0")] = "no image"
  return faults.dropna()


def list_table(
  path: pathlib.Path,
  findings: photo_folder.Findings,
) -> pd.DataFrame:
  """Lists the photos of a table; notes the rows that cannot be used.

  Args:
    path: The table.
    findings: Receives the notes. Rows are counted from 1; in a table of texts,
      the column names are row 1.

  Returns:
    As `photo_folder.list_folder`, a row for each owner of a photo; and, if the
    table has it, `split`, an index into `photo_index.SPLITS`.

  Raises:
    FieldError: If the table cannot be read, or lacks a column.
  """
  findings.add_source(path)
  rows = _read(path, _REQUIRED + (_SPLIT,), optional=[_SPLIT])
  # Rows without any text are blank lines.
  rows = rows[(rows != "").any(axis=1)].rename_axis("row").reset_index()
  rows = _split_owners(rows).reset_index(drop=True)
  if _SPLIT in rows:
    rows[_SPLIT] = rows[_SPLIT].str.lower()
  faults = _find_faults(rows)
  places = "row " + (rows["row"][faults.index] + 1).astype(str)
  findings.bad += dict.fromkeys(zip(places, faults, strict=True))
  rows = rows.drop(faults.index).reset_index(drop=True)
  bar = progress_lib.create_bar(
    "Listing photos", unit="photos", items=rows["image"].unique()
  )
  root = os.fspath(path.parent)
  found = {image: _look_at(image, root) for image in bar}
  photos = pd.DataFrame(
    rows["image"].map(found).tolist(),
    columns=["path", "size", "mtime_ns", "fault"],
  )
  for name in ("user", "label"):
    photos[name] = rows[name].map(photo_folder.show_name)
    shown = rows[name].drop_duplicates().map(photo_folder.show_name)
    findings.warn(photo_folder.TAKEN_FOR_ONE, shown[shown.duplicated()])
  if _SPLIT in rows:
    photos[_SPLIT] = rows[_SPLIT].map(photo_index.SPLITS.index)
  return photos


def _look_at(image: str, root: str) -> tuple[bytes, int, int, str | None]:
  """Returns a path below the root, and what `photo_index.look_at` finds.

  Accepts backslashes and other Unicode forms of a name. A path that leaves the
  root gets a fault and is not looked at.
  """
  path = image
  if "\\" in path and not os.path.exists(os.path.join(root, path)):
    path = path.replace("\\", "/")
  if path.startswith("/") or _DRIVE.match(path):
    what = "an absolute path; paths must be relative to the table"
    return os.fsencode(path), -1, -1, what
  path = os.path.normpath(path)
  if path.split("/")[0] == "..":
    return os.fsencode(path), -1, -1, "outside the table's folder"
  # Disks and tables may encode the same letter in different ways.
  forms = [unicodedata.normalize(form, path) for form in ("NFC", "NFD")]
  for form in [path] + forms:
    found = photo_index.look_at(os.path.join(root, form))
    if found[-1] != bad_examples.MISSING:
      break
  else:
    form = path
  return os.fsencode(form), *found
