"""Finds the images that are needed in archives and folders.

A plain tar is not unpacked: its headers say where each image lies, and it is
read from there. A compressed tar can only be read from its start, so the images
that are needed are copied into a folder.
"""

from collections.abc import Callable
from collections.abc import Collection
from collections.abc import Iterator
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

import tqdm

from tasks.prepare import downloads
from tff_fedemb import errors

IMAGE_SUFFIX = ".jpg"

_CHUNK = 1 << 20
_ARCHIVE_ERRORS = (tarfile.TarError, EOFError, zlib.error, gzip.BadGzipFile)


@dataclasses.dataclass(frozen=True)
class Location:
  """Where the bytes of an image are: a piece of a file.

  Attributes:
    path: The file: a tar, or the image itself.
    first_byte: Offset in it.
    size: Number of bytes.
  """

  path: str
  first_byte: int
  size: int

  def read(self) -> bytes:
    """The image as it was published.

    Raises:
      DataError: If the file became shorter.
    """
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


def _image_id(name: str) -> str | None:
  path = pathlib.PurePosixPath(name)
  # What macOS adds to archives looks like images: ._name.jpg.
  if path.suffix != IMAGE_SUFFIX or path.name.startswith("."):
    return None
  return path.stem


def list_tar(
  path: pathlib.Path, image_ids: Collection[str]
) -> dict[str, Location]:
  """Finds images in a plain tar by its headers alone.

  Args:
    path: The tar.
    image_ids: Images that are needed.

  Returns:
    Places of those that are in it, the first one of each.

  Raises:
    DataError: If the tar is damaged or cut off.
  """
  found = {}
  try:
    with tarfile.open(path, "r:") as archive:
      for image_id, member in _iterate_members(archive, image_ids):
        place = Location(os.fspath(path), member.offset_data, member.size)
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


def list_folder(
  folder: pathlib.Path,
  image_ids: Collection[str],
  *,
  exclude: pathlib.Path | None = None,
) -> dict[str, Location]:
  """Finds unpacked images in a folder and all its sub-folders.

  Args:
    folder: The folder; it need not exist.
    image_ids: Images that are needed.
    exclude: A folder that is not looked into.

  Returns:
    Places of those that are in it, the first one of each.
  """
  found = {}
  for root, names, files in os.walk(folder):
    names[:] = sorted(
      name for name in names if pathlib.Path(root, name) != exclude
    )
    for name in sorted(files):
      image_id = _image_id(name)
      if image_id in image_ids and image_id not in found:
        path = os.path.join(root, name)
        found[image_id] = Location(path, 0, os.path.getsize(path))
  return found


class _WatchedFile(io.RawIOBase):
  """A file that hashes what is read, and says how much."""

  def __init__(self, file: io.RawIOBase, on_bytes: Callable[[int], object]):
    self._file = file
    self._on_bytes = on_bytes
    self._digest = hashlib.md5()

  def readable(self) -> bool:
    return True

  def readinto(self, buffer) -> int:
    count = self._file.readinto(buffer)
    self._digest.update(memoryview(buffer)[:count])
    self._on_bytes(count)
    return count

  def hexdigest(self) -> str:
    return self._digest.hexdigest()


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
      path = folder / f"{image_id}{IMAGE_SUFFIX}"
      if not path.exists():
        path.write_bytes(content)


def unpack(
  archive: downloads.Archive, image_ids: Collection[str], folder: pathlib.Path
) -> None:
  """Copies the images that are needed out of a compressed tar.

  The archive is read to its end, so that its checksum is verified on the way;
  the folder has its name only then. What a killed program had copied is copied
  again.

  Args:
    archive: The tar.
    image_ids: Images that are needed and not found yet.
    folder: Gets the images; it must not exist yet.

  Raises:
    DataError: If the archive is damaged or has another checksum than that of
      the publisher.
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
      archive.path.open("rb", buffering=0) as file,
    ):
      watched = _WatchedFile(file, bar.update)
      buffered = io.BufferedReader(watched, _CHUNK)
      with gzip.GzipFile(fileobj=buffered) as stream:
        _copy_images(stream, image_ids, partial)
        # To the end, so that the CRC of gzip and the MD5 are checked.
        while stream.read(_CHUNK):
          pass
      while buffered.read(_CHUNK):
        pass
  except _ARCHIVE_ERRORS as error:
    raise _damaged(archive.path, error) from error
  if archive.md5 not in (None, watched.hexdigest()):
    raise downloads.create_md5_error(
      archive.path, archive.md5, watched.hexdigest()
    )
  os.sync()
  partial.rename(folder)
