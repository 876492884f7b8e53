"""Published photos, of which tables say who holds which: found and verified.

Hsu, Qi and Brown, "Federated Visual Classification with Real-World Data
Distribution", ECCV 2020. A plain tar is not unpacked: its headers say where
each image lies, and it is read from there. A compressed tar can only be read
from its start, so the images that are needed are copied into a folder.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
import functools
import gzip
import hashlib
import os
import pathlib
import tarfile
from typing import IO, cast
import zlib

from etils import epy

from tasks.prepare import output
from tasks.prepare import split_tables
from tff_fedemb import errors
from tff_fedemb import progress
from tff_fedemb import whole_files
from tff_fedemb.data import bad_examples
from tff_fedemb.data import tfrecord_files

with epy.lazy_imports():
  import tensorflow as tf

# MD5 by file name. The CSV files and the zip: TensorFlow Federated 0.87, which
# checks them when it downloads. The iNaturalist archives: the README of the
# 2017 competition by its publishers, and TFF. DigiFace-1M has no published
# checksums, but its zips carry a CRC of every image.
KNOWN_MD5 = {
  "landmarks-user-160k.zip": "53c36bd7d5fc12f927af2820b7e4a57c",
  "mini_gld_train_split.csv": "9fd62cf79a67046fdd673d3a0ac52841",
  "mini_gld_test.csv": "298e9d19d66357236f66fe8e22920933",
  "iNaturalist_train.csv": "63d5a41699434bc2b13f5853f3764c18",
  "iNaturalist_test.csv": "bcf08a5a740ee76dac4e5af668081891",
  "train_val_images.tar.gz": "7c784ea5e424efaec655bd392f87301f",
  "test2017.tar.gz": "7d9b096fa1cd94d67a0fa779ea301234",
}

_SUFFIX = ".jpg"
_CHUNK = 1 << 20
_ARCHIVE_ERRORS = (tarfile.TarError, EOFError, zlib.error, gzip.BadGzipFile)


@functools.cache
def compute_md5(path: pathlib.Path, size: int, time: int) -> str:
  """The MD5 of a file of a size and time, computed once a program."""
  del time  # Only tells the cache that a file was replaced.
  digest = hashlib.md5()
  bar = progress.create_bar(
    f"Verifying {path.name}", unit="B", total=size, unit_scale=True
  )
  with path.open("rb") as file, bar:
    while chunk := file.read(_CHUNK):
      digest.update(chunk)
      bar.update(len(chunk))
  return digest.hexdigest()


def check_md5(path: pathlib.Path, expected: str | None = None) -> None:
  """Checks that a file is what its publisher offers.

  Args:
    path: The file.
    expected: Its MD5 [that of `KNOWN_MD5`, if there is one].

  Raises:
    DataError: If its MD5 is another one.
  """
  if expected := expected or KNOWN_MD5.get(path.name):
    facts = path.stat()
    found = compute_md5(path, facts.st_size, facts.st_mtime_ns)
    if found != expected:
      raise errors.DataError(
        f"{path} must have MD5 {expected}, found {found}. Fetch it again."
      )


# Where the bytes of an image are: a file, the first byte, and their number.
_Place = tuple[pathlib.Path, int, int]


def _damaged(path: pathlib.Path, what: object) -> errors.DataError:
  return errors.DataError(
    f"{path} must be a whole tar archive, found: {what}. Fetch it again."
  )


def _image_id(name: str) -> str | None:
  path = pathlib.PurePosixPath(name)
  # Files that macOS adds to archives look like images: ._name.jpg.
  if path.suffix != _SUFFIX or path.name.startswith("."):
    return None
  return path.stem


def _iterate_members(
  archive: tarfile.TarFile, image_ids: Collection[str]
) -> Iterator[tuple[str, tarfile.TarInfo]]:
  """Yields the images that are needed."""
  while (member := archive.next()) is not None:
    image_id = _image_id(member.name)
    if member.isreg() and image_id in image_ids:
      yield image_id, member
    # Else it keeps every member, a gigabyte for the largest archive.
    archive.members = []  # type: ignore[attr-defined]


def _list_tar(
  path: pathlib.Path, image_ids: Collection[str]
) -> dict[str, _Place]:
  """Finds images in a plain tar by its headers alone; the first of each."""
  found: dict[str, _Place] = {}
  try:
    with tarfile.open(path, "r:") as archive:
      for image_id, member in _iterate_members(archive, image_ids):
        found.setdefault(image_id, (path, member.offset_data, member.size))
      end = archive.offset
    # A damaged header looks to `tarfile` like the end, which is a block of
    # zeros in truth.
    with path.open("rb") as file:
      file.seek(end)
      block = file.read(tarfile.BLOCKSIZE)
    if block != bytes(tarfile.BLOCKSIZE):
      raise _damaged(path, f"no end of the archive at byte {end}")
  except _ARCHIVE_ERRORS as error:
    raise _damaged(path, error) from error
  return found


def _list_folder(
  folder: pathlib.Path,
  image_ids: Collection[str],
  *,
  exclude: pathlib.Path | None = None,
) -> dict[str, _Place]:
  """Finds unpacked images in a folder and its sub-folders; the first of each.

  A folder that does not exist holds none.
  """
  found: dict[str, _Place] = {}
  for root, names, files in os.walk(folder):
    parent = pathlib.Path(root)
    names[:] = sorted(name for name in names if parent / name != exclude)
    for name in sorted(files):
      image_id = _image_id(name)
      if image_id in image_ids and image_id not in found:
        path = parent / name
        found[image_id] = path, 0, path.stat().st_size
  return found


def _unpack(
  path: pathlib.Path, image_ids: Collection[str], folder: pathlib.Path
) -> None:
  """Copies the images that are needed out of a compressed tar.

  The folder has its name only when all is done. What a killed program had
  copied is copied again.
  """
  bar = progress.create_bar(
    f"Unpacking {path.name}",
    unit="B",
    total=path.stat().st_size,
    unit_scale=True,
  )
  folder.parent.mkdir(parents=True, exist_ok=True)
  try:
    with (
      whole_files.replacing(folder) as partial,
      bar,
      path.open("rb", _CHUNK) as file,
      gzip.GzipFile(fileobj=file) as stream,
    ):
      partial.mkdir()
      with tarfile.open(
        fileobj=cast(IO[bytes], stream), mode="r|", bufsize=_CHUNK
      ) as members:
        for image_id, member in _iterate_members(members, image_ids):
          content = members.extractfile(member).read()
          if len(content) != member.size:
            raise tarfile.ReadError("unexpected end of data")
          image = partial / f"{image_id}{_SUFFIX}"
          if not image.exists():
            image.write_bytes(content)
          bar.update(file.tell() - bar.n)
      # To the end, so that the CRC of gzip is checked.
      while stream.read(_CHUNK):
        pass
  except _ARCHIVE_ERRORS as error:
    raise _damaged(path, error) from error


def _is_image(content: bytes) -> bool:
  """Whether the tasks can decode it."""
  try:
    if tf.io.is_jpeg(content):
      # All of the file is decoded, and an eighth of each side computed.
      tf.io.decode_jpeg(content, channels=3, ratio=8)
    else:
      tf.io.decode_image(content, channels=3, expand_animations=False)
  except tf.errors.InvalidArgumentError:
    return False
  return True


class PhotoJob(output.Job):
  """A split of published photos, and where these may be."""

  def __init__(
    self,
    task: str,
    variant: str,
    source_dir: pathlib.Path,
    tables: Sequence[split_tables.Table],
    archives: Mapping[pathlib.Path, str | None],
    *,
    user_column: str,
    notes: Sequence[str] = (),
    bytes_per_image: int = 0,
  ):
    """Reads the tables.

    Args:
      task: Name of the task.
      variant: Which of the task's data sets.
      source_dir: Folder of all that was downloaded.
      tables: That of the users and that of the test set.
      archives: Where images may be, beside folders of unpacked ones: tars,
        plain or compressed, and their MD5 if the publisher says it.
      user_column: Name of the column of users.
      notes: Lines to tell the user about what was found and what is missing.
      bytes_per_image: Average size of an image, for those in compressed
        archives, whose sizes are not known in advance.

    Raises:
      DataError: If a table cannot be used.
    """
    self.files, md5 = split_tables.read_tables(*tables, user_column=user_column)
    super().__init__(task, variant, {"tables": md5})
    self.archives, self.notes = archives, notes
    self._source_dir = source_dir
    self._bytes_per_image = bytes_per_image
    self._image_ids = {
      row.image_id for rows in self.files.values() for row in rows
    }
    # Where the images that were found are.
    self._found: dict[str, _Place] = {}

  def look(self, work: pathlib.Path) -> output.Plan:
    """As of the base class."""
    tars = [path for path in self.archives if path.suffix != ".gz"]
    for path in progress.create_bar(
      "Looking through archives", unit="tars", items=tars
    ):
      self._found = _list_tar(path, self._image_ids) | self._found
    # Not into folders of archives that are not unpacked to their end.
    for folder in sorted((work / "images").glob("[!.]*")):
      self._found |= _list_folder(folder, self._missing())
    if missing := self._missing():
      self._found |= _list_folder(
        self._source_dir, missing, exclude=work.parent
      )
    missing = self._missing()
    pending = [path.name for path in self._pending(work)] if missing else []
    self._tell(pending)
    sizes = {image_id: place[-1] for image_id, place in self._found.items()}
    unpacked = dict.fromkeys(missing if pending else (), self._bytes_per_image)
    return output.Plan(self.files, sizes | unpacked, sum(unpacked.values()))

  def _pending(self, work: pathlib.Path) -> list[pathlib.Path]:
    """The compressed archives that are not unpacked."""
    return [
      path
      for path in self.archives
      if path.suffix == ".gz" and not (work / "images" / path.name).exists()
    ]

  def _missing(self) -> set[str]:
    return self._image_ids - self._found.keys()

  def _tell(self, pending: Sequence[str]) -> None:
    """Says what was found, what is missing, and where it may be."""
    *users, test = map(len, self.files.values())
    absent = sorted(self._missing())
    missing = f"{len(absent)} missing"
    if pending:
      missing = f"{len(absent)} to be looked for in {', '.join(pending)}"
    elif absent:
      missing += f" ({bad_examples.name_first(absent)})"
    without = [path.name for path, md5 in self.archives.items() if md5 is None]
    num_checked = len(self.archives) - len(without)
    none = f"; none: {bad_examples.name_first(without)}" if without else ""
    print(
      *self.notes,
      f"{self.identity['task']} {self.variant}: {len(users)} users with"
      f" {sum(users)} images, {test} test images.",
      f"Images: {len(self._found)} found, {missing}.",
      f"Checksums: {num_checked} of {len(self.archives)} archives have one"
      f"{none}.",
      sep="\n",
    )

  def fetch(self, work: pathlib.Path) -> set[str]:
    """As of the base class."""
    note = work / "verified.json"
    in_use = {place[0] for place in self._found.values()}
    self._verify(note, [path for path in self.archives if path in in_use])
    for path in self._pending(work):
      if missing := self._missing():
        self._verify(note, [path])
        folder = work / "images" / path.name
        _unpack(path, missing, folder)
        self._found |= _list_folder(folder, missing)
    if not self._found:
      raise errors.FieldError(
        "source_dir",
        f"hold images of {self.variant}, in archives or unpacked",
        f"none of {len(self._image_ids)} in {self._source_dir}",
      )
    return self._missing()

  def _verify(self, note: pathlib.Path, paths: Iterable[pathlib.Path]) -> None:
    """Compares checksums of archives, those that are known once."""
    known = tfrecord_files.read_json(note)
    wrong = []
    for path in paths:
      facts = path.stat()
      fact = [facts.st_size, facts.st_mtime_ns]
      if not self.archives[path] or known.get(str(path)) == fact:
        continue
      try:
        check_md5(path, self.archives[path])
      except errors.DataError as error:
        wrong.append(str(error))
      else:
        known[str(path)] = fact
        output.write_json(note, known)
    if wrong:
      raise errors.DataError(" ".join(wrong))

  def read(self, image_id: str) -> bytes:
    """As of the base class."""
    if image_id not in self._found:
      raise output.BadImageError(output.MISSING)
    path, first_byte, size = self._found[image_id]
    with path.open("rb", buffering=0) as file:
      file.seek(first_byte)
      content = file.read(size)
    if len(content) != size:
      raise errors.DataError(
        f"{path} must not change while it is read, found it shorter than it"
        " was."
      )
    if not _is_image(content):
      raise output.BadImageError("cannot be decoded")
    return content
