"""Checks listed photos: which are images, and who owns them.

It converts formats that TensorFlow cannot decode, finds files that are not
images, and warns if a model or its guarantee may not be what its owner expects.
"""

from __future__ import annotations

import collections
from collections.abc import Mapping
from concurrent import futures
import functools
import hashlib
import os
import pathlib

from etils import epy
import pandas as pd

from tff_fedemb import progress as progress_lib
from tff_fedemb import whole_files
from tff_fedemb.data import bad_examples
from tff_fedemb.data import image_folder
from tff_fedemb.data import photo_folder
from tff_fedemb.data import photo_index
from tff_fedemb.data import photo_table

with epy.lazy_imports():
  from tff_fedemb.data import encoded_images

_NATIVE_SUFFIXES = (b".jpg", b".jpeg", b".jpe", b".jfif", b".png")
# Labels are almost users if at least this share of them has a single user.
_ALMOST_ALL = 0.9


def look_into(
  photos: pd.DataFrame,
  folder: pathlib.Path,
  *,
  decode_all: bool,
) -> None:
  """Finds files that are not images, and converts to PNG where needed, once.

  Without `decode_all`, lists of more than `photo_index.MAX_LOOKED_INTO` photos
  have their JPEG and PNG files, by name, taken as they are.

  Args:
    photos: A row for each photo, with its `file`; this function sets `fault`
      and `converted` where it finds any.
    folder: Folder of the copies; it is made when the first copy is.
    decode_all: Whether to decode even what TensorFlow can decode as it is.
  """
  fine = photos[photos["fault"].isna()]
  if len(photos) > photo_index.MAX_LOOKED_INTO and not decode_all:
    endings = fine["file"].map(lambda file: os.path.splitext(file)[1].lower())
    fine = fine[~endings.isin(_NATIVE_SUFFIXES)]
  if fine.empty:
    return
  look = functools.partial(_look_into, folder=folder, decode=decode_all)
  # Rows of one file share its copy, which no two threads may write.
  files = fine["file"].unique()
  # One thread for each core.
  with futures.ThreadPoolExecutor(os.cpu_count()) as pool:
    found = progress_lib.create_bar(
      "Looking at photos",
      unit="photos",
      items=pool.map(look, files),
      total=len(files),
    )
    of_file = dict(zip(files, found, strict=True))
  of_rows = [of_file[file] for file in fine["file"]]
  photos.loc[fine.index, ["converted", "fault"]] = of_rows


def _look_into(
  path: bytes,
  folder: pathlib.Path,
  *,
  decode: bool,
) -> tuple[bytes | None, str | None]:
  """Returns the copy of a file if it needs one, and its fault.

  The copy's name follows from the file's path, size and time, not its content.
  Both are None for a JPEG or PNG without a fault.
  """
  try:
    with open(path, "rb", buffering=0) as file:
      is_native = file.read(16).startswith(encoded_images.STARTS)
  except OSError as error:
    return None, bad_examples.describe_fault(error)
  if is_native:
    faults = encoded_images.find_faults([path]) if decode else []
    fault = faults[0][1] if faults else None
    return None, fault
  size, mtime_ns, _ = photo_index.look_at(path)
  identity = repr((path, size, mtime_ns)).encode()
  copy = folder.absolute() / f"{hashlib.sha256(identity).hexdigest()[:32]}.png"
  try:
    if not copy.exists():
      content = image_folder.convert_to_png(os.fsdecode(path))
      folder.mkdir(parents=True, exist_ok=True)
      with whole_files.replacing(copy) as partial:
        partial.write_bytes(content)
  except image_folder.ImageFolderError:
    return None, encoded_images.UNREADABLE
  return os.fsencode(copy), None


def leave_out_repeated(
  photos: pd.DataFrame,
  findings: photo_folder.Findings,
) -> None:
  """Leaves out rows that list an image again for the same user.

  Args:
    photos: A row for each owner of a photo, changed in place. `split` of a
      repeated row becomes `photo_index.LEFT_OUT`. An image has one label and
      one split: a row with another one gets a `fault`, whoever owns it.
    findings: Receives the warning.
  """
  several = photos[photos.duplicated("path", keep=False)]
  firsts = several.groupby("path")
  for name in ("label", "split"):
    is_other = several[name] != firsts[name].transform("first")
    is_other &= photos["fault"].isna()[several.index]
    others = several.index[is_other]
    photos.loc[others, "fault"] = f"listed with another {name} before"
  is_same = photos.duplicated(["path", "user", "label", "split"])
  photos.loc[is_same, "split"] = photo_index.LEFT_OUT
  findings.warn(
    "{number} rows list an image again and are left out",
    photos["path"][is_same].map(os.fsdecode),
  )


