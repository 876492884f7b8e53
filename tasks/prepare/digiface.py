"""DigiFace-1M, one user per identity, as the files that the photo tasks read.

Bae et al., "DigiFace-1M: 1 Million Digital Face Images for Face Recognition",
WACV 2023: 10,000 identities with 72 images each and 100,000 with 5. The
published data have no split. Ours is a fixed keyed hash of an identity's
number, not seeded by the user, so that it is the same for everybody.

Users and classes are those that the sources list, before any image is read, so
that what is in one user's images changes no other user's label or slot. A user
without images that can be read remains, and takes part without examples. The
class of a training image is the place of its user among the users, that of a
held-out image is its subject's number. Images are copied as they are.
"""

from collections.abc import Mapping
from collections.abc import Sequence
import dataclasses
import functools
import hashlib
import pathlib
from typing import Any

from tasks.prepare import digiface_files
from tasks.prepare import downloads
from tasks.prepare import output
from tasks.prepare import split_tables
from tff_fedemb import errors
from tff_fedemb.data import tfrecord_files

VARIANTS = (*digiface_files.PARTS, "all")
SPLITS = ("train", "validation", "test")
MIN_IDENTITIES = 2
ADVICE = (
  "It must hold subjects_*_imgs.zip of github.com/microsoft/DigiFace1M (for"
  " non-commercial research), or their unpacked folders."
)
# The published zips: first and last subject, images of each.
PUBLISHED = (
  *((first, first + 1999, 72) for first in range(0, 10_000, 2_000)),
  (100_000, 133_332, 5),
  (133_333, 166_665, 5),
  (166_666, 199_998, 5),
)

# Chosen so that 8 identities from either start are enough for all splits.
_SPLIT_KEY = b"digiface-16701"
# To be raised when the conversion of the same source changes.
_CONVERSION_VERSION = 3


def split_of_subject(subject: int) -> str:
  """The split that an identity is in, for everybody and whatever others are.

  Args:
    subject: The number of the subject.

  Returns:
    "test" or "validation" with a probability of 1/10 each, else "train".
  """
  digest = hashlib.blake2b(str(subject).encode(), key=_SPLIT_KEY, digest_size=8)
  share = int.from_bytes(digest.digest(), "big") / 2**64
  return "test" if share < 0.1 else "validation" if share < 0.2 else "train"


def require_identities(field: str, numbers: Mapping[str, int]) -> None:
  """Refuses data of too few identities.

  Args:
    field: What the folder of the data is called in the error.
    numbers: Identities of each split.

  Raises:
    FieldError: If a split has too few.
  """
  for split, number in numbers.items():
    if number < MIN_IDENTITIES:
      raise errors.FieldError(
        field,
        f"hold at least {MIN_IDENTITIES} identities for each of"
        f" {', '.join(SPLITS)}",
        f"{number} for {split}",
        "Add identities: about one in ten is for validation, and one in ten"
        " for test.",
      )


@dataclasses.dataclass(frozen=True)
class Faces:
  """What a folder holds of a variant.

  Attributes:
    variant: One of `VARIANTS`.
    sources: Where the images are.
    field: What the folder is called in errors.
  """

  variant: str
  sources: Sequence[digiface_files.Source]
  field: str

  @functools.cached_property
  def identity(self) -> dict[str, Any]:
    """As of `output.Preparation`."""
    return {
      "task": "digiface",
      "variant": self.variant,
      "version": _CONVERSION_VERSION,
      "sources": {
        # The subjects' folders themselves have no name.
        source.name or source.part: digiface_files.fingerprint(source)
        for source in self.sources
      },
    }


