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
_DRIVE = re.compile(r"[A-Za-z]:/")
_FORMS = ("NFC", "NFD")
_OWNERS = "|"


def is_table(path: pathlib.Path) -> bool:
  """Whether a file looks like one by its name."""
  return path.is_file() and path.suffix.lower() in (".csv", ".tsv", *_PARQUET)


def _error(path: pathlib.Path, requirement: str, found: object):
  return errors.FieldError("table", requirement, f"{found} in {path}")


def _choose_columns(path: pathlib.Path, plain: Sequence[str]) -> dict[str, int]:
  """Places of the columns, by their names in small letters."""
  wanted = (*_REQUIRED, _SPLIT)
  for name in wanted:
    if plain.count(name) > 1:
      raise _error(path, f"have one column {name}", plain.count(name))
  missing = [name for name in _REQUIRED if name not in plain]
  if missing:
    raise _error(
      path,
      "have columns image (a path relative to the table), user and label",
      f"no {' and no '.join(missing)} among {', '.join(plain)[:200] or 'none'}",
    )
  return {name: plain.index(name) for name in wanted if name in plain}


def _read_csv(path: pathlib.Path) -> Iterator[tuple[int, list[str]]]:
  """Yields numbers of lines and their values, none of a blank line."""
  with open(path, newline="", encoding="utf-8-sig") as file:
    line = file.readline()
    file.seek(0)
    # The separator that splits the line most.
    separator = max(
      ",;\t", key=lambda s: len(next(csv.reader([line], delimiter=s), []))
    )
    reader = csv.reader(file, delimiter=separator)
    for values in reader:
      yield reader.line_num, values


def _to_texts(column: pa.Array) -> list[str]:
  """Texts without space around them; of a number without a point if whole."""
  # pandas makes 3 of a column with gaps to 3.0, and no number of a gap.
  is_none = column.is_null(nan_is_null=True)
  texts = pc.if_else(is_none, "", column.cast(pa.string()))
  return pc.utf8_trim_whitespace(texts).to_pylist()


class TableListing:
  """Photos of a table.

  Attributes:
    field: The option that names it.
    root: The table's folder.
    place: The table.
    findings: Findings about the rows, known once the photos are listed.
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
    self._is_parquet = path.suffix.lower() in _PARQUET
    with self._refusing():
      if self._is_parquet:
        self._names = parquet.read_schema(self.place).names
      else:
        _, self._names = next(_read_csv(self.place), (1, []))
    # Names may be written in capitals.
    self._plain = [name.strip().casefold() for name in self._names]
    self._columns = _choose_columns(path, self._plain)
    self.has_splits = _SPLIT in self._columns

  @contextlib.contextmanager
  def _refusing(self):
    """Tells what cannot be opened, and what cannot be read as a table."""
    try:
      yield
    except OSError as error:
      raise errors.FieldError(
        "table", "be a file that can be read", f"{self.place}: {error.strerror}"
      ) from error
    except (ValueError, csv.Error, pa.ArrowNotImplementedError) as error:
      requirement = "be CSV in UTF-8, or Parquet of texts and numbers"
      found = errors.first_line(error)
      raise _error(self.place, requirement, found) from error

  def read_groups(self, column: str) -> Iterator[tuple[str, str, str]]:
    """Yields an owner, the class and the group of each row that has all.

    Args:
      column: The column of groups; it may be written in capitals.

    Raises:
      FieldError: If there is no such column, or it cannot be read.
    """
    plain = column.strip().casefold()
    if self._plain.count(plain) != 1:
      raise errors.FieldError(
        "group_column",
        f"be one column of {self.place}: {', '.join(self._names)[:200]}",
        repr(column),
      )
    places = [self._plain.index(name) for name in ("user", "label", plain)]
    show = photo_folder.show_name
    for (user, label, group), _ in self._read({}, places):
      if user and label and group:
        for owner in map(str.strip, user.split(_OWNERS)):
          yield show(owner), show(label), show(group)

  def _read(
    self, bad: dict[int, str], places: Sequence[int]
  ) -> Iterator[tuple[Sequence[str], int]]:
    """Yields values of rows in columns, and the numbers of rows or lines.

    It notes lines with other than the first line's number of values.
    """
    with self._refusing():
      if self._is_parquet:
        names = [self._names[i] for i in places]
        numbers = itertools.count(1)
        file = parquet.ParquetFile(self.place)
        for batch in file.iter_batches(columns=names):
          texts = [_to_texts(batch[name]) for name in names]
          # A number is taken where there is a row alone.
          yield from zip(zip(*texts, strict=True), numbers, strict=False)
        return
      expected = len(self._names)
      for number, values in itertools.islice(_read_csv(self.place), 1, None):
        if len(values) == expected:
          yield [values[i].strip() for i in places], number
        elif values:
          found = f"{len(values)} values, and the first line has"
          bad[number] = f"{found} {expected}"

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
        continue  # A line of separators alone.
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
    word = "row" if self._is_parquet else "line"
    self.findings.bad += [
      (f"{word} {number:,}", bad[number]) for number in sorted(bad)
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
