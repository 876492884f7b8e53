"""The files of DigiFace-1M: found, listed, and read without trusting them.

Bae et al., "DigiFace-1M: 1 Million Digital Face Images for Face Recognition",
WACV 2023. The publishers' zips as they are (`subjects_0-1999_72_imgs.zip` and
so on, with `<subject id>/<k>.png` inside), or what they unpack to: a folder of
the same name without `.zip`, or the folders `<subject id>` themselves; in any
mixture, and any number of them.
"""

from collections.abc import Callable
from collections.abc import Iterator
from collections.abc import Sequence
import contextlib
import dataclasses
import errno
import functools
import hashlib
import os
import pathlib
import re
import zipfile

from tasks.prepare import output
from tff_fedemb import errors
from tff_fedemb.data import reading

# The two parts of the data set, and the numbers of their subjects.
PARTS = {"72_images": (0, 99_999), "5_images": (100_000, 10**18)}

_SOURCE_NAME = re.compile(r"subjects_(\d+)-(\d+)_(\d+)_imgs(\.zip)?")
_MEMBER_NAME = re.compile(r"((?:[^/]+/)?(\d+))/([^/]*)")
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

  @property
  def part(self) -> str:
    """Which of `PARTS` it is of, by the number of its first subject."""
    return _part_of_subject(self.subjects[0])

  def name_of(self, member: str) -> str:
    """What to call something in it."""
    return f"{self.name}/{member}" if self.name else member


def _part_of_subject(subject: int) -> str:
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
      parts_in_root.add(_part_of_subject(int(path.name)))
  sources.sort(key=lambda source: (source.subjects, source.name))
  sources += [Source(root, "", PARTS[part]) for part in sorted(parts_in_root)]
  by_part = {part: [s for s in sources if s.part == part] for part in PARTS}
  return {part: found for part, found in by_part.items() if found}


@contextlib.contextmanager
def _reading(
  path: pathlib.Path, damaged: Callable[[Exception], Exception]
) -> Iterator[None]:
  """Tells a zip that is damaged from a disk that is."""
  try:
    yield
  except (*reading.ARCHIVE_ERRORS, OSError) as error:
    if isinstance(error, OSError) and error.errno not in _FORMAT_ERRNOS:
      raise reading.create_error(path, error) from error
    raise damaged(error) from error


def _open_zip(path: pathlib.Path) -> zipfile.ZipFile:
  def damaged(error):
    return errors.DataError(
      f"{path} must be a whole zip archive, found: {error}. Fetch it again."
    )

  with _reading(path, damaged):
    return zipfile.ZipFile(path)


# An image's name, size and time, which is 0 in a zip.
_Listed = tuple[str, int, int]


def _list_folder(source: Source) -> dict[str, list[_Listed]]:
  subjects = {}
  try:
    for folder in sorted(os.listdir(source.path)):
      path = source.path / folder
      # A named folder that holds others is refused later.
      if (
        folder.isdecimal()
        and path.is_dir()
        and (source.name or _part_of_subject(int(folder)) == source.part)
      ):
        with os.scandir(path) as entries:
          subjects[folder] = sorted(
            (entry.name, entry.stat().st_size, entry.stat().st_mtime_ns)
            for entry in entries
          )
  except OSError as error:
    raise reading.create_error(source.path, error, "folder") from error
  return subjects


def _list(source: Source) -> dict[str, list[_Listed]]:
  """Images by the folder of their subject."""
  listed: dict[str, list[_Listed]] = {}
  if source.path.is_dir():
    listed = _list_folder(source)
  else:
    with _open_zip(source.path) as archive:
      for info in archive.infolist():
        if match := _MEMBER_NAME.fullmatch(info.filename):
          # A folder may be there without a file in it.
          images = listed.setdefault(match[1], [])
          images.append((match[3], info.file_size, 0))
  return {
    folder: [
      image
      for image in images
      if image[0].lower().endswith(".png") and not image[0].startswith(".")
    ]
    for folder, images in listed.items()
  }


def list_subjects(source: Source) -> dict[int, dict[str, int]]:
  """Lists what a source holds, without reading images.

  Args:
    source: One that `find_sources` found.

  Returns:
    For each subject, also those without images, the sizes of its images by
    their names, as of `Source.name_of`, in the order of their numbers.

  Raises:
    DataError: If it cannot be listed, holds no subject, or one whose number is
      not in its name's range.
  """
  subjects = {}
  first, last = source.subjects
  for folder, images in _list(source).items():
    subject = int(folder.rpartition("/")[2])
    if not first <= subject <= last:
      raise errors.DataError(
        f"{source.path} must hold subjects {first} to {last}, as its name says,"
        f" found {subject}."
      )
    # By number where names are plain numbers.
    images.sort(key=lambda image: (len(image[0]), image[0]))
    subjects[subject] = {
      source.name_of(f"{folder}/{name}"): size for name, size, _ in images
    }
  if not subjects:
    raise errors.DataError(
      f"{source.path} must hold <subject id>/<k>.png, found no such file."
    )
  return subjects


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
    for listed in _list(source).items():
      digest.update(repr(listed).encode())
  else:
    facts = source.path.stat()
    digest.update(repr((facts.st_size, facts.st_mtime_ns)).encode())
  return digest.hexdigest()[:16]


def create_reader(sources: Sequence[Source]) -> Callable[[str], bytes]:
  """Creates what reads images, from one zip at a time.

  Args:
    sources: Where the images are.

  Returns:
    From an image's name, as of `Source.name_of`, to its content; of a zip, with
    its CRC compared. It raises `BadImageError` if the zip is damaged in this
    place, and `DataError` if the disk cannot be read, which may work another
    time.
  """
  paths = {source.name: source.path for source in sources}
  # One at a time: the directory of a zip takes some 100 MB.
  open_zip = functools.lru_cache(maxsize=1)(_open_zip)

  def damaged(error):
    return output.BadImageError(f"cannot be read: {error}")

  def read(name):
    head, _, member = name.partition("/")
    path = paths[head] if head in paths else paths[""] / head
    if path.is_dir():
      with _reading(path / member, damaged):
        return (path / member).read_bytes()
    archive = open_zip(path)
    with _reading(path, damaged):
      return archive.read(member)

  return read
