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

from collections.abc import Callable
from collections.abc import Mapping
from collections.abc import Sequence
import dataclasses
import functools
import hashlib
import pathlib
import shutil
from typing import Any

from tasks.prepare import digiface_files
from tasks.prepare import downloads
from tasks.prepare import output as output_lib
from tasks.prepare import split_tables
from tff_fedemb import errors
from tff_fedemb.data import tfrecord_layout
from tff_fedemb.data import tfrecord_writing

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
    """As of `output.Output`."""
    return {
      "task": "digiface",
      "variant": self.variant,
      "version": _CONVERSION_VERSION,
      "sources": {
        # The subjects' folders themselves have no name.
        source.name
        or digiface_files.part_of_subject(
          source.subjects[0]
        ): digiface_files.fingerprint(source)
        for source in self.sources
      },
    }

  def convert(
    self,
    output_dir: pathlib.Path,
    *,
    on_bad_example: str = "fail",
    dry_run: bool = False,
    wait: bool = False,
    disk_usage: Callable[[pathlib.Path], Any] = shutil.disk_usage,
  ) -> bool:
    """Writes the files of a variant, from where an earlier run was ended.

    Args:
      output_dir: Folder of the result; created if missing.
      on_bad_example: "fail": images that a zip says are damaged, and identities
        without an image, end the preparation; "skip": they are left out.
      dry_run: Whether to stop after telling what there is.
      wait: Whether to wait for another program that does the same.
      disk_usage: From a folder to an object whose `free` is a number of bytes.

    Returns:
      Whether anything was written.

    Raises:
      DataError: If the data are bad, or the output folder holds something else.
      FieldError: If there are too few identities, or the disk is too small.
    """
    output = output_lib.Output(
      output_dir, self.variant, self.identity, on_bad_example=on_bad_example
    )
    if output.is_complete():
      return False
    files, warnings, empty, needed = self._list_files()
    output.check_begun()
    field = "output_dir" if self.field == "source_dir" else "cache_dir"
    needed_now = sum(needed[f] for f in files if not output.is_written(f))
    output_lib.check_disk(
      output_dir, needed_now, field=field, disk_usage=disk_usage
    )
    if dry_run:
      return False
    bad = output.create_bad_examples()
    for name in empty:
      bad.add(name, "no image")
    bad.check()
    with output.open(wait=wait):
      if output.final.exists():  # Another program's, while this one waited.
        output.discard()
        return False
      reader = digiface_files.Reader(self.sources)
      output.write(files, reader.read, keep_empty=True)
      output.finish(files, warnings=warnings, without_images=empty)
    return True

  def _list_identities(
    self,
  ) -> tuple[list[digiface_files.Identity], list[str]]:
    """All identities in the order of their numbers, and what is missing."""
    seen: dict[int, digiface_files.Identity] = {}
    warnings = []
    for source in self.sources:
      identities = digiface_files.list_identities(source)
      warnings += digiface_files.describe_missing(source, identities)
      downloaded = sum(identity.num_bytes for identity in identities)
      print(
        f"{source.name or source.path}: {len(identities)} subjects,"
        f" {sum(len(identity.names) for identity in identities)} images,"
        f" {downloads.format_bytes(downloaded)}."
      )
      for identity in identities:
        other = seen.setdefault(identity.subject, identity)
        if other is not identity:
          raise errors.DataError(
            f"{source.path} must hold other subjects than"
            f" {other.source.path}, found {identity.subject} in both. Keep one"
            " of them."
          )
    return [seen[subject] for subject in sorted(seen)], warnings

  def _list_files(
    self,
  ) -> tuple[output_lib.Files, list[str], list[str], dict[str, int]]:
    """Rows of each file, warnings, who has no image, and bytes of each file."""
    identities, warnings = self._list_identities()
    by_split = {split: [] for split in SPLITS}
    for identity in identities:
      by_split[split_of_subject(identity.subject)].append(identity)
    require_identities(
      self.field, {split: len(found) for split, found in by_split.items()}
    )
    files, needed = {}, {}

    def add(file, identity, label):
      source = identity.source
      rows = [
        split_tables.Row(source.name_of(name), label) for name in identity.names
      ]
      files.setdefault(file, []).extend(rows)
      needed.setdefault(file, output_lib.size_of_file([]))
      needed[file] += identity.num_bytes
      needed[file] += len(rows) * tfrecord_writing.RECORD_OVERHEAD

    for label, identity in enumerate(by_split["train"]):
      file = f"{tfrecord_layout.TRAIN_FOLDER}/{identity.subject}"
      add(file, identity, label)
    for identity in identities:
      if split_of_subject(identity.subject) != "train":
        add(tfrecord_layout.TEST_FILE_NAME, identity, identity.subject)
    empty = [
      identity.source.name_of(str(identity.subject))
      for identity in identities
      if not identity.names
    ]
    return files, warnings, empty, needed


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
    everything = [source for part in found.values() for source in part]
    return [Faces(variant, everything, field)]
  if variant is not None and variant not in found:
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


def tell_zips(faces: Sequence[Faces]) -> None:
  """Says which of the published zips are there and which are not."""
  present = {source.name for found in faces for source in found.sources}
  names = [f"subjects_{a}-{b}_{n}_imgs" for a, b, n in PUBLISHED]
  absent = [f"{n}.zip" for n in names if not {n, f"{n}.zip"} & present]
  print(
    f"Zips: {len(names) - len(absent)} of {len(names)} found"
    + (f", missing {', '.join(absent)}." if absent else ".")
  )
