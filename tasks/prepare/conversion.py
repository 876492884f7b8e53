"""Turns published images and the tables of a split into files for each user.

Hsu, Qi and Brown, "Federated Visual Classification with Real-World Data
Distribution", ECCV 2020. `output` says what the files are; images are in the
order of the tables.

A plain tar is not unpacked: its headers say where each image lies, and it is
read from there. A compressed tar can only be read from its start, so the images
that are needed are copied into a folder.
"""

from collections.abc import Callable
from collections.abc import Collection
from collections.abc import Iterator
from collections.abc import Sequence
import dataclasses
import gzip
import hashlib
import io
import os
import pathlib
import shutil
import tarfile
from typing import IO
from typing import cast
import zlib

import tensorflow as tf
import tqdm

from tasks.prepare import downloads
from tasks.prepare import output
from tasks.prepare import split_tables
from tff_fedemb import errors
from tff_fedemb.data import tfrecord_files

_SUFFIX = ".jpg"
_CHUNK = 1 << 20
_ARCHIVE_ERRORS = (tarfile.TarError, EOFError, zlib.error, gzip.BadGzipFile)


@dataclasses.dataclass(frozen=True)
class Job:
  """A data set to prepare: a split, and where its images may be.

  Attributes:
    task: Name of the task.
    variant: Which of the task's data sets; the name of its folder.
    source_dir: Folder of all that was downloaded.
    tables: The split.
    archives: Where images may be, beside folders of unpacked ones.
    notes: Lines to tell the user about what was found and what is missing.
    bytes_per_image: Average size of an image, for those in compressed archives,
      whose sizes are not known in advance.
  """

  task: str
  variant: str
  source_dir: pathlib.Path
  tables: split_tables.SplitTables
  archives: Sequence[downloads.Archive]
  notes: Sequence[str] = ()
  bytes_per_image: int = 0


@dataclasses.dataclass(frozen=True)
class _Location:
  """Where the bytes of an image are: a piece of a tar, or a file of its own."""

  path: pathlib.Path
  first_byte: int
  size: int

  def read(self) -> bytes:
    with open(self.path, "rb", buffering=0) as file:
      file.seek(self.first_byte)
      content = file.read(self.size)
    if len(content) != self.size:
      raise errors.DataError(
        f"{self.path} must not change while it is read, found it shorter than"
        " it was."
      )
    return content


def _damaged(path: pathlib.Path, what: object) -> errors.DataError:
  return errors.DataError(
    f"{path} must be a whole tar archive, found: {what}. Fetch it again."
  )


def _image_id(name: str) -> str | None:
  path = pathlib.PurePosixPath(name)
  # What macOS adds to archives looks like images: ._name.jpg.
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
) -> dict[str, _Location]:
  """Finds images in a plain tar by its headers alone; the first of each."""
  found = {}
  try:
    with tarfile.open(path, "r:") as archive:
      for image_id, member in _iterate_members(archive, image_ids):
        place = _Location(path, member.offset_data, member.size)
        found.setdefault(image_id, place)
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
) -> dict[str, _Location]:
  """Finds unpacked images in a folder and its sub-folders; the first of each.

  What is not there holds none.
  """
  found = {}
  for root, names, files in os.walk(folder):
    parent = pathlib.Path(root)
    names[:] = sorted(name for name in names if parent / name != exclude)
    for name in sorted(files):
      image_id = _image_id(name)
      if image_id in image_ids and image_id not in found:
        path = parent / name
        found[image_id] = _Location(path, 0, path.stat().st_size)
  return found


class _WatchedFile(io.FileIO):
  """A file that hashes what is read, and says how much."""

  def __init__(self, path: pathlib.Path, on_bytes: Callable[[int], object]):
    super().__init__(path)
    self._on_bytes = on_bytes
    self.digest = hashlib.md5()

  def readinto(self, buffer) -> int:
    count = super().readinto(buffer)
    self.digest.update(memoryview(buffer)[:count])
    self._on_bytes(count)
    return count


def _copy_images(
  stream: gzip.GzipFile, image_ids: Collection[str], folder: pathlib.Path
) -> None:
  """Copies images from an unpacked stream to a folder."""
  with tarfile.open(
    fileobj=cast(IO[bytes], stream), mode="r|", bufsize=_CHUNK
  ) as members:
    for image_id, member in _iterate_members(members, image_ids):
      content = members.extractfile(member).read()
      if len(content) != member.size:
        raise tarfile.ReadError("unexpected end of data")
      path = folder / f"{image_id}{_SUFFIX}"
      if not path.exists():
        path.write_bytes(content)


def _unpack(
  archive: downloads.Archive, image_ids: Collection[str], folder: pathlib.Path
) -> None:
  """Copies the images that are needed out of a compressed tar.

  The archive is read to its end, so that its checksum is verified on the way;
  the folder has its name only then. What a killed program had copied is copied
  again.
  """
  partial = folder.with_name(f".{folder.name}.partial")
  shutil.rmtree(partial, ignore_errors=True)
  partial.mkdir(parents=True)
  try:
    with (
      tqdm.tqdm(
        total=archive.path.stat().st_size,
        desc=f"Unpacking {archive.path.name}",
        unit="B",
        unit_scale=True,
        disable=None,
      ) as bar,
      _WatchedFile(archive.path, bar.update) as watched,
    ):
      buffered = io.BufferedReader(watched, _CHUNK)
      with gzip.GzipFile(fileobj=buffered) as stream:
        _copy_images(stream, image_ids, partial)
        # To the end, so that the CRC of gzip and the MD5 are checked.
        while stream.read(_CHUNK):
          pass
  except _ARCHIVE_ERRORS as error:
    raise _damaged(archive.path, error) from error
  if archive.md5 is not None:
    downloads.check_md5(
      archive.path, expected=archive.md5, found=watched.digest.hexdigest()
    )
  os.sync()
  partial.rename(folder)


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


