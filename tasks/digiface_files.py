"""The files of DigiFace-1M: found, listed, and read without trusting them.

See `digiface` for what they are: zips, their unpacked folders, or the subjects'
folders themselves.
"""

import collections
from collections.abc import Iterable
from collections.abc import Iterator
import dataclasses
import errno
import hashlib
import lzma
import os
import pathlib
import re
import zipfile
import zlib

import tqdm

from tff_fedemb import errors
from tff_fedemb.data import encoded_images

SIDE = 112
# The two parts of the data set.
PARTS = ("72_images", "5_images")
# Kinds of notes. Of the last two, the text is what to call the identity.
BAD, WARNING = "bad_example", "warning"
NO_IMAGE, ONE_IMAGE = "no_image", "one_image"
# Of a converted copy, beside the image itself: SQLite fills whole pages.
BYTES_PER_IMAGE = 2_000

# Subjects with 72 images are numbered below it, those with 5 from it on.
_FIRST_OF_5_IMAGES = 100_000
_SOURCE_NAME = re.compile(r"subjects_(\d+)-(\d+)_(\d+)_imgs(\.zip)?")
_MEMBER_NAME = re.compile(r"(?:[^/]+/)?(\d+)/([^/]*)")
_CHECKED_AT_ONCE = 2_000
# RuntimeError: encrypted, or (NotImplementedError) packed in an unknown way.
_FORMAT_ERRORS = (
  EOFError,
  RuntimeError,
  UnicodeDecodeError,
  lzma.LZMAError,
  zipfile.BadZipFile,
  zlib.error,
)
# Of a zip that is damaged, not of the disk: a place before its start, and what
# bz2 cannot unpack.
_FORMAT_ERRNOS = (errno.EINVAL, None)
ADVICE = (
  "It must hold subjects_*_imgs.zip of github.com/microsoft/DigiFace1M (for"
  " non-commercial research), or their unpacked folders. To try the program"
  " on synthetic data instead: python -m tasks.synthetic --task=digiface"
  " --output_dir=DIR, then --data_dir=DIR."
)


class DamagedError(Exception):
  """An image that could be read from the disk, but not from its zip."""


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
    return "/".join(part for part in (self.name, *parts) if part)


@dataclasses.dataclass(frozen=True)
class Identity:
  """A subject and the names of its images, in their order, in the source."""

  subject: int
  source: Source
  names: tuple[str, ...]
  num_bytes: int


def part_of_subject(subject: int) -> str:
  """Which of `PARTS` a subject is in, by its number."""
  return "5_images" if subject >= _FIRST_OF_5_IMAGES else "72_images"


def find_named_sources(directory: pathlib.Path) -> list[Source]:
  """Looks for zips and folders that are named like the published zips.

  Args:
    directory: Where.

  Returns:
    They, by first subject.

  Raises:
    OSError: If it is no folder that can be read.
  """
  sources = []
  for path in sorted(directory.iterdir()):
    match = _SOURCE_NAME.fullmatch(path.name)
    if match and path.is_dir() != bool(match[4]):
      first, last, num_images = map(int, match.groups()[:3])
      sources.append(Source(path, path.name, (first, last), num_images))
  return sorted(sources, key=lambda source: source.subjects)


def find_sources(data_dir: str | None) -> dict[str, list[Source]]:
  """Looks for what there is of each of the two parts.

  Args:
    data_dir: Where.

  Returns:
    Sources for each of `PARTS` that there is any of, in this order.

  Raises:
    DataError: If there is nothing, with advice where to get it.
  """
  if data_dir is None:
    raise errors.DataError(
      f"--data_dir must be given for task digiface. {ADVICE}"
    )
  root = pathlib.Path(data_dir)
  sources = {part: [] for part in PARTS}
  parts_in_root = set()
  try:
    for source in find_named_sources(root):
      sources[part_of_subject(source.subjects[0])].append(source)
    for path in root.iterdir():
      if path.name.isdecimal() and path.is_dir():
        parts_in_root.add(part_of_subject(int(path.name)))
  except OSError as error:
    raise errors.DataError(
      f"--data_dir must be a folder that can be read, found {root}:"
      f" {error.strerror}. {ADVICE}"
    ) from error
  for part, ends in (
    ("72_images", (0, _FIRST_OF_5_IMAGES - 1)),
    ("5_images", (_FIRST_OF_5_IMAGES, 10**18)),
  ):
    if part in parts_in_root:
      sources[part].append(Source(root, "", ends))
  if not any(sources.values()):
    raise errors.DataError(
      f"--data_dir has no DigiFace images, found {root}. {ADVICE}"
    )
  return {part: found for part, found in sources.items() if found}


