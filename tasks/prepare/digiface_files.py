"""The files of DigiFace-1M: found, listed, and read without trusting them.

Bae et al., "DigiFace-1M: 1 Million Digital Face Images for Face Recognition",
WACV 2023. The publishers' zips as they are (`subjects_0-1999_72_imgs.zip` and
so on, with `<subject id>/<k>.png` inside), or what they unpack to: a folder of
the same name without `.zip`, or the folders `<subject id>` themselves; in any
mixture, and any number of them.
"""

import collections
from collections.abc import Iterator
from collections.abc import Sequence
import dataclasses
import errno
import functools
import hashlib
import os
import pathlib
import re
from typing import TypeGuard
import zipfile

from tasks.prepare import output
from tff_fedemb import errors
from tff_fedemb.data import reading

# The two parts of the data set, and the numbers of their subjects.
PARTS = {"72_images": (0, 99_999), "5_images": (100_000, 10**18)}

_SOURCE_NAME = re.compile(r"subjects_(\d+)-(\d+)_(\d+)_imgs(\.zip)?")
_MEMBER_NAME = re.compile(r"(?:[^/]+/)?(\d+)/([^/]*)")
# Of a zip that is damaged, not of the disk: a place before its start, and what
# bz2 cannot unpack.
_FORMAT_ERRNOS = (errno.EINVAL, None)


@dataclasses.dataclass(frozen=True)
class Source:
  """A zip, its unpacked folder, or the subjects' folders in the data directory.

  Attributes:
    path: The zip, or the folder that holds the subjects' folders.
    name: What to call it; empty for the data directory.
    subjects: First and last subject that it may hold.
    num_images: Images of an identity by its name, 0 if it does not say.
  """

  path: pathlib.Path
  name: str
  subjects: tuple[int, int]
  num_images: int = 0

  def name_of(self, *parts: str) -> str:
    """What to call something in it."""
    return "/".join(part for part in (self.name, *parts) if part)


@dataclasses.dataclass(frozen=True, slots=True)
class Identity:
  """A subject and the names of its images, in their order, in the source."""

  subject: int
  source: Source
  names: tuple[str, ...]
  num_bytes: int


def part_of_subject(subject: int) -> str:
  """Which of `PARTS` a subject is in, by its number."""
  return "5_images" if subject >= PARTS["5_images"][0] else "72_images"


def find_sources(root: pathlib.Path) -> dict[str, list[Source]]:
  """Looks for what there is of each of the two parts.

  Args:
    root: Where.

  Returns:
    Sources for each of `PARTS` that there is any of, in this order; each part's
    by the first subject.

  Raises:
    OSError: If it is no folder that can be read.
  """
  sources, parts_in_root = [], set()
  for path in root.iterdir():
    match = _SOURCE_NAME.fullmatch(path.name)
    if match and path.is_dir() != bool(match[4]):
      first, last, num_images = map(int, match.groups()[:3])
      sources.append(Source(path, path.name, (first, last), num_images))
    elif path.name.isdecimal() and path.is_dir():
      parts_in_root.add(part_of_subject(int(path.name)))
  sources.sort(key=lambda source: (source.subjects, source.name))
  sources += [Source(root, "", PARTS[part]) for part in sorted(parts_in_root)]
  by_part = {
    part: [s for s in sources if part_of_subject(s.subjects[0]) == part]
    for part in PARTS
  }
  return {part: found for part, found in by_part.items() if found}


def _is_image(name: str) -> bool:
  return name.lower().endswith(".png") and not name.startswith(".")


def _is_of_disk(error: Exception) -> TypeGuard[OSError]:
  """Whether the disk is damaged, rather than a zip."""
  return isinstance(error, OSError) and error.errno not in _FORMAT_ERRNOS


def _open_zip(path: pathlib.Path) -> zipfile.ZipFile:
  """Opens a zip, which must be whole."""
  try:
    return zipfile.ZipFile(path)
  except (*reading.ARCHIVE_ERRORS, OSError) as error:
    if _is_of_disk(error):
      raise reading.create_error(path, error) from error
    raise errors.DataError(
      f"{path} must be a whole zip archive, found: {error}. Fetch it again."
    ) from error


def _list_folder(
  source: Source,
) -> Iterator[tuple[str, list[tuple[str, int, int]]]]:
  """Yields the subjects' folders of a folder: images, sizes and times."""
  try:
    for folder in sorted(os.listdir(source.path)):
      path = source.path / folder
      if not folder.isdecimal() or not path.is_dir():
        continue
      # A named folder that holds others is refused later.
      if not source.name and part_of_subject(int(folder)) != part_of_subject(
        source.subjects[0]
      ):
        continue
      with os.scandir(path) as entries:
        images = [
          (entry.name, facts.st_size, facts.st_mtime_ns)
          for entry in entries
          if _is_image(entry.name)
          for facts in [entry.stat()]
        ]
      yield folder, sorted(images)
  except OSError as error:
    raise reading.create_error(source.path, error, "folder") from error


