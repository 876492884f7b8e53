"""DigiFace-1M, one user per identity, as the files that the photo tasks read.

Bae et al., "DigiFace-1M: 1 Million Digital Face Images for Face Recognition",
WACV 2023: 10,000 identities with 72 images each and 100,000 with 5. Sources are
the publishers' zips (`subjects_0-1999_72_imgs.zip` and so on, with
`<subject id>/<k>.png` inside), their unpacked folders of the same name without
`.zip`, or the folders `<subject id>` themselves, in any mixture and number. The
published data have no split. A fixed keyed hash of an identity's number decides
ours; no seed changes it, so it is the same for everybody.

Users and classes follow from the list of files, before any image is read, so
the content of one user's images changes no other user's label or slot. A user
without a readable image remains, and takes part without examples. The class of
a training image is the place of its user among the users; the class of a
held-out image is its subject's number. Images are copied as they are.
"""

from collections.abc import Mapping, Sequence
import functools
import hashlib
import os
import pathlib
import re
from typing import NamedTuple

from tasks.prepare import output
from tff_fedemb import errors
from tff_fedemb import progress
from tff_fedemb.data import bad_examples
from tff_fedemb.data import tfrecord_files

SPLITS = ("train", "validation", "test")
_MIN_IDENTITIES = 2
_ADVICE = (
  "It must hold subjects_*_imgs.zip of github.com/microsoft/DigiFace1M (for"
  " non-commercial research), or their unpacked folders."
)
# Subjects below this number have 72 images, the others 5.
_FIRST_OF_5_IMAGES = 100_000
VARIANTS = ("72_images", "5_images", "all")
# A key for which the first 8 identities of either part are enough for all
# splits.
_SPLIT_KEY = b"digiface-16701"
# Raise this when the conversion of the same source changes.
_CONVERSION_VERSION = 4

_SOURCE_NAME = re.compile(r"subjects_(\d+)-(\d+)_\d+_imgs(\.zip)?")
_MEMBER_NAME = re.compile(r"((?:[^/]+/)?(\d+))/([^/]*)")


class _File(NamedTuple):
  """A file of a subject, or, without a name, the subject's folder.

  Attributes:
    subject: The subject's number.
    folder: Path of the subject's folder, from that of all sources.
    name: The file's name.
    size: Its number of bytes.
    stamp: Changes with its content: its CRC in a zip, its time in a folder.
  """

  subject: int
  folder: str
  name: str = ""
  size: int = 0
  stamp: int = 0


def split_of_subject(subject: int) -> str:
  """Returns the split of an identity, the same for everybody.

  Args:
    subject: The identity's number, which alone decides.

  Returns:
    "test" or "validation" with a probability of 1/10 each, else "train".
  """
  digest = hashlib.blake2b(str(subject).encode(), key=_SPLIT_KEY, digest_size=8)
  share = int.from_bytes(digest.digest(), "big") / 2**64
  if share < 0.1:
    return "test"
  if share < 0.2:
    return "validation"
  return "train"


def require_identities(field: str, numbers: Mapping[str, int]) -> None:
  """Refuses splits of too few identities.

  Args:
    field: Field that names their folder, for the error.
    numbers: Number of identities by split.

  Raises:
    FieldError: If a split has too few.
  """
  for split, number in numbers.items():
    if number < _MIN_IDENTITIES:
      raise errors.FieldError(
        field,
        f"hold {_MIN_IDENTITIES} identities or more for each split",
        f"{number} for {split}, which has about one in ten",
      )


def _place_of(file: _File) -> tuple[int, str, int, str]:
  """Returns what sorts files: plain numbers as numbers, then the subjects'.

  Args:
    file: A file of a subject.

  Returns:
    Length of the name, the name, the subject, and the folder.
  """
  return len(file.name), file.name, file.subject, file.folder