def _is_image(name: str) -> bool:
  return name.lower().endswith(".png") and not name.startswith(".")


def _list_folder(
  source: Source,
) -> Iterator[tuple[str, list[tuple[str, os.stat_result]]]]:
  """Yields the subjects' folders of a folder, and the images in each."""
  try:
    for folder in sorted(os.listdir(source.path)):
      path = source.path / folder
      if not folder.isdecimal() or not path.is_dir():
        continue
      if not source.name and not (
        source.subjects[0] <= int(folder) <= source.subjects[1]
      ):
        continue
      with os.scandir(path) as entries:
        yield (
          folder,
          sorted(
            (entry.name, entry.stat())
            for entry in entries
            if _is_image(entry.name)
          ),
        )
  except OSError as error:
    raise errors.DataError(
      f"{error.filename or source.path} must be a folder that can be read,"
      f" found: {error.strerror}."
    ) from error


def _reading_error(
  path: str | os.PathLike[str], error: OSError
) -> errors.DataError:
  return errors.DataError(
    f"{path} must be a file that can be read, found: {error.strerror}."
  )


def open_zip(path: pathlib.Path) -> zipfile.ZipFile:
  """Opens a zip.

  Args:
    path: The zip.

  Returns:
    It, to be closed.

  Raises:
    DataError: If it is no zip, was cut off, or cannot be read.
  """
  try:
    return zipfile.ZipFile(path)
  except (*_FORMAT_ERRORS, OSError) as error:
    if isinstance(error, OSError) and error.errno not in _FORMAT_ERRNOS:
      raise _reading_error(path, error) from error
    raise errors.DataError(
      f"{path} must be a whole zip archive, found: {error}. Fetch it again."
    ) from error


def read_member(archive: zipfile.ZipFile, name: str) -> bytes:
  """Reads an image from a zip, which compares its CRC.

  Args:
    archive: The zip.
    name: What to read.

  Returns:
    Its contents.

  Raises:
    DamagedError: If the zip is damaged in this place.
    DataError: If the disk cannot be read, which may work another time.
  """
  try:
    return archive.read(name)
  except (*_FORMAT_ERRORS, OSError) as error:
    if isinstance(error, OSError) and error.errno not in _FORMAT_ERRNOS:
      raise _reading_error(archive.filename, error) from error
    raise DamagedError(str(error)) from error


def _list_zip(
  source: Source,
) -> Iterator[tuple[str, list[tuple[str, zipfile.ZipInfo]]]]:
  """Yields the subjects' folders of a zip, and the images in each."""
  subjects = collections.defaultdict(list)
  with open_zip(source.path) as archive:
    for info in archive.infolist():
      match = _MEMBER_NAME.fullmatch(info.filename)
      if match:
        # A folder may be there without a file in it.
        images = subjects[info.filename[: match.end(1)]]
        if _is_image(match[2]):
          images.append((match[2], info))
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
  if source.path.is_dir():
    found = (
      (folder, [(name, facts.st_size) for name, facts in files])
      for folder, files in _list_folder(source)
    )
  else:
    found = (
      (folder, [(name, info.file_size) for name, info in files])
      for folder, files in _list_zip(source)
    )
  for folder, files in found:
    subject = int(folder.rpartition("/")[2])
    if not source.subjects[0] <= subject <= source.subjects[1]:
      raise errors.DataError(
        f"{source.path} must hold subjects {source.subjects[0]} to"
        f" {source.subjects[1]}, as its name says, found {subject}."
      )
    # By number where names are plain numbers.
    files.sort(key=lambda file: (len(file[0]), file[0]))
    identities.append(
      Identity(
        subject,
        source,
        tuple(f"{folder}/{name}" for name, _ in files),
        sum(size for _, size in files),
      )
    )
  if not identities:
    raise errors.DataError(
      f"{source.path} must hold <subject id>/<k>.png, found no such file."
    )
  return identities


