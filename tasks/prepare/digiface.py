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

from collections.abc import Iterator, Mapping, Sequence
import dataclasses
import functools
import hashlib
import os
import pathlib
import re

from tasks.prepare import output
from tff_fedemb import errors
from tff_fedemb import progress
from tff_fedemb.data import reading
from tff_fedemb.data import tfrecord_files

SPLITS = ("train", "validation", "test")
MIN_IDENTITIES = 2
ADVICE = (
  "It must hold subjects_*_imgs.zip of github.com/microsoft/DigiFace1M (for"
  " non-commercial research), or their unpacked folders."
)
# Names of the published zips, which say the subjects and the images of each.
_PUBLISHED = (
  *(f"subjects_{n}-{n + 1999}_72_imgs" for n in range(0, 10_000, 2_000)),
  "subjects_100000-133332_5_imgs",
  "subjects_133333-166665_5_imgs",
  "subjects_166666-199998_5_imgs",
)

# The two parts of the data set, and the numbers of their subjects.
_PARTS = {"72_images": (0, 99_999), "5_images": (100_000, 10**18)}
VARIANTS = (*_PARTS, "all")

# Chosen so that 8 identities from either start are enough for all splits.
_SPLIT_KEY = b"digiface-16701"
# To be raised when the conversion of the same source changes.
_CONVERSION_VERSION = 3

_SOURCE_NAME = re.compile(r"subjects_(\d+)-(\d+)_\d+_imgs(\.zip)?")
_MEMBER_NAME = re.compile(r"((?:[^/]+/)?(\d+))/([^/]*)")


def split_of_subject(subject: int) -> str:
  """The split that an identity is in, for everybody and whatever others are.

  The number of the subject decides: "test" or "validation" with a probability
  of 1/10 each, else "train".
  """
  digest = hashlib.blake2b(str(subject).encode(), key=_SPLIT_KEY, digest_size=8)
  share = int.from_bytes(digest.digest(), "big") / 2**64
  return "test" if share < 0.1 else "validation" if share < 0.2 else "train"


def require_identities(field: str, numbers: Mapping[str, int]) -> None:
  """Refuses splits of too few identities; `field` is their folder's name.

  Raises:
    FieldError: If a split has too few.
  """
  for split, number in numbers.items():
    if number < MIN_IDENTITIES:
      raise errors.FieldError(
        field,
        f"hold at least {MIN_IDENTITIES} identities for {' and '.join(SPLITS)}",
        f"{number} for {split}, which has about one in ten",
      )


def _is_subject(path: pathlib.Path) -> bool:
  return path.name.isdecimal() and path.is_dir()


def _part_of_subject(subject: int) -> str:
  return "5_images" if subject >= _PARTS["5_images"][0] else "72_images"


@dataclasses.dataclass(frozen=True)
class _Source:
  """A zip, its unpacked folder, or the subjects' folders in the data directory.

  Attributes:
    path: The zip, or the folder that holds the subjects' folders.
    name: Name in messages and reports; empty for the data directory.
    subjects: First and last subject that it may hold.
  """

  path: pathlib.Path
  name: str
  subjects: tuple[int, int]

  @property
  def part(self) -> str:
    """Its part of the data, by the number of its first subject."""
    return _part_of_subject(self.subjects[0])

  def _list_files(self) -> list[tuple[str, str, int, int]]:
    """Folder, name, size and time of files; a folder has no name."""
    files = []
    if not self.path.is_dir():
      with reading.open_zip(self.path) as archive:
        for info in archive.infolist():
          if match := _MEMBER_NAME.fullmatch(info.filename):
            files.append((match[1], match[3], info.file_size, 0))
      return files
    try:
      for path in filter(_is_subject, sorted(self.path.iterdir())):
        # A named folder that holds others is refused later.
        if self.name or _part_of_subject(int(path.name)) == self.part:
          files.append((path.name, "", 0, 0))
          for image in sorted(path.iterdir()):
            facts = image.stat()
            told = (image.name, facts.st_size, facts.st_mtime_ns)
            files.append((path.name, *told))
    except OSError as error:
      raise reading.create_error(self.path, error, "folder") from error
    return files

  def list_subjects(self) -> dict[int, dict[str, int]]:
    """Sizes of images by name, in the order of their numbers, by subject."""
    subjects: dict[int, dict[str, int]] = {}
    first, last = self.subjects
    # Plain numbers are sorted as numbers.
    files = sorted(self._list_files(), key=lambda x: (len(x[1]), x[1]))
    for folder, name, size, _ in files:
      subject = int(folder.rpartition("/")[2])
      if not first <= subject <= last:
        raise errors.DataError(
          f"{self.path} must hold subjects {first} to {last}, as its name says,"
          f" found {subject}."
        )
      images = subjects.setdefault(subject, {})
      if name.lower().endswith(".png") and not name.startswith("."):
        images[os.path.join(self.name, folder, name)] = size
    if not subjects:
      raise errors.DataError(
        f"{self.path} must hold <subject id>/<k>.png, found no such file."
      )
    return subjects

  def fingerprint(self) -> str:
    """16 digits that are others when a file of it changes, by size and time.

    Where the data directory is does not matter.
    """
    facts = self.path.stat()
    found = [(facts.st_size, facts.st_mtime_ns)]
    told = self._list_files() if self.path.is_dir() else found
    return hashlib.sha256(repr((self.name, told)).encode()).hexdigest()[:16]