class Preparation(output.Preparation):
  """A job under way in an output folder."""

  def __init__(
    self, job: Job, output_dir: pathlib.Path, *, on_bad_example: str = "fail"
  ):
    """Initialises the preparation of a job; arguments as of the base class."""
    identity = {
      "task": job.task,
      "variant": job.variant,
      "tables": dict(sorted(job.tables.md5.items())),
    }
    super().__init__(
      output_dir, job.variant, identity, on_bad_example=on_bad_example
    )
    self._job = job
    self._files = {
      f"{tfrecord_files.TRAIN_FOLDER}/{user_id}": rows
      for user_id, rows in job.tables.users.items()
    } | {tfrecord_files.TEST_FILE_NAME: job.tables.test}
    self._image_ids = {
      row.image_id for rows in self._files.values() for row in rows
    }
    self._unpacked = self.work / "images"
    # Where the images that were found are.
    self._found: dict[str, _Location] = {}

  def look(self) -> output.Plan:
    """As of the base class."""
    tars = [a.path for a in self._job.archives if not a.is_compressed]
    for path in tqdm.tqdm(
      tars, desc="Looking through archives", unit="tar", disable=None
    ):
      self._found = _list_tar(path, self._image_ids) | self._found
    # Not into folders of archives that are not unpacked to their end.
    for folder in sorted(self._unpacked.glob("[!.]*")):
      self._found |= _list_folder(folder, self._missing())
    if missing := self._missing():
      self._found |= _list_folder(
        self._job.source_dir, missing, exclude=self.output_dir
      )
    self._tell()
    sizes = {image_id: place.size for image_id, place in self._found.items()}
    unpacked = dict.fromkeys(
      self._missing() if self._list_pending() else (), self._job.bytes_per_image
    )
    return output.Plan(self._files, sizes | unpacked, sum(unpacked.values()))

  def _missing(self) -> set[str]:
    return self._image_ids - self._found.keys()

  def _list_pending(self) -> list[downloads.Archive]:
    """The archives to unpack for the images that were not found."""
    return [
      archive
      for archive in self._job.archives
      if archive.is_compressed
      and self._missing()
      and not (self._unpacked / archive.path.name).exists()
    ]

  def _tell(self) -> None:
    """Says what was found and what is missing."""
    job, tables = self._job, self._job.tables
    num_train = sum(map(len, tables.users.values()))
    absent = sorted(self._missing())
    missing = f"{len(absent)} missing"
    if pending := self._list_pending():
      names = ", ".join(archive.path.name for archive in pending)
      missing = f"{len(absent)} to be looked for in {names}"
    elif absent:
      missing += f" ({downloads.format_names(absent)})"
    without = [a.path.name for a in job.archives if a.md5 is None]
    none = f"; none: {downloads.format_names(without)}" if without else ""
    lines = [
      *job.notes,
      f"{job.task} {job.variant}: {len(tables.users)} users with {num_train}"
      f" images, {len(tables.test)} test images.",
      f"Images: {len(self._found)} found, {missing}.",
      f"Checksums: {len(job.archives) - len(without)} of {len(job.archives)}"
      f" archives have one{none}.",
    ]
    if num_finished := sum(map(self.is_written, self._files)):
      lines.append(
        f"Finished earlier: {num_finished} of {len(self._files)} files."
      )
    print("\n".join(lines))

  def fetch(self) -> None:
    """As of the base class."""
    self._verify()
    for archive in self._job.archives:
      if archive.is_compressed and (missing := self._missing()):
        folder = self._unpacked / archive.path.name
        if not folder.exists():
          _unpack(archive, missing, folder)
        self._found |= _list_folder(folder, missing)
    if not self._found:
      raise errors.FieldError(
        "source_dir",
        f"hold images of {self._job.variant}, in archives or unpacked",
        f"none of {len(self._image_ids)} in {self._job.source_dir}",
      )
    self.check_bad(
      [
        (f"image {image_id}", f"not in {self._job.source_dir}")
        for image_id in sorted(self._missing())
      ]
    )
    self.forget_missing(self._found)

  def _verify(self) -> None:
    """Compares checksums of the plain tars that images are taken from."""
    note = self.work / "verified.json"
    known = output.read_json(note)
    in_use = {place.path for place in self._found.values()}
    wrong = []
    for archive in tqdm.tqdm(
      [a for a in self._job.archives if a.md5 and a.path in in_use],
      desc="Verifying checksums",
      unit="tar",
      disable=None,
    ):
      path, facts = os.fspath(archive.path), archive.path.stat()
      fact = [facts.st_size, facts.st_mtime_ns]
      if archive.is_verified or known.get(path) == fact:
        continue
      try:
        downloads.check_md5(archive.path, expected=archive.md5)
      except errors.DataError as error:
        wrong.append(str(error))
      else:
        archive.is_verified = True
        known[path] = fact
        output.write_json(note, known)
    if wrong:
      raise errors.DataError(" ".join(wrong))

  def read(self, image_id: str) -> bytes:
    """As of the base class."""
    place = self._found.get(image_id)
    if place is None:
      raise output.BadImageError(output.MISSING)
    content = place.read()
    if not _is_image(content):
      raise output.BadImageError("cannot be decoded")
    return content