class Preparation(output.Preparation):
  """A variant under way in an output folder; images are copied as they are."""

  keeps_empty_files = True

  def __init__(
    self,
    faces: Faces,
    output_dir: pathlib.Path,
    *,
    on_bad_example: str = "fail",
  ):
    """Initialises the preparation of faces; arguments as of the base class."""
    super().__init__(
      output_dir,
      faces.variant,
      faces.identity,
      on_bad_example=on_bad_example,
      field="output_dir" if faces.field == "source_dir" else "cache_dir",
    )
    self._faces = faces
    self._reader = digiface_files.create_reader(faces.sources)

  def look(self) -> output.Plan:
    """As of the base class."""
    source_of: dict[int, digiface_files.Source] = {}
    images: dict[int, dict[str, int]] = {}
    warnings = []
    for source in self._faces.sources:
      subjects = digiface_files.list_subjects(source)
      warnings += _tell(source, subjects)
      for subject in subjects.keys() & images.keys():
        raise errors.DataError(
          f"{source.path} must hold other subjects than"
          f" {source_of[subject].path}, found {subject} in both. Keep one of"
          " them."
        )
      source_of |= dict.fromkeys(subjects, source)
      images |= subjects
    by_split = {
      split: [s for s in sorted(images) if split_of_subject(s) == split]
      for split in SPLITS
    }
    numbers = {split: len(found) for split, found in by_split.items()}
    require_identities(self._faces.field, numbers)
    files = {
      f"{tfrecord_files.TRAIN_FOLDER}/{subject}": [
        split_tables.Row(name, label) for name in images[subject]
      ]
      for label, subject in enumerate(by_split["train"])
    }
    files[tfrecord_files.TEST_FILE_NAME] = [
      split_tables.Row(name, subject)
      for subject in sorted(by_split["validation"] + by_split["test"])
      for name in images[subject]
    ]
    empty = [
      source_of[s].name_of(str(s)) for s in sorted(images) if not images[s]
    ]
    return output.Plan(
      files,
      {name: size for sizes in images.values() for name, size in sizes.items()},
      empty=empty,
      facts={"warnings": warnings, "without_images": empty},
    )

  def read(self, image_id: str) -> bytes:
    """As of the base class."""
    return self._reader(image_id)


def _tell(
  source: digiface_files.Source, subjects: Mapping[int, Mapping[str, int]]
) -> list[str]:
  """Says what a source holds; returns what it lacks of what its name says."""
  num_bytes = sum(sum(sizes.values()) for sizes in subjects.values())
  print(
    f"{source.name or source.path}: {len(subjects)} subjects,"
    f" {sum(map(len, subjects.values()))} images,"
    f" {downloads.format_bytes(num_bytes)}."
  )
  first, last = source.subjects
  expected = last - first + 1
  incomplete = sum(len(s) < source.num_images for s in subjects.values())
  lacks = {
    f"holds {len(subjects)} of {expected} identities.": len(subjects)
    < expected,
    f"has fewer than {source.num_images} images of {incomplete} of"
    f" {len(subjects)} identities.": incomplete > 0,
  }
  return [
    f"{source.name} {text}"
    for text, holds in lacks.items()
    if holds and source.num_images
  ]


def find_faces(
  root: pathlib.Path, variant: str | None, *, field: str
) -> list[Faces]:
  """Looks for what there is to convert.

  Args:
    root: Folder of the zips or of what they unpack to.
    variant: One of `VARIANTS`; None for each of the two parts that there is.
    field: What the folder is called in errors.

  Returns:
    One or more.

  Raises:
    FieldError: If there is nothing.
  """
  try:
    found = digiface_files.find_sources(root)
  except OSError as error:
    raise errors.FieldError(
      field, "be a folder that can be read", f"{root}: {error.strerror}", ADVICE
    ) from error
  if not found:
    raise errors.FieldError(field, "hold DigiFace images", root, ADVICE)
  if variant == "all":
    found = {"all": [source for part in found.values() for source in part]}
  if variant not in (None, *found):
    raise errors.FieldError(
      field,
      f"hold identities of {variant}",
      f"only {', '.join(found)} in {root}",
      ADVICE,
    )
  return [
    Faces(part, sources, field)
    for part, sources in found.items()
    if variant in (None, part)
  ]


def create_preparations(
  source_dir: pathlib.Path,
  variant: str | None,
  output_dir: pathlib.Path,
  *,
  on_bad_example: str,
) -> list[Preparation]:
  """Says which of the published zips are there, and what can be prepared.

  Args:
    source_dir: As `root` of `find_faces`.
    variant: As of `find_faces`.
    output_dir: As of `Preparation`.
    on_bad_example: As of `Preparation`.

  Returns:
    One or more, to be run.
  """
  found = find_faces(source_dir, variant, field="source_dir")
  present = {s.name.removesuffix(".zip") for f in found for s in f.sources}
  names = [f"subjects_{a}-{b}_{n}_imgs" for a, b, n in PUBLISHED]
  absent = [f"{name}.zip" for name in names if name not in present]
  missing = f", missing {', '.join(absent)}" if absent else ""
  print(f"Zips: {len(names) - len(absent)} of {len(names)} found{missing}.")
  return [
    Preparation(faces, output_dir, on_bad_example=on_bad_example)
    for faces in found
  ]
