"""Lists photos from a table with columns image, user, label and maybe split.

The table has values separated by commas, semicolons or tabulators, in UTF-8, or
is a Parquet file. An image is named relative to the table's folder and lies
below it: a table that somebody sent cannot have other files of the disk read.
Several owners of an image are separated by "|" in the column user.
"""

from collections.abc import Iterator, Sequence
import contextlib
import csv
import itertools
import os
import pathlib
import re
import unicodedata

import pyarrow as pa
from pyarrow import csv as pa_csv
from pyarrow import parquet
import pyarrow.compute as pc

from tff_fedemb import errors
from tff_fedemb import progress as progress_lib
from tff_fedemb.data import photo_folder
from tff_fedemb.data import photo_index
from tff_fedemb.data import reading

_REQUIRED = ("image", "user", "label")
_SPLIT = "split"
_SPLITS = {name: i for i, name in enumerate(photo_index.SPLITS)}
_PARQUET = (".parquet", ".pq")
_HEAD = 1 << 16
_DRIVE = re.compile(r"[A-Za-z]:/")
_FORMS = ("NFC", "NFD")
_OWNERS = "|"


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


@contextlib.contextmanager
def _refusing(path: pathlib.Path, requirement: str, advice: str = ""):
  """Tells what cannot be read as a table, and what cannot be opened."""
  try:
    yield
  except OSError as error:
    raise errors.FieldError(
      "table", "be a file that can be read", f"{path}: {error.strerror}"
    ) from error
  except ValueError as error:
    found = errors.first_line(error)
    raise _error(path, requirement, found, advice) from error


def _refusing_text(path: pathlib.Path):
  return _refusing(
    path, "be text in UTF-8 with separated values", "Save it as CSV UTF-8."
  )


class _Csv:
  """Values between separators."""

  # Name of a row, and number of the first one.
  word, first = "line", 2

  def __init__(self, path: pathlib.Path):
    self._path = path
    with _refusing_text(path), open(path, "rb") as file:
      head = file.read(_HEAD)
      line = head.splitlines()[0].decode("utf-8-sig") if head.strip() else ""
    # The separator that splits the line most.
    self._separator, self.names = max(
      ((s, next(csv.reader([line], delimiter=s), [])) for s in ",;\t"),
      key=lambda option: len(option[1]),
    )

  def read(self, bad: dict[int, str]) -> Iterator[pa.RecordBatch]:
    """Reads rows, blank ones too; notes what is none, by its line's number."""

    def note(row: pa_csv.InvalidRow) -> str:
      found = f"{row.actual_columns} values, and the first line has"
      bad[row.number] = f"{found} {row.expected_columns}"
      return "skip"

    with _refusing_text(self._path):
      yield from pa_csv.open_csv(
        self._path,
        # Threads would not know the numbers of lines.
        read_options=pa_csv.ReadOptions(use_threads=False),
        parse_options=pa_csv.ParseOptions(
          delimiter=self._separator,
          newlines_in_values=True,
          ignore_empty_lines=False,
          invalid_row_handler=note,
        ),
        convert_options=pa_csv.ConvertOptions(
          column_types=dict.fromkeys(self.names, pa.string()),
          strings_can_be_null=False,
        ),
      )


class _Parquet:
  """A file of Apache Parquet."""

  word, first = "row", 1

  def __init__(self, path: pathlib.Path):
    self._path = path
    with _refusing(path, "be a Parquet file"):
      self._file = parquet.ParquetFile(path)
    self.names = self._file.schema_arrow.names

  def read(self, bad: dict[int, str]) -> Iterator[pa.RecordBatch]:
    """Reads the rows, each of which is one."""
    del bad
    with _refusing(self._path, "be a Parquet file"):
      yield from self._file.iter_batches()


def _to_texts(path: pathlib.Path, column: pa.Array) -> list[str]:
  """Texts without space around them; of a number without a point if whole."""
  try:
    texts = column.cast(pa.string())
  except pa.ArrowNotImplementedError as error:
    raise _error(path, "hold texts or numbers", column.type) from error
  # pandas makes 3 of a column with gaps to 3.0, and no number of a gap.
  is_none = column.is_null(nan_is_null=True)
  return pc.utf8_trim_whitespace(pc.if_else(is_none, "", texts)).to_pylist()