def _list_zip(path: pathlib.Path) -> list[_File]:
  """Lists the subjects' files and folders in a zip.

  Args:
    path: The zip; its directory alone is read.

  Raises:
    DataError: If it is no whole zip archive.
  """
  files = []
  with bad_examples.open_zip(path) as archive:
    for info in archive.infolist():
      match = _MEMBER_NAME.fullmatch(info.filename)
      if match:
        folder = f"{path.name}/{match[1]}"
        subject = int(match[2])
        files.append(_File(subject, folder, match[3], info.file_size, info.CRC))
  return files


def _list_folder(path: pathlib.Path, name: str) -> list[_File]:
  """Lists the subjects' files and folders in a folder, called by a name.

  Args:
    path: The folder, with a sub-folder for each subject.
    name: Name of the folder in the paths of the files; may be empty.
  """
  files = []
  for folder in path.iterdir():
    if folder.name.isdecimal() and folder.is_dir():
      whole = _File(int(folder.name), os.path.join(name, folder.name))
      files.append(whole)
      for image in folder.iterdir():
        facts = image.stat()
        file = whole._replace(
          name=image.name, size=facts.st_size, stamp=facts.st_mtime_ns
        )
        files.append(file)
  return files


def _list_sources(root: pathlib.Path) -> dict[str, list[_File]]:
  """Lists the files of each source by its name; "" for subjects' own folders.

  Args:
    root: Folder of what was downloaded.

  Raises:
    DataError: If one has other subjects than its name says, or none.
  """
  sources = {}
  for path in sorted(root.iterdir()):
    match = _SOURCE_NAME.fullmatch(path.name)
    if not match or path.is_dir() == bool(match[3]):
      continue
    files = _list_zip(path) if match[3] else _list_folder(path, path.name)
    first = int(match[1])
    last = int(match[2])
    wrong = [f.subject for f in files if not first <= f.subject <= last]
    if wrong or not files:
      found = f"subject {wrong[0]}" if wrong else "none"
      raise errors.DataError(
        f"{path} must hold <subject id>/<k>.png of subjects {first} to {last},"
        f" as its name says, found {found}."
      )
    sources[path.name] = files
  return sources | {"": _list_folder(root, "")}