def bound_contributions(
  photos: pd.DataFrame,
  findings: photo_folder.Findings,
) -> pd.DataFrame:
  """Gives every user at most one place, and every place its own users.

  Images with the same owners, one or several, form a place. Greedy
  contribution bounding decides which places are kept (Ganesh et al., "It's My
  Data Too: Private ML for Datasets with Multi-User Training Examples", ICML
  2025, arXiv 2503.03622): `choose_places`.

  Privacy:
    Unit: a user, with all images that the list gives to them.
    Neighbouring relation: the list is public and stays as it is; the images in
      the place of one user are gone, whoever else owns them too.
    Sensitivity: one place, so that of a mechanism for users of one owner.
    The list alone decides. Images that are the same byte for byte stay each
    with the user who has it, who is protected for what lies in their own place;
    what an image shows changes no other place.

  Args:
    photos: A row for each owner of a photo; `split` is set.
    findings: Receives a warning that names what is left out.

  Returns:
    A row for each photo and label; `user` names all owners in its place, and
    `split` of the places that are not kept is `photo_index.LEFT_OUT`.
  """
  several = photos[photos.duplicated("path", keep=False)]
  owners: dict[bytes, set[str]] = {}
  for path, user in zip(several["path"], several["user"], strict=True):
    owners.setdefault(path, set()).add(user)
  together = {path: users for path, users in owners.items() if len(users) > 1}
  if not together:
    return photos
  owners_of_photos = []
  for path, user in zip(photos["path"], photos["user"], strict=True):
    users = together.get(path, {user})
    owners_of_photos.append(tuple(sorted(users)))
  places = pd.Series(owners_of_photos, photos.index)
  images = places[~photos.duplicated("path")]
  chosen = choose_places(collections.Counter(images))
  is_kept = places.map(chosen.__contains__)
  findings.warn(
    "{number} images are left out, as they have an owner of whom other images"
    " are kept, and whose place the other owners are not in",
    photos["path"][~is_kept].drop_duplicates().map(os.fsdecode),
  )
  # An owner with several rows for an image has it once.
  is_again = photos["path"].isin(together)
  is_again &= photos.duplicated(["path", "label", "fault"])
  return photos.assign(
    user=places.map(photo_table.OWNERS.join),
    split=photos["split"].where(is_kept, photo_index.LEFT_OUT),
  )[~is_again]


def choose_places(
  sizes: Mapping[tuple[str, ...], int],
) -> set[tuple[str, ...]]:
  """Chooses places that have no owner in common, greedily.

  Args:
    sizes: Number of images by the owners of a place.

  Returns:
    Places to which no other one can be added. Places with more images for each
    owner come first, then those with fewer owners, then by name.

  Examples:
    >>> sizes = {("ann",): 3, ("ann", "bob"): 4, ("eve",): 1}
    >>> sorted(photo_checks.choose_places(sizes))
    [('ann',), ('eve',)]
  """
  chosen = set()
  taken = set[str]()

  def order(owners: tuple[str, ...]) -> tuple[float, int, tuple[str, ...]]:
    return -sizes[owners] / len(owners), len(owners), owners

  for place in sorted(sizes, key=order):
    if taken.isdisjoint(place):
      chosen.add(place)
      taken.update(place)
  return chosen


def warn(
  photos: pd.DataFrame,
  hold_out: str,
  findings: photo_folder.Findings,
) -> None:
  """Warns of users and classes that look wrong.

  Args:
    photos: The photos with their splits.
    hold_out: One of `photo_index.HOLD_OUT`.
    findings: Receives the warnings.
  """
  used = photos[photos["split"] <= photo_index.TEST]
  trains = used[used["split"] == photo_index.TRAIN]
  users = pd.Series(photos["user"].unique())
  classes = pd.Series(photos["label"].unique())
  classes_of_user = trains.groupby("user", sort=False)["label"].nunique()
  images_of_class = used["label"].value_counts(sort=False)
  share_classes = classes_of_user.max() > 1
  if share_classes:
    findings.warn(
      "{number} of {total} users have one class to train on, with nothing to"
      " tell it from unless users_per_client merges them with others",
      classes_of_user.index[classes_of_user == 1],
      len(users),
    )
  findings.warn(
    "{number} of {total} classes have one image, with nothing to compare it"
    " with; add images, or leave them out",
    images_of_class.index[images_of_class == 1],
    len(classes),
  )
  _warn_of_held_out(used, users, hold_out, findings)
  if share_classes:
    _warn_of_own_labels(trains, findings)
  findings.warn(
    "{number} classes differ from another in capitals alone and count as"
    " different; rename those that are the same",
    classes[classes.str.casefold().duplicated()],
  )


def _warn_of_held_out(
  used: pd.DataFrame,
  users: pd.Series,
  hold_out: str,
  findings: photo_folder.Findings,
) -> None:
  """Warns of users who both train and are held out, and of those who only are.

  `used` are the photos of all splits, and `users` all names.
  """
  is_train = used["split"] == photo_index.TRAIN
  has_training = users.isin(used["user"][is_train])
  is_held_out = users.isin(used["user"][~is_train])
  in_both = users[has_training & is_held_out]
  advice = {
    "split_column": "; give all images of a user one split to avoid that",
    "classes": "; hold_out=users holds out users",
  }.get(hold_out, "")
  findings.warn(
    "{number} of {total} users have images both to train on and held out, so"
    f" the guarantee does not cover evaluations{advice}",
    in_both,
    len(users),
  )
  if hold_out != "users" and len(in_both):
    findings.warn(
      "{number} of {total} users have no image to train on, and take no part",
      users[~has_training],
      len(users),
    )


def _warn_of_own_labels(
  trains: pd.DataFrame,
  findings: photo_folder.Findings,
) -> None:
  """Warns if nearly every class (90 %) that trains has a single user."""
  users_of_class = trains.groupby("label")["user"].nunique()
  single = int((users_of_class == 1).sum())
  num_classes = users_of_class.size
  if single >= _ALMOST_ALL * num_classes and num_classes > 2:
    findings.warnings.append(
      f"{single:,} of {num_classes:,} classes to train on are of one user each:"
      " labels are almost users, and a model may learn to tell users apart;"
      " use labels that users share, or one class for each user."
    )