def _list_zip(
  source: Source,
) -> Iterator[tuple[str, list[tuple[str, int, int]]]]:
  """Yields the subjects' folders of a zip: images, sizes and no times."""
  subjects = collections.defaultdict(list)
  with _open_zip(source.path) as archive:
    for info in archive.infolist():
      match = _MEMBER_NAME.fullmatch(info.filename)
      if match:
        # A folder may be there without a file in it.
        images = subjects[info.filename[: match.end(1)]]
        if _is_image(match[2]):
          images.append((match[2], info.file_size, 0))
  yield from subjects.items()


def list_identities(source: Source) -> list[Identity]:
  """Lists what a source holds, without reading images.

  Args:
    source: One that `find_sources` found.

  Returns:
    The identities, also those without images.

  Raises:
    DataError: If it cannot be listed, holds no identity, or one whose number is
      not in its name's range.
  """
  identities = []
  list_images = _list_folder if source.path.is_dir() else _list_zip
  first, last = source.subjects
  for folder, images in list_images(source):
    subject = int(folder.rpartition("/")[2])
    if not first <= subject <= last:
      raise errors.DataError(
        f"{source.path} must hold subjects {first} to {last}, as its name says,"
        f" found {subject}."
      )
    # By number where names are plain numbers.
    images.sort(key=lambda image: (len(image[0]), image[0]))
    names = tuple(f"{folder}/{name}" for name, _, _ in images)
    num_bytes = sum(size for _, size, _ in images)
    identities.append(Identity(subject, source, names, num_bytes))
  if not identities:
    raise errors.DataError(
      f"{source.path} must hold <subject id>/<k>.png, found no such file."
    )
  return identities


def describe_missing(
  source: Source, identities: Sequence[Identity]
) -> list[str]:
  """Tells what a source lacks of what its name says, as if half unpacked.

  Args:
    source: The source.
    identities: What it holds.

  Returns:
    A line for each kind of thing that is missing.
  """
  if not source.num_images:
    return []
  first, last = source.subjects
  expected = last - first + 1
  incomplete = sum(len(i.names) < source.num_images for i in identities)
  lines = []
  if len(identities) < expected:
    lines.append(
      f"{source.name} holds {len(identities)} of {expected} identities."
    )
  if incomplete:
    lines.append(
      f"{source.name} has fewer than {source.num_images} images of"
      f" {incomplete} of {len(identities)} identities."
    )
  return lines


def fingerprint(source: Source) -> str:
  """A short name of a source that is another when a file of it changes.

  Files are judged by their sizes and times; where the data directory is does
  not matter.

  Args:
    source: What `find_sources` found.

  Returns:
    16 hexadecimal digits.

  Raises:
    DataError: If a folder cannot be listed.
  """
  digest = hashlib.sha256(source.name.encode())
  if source.path.is_dir():
    for listed in _list_folder(source):
      digest.update(repr(listed).encode())
  else:
    facts = source.path.stat()
    digest.update(repr((facts.st_size, facts.st_mtime_ns)).encode())
  return digest.hexdigest()[:16]


class Reader:
  """Reads images by `Source.name_of` their names, from one zip at a time."""

  def __init__(self, sources: Sequence[Source]):
    """Initialises the reader.

    Args:
      sources: Where the images are.
    """
    self._named = {source.name: source for source in sources if source.name}
    self._roots = [source for source in sources if not source.name]
    # One at a time: the directory of a zip takes some 100 MB.
    self._open = functools.lru_cache(maxsize=1)(_open_zip)

  def read(self, name: str) -> bytes:
    """Reads an image; a zip compares its CRC.

    Args:
      name: The image.

    Returns:
      Its content, as it is.

    Raises:
      BadImageError: If the zip is damaged in this place.
      DataError: If the disk cannot be read, which may work another time.
    """
    head, _, member = name.partition("/")
    if head not in self._named:
      return self._read_file(self._roots[0].path / name)
    path = self._named[head].path
    if path.is_dir():
      return self._read_file(path / member)
    archive = self._open(path)
    try:
      return archive.read(member)
    except (*reading.ARCHIVE_ERRORS, OSError) as error:
      if _is_of_disk(error):
        raise reading.create_error(path, error) from error
      raise output.BadImageError(f"cannot be read: {error}") from error

  def _read_file(self, path: pathlib.Path) -> bytes:
    try:
      return path.read_bytes()
    except OSError as error:
      raise reading.create_error(path, error) from error
