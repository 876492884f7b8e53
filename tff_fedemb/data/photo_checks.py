"""Looks into listed photos: which are images, and who else has them.

Formats that TensorFlow cannot decode are converted, files that are no images
are found, and warnings say where a model or its guarantee is not what its owner
may expect.
"""

from __future__ import annotations

from collections.abc import Collection
from concurrent import futures
import hashlib
import os
import pathlib
import re

from etils import epy
import numpy as np
import pandas as pd

from tff_fedemb import progress as progress_lib
from tff_fedemb import whole_files
from tff_fedemb.data import bad_examples
from tff_fedemb.data import image_folder
from tff_fedemb.data import photo_folder
from tff_fedemb.data import photo_index
from tff_fedemb.data import reading

with epy.lazy_imports():
  from tff_fedemb.data import encoded_images

# With more photos than the first number, names alone say which are converted,
# and no more than the second number of files of one size are compared.
MAX_SNIFFED, MAX_COMPARED = 100_000, 20_000
_HEAD = 16
_TAIL = 4096
# First bytes of the formats that are converted.
_CONVERTIBLE = re.compile(
  rb"GIF8|BM|RIFF....WEBP|P[1-6]\s|II\*\0|MM\0\*", re.DOTALL
)
_NATIVE_SUFFIXES = (".jpg", ".jpeg", ".jpe", ".jfif", ".png")
_CONVERTIBLE_SUFFIXES = [
  os.fsencode(suffix)
  for suffix in image_folder.READABLE_SUFFIXES
  if suffix not in _NATIVE_SUFFIXES
]
# Labels are almost users if at least this share of them has a single user.
_ALMOST_ALL = 0.9


def _find_fine(photos: pd.DataFrame) -> pd.DataFrame:
  return photos[photos["fault"].isna()]


def convert(photos: pd.DataFrame, folder: pathlib.Path) -> None:
  """Converts photos that TensorFlow does not decode to PNG, once.

  Args:
    photos: A row for each with its `file`; `fault` and `converted` are set.
    folder: Folder of the copies.
  """
  fine = _find_fine(photos)
  if len(photos) > MAX_SNIFFED:
    endings = fine["file"].map(lambda file: os.path.splitext(file)[1].lower())
    fine = fine[endings.isin(_CONVERTIBLE_SUFFIXES)]
  else:
    bar = progress_lib.create_bar(
      "Looking at photos", unit="photos", items=fine["file"]
    )
    kinds = np.array([_sniff(file) for file in bar], object)
    photos.loc[fine.index, "fault"] = np.where(kinds, kinds, None)
    fine = fine[kinds == None]  # noqa: E711
  if fine.empty:
    return
  folder.mkdir(parents=True, exist_ok=True)
  files = fine["file"].unique()
  with futures.ThreadPoolExecutor(os.cpu_count()) as pool:
    bar = progress_lib.create_bar(
      "Converting to PNG",
      unit="photos",
      items=pool.map(lambda file: _convert(file, folder), files),
      total=len(files),
    )
    results = dict(zip(files, bar, strict=True))
  photos.loc[fine.index, ["converted", "fault"]] = [
    results[file] for file in fine["file"]
  ]


def decode_all(photos: pd.DataFrame) -> None:
  """Decodes every photo, and sets the `fault` of those that cannot be."""
  fine = _find_fine(photos)
  fine = fine[fine["converted"].isna()]
  with progress_lib.create_bar(
    "Decoding", unit="photos", total=len(fine)
  ) as progress:
    for start in range(0, len(fine), encoded_images.READING_BATCH):
      files = fine["file"].iloc[start : start + encoded_images.READING_BATCH]
      for row, what in encoded_images.find_faults(files):
        photos.at[files.index[row], "fault"] = what
      progress.update(len(files))


def leave_out_repeated(
  photos: pd.DataFrame, findings: photo_folder.Findings
) -> None:
  """Leaves out rows that list an image again, or again with other labels."""
  # Images of two users are found by their content.
  is_again = photos.duplicated(["path", "user"])
  is_same = photos.duplicated(["path", "user", "label"])
  photos.loc[is_same, "split"] = photo_index.LEFT_OUT
  for path in photos["path"][is_same]:
    findings.add_odd(
      "{number} rows list an image again and are left out", os.fsdecode(path)
    )
  is_other = is_again & ~is_same & photos["fault"].isna()
  photos.loc[is_other, "fault"] = "listed with another label before"