def _find_sources(root: pathlib.Path) -> list[_Source]:
  """All that there is, by the first subject; unnamed folders last."""
  sources, parts_in_root = [], set()
  for path in root.iterdir():
    match = _SOURCE_NAME.fullmatch(path.name)
    if match and path.is_dir() != bool(match[3]):
      sources.append(_Source(path, path.name, (int(match[1]), int(match[2]))))
    elif _is_subject(path):
      parts_in_root.add(_part_of_subject(int(path.name)))
  sources.sort(key=lambda source: (source.subjects, source.name))
  return sources + [_Source(root, "", _PARTS[p]) for p in sorted(parts_in_root)]


class Job(output.Job):
  """A variant in a folder of the publishers' files."""

  keeps_empty_files = True

  def __init__(self, variant: str, sources: Sequence[_Source], field: str):
    """Initialises the job; `field` is what the folder is called in errors."""
    # The subjects' folders themselves have no name.
    digests = {s.name or s.part: s.fingerprint() for s in sources}
    identity = {"version": _CONVERSION_VERSION, "sources": digests}
    super().__init__("digiface", variant, identity)
    self.sources = sources
    self.output_field = "output_dir" if field == "source_dir" else "cache_dir"
    self._field = field
    self._paths = {source.name: source.path for source in sources}
    # One at a time: the directory of a zip takes some 100 MB.
    self._open_zip = functools.lru_cache(maxsize=1)(reading.open_zip)

  def look(self) -> output.Plan:
    """As of the base class."""
    source_of: dict[int, _Source] = {}
    images: dict[int, dict[str, int]] = {}
    for source in self.sources:
      subjects = source.list_subjects()
      all_sizes = [size for some in subjects.values() for size in some.values()]
      print(
        f"{source.name or source.path}: {len(subjects)} subjects,"
        f" {len(all_sizes)} images, {progress.format_bytes(sum(all_sizes))}."
      )
      for subject in subjects.keys() & images.keys():
        raise errors.DataError(
          f"{source.path} must hold other subjects than"
          f" {source_of[subject].path}, found {subject} in both."
        )
      source_of |= dict.fromkeys(subjects, source)
      images |= subjects
    by_split = {
      split: [s for s in sorted(images) if split_of_subject(s) == split]
      for split in SPLITS
    }
    numbers = {split: len(found) for split, found in by_split.items()}
    require_identities(self._field, numbers)
    files = {
      f"{tfrecord_files.TRAIN_FOLDER}/{subject}": [
        output.Row(name, label) for name in images[subject]
      ]
      for label, subject in enumerate(by_split["train"])
    }
    files[tfrecord_files.TEST_FILE_NAME] = [
      output.Row(name, subject)
      for subject in sorted(by_split["validation"] + by_split["test"])
      for name in images[subject]
    ]
    empty = [
      os.path.join(source_of[s].name, str(s))
      for s in sorted(images)
      if not images[s]
    ]
    return output.Plan(
      files,
      {name: size for sizes in images.values() for name, size in sizes.items()},
      bad=[(name, "no image") for name in empty],
      facts={"without_images": empty},
    )

  def read(self, image_id: str) -> bytes:
    """As of the base class; the CRC of what is in a zip is compared.

    Raises:
      DataError: If the disk cannot be read, which may work another time.
    """
    head, _, member = image_id.partition("/")
    path = self._paths[head] if head in self._paths else self._paths[""] / head
    archive = None if path.is_dir() else self._open_zip(path)
    place = path if archive else path / member
    try:
      return archive.read(member) if archive else place.read_bytes()
    except OSError as error:
      raise reading.create_error(place, error) from error
    except reading.ARCHIVE_ERRORS as error:
      raise output.BadImageError(f"cannot be read: {error}") from error


def find_jobs(
  root: pathlib.Path, variant: str | None, *, field: str, advice: str = ADVICE
) -> Iterator[Job]:
  """Looks for what there is to convert: one job or more.

  Args:
    root: Folder of the zips or of what they unpack to.
    variant: One of `VARIANTS`; None for each of the two parts that there is.
    field: Name of the folder in errors.
    advice: Advice of errors.

  Raises:
    DataError: If a folder cannot be listed.
    FieldError: If there is nothing.
  """
  try:
    sources = _find_sources(root)
  except OSError as error:
    raise errors.FieldError(
      field, "be a folder that can be read", f"{root}: {error.strerror}", advice
    ) from error
  if not sources:
    raise errors.FieldError(field, "hold DigiFace images", root, advice)
  found = {part: [s for s in sources if s.part == part] for part in _PARTS}
  found = {part: some for part, some in found.items() if some}
  if variant == "all":
    found = {"all": [source for some in found.values() for source in some]}
  if variant not in (None, *found):
    raise errors.FieldError(
      field,
      f"hold identities of {variant}",
      f"only {', '.join(found)} in {root}",
      advice,
    )
  return (
    Job(part, some, field)
    for part, some in found.items()
    if variant in (None, part)
  )


def create_jobs(
  source_dir: pathlib.Path, variant: str | None = None
) -> list[Job]:
  """As `find_jobs`; says which of the published zips are there."""
  found = list(find_jobs(source_dir, variant, field="source_dir"))
  present = {s.name.removesuffix(".zip") for job in found for s in job.sources}
  absent = [f"{name}.zip" for name in _PUBLISHED if name not in present]
  num_found = len(_PUBLISHED) - len(absent)
  missing = f", missing {', '.join(absent)}" if absent else ""
  print(f"Zips: {num_found} of {len(_PUBLISHED)} found{missing}.")
  return found
