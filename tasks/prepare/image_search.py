"""Finds the images that are needed in archives and folders.

A plain tar is not unpacked: its headers say where each image lies, and it is
read from there. A compressed tar can only be read from its start, so the images
that are needed are copied, as they come, to the end of one file, the spool.
"""

from collections.abc import Callable
from collections.abc import Collection
from collections.abc import Iterator
import gzip
import hashlib
import io
import os
import pathlib
import tarfile
import zlib

import tqdm

from tasks.prepare import downloads
from tasks.prepare import state as state_lib
from tff_fedemb import errors

IMAGE_SUFFIX = ".jpg"

_CHUNK = 1 << 20
# Images whose places are noted together: what is lost when the program is
# killed while it unpacks.
_IMAGES_PER_COMMIT = 256
_ARCHIVE_ERRORS = (tarfile.TarError, EOFError, zlib.error, gzip.BadGzipFile)


def _damaged(path: pathlib.Path, what: object) -> errors.DataError:
  return errors.DataError(
    f"{path} must be a whole tar archive, found: {what}. Fetch it again."
  )


def _iterate_members(archive: tarfile.TarFile) -> Iterator[tarfile.TarInfo]:
  while (member := archive.next()) is not None:
    yield member
    # Else it keeps every member, a gigabyte for the largest archive.
    archive.members = []


def _image_id(name: str) -> str | None:
  path = pathlib.PurePosixPath(name)
  # What macOS adds to archives looks like images: ._name.jpg.
  if path.suffix != IMAGE_SUFFIX or path.name.startswith("."):
    return None
  return path.stem


def list_tar(
  path: pathlib.Path, image_ids: Collection[str]
) -> list[tuple[str, state_lib.Location]]:
  """Finds images in a plain tar by its headers alone.

  Args:
    path: The tar.
    image_ids: Images that are needed.

  Returns:
    Ids and places of those that are in it.

  Raises:
    DataError: If the tar is damaged or cut off.
  """
  found = []
  try:
    with tarfile.open(path, "r:") as archive:
      for member in _iterate_members(archive):
        image_id = _image_id(member.name)
        if member.isreg() and image_id in image_ids:
          place = state_lib.Location(
            os.fspath(path), member.offset_data, member.size
          )
          found.append((image_id, place))
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
  exclude: pathlib.Path,
) -> list[tuple[str, state_lib.Location]]:
  """Finds unpacked images in a folder and all its sub-folders.

  Args:
    folder: The folder.
    image_ids: Images that are needed.
    exclude: A folder that is not looked into.

  Returns:
    Ids and places of those that are in it, the first one of each.
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
        found[image_id] = state_lib.Location(path, 0, os.path.getsize(path))
  return list(found.items())


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
  stream: io.BufferedIOBase,
  archive: downloads.Archive,
  image_ids: set[str],
  spool: io.BufferedIOBase,
  state: state_lib.State,
) -> None:
  """Copies images from an unpacked stream to the end of the spool."""
  waiting = []

  def commit():
    spool.flush()
    os.fsync(spool.fileno())
    state.add_images(archive.path, waiting)
    waiting.clear()

  with tarfile.open(fileobj=stream, mode="r|", bufsize=_CHUNK) as members:
    for member in _iterate_members(members):
      image_id = _image_id(member.name)
      if not member.isreg() or image_id not in image_ids:
        continue
      content = members.extractfile(member).read()
      if len(content) != member.size:
        raise tarfile.ReadError("unexpected end of data")
      place = state_lib.Location(
        os.fspath(spool.name), spool.tell(), len(content)
      )
      spool.write(content)
      waiting.append((image_id, place))
      image_ids.discard(image_id)
      if len(waiting) == _IMAGES_PER_COMMIT:
        commit()
  commit()


def unpack(
  archive: downloads.Archive,
  image_ids: Collection[str],
  spool_path: pathlib.Path,
  state: state_lib.State,
) -> None:
  """Copies the images that are needed out of a compressed tar.

  Images that the state knows are not copied again; what a killed program had
  written beyond them is cut off. The archive is read to its end, so that its
  checksum is verified on the way.

  Args:
    archive: The tar.
    image_ids: Images that are needed and not found yet.
    spool_path: The file to append to.
    state: Gets the places of the images.

  Raises:
    DataError: If the archive is damaged or has another checksum than that of
      the publisher; its images are forgotten.
  """
  size = archive.path.stat().st_size
  name = archive.path.name
  try:
    with (
      tqdm.tqdm(
        total=size,
        desc=f"Unpacking {name}",
        unit="B",
        unit_scale=True,
        disable=None,
      ) as bar,
      archive.path.open("rb", buffering=0) as file,
      spool_path.open("ab") as spool,
    ):
      spool.truncate(state.length_of(spool_path))
      spool.seek(0, os.SEEK_END)
      watched = _WatchedFile(file, bar.update)
      buffered = io.BufferedReader(watched, _CHUNK)
      with gzip.GzipFile(fileobj=buffered) as stream:
        _copy_images(stream, archive, set(image_ids), spool, state)
        # To the end, so that the CRC of gzip and the MD5 are checked.
        while stream.read(_CHUNK):
          pass
      while buffered.read(_CHUNK):
        pass
  except _ARCHIVE_ERRORS as error:
    state.forget_images(archive.path)
    raise _damaged(archive.path, error) from error
  found = watched.hexdigest()
  if archive.md5 is not None and found != archive.md5:
    state.forget_images(archive.path)
    raise errors.DataError(
      f"{downloads.describe_mismatch(archive.path, archive.md5, found)}."
      " Fetch it again."
    )
  state.mark(archive.path, "listed")
  if archive.md5 is not None:
    state.mark(archive.path, "verified")