class Job(output.Job):
  """A variant in a folder of the publishers' files."""

  def __init__(
    self,
    variant: str,
    source_dir: pathlib.Path,
    sources: Mapping[str, Sequence[_File]],
  ):
    """Initialises the job.

    Args:
      variant: One of `VARIANTS`.
      source_dir: Folder of the zips, or of their unpacked folders.
      sources: The variant's files by the name of their source.
    """
    fingerprints = {}
    for name, files in sources.items():
      # The files of a folder may be listed in any order.
      listed = repr(sorted(files)).encode()
      fingerprints[name or variant] = hashlib.sha256(listed).hexdigest()
    identity = {"version": _CONVERSION_VERSION, "sources": fingerprints}
    super().__init__("digiface", variant, identity)
    self._source_dir = source_dir
    self._sources = sources
    # One at a time: the directory of a zip takes some 100 MB.
    self._open_zip = functools.lru_cache(maxsize=1)(bad_examples.open_zip)

  def _list_images(
    self,
  ) -> tuple[dict[int, dict[str, int]], dict[int, str]]:
    """Lists the images of all sources, and says how many each has.

    Returns:
      Sizes by image, in the order of their numbers, by subject; and the folder
      of each subject.

    Raises:
      DataError: If two folders hold the same subject.
    """
    images: dict[int, dict[str, int]] = {}
    folders: dict[int, str] = {}
    for source, listed in self._sources.items():
      found: dict[int, dict[str, int]] = {}
      for file in sorted(listed, key=_place_of):
        some = found.setdefault(file.subject, {})
        if file.name.lower().endswith(".png") and file.name[0] != ".":
          some[f"{file.folder}/{file.name}"] = file.size
        folder = folders.setdefault(file.subject, file.folder)
        if folder != file.folder:
          raise errors.DataError(
            f"{self._source_dir / file.folder} must hold another subject than"
            f" {folder}, found {file.subject} in both."
          )
      self._tell(source, found)
      images |= found
    return images, folders

  def _tell(self, source: str, found: Mapping[int, Mapping[str, int]]) -> None:
    """Says how many subjects and images a source has.

    Args:
      source: Name of the source; "" for the folder itself.
      found: Sizes in bytes by image, by subject.
    """
    number = 0
    size = 0
    for images in found.values():
      number += len(images)
      size += sum(images.values())
    print(
      f"{source or self._source_dir}: {len(found)} subjects, {number} images,"
      f" {progress.format_bytes(size)}."
    )

  def look(self) -> output.Plan:
    """Lists the sources, and assigns each subject to its split.

    Returns:
      The plan: a file for each training subject, and one for all held-out ones.

    Raises:
      DataError: If two folders hold the same subject.
      FieldError: If a split has fewer than two identities.
    """
    images, folders = self._list_images()
    by_split: dict[str, list[int]] = {split: [] for split in SPLITS}
    sizes: dict[str, int] = {}
    bad = []
    for subject in sorted(images):
      by_split[split_of_subject(subject)].append(subject)
      sizes |= images[subject]
      if not images[subject]:
        bad.append((folders[subject], "no image"))
    numbers = {split: len(found) for split, found in by_split.items()}
    require_identities("source_dir", numbers)
    files = {}
    for label, subject in enumerate(by_split["train"]):
      rows = [output.Row(name, label) for name in images[subject]]
      files[f"{tfrecord_files.TRAIN_FOLDER}/{subject}"] = rows
    held_out = []
    for subject in sorted(by_split["validation"] + by_split["test"]):
      held_out += [output.Row(name, subject) for name in images[subject]]
    files[tfrecord_files.TEST_FILE_NAME] = held_out
    return output.Plan(files, sizes, bad=bad)

  def read(self, image_id: str) -> bytes:
    """Reads the PNG of a row, from a zip or a folder.

    Args:
      image_id: Path of the image below the folder of all sources.

    Returns:
      Bytes of the PNG file.

    Raises:
      output.BadImageError: If its CRC in a zip is another one, or it cannot be
        unpacked.
      OSError: If a file of a folder cannot be read.
    """
    source, _, member = image_id.partition("/")
    if not source.endswith(".zip"):
      return (self._source_dir / image_id).read_bytes()
    try:
      return self._open_zip(self._source_dir / source).read(member)
    except bad_examples.ARCHIVE_ERRORS as error:
      raise output.BadImageError(f"cannot be read: {error}") from error


def create_jobs(
  source_dir: pathlib.Path, variant: str | None = None
) -> list[Job]:
  """Finds what there is to convert.

  Args:
    source_dir: Folder of the zips or of what they unpack to.
    variant: One of `VARIANTS`; None for each of the two parts that there is.

  Returns:
    A job for each variant.

  Raises:
    DataError: If a source is damaged, or holds other subjects than it says.
    FieldError: If there is nothing.
  """
  sources = _list_sources(source_dir)
  jobs = []
  for part in VARIANTS[:2] if variant is None else [variant]:
    chosen = {}
    for name, files in sources.items():
      own = [f for f in files if part in ("all", _part_of_subject(f.subject))]
      if own:
        chosen[name] = own
    if chosen:
      jobs.append(Job(part, source_dir, chosen))
  if not jobs:
    of_what = f" of {variant}" if variant else ""
    raise errors.FieldError(
      "source_dir", f"hold DigiFace images{of_what}", source_dir, _ADVICE
    )
  return jobs


def _part_of_subject(subject: int) -> str:
  """Returns the part of the data set that a subject is in.

  Args:
    subject: The subject's number; from 100,000 on, subjects have 5 images.
  """
  return VARIANTS[subject >= _FIRST_OF_5_IMAGES]
