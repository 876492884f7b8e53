"""Lists photos from a table with columns image, user, label and maybe split.

Of values separated by commas, semicolons or tabulators, in UTF-8, or Parquet.
An image is named relative to the table's folder and lies below it: a table that
somebody sent cannot have other files of the disk read.
"""

from collections.abc import Iterator, Sequence
import csv
import operator
import os
import pathlib
import re
from typing import Any
import unicodedata

from tff_fedemb import errors
from tff_fedemb import progress as progress_lib
from tff_fedemb.data import photo_folder
from tff_fedemb.data import photo_index

_REQUIRED = ("image", "user", "label")
_SPLIT = "split"
_SPLITS = {name: i for i, name in enumerate(photo_index.SPLITS)}
_PARQUET = (".parquet", ".pq")
_CHUNK = 10_000
_HEAD = 1 << 16
_DRIVE = re.compile(r"[A-Za-z]:/")
# Most paths are without these, and looked at no further.
_UNUSUAL = re.compile(r"^[/.]|/\.|//|\\|:")
# The number of a line, and its values in the order of the columns asked for, or
# what is wrong with it.
_Row = tuple[int, tuple[str, ...] | str]


def is_table(path: pathlib.Path) -> bool:
  """Whether a file looks like one by its name."""
  return path.is_file() and path.suffix.lower() in (".csv", ".tsv", *_PARQUET)


def _error(path: pathlib.Path, requirement: str, found: object, advice=""):
  return errors.FieldError("table", requirement, f"{found} in {path}", advice)


def _choose_columns(path: pathlib.Path, names: Sequence[str]) -> dict[str, int]:
  """Where the columns are; they may be written in capitals."""
  wanted = (*_REQUIRED, _SPLIT)
  plain = [name.strip().casefold() for name in names]
  for name in wanted:
    if plain.count(name) > 1:
      raise _error(path, f"have one column {name}", plain.count(name))
  missing = [name for name in _REQUIRED if name not in plain]
  if missing:
    raise _error(
      path,
      "have columns image (a path relative to the table), user and label",
      f"no {' and no '.join(missing)} among {', '.join(names)[:200] or 'none'}",
    )
  return {name: plain.index(name) for name in wanted if name in plain}


class _Csv:
  """Values between separators."""

  def __init__(self, path: pathlib.Path):
    self._path = path
    with open(path, "rb") as file:
      head = file.read(_HEAD)
    try:
      line = head.splitlines()[0].decode("utf-8-sig") if head.strip() else ""
    except UnicodeDecodeError as error:
      raise self._refuse_encoding() from error
    names = [next(csv.reader([line], delimiter=s), []) for s in ",;\t"]
    # Of a table that has none of the columns, the one that splits most.
    best = max(
      range(len(names)),
      key=lambda i: (
        sum(n.strip().casefold() in _REQUIRED for n in names[i]),
        len(names[i]),
      ),
    )
    self._separator = ",;\t"[best]
    self.columns = _choose_columns(path, names[best])

  def _refuse_encoding(self) -> errors.FieldError:
    return _error(
      self._path,
      "be text in UTF-8",
      "another encoding",
      "Save it as CSV UTF-8.",
    )

  def read(self) -> Iterator[list[_Row]]:
    choose = operator.itemgetter(*self.columns.values())
    rows: list[_Row] = []
    try:
      with open(self._path, encoding="utf-8-sig", newline="") as file:
        reader = csv.reader(file, delimiter=self._separator)
        number = len(next(reader, []))
        for values in reader:
          if len(values) == number:
            rows.append((reader.line_num, choose(values)))
          elif values:  # It is no blank line.
            what = f"{len(values)} values, and the first line has {number}"
            rows.append((reader.line_num, what))
          if len(rows) >= _CHUNK:
            yield rows
            rows = []
    except UnicodeDecodeError as error:
      raise self._refuse_encoding() from error
    except csv.Error as error:
      raise _error(
        self._path, "be CSV", f"line {reader.line_num}: {error}"
      ) from error
    yield rows


class _Parquet:
  """A file of Apache Parquet."""

  def __init__(self, path: pathlib.Path):
    try:
      # No other kind of table needs it.
      from pyarrow import parquet
    except ImportError as error:
      raise _error(
        path,
        "be CSV where pyarrow is not installed",
        "Parquet",
        "pip install pyarrow, or save it as CSV.",
      ) from error
    self._path = path
    try:
      self._file: Any = parquet.ParquetFile(path)
    except (ValueError, OSError) as error:
      raise _error(
        path, "be a Parquet file", errors.first_line(error)
      ) from error
    self._names = self._file.schema_arrow.names
    self.columns = _choose_columns(path, self._names)

  def read(self) -> Iterator[list[_Row]]:
    names = [self._names[place] for place in self.columns.values()]
    number = 1
    for batch in self._file.iter_batches(batch_size=_CHUNK, columns=names):
      texts = [self._to_texts(name, batch.column(name)) for name in names]
      yield list(enumerate(zip(*texts, strict=True), number))
      number += batch.num_rows

  def _to_texts(self, name: str, column: Any) -> list[str]:
    values = column.to_pylist()
    for value in values:
      if not isinstance(value, str | int | float | None):
        raise _error(
          self._path,
          f"have texts or numbers in column {name}",
          type(value).__name__,
        )
    return ["" if value is None else _to_text(value) for value in values]


