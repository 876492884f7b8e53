"""Finds and verifies published photos, whose users are listed in tables.

Hsu, Qi and Brown, "Federated Visual Classification with Real-World Data
Distribution", ECCV 2020, are published as CSV files: the training table has a
column of users, `image_id` and `class`, the test table the latter two. The
images are published elsewhere. A plain tar is not unpacked: its headers say
where each image lies, and it is read from there. You unpack a compressed tar,
which can only be read from its start.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
import functools
import hashlib
import io
import os
import pathlib
import tarfile
import zipfile

from etils import epy

from tasks.prepare import output
from tff_fedemb import errors
from tff_fedemb import progress
from tff_fedemb import whole_files
from tff_fedemb.data import bad_examples
from tff_fedemb.data import tfrecord_files

with epy.lazy_imports():
  import pandas as pd

  from tff_fedemb.data import encoded_images
  from tff_fedemb.data import photo_table

# MD5 by file name: TensorFlow Federated 0.87 checks them when it downloads.
# DigiFace-1M has no published checksums, but its zips carry a CRC of every
# image.
KNOWN_MD5 = {
  "landmarks-user-160k.zip": "53c36bd7d5fc12f927af2820b7e4a57c",
  "mini_gld_train_split.csv": "9fd62cf79a67046fdd673d3a0ac52841",
  "mini_gld_test.csv": "298e9d19d66357236f66fe8e22920933",
  "iNaturalist_train.csv": "63d5a41699434bc2b13f5853f3764c18",
  "iNaturalist_test.csv": "bcf08a5a740ee76dac4e5af668081891",
}

# In the column of users, this marks an image without a user.
_NO_USER = "NA"
# A CSV file as it was found, in a folder or in a zip.
Table = pathlib.Path | zipfile.Path

_SUFFIX = ".jpg"


@functools.cache
def compute_md5(path: pathlib.Path, size: int, time: int) -> str:
  """Computes the MD5 of a file, once in a program.

  Args:
    path: The file.
    size, time: Its size and time; others say that the file was replaced.

  Returns:
    The MD5 in hexadecimal digits.
  """
  del size, time
  with path.open("rb") as file:
    return hashlib.file_digest(file, "md5").hexdigest()


def check_md5(path: pathlib.Path, expected: str | None = None) -> None:
  """Checks that a file is what its publisher offers.

  Args:
    path: The file.
    expected: Its MD5 [that of `KNOWN_MD5`, if there is one].

  Raises:
    DataError: If its MD5 is another one.
  """
  expected = expected or KNOWN_MD5.get(path.name)
  if not expected:
    return
  facts = path.stat()
  found = compute_md5(path, facts.st_size, facts.st_mtime_ns)
  if found != expected:
    raise errors.DataError(
      f"{path} must have MD5 {expected}, found {found}. Fetch it again."
    )


def find_tables(
  source_dir: pathlib.Path, names: Sequence[str], places: Sequence[str]
) -> Sequence[Table] | None:
  """Finds tables in the first of some folders and zips that has them all.

  Args:
    source_dir: The folder of all that was downloaded.
    names: Names of the tables.
    places: Names of folders, or of zips with a folder of the same name inside.

  Returns:
    The tables, in the order of their names; None if no place has them all.

  Raises:
    DataError: If they are not what the publisher offers.
  """
  for place in (source_dir / name for name in places):
    if place.is_file():
      check_md5(place)
      archive = bad_examples.open_zip(place)
      return [zipfile.Path(archive, f"{place.stem}/{name}") for name in names]
    tables = [place / name for name in names]
    if all(table.is_file() for table in tables):
      for table in tables:
        check_md5(table)
      return tables
  return None


def _read_table(
  table: Table, columns: Sequence[str]
) -> tuple[pd.DataFrame, str]:
  """Reads columns of texts, the last of them classes, and the table's MD5.

  Args:
    table: A CSV file in UTF-8.
    columns: Names of its columns.

  Returns:
    Rows of texts, in which the last column is called `label`; and the MD5 in
    hexadecimal digits.

  Raises:
    DataError: If it cannot be read, lacks a column or rows, or has an empty
      cell or a class that is no number.
  """
  try:
    content = table.read_bytes()
    text = io.StringIO(content.decode("utf-8-sig"), newline="")
    photo_table.check_quotes(text, ",")
    found = pd.read_csv(io.BytesIO(content), dtype=str, na_filter=False)
  except (*bad_examples.ARCHIVE_ERRORS, FileNotFoundError, ValueError) as error:
    raise errors.DataError(
      f"{table} must be a CSV file in UTF-8, or in a whole zip archive, found:"
      f" {errors.first_line(error)}. Fetch it again."
    ) from error
  if not set(columns) <= set(found) or found.empty:
    raise errors.DataError(
      f"{table} must have rows, and the columns {', '.join(columns)}, found"
      f" {len(found)} rows of {', '.join(found)}."
    )
  rows = found[[*columns]].rename(columns={columns[-1]: "label"})
  is_number = rows["label"].str.fullmatch("[0-9]{0,18}")
  is_bad = (rows == "").any(axis=1) | ~is_number
  if is_bad.any():
    raise errors.DataError(
      f"{table} must have {', '.join(columns)} in row {is_bad.argmax() + 1},"
      f" the last a number from 0, found {rows[is_bad].iloc[0].tolist()}."
    )
  return rows, hashlib.md5(content).hexdigest()


def _is_file_name(user_id: str) -> bool:
  """Whether a file can be named after a user.

  Args:
    user_id: Identifier of the user.

  Returns:
    False for names of folders, for separators of paths, and beyond 200 bytes.
  """
  return (
    user_id not in (".", "..")
    and not set(user_id) & set("/\\\0")
    and whole_files.PARTIAL not in user_id
    and len(user_id.encode()) <= 200
  )


def _to_rows(rows: pd.DataFrame) -> list[output.Row]:
  """Converts a table's rows.

  Args:
    rows: Rows with texts `image_id` and `label`.
  """
  labels = map(int, rows["label"])
  return list(map(output.Row, rows["image_id"], labels))


def read_tables(
  train: Table, test: Table, *, user_column: str
) -> tuple[dict[str, list[output.Row]], dict[str, str]]:
  """Reads the tables of the users and of the test set of a split.

  Args:
    train: Table of the users.
    test: Table of the test set.
    user_column: Name of the column of users.

  Returns:
    Rows of each file, by its name below the folder of the variant: users and
    rows in the order of the table, then the test set. The MD5 of each table, by
    its file's name.

  Raises:
    DataError: If a table is unreadable, lacks a column, is empty, has a class
      that is no number or a user that cannot be the name of a file.
  """
  rows, train_md5 = _read_table(train, (user_column, "image_id", "class"))
  held_out, test_md5 = _read_table(test, ("image_id", "class"))
  rows = rows[rows[user_column] != _NO_USER]
  if rows.empty:
    raise errors.DataError(
      f"{train} must have users in column {user_column}, found none."
    )
  files = {}
  for user_id, some in rows.groupby(user_column, sort=False):
    if not _is_file_name(user_id):
      raise errors.DataError(
        f"{train} must have users that name files, found {user_id!r}."
      )
    files[f"{tfrecord_files.TRAIN_FOLDER}/{user_id}"] = _to_rows(some)
  files[tfrecord_files.TEST_FILE_NAME] = _to_rows(held_out)
  md5 = {train.name: train_md5, test.name: test_md5}
  return files, dict(sorted(md5.items()))


# Place of an image: a file, the first byte, and the number of bytes.
_Place = tuple[pathlib.Path, int, int]


def _image_id(name: str) -> str | None:
  """Returns the image that a file holds by its name; None if it is none.

  Args:
    name: Name or path of the file.
  """
  path = pathlib.PurePosixPath(name)
  # Files that macOS adds to archives look like images: ._name.jpg.
  if path.suffix != _SUFFIX or path.name.startswith("."):
    return None
  return path.stem


def _list_tar(
  path: pathlib.Path, image_ids: Collection[str]
) -> dict[str, _Place]:
  """Finds images in a plain tar by its headers alone; the first of each.

  Args:
    path: The tar, uncompressed.
    image_ids: Images to look for.

  Returns:
    Places by image.

  Raises:
    DataError: If the tar is not whole.
  """
  found: dict[str, _Place] = {}
  try:
    with tarfile.open(path, "r:") as archive:
      while (member := archive.next()) is not None:
        image_id = _image_id(member.name)
        if image_id and member.isreg() and image_id in image_ids:
          found.setdefault(image_id, (path, member.offset_data, member.size))
        # Forget each member: the archive would keep them all, a gigabyte for
        # the largest archive.
        archive.members = []  # type: ignore[attr-defined]
      end = archive.offset
    # At a damaged header `tarfile` stops as at the end, which is a block of
    # zeros.
    with path.open("rb") as file:
      file.seek(end)
      block = file.read(tarfile.BLOCKSIZE)
    if block != bytes(tarfile.BLOCKSIZE):
      raise tarfile.ReadError(f"no end of the archive at byte {end}")
  except tarfile.TarError as error:
    raise errors.DataError(
      f"{path} must be a whole tar archive, found: {error}. Fetch it again."
    ) from error
  return found


def _list_folder(
  folder: pathlib.Path, image_ids: Collection[str]
) -> dict[str, _Place]:
  """Finds unpacked images in a folder and below it; the first of each.

  Links to folders are followed; no folder is looked into twice.

  Args:
    folder: The folder.
    image_ids: Images to look for.

  Returns:
    Places by image.
  """
  found: dict[str, _Place] = {}
  visited = set()
  for root, names, files in os.walk(folder, followlinks=True):
    facts = os.stat(root)
    identity = (facts.st_dev, facts.st_ino)
    if identity in visited:
      names.clear()
      continue
    visited.add(identity)
    names.sort()
    for name in sorted(files):
      image_id = _image_id(name)
      if image_id and image_id in image_ids and image_id not in found:
        path = pathlib.Path(root, name)
        found[image_id] = path, 0, path.stat().st_size
  return found


class PhotoJob(output.Job):
  """A split of published photos, and where these may be.

  Attributes:
    files: Rows of each file to write, by its name.
    archives: Tars of images, and their MD5 if the publisher says it.
    notes: Lines about what was found and what is missing.
  """

  def __init__(
    self,
    task: str,
    variant: str,
    source_dir: pathlib.Path,
    tables: Sequence[Table],
    archives: Mapping[pathlib.Path, str | None],
    *,
    user_column: str,
    notes: Sequence[str] = (),
  ):
    """Reads the tables.

    Args:
      task: Name of the task.
      variant: Variant of the task's data.
      source_dir: Folder of all that was downloaded.
      tables: Table of the users and table of the test set.
      archives: Archives of images, beside folders of unpacked ones: plain
        tars, and their MD5 if the publisher says it.
      user_column: Name of the column of users.
      notes: Lines to tell the user about what was found and what is missing.

    Raises:
      DataError: If a table cannot be used.
    """
    self.files, md5 = read_tables(*tables, user_column=user_column)
    super().__init__(task, variant, {"tables": md5})
    self.archives = archives
    self.notes = notes
    self._source_dir = source_dir
    self._image_ids = set()
    for rows in self.files.values():
      self._image_ids.update(row.image_id for row in rows)
    # Places of the images that were found.
    self._found: dict[str, _Place] = {}

  def look(self) -> output.Plan:
    """Looks for the images of the tables, in tars first and then in folders.

    Returns:
      The plan. Missing images are bad examples.

    Raises:
      DataError: If a tar is not whole.
    """
    for path in progress.create_bar(
      "Looking through archives", unit="tars", items=self.archives
    ):
      self._found = _list_tar(path, self._image_ids) | self._found
    if missing := self._image_ids - self._found.keys():
      self._found |= _list_folder(self._source_dir, missing)
    absent = sorted(self._image_ids - self._found.keys())
    self._tell(absent)
    sizes = {image_id: size for image_id, (*_, size) in self._found.items()}
    bad = [(f"image {name}", output.MISSING) for name in absent]
    return output.Plan(self.files, sizes, bad=bad)

  def _tell(self, absent: Sequence[str]) -> None:
    """Says what was found and what is missing.

    Args:
      absent: Images that were not found.
    """
    *users, test = map(len, self.files.values())
    names = f" ({bad_examples.name_first(absent)})" if absent else ""
    print(
      *self.notes,
      f"{self.identity['task']} {self.variant}: {len(users)} users with"
      f" {sum(users)} images, {test} test images.",
      f"Images: {len(self._found)} found, {len(absent)} missing{names}.",
      sep="\n",
    )
    without = [path.name for path, md5 in self.archives.items() if md5 is None]
    if without:
      print(f"Without a checksum: {bad_examples.name_first(without)}.")

  def verify(self) -> None:
    """Compares the files that have images with their MD5, if it is known.

    Raises:
      DataError: If files differ; all of these are named.
      FieldError: If no image was found.
    """
    if not self._found:
      raise errors.FieldError(
        "source_dir",
        f"hold images of {self.variant}, unpacked or in the tars of gld",
        f"none of {len(self._image_ids)} in {self._source_dir}",
      )
    paths = {path for path, *_ in self._found.values()}
    wrong = []
    for path in progress.create_bar(
      "Verifying", unit="files", items=sorted(paths)
    ):
      try:
        check_md5(path, self.archives.get(path))
      except errors.DataError as error:
        wrong.append(str(error))
    if wrong:
      raise errors.DataError(" ".join(wrong))

  def read(self, image_id: str) -> bytes:
    """Reads an image from its place in a tar or a folder, and decodes it once.

    Args:
      image_id: The image.

    Returns:
      Its bytes, as they were found.

    Raises:
      output.BadImageError: If it is missing, or cannot be decoded.
      DataError: If its file has become shorter.
    """
    if image_id not in self._found:
      raise output.BadImageError(output.MISSING)
    path, first_byte, size = self._found[image_id]
    with path.open("rb", buffering=0) as file:
      file.seek(first_byte)
      content = file.read(size)
    if len(content) != size:
      raise errors.DataError(
        f"{path} must not change while it is used, found fewer bytes."
      )
    if encoded_images.find_unreadable([content]):
      raise output.BadImageError("cannot be decoded")
    return content