def describe_missing(source: Source, identities: list[Identity]) -> list[str]:
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
  warnings = []
  if len(identities) < expected:
    warnings.append(
      f"{source.name} holds {len(identities)} of {expected} identities."
    )
  if incomplete:
    warnings.append(
      f"{source.name} has fewer than {source.num_images} images of"
      f" {incomplete} of {len(identities)} identities."
    )
  return warnings


def fingerprint(sources: list[Source]) -> str:
  """A short name of the sources that is another when a file of them changes.

  Files are judged by their sizes and times; where the data directory is does
  not matter.

  Args:
    sources: What `find_sources` found, in any order.

  Returns:
    16 hexadecimal digits.

  Raises:
    DataError: If a folder cannot be listed.
  """
  digest = hashlib.sha256()

  def add(*names: str, facts: os.stat_result | None = None):
    seen = facts and (facts.st_size, facts.st_mtime_ns)
    digest.update(repr((names, seen)).encode())

  for source in sorted(sources, key=lambda s: (s.name, s.subjects)):
    if source.path.is_dir():
      for folder, files in _list_folder(source):
        add(source.name, folder)
        for name, facts in files:
          add(name, facts=facts)
    else:
      add(source.name, facts=source.path.stat())
  return digest.hexdigest()[:16]


class Reader:
  """Reads identities with one zip open at a time; notes what is bad."""

  def __init__(self, notes: list[tuple[str, str]], progress: tqdm.tqdm):
    """Initialises the reader.

    Args:
      notes: Receives `BAD` and a line for every image that is left out, and
        `NO_IMAGE` or `ONE_IMAGE` and a name for every identity of which there
        is no more.
      progress: Is moved on by one for each image.
    """
    self._notes = notes
    self._progress = progress
    self._archive: tuple[pathlib.Path, zipfile.ZipFile] | None = None

  def __enter__(self) -> "Reader":
    return self

  def __exit__(self, *unused_error) -> None:
    self._close_archive()

  def _close_archive(self) -> None:
    if self._archive:
      self._archive[1].close()
      self._archive = None

  def read(
    self, identities: Iterable[Identity]
  ) -> Iterator[tuple[int, list[bytes]]]:
    """Reads identities and decodes every image once.

    Args:
      identities: What to read; those of one source had better follow one
        another.

    Yields:
      Every subject, in the order given, and its images, still encoded,
      without those that are bad; maybe none.

    Raises:
      DataError: If a zip is no zip, or the disk cannot be read.
    """
    pending, num_pending = [], 0
    for identity in identities:
      pending.append((identity, self._read_identity(identity)))
      num_pending += len(identity.names)
      if num_pending >= _CHECKED_AT_ONCE:
        yield from self._check(pending)
        pending, num_pending = [], 0
    yield from self._check(pending)

  def _note_bad(self, source: Source, name: str, what: str) -> None:
    self._notes.append((BAD, f"{source.name_of(name)}: {what}"))

  def _read_identity(self, identity: Identity) -> list[tuple[str, bytes]]:
    source = identity.source
    contents = []
    for name in identity.names:
      try:
        contents.append((name, self._read_image(source, name)))
      except DamagedError as error:
        self._note_bad(source, name, f"cannot be read: {error}")
      self._progress.update()
    return contents

  def _read_image(self, source: Source, name: str) -> bytes:
    if source.path.is_dir():
      try:
        return (source.path / name).read_bytes()
      except OSError as error:
        raise _reading_error(source.path / name, error) from error
    if self._archive is None or self._archive[0] != source.path:
      self._close_archive()
      self._archive = (source.path, open_zip(source.path))
    return read_member(self._archive[1], name)

  def _check(
    self, pending: list[tuple[Identity, list[tuple[str, bytes]]]]
  ) -> Iterator[tuple[int, list[bytes]]]:
    unreadable = set(
      encoded_images.find_unreadable(
        [content for _, images in pending for _, content in images],
        (SIDE, SIDE, 3),
      )
    )
    place = 0
    for identity, images in pending:
      contents = []
      for name, content in images:
        if place in unreadable:
          self._note_bad(identity.source, name, "not an image")
        else:
          contents.append(content)
        place += 1
      if len(contents) < 2:
        kind = ONE_IMAGE if contents else NO_IMAGE
        where = identity.source.name_of(str(identity.subject))
        self._notes.append((kind, where))
      yield identity.subject, contents