def _to_text(value: str | int | float) -> str:
  """A number without a point if it is whole: pandas makes 3 to 3.0."""
  if isinstance(value, float):
    if value != value:  # It is not a number, which pandas writes for none.
      return ""
    return str(int(value)) if value.is_integer() else repr(value)
  return str(value)


class TableListing:
  """Photos of a table.

  Attributes:
    field: What the user gives it by.
    root: The table's folder.
    place: The table.
    findings: What is odd or bad; known once the photos are listed.
    has_splits: Whether it has a column split.
  """

  field = "table"

  def __init__(self, path: pathlib.Path):
    """Opens a table, CSV unless its name ends in .parquet.

    Raises:
      FieldError: If it cannot be read, or lacks a column.
    """
    self.place = path.absolute()
    self.root = self.place.parent
    if self.place.is_dir():
      raise errors.FieldError("table", "be a file", f"the folder {path}")
    self.findings = photo_folder.Findings()
    self.findings.add_source(self.place)
    self._table: _Parquet | _Csv
    is_parquet = path.suffix.lower() in _PARQUET
    try:
      self._table = _Parquet(self.place) if is_parquet else _Csv(self.place)
    except OSError as error:
      raise errors.FieldError(
        "table", "be a file that can be read", f"{path}: {error.strerror}"
      ) from error
    self.has_splits = _SPLIT in self._table.columns
    self._word = "row" if is_parquet else "line"

  def list_photos(self) -> Iterator[list[photo_index.Photo]]:
    """Yields photos, some thousands at a time; notes what is odd or bad."""
    folder = os.open(self.root, os.O_RDONLY)
    try:
      with progress_lib.create_bar("Listing photos", unit="photos") as progress:
        for rows in self._table.read():
          yield list(self._list_rows(rows, folder))
          progress.update(len(rows))
    finally:
      os.close(folder)

  def _list_rows(
    self, rows: list[_Row], folder: int
  ) -> Iterator[photo_index.Photo]:
    show = photo_folder.show_name
    for number, values in rows:
      if not isinstance(values, str):
        values = tuple(value.strip() for value in values)
      what = values if isinstance(values, str) else _find_gap(*values)
      if what or isinstance(values, str):
        self.findings.bad.append((f"{self._word} {number:,}", str(what)))
        continue
      image, user, label, *split = values
      path, size, mtime_ns, fault = _look_at(image, folder)
      yield photo_index.Photo(
        show(user),
        show(label),
        os.fsencode(path),
        size,
        mtime_ns,
        _SPLITS[split[0].lower()] if split else None,
        fault,
      )


def _find_gap(
  image: str, user: str, label: str, split: str = "train"
) -> str | None:
  """What is wrong with the values of a row."""
  if not (image and user and label and "\0" not in image + user + label):
    for name, value in zip(_REQUIRED, (image, user, label), strict=True):
      if not value:
        return f"no {name}"
      if "\0" in value:
        return f"a {name} with a NUL character"
  if split.lower() not in _SPLITS:
    words = ", ".join(photo_index.SPLITS)
    return f"split {split!r}, which is none of {words}"
  return None


def _look_at(image: str, folder: int) -> tuple[str, int, int, str | None]:
  """A path, its size and time, and what is wrong with it."""
  path = image
  if _UNUSUAL.search(path):
    if "\\" in path and not _exists(path, folder):
      path = path.replace("\\", "/")
    if path.startswith("/") or _DRIVE.match(path):
      return (
        path,
        -1,
        -1,
        "an absolute path, and it must be relative to the table",
      )
    path = os.path.normpath(path)
    if path.split("/")[0] == "..":
      return path, -1, -1, "outside the table's folder"
  what, forms = "missing", [path]
  if not path.isascii():
    forms += [unicodedata.normalize(form, path) for form in ("NFC", "NFD")]
  for form in forms:
    try:
      facts = os.stat(form, dir_fd=folder)
    except (FileNotFoundError, NotADirectoryError):
      continue
    except OSError as error:
      what = f"cannot be read: {error.strerror}"
      continue
    found = photo_index.facts_of(facts)
    if not photo_folder.is_file(facts):
      return form, *found, "no file"
    return form, *found, None if facts.st_size else "empty"
  return path, -1, -1, what


def _exists(path: str, folder: int) -> bool:
  try:
    os.stat(path, dir_fd=folder)
  except OSError:
    return False
  return True