def leave_out_shared(
  photos: pd.DataFrame, findings: photo_folder.Findings
) -> int:
  """Leaves out images that several users own, found by size and content.

  A guarantee for a user covers what is in the user's own place. An image of two
  users in the place of one of them would be an influence of the other one that
  nothing bounds.

  Args:
    photos: A row for each owner of a photo; `split` is set.
    findings: Findings that name them.

  Returns:
    The number of images.
  """
  fine = _find_fine(photos)
  fine = fine[fine["split"] != photo_index.LEFT_OUT]
  files = _of_two_users(fine[fine["size"] > 0], "size")
  num_all = len(files)
  room = len(photos) if len(photos) <= MAX_SNIFFED else MAX_COMPARED
  chosen = []
  # Large files come first: few of them have one size by chance.
  counts = files["size"].value_counts().sort_index(ascending=False)
  for size, number in counts.items():
    if number <= room:
      chosen.append(size)
      room -= number
  files = files[files["size"].isin(chosen)]
  if len(files) < num_all:
    findings.remarks.append(
      f"of {num_all:,} files that are as long as another user's, {len(files):,}"
      " were compared with it, so two users may have one file unnoticed;"
      " nothing is to be done if you know that they have not."
    )
  for num_bytes in (_TAIL, None):
    bar = progress_lib.create_bar(
      "Comparing", unit="photos", items=files["file"]
    )
    digests = [_digest(file, num_bytes) for file in bar]
    files = _of_two_users(files.assign(digest=digests), "digest")
  photos.loc[files.index, "split"] = photo_index.LEFT_OUT
  images = files.drop_duplicates("digest")["path"]
  for path in images:
    findings.add_odd(
      "{number} images that several users own are left out, all copies of them,"
      " so that the guarantee covers all that a user has",
      photo_folder.show_name(os.fsdecode(path)),
    )
  return len(images)


def _of_two_users(photos: pd.DataFrame, column: str) -> pd.DataFrame:
  """The photos that agree in a column with one of another user."""
  num_users = photos.groupby(column)["user"].transform("nunique")
  return photos[num_users > 1]


def _sniff(path: bytes) -> str | None:
  """The fault; "" if TensorFlow decodes the file, None if it is to convert."""
  try:
    with open(path, "rb", buffering=0) as file:
      head = file.read(_HEAD)
  except OSError as error:
    return reading.describe_fault(error)
  if head.startswith(encoded_images.STARTS):
    return ""
  return None if _CONVERTIBLE.match(head) else encoded_images.UNREADABLE


def _convert(
  path: bytes, folder: pathlib.Path
) -> tuple[bytes | None, str | None]:
  """Converts a file to a PNG of a name that follows from its path and time."""
  identity = repr((path, *photo_index.look_at(path)[:2])).encode()
  copy = folder.absolute() / f"{hashlib.sha256(identity).hexdigest()[:32]}.png"
  try:
    if not copy.exists():
      content = image_folder.convert_to_png(os.fsdecode(path))
      with whole_files.replacing(copy) as partial:
        partial.write_bytes(content)
  except image_folder.ImageFolderError:
    return None, encoded_images.UNREADABLE
  return os.fsencode(copy), None


def _digest(path: bytes, size: int | None) -> bytes:
  """Digest of a file's end or of all of it; its name if it cannot be read."""
  try:
    with open(path, "rb", buffering=0) as file:
      if size is not None:
        file.seek(max(0, os.fstat(file.fileno()).st_size - size))
      return hashlib.blake2b(file.read()).digest()
  except OSError:
    return path


def describe(photos: pd.DataFrame, hold_out: str) -> list[str]:
  """Warns of odd users and classes, a line each.

  Args:
    photos, hold_out: The result and an argument of `photo_splits.assign`.
  """
  used = photos[photos["split"] <= photo_index.TEST]
  is_train = used["split"] == photo_index.TRAIN
  trains = used[is_train]
  users, classes = (pd.Series(photos[x].unique()) for x in ("user", "label"))
  classes_of_user = trains.groupby("user", sort=False)["label"].nunique()
  users_of_class = trains.groupby("label")["user"].nunique()
  images_of_class = used["label"].value_counts(sort=False)
  has_training = users.isin(trains["user"])
  in_both = users[has_training & users.isin(used["user"][~is_train])]
  share_classes = classes_of_user.max() > 1
  lines: list[str] = []

  def warn(text: str, found: Collection[str], names: pd.Series) -> None:
    numbers = {"number": f"{len(found):,}", "total": f"{len(names):,}"}
    lines.extend(bad_examples.warn_of(text.format(**numbers), found))

  if share_classes:
    warn(
      "{number} of {total} users have one class to train on, with nothing to"
      " tell it from; users_per_client=2 or more merges users",
      classes_of_user.index[classes_of_user == 1],
      users,
    )
  warn(
    "{number} of {total} classes have one image, with nothing to compare it"
    " with; add images, or leave them out",
    images_of_class.index[images_of_class == 1],
    classes,
  )
  advice = {
    "split_column": "; give all images of a user one split to avoid that",
    "classes": "; hold_out=users holds out users",
  }.get(hold_out, "")
  warn(
    "{number} of {total} users have images both to train on and held out, so"
    f" that evaluations are not covered by the guarantee{advice}",
    in_both,
    users,
  )
  if hold_out != "users" and len(in_both):
    warn(
      "{number} of {total} users have no image to train on, and take no part",
      users[~has_training],
      users,
    )
  single = int((users_of_class == 1).sum())
  num_classes = users_of_class.size
  if share_classes and single >= _ALMOST_ALL * num_classes and num_classes > 2:
    lines.append(
      f"{single:,} of {num_classes:,} classes to train on are of one user each:"
      " labels are almost users, and a model may learn to tell users apart;"
      " use labels that users share, or one class for each user."
    )
  warn(
    "{number} classes differ from another in capitals alone and are taken for"
    " two; rename those that are one",
    classes[classes.str.casefold().duplicated()],
    classes,
  )
  return lines