class TableListing:
  """Photos of a table.

  Attributes:
    field: The option that names it.
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
    self._table: _Parquet | _Csv = (
      _Parquet(self.place)
      if path.suffix.lower() in _PARQUET
      else _Csv(self.place)
    )
    self._columns = _choose_columns(path, self._table.names)
    self.has_splits = _SPLIT in self._columns

  def read_groups(self, column: str) -> Iterator[tuple[str, str, str]]:
    """Yields an owner, the class and the group of each row that has all.

    Args:
      column: The column of groups; it may be written in capitals.

    Raises:
      FieldError: If there is no such column, or it cannot be read.
    """
    plain = [name.strip().casefold() for name in self._table.names]
    if plain.count(column.strip().casefold()) != 1:
      raise errors.FieldError(
        "group_column",
        f"be one column of {self.place}: {', '.join(self._table.names)[:200]}",
        repr(column),
      )
    places = [
      *(self._columns[name] for name in ("user", "label")),
      plain.index(column.strip().casefold()),
    ]
    show = photo_folder.show_name
    for (user, label, group), _ in self._read({}, places):
      if user and label and group:
        for owner in map(str.strip, user.split(_OWNERS)):
          yield show(owner), show(label), show(group)

  def _read(
    self, bad: dict[int, str], places: Sequence[int]
  ) -> Iterator[tuple[tuple[str, ...], int]]:
    """Yields values of rows in columns, and the rows' numbers."""
    numbers = filter(lambda n: n not in bad, itertools.count(self._table.first))
    for batch in self._table.read(bad):
      texts = [_to_texts(self.place, batch[i]) for i in places]
      # A number is taken where there is a row alone.
      yield from zip(zip(*texts, strict=True), numbers, strict=False)

  def list_photos(self) -> Iterator[photo_folder.Photo]:
    """Yields photos; notes what is odd or bad."""
    show = photo_folder.show_name
    bad: dict[int, str] = {}
    rows = progress_lib.create_bar(
      "Listing photos",
      unit="photos",
      items=self._read(bad, [*self._columns.values()]),
    )
    root = os.fspath(self.root)
    for (image, user, label, *split), number in rows:
      if not (image or user or label):
        continue  # A blank line.
      if what := _find_gap(image, user, label, *split):
        bad[number] = what
        continue
      path, size, mtime_ns, fault = _look_at(image, root)
      for owner in dict.fromkeys(map(str.strip, user.split(_OWNERS))):
        yield photo_folder.Photo(
          show(owner),
          show(label),
          os.fsencode(path),
          size,
          mtime_ns,
          fault,
          _SPLITS[split[0].lower()] if split else -1,
        )
    self.findings.bad += [
      (f"{self._table.word} {number:,}", bad[number]) for number in sorted(bad)
    ]


def _find_gap(
  image: str, user: str, label: str, split: str = "train"
) -> str | None:
  """The fault of the values of a row, if any."""
  for name, value in zip(_REQUIRED, (image, user, label), strict=True):
    if not value:
      return f"no {name}"
    if "\0" in value:
      return f"a {name} with a NUL character"
  if not all(map(str.strip, user.split(_OWNERS))):
    return f"a user without a name in {user!r}"
  if split.lower() not in _SPLITS:
    return f"split {split!r}, which is none of {', '.join(_SPLITS)}"
  return None


def _look_at(image: str, root: str) -> tuple[str, int, int, str | None]:
  """A path below the root, and what `photo_index.look_at` finds there."""
  path = image
  if "\\" in path and not os.path.exists(os.path.join(root, path)):
    path = path.replace("\\", "/")
  if path.startswith("/") or _DRIVE.match(path):
    what = "an absolute path, and it must be relative to the table"
    return path, -1, -1, what
  path = os.path.normpath(path)
  if path.split("/")[0] == "..":
    return path, -1, -1, "outside the table's folder"
  # Disks and tables may write one letter in two ways.
  forms = [path, *(unicodedata.normalize(form, path) for form in _FORMS)]
  for form in dict.fromkeys(forms):
    found = photo_index.look_at(os.path.join(root, form))
    if found[-1] != reading.MISSING:
      return form, *found
  return path, -1, -1, reading.MISSING
