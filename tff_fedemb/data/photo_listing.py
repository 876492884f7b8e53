"""Makes the index of a folder or a table of photos, or reuses an earlier one.

The name of a class or user decides whether it is held out. The draw is public:
its key is a constant, so it depends on nothing but names.
"""

from collections.abc import Sequence
import hashlib
import math
import os
import pathlib
from typing import Any
import uuid

import numpy as np
import pandas as pd

from tff_fedemb import errors
from tff_fedemb import whole_files
from tff_fedemb.data import bad_examples
from tff_fedemb.data import photo_checks
from tff_fedemb.data import photo_folder
from tff_fedemb.data import photo_index
from tff_fedemb.data import photo_table

_MIN_USERS = 2
# Shares held out for each split, at least two classes or users.
TEST_SHARE = 0.2
VALIDATION_SHARE = 0.1
_MIN_CLASSES = 2
_KEY = b"tff_fedemb photos"


def _list_photos(
  place: pathlib.Path,
  findings: photo_folder.Findings,
  *,
  is_table: bool,
) -> tuple[pd.DataFrame, bool]:
  """Lists photos as `photo_folder.list_folder`, with `file` and `converted`.

  `file` is the full path in bytes; `converted` is None for now.

  Raises:
    FieldError: If there is none.
  """
  if is_table:
    photos = photo_table.list_table(place, findings)
    of_people = False
  else:
    photos, of_people = photo_folder.list_folder(place, findings)
  field = "table" if is_table else "data_dir"
  if photos.empty:
    clues = [": ".join(bad) for bad in findings.bad]
    clues += findings.warnings
    found = f"no photo in {place}"
    if clues:
      found += f" ({' '.join(clues[:3])})"
    raise errors.FieldError(
      field,
      "hold photos, in folders <user>/<class>/<image> or <person>/<image>, or"
      " in a table",
      found,
    )
  folder = place.parent if is_table else place
  root = os.path.join(os.fsencode(folder), b"")
  files = [root + path for path in photos["path"]]
  return photos.assign(file=files, converted=None), of_people


def _check_users(photos: pd.DataFrame, place: pathlib.Path, field: str) -> None:
  """Refuses a single user, or a single place of several owners.

  Raises:
    FieldError: In `field`; one user alone cannot hide.
  """
  users = photos["user"][photos["split"] != photo_index.LEFT_OUT].unique()
  if users.size < _MIN_USERS:
    raise errors.FieldError(
      field,
      "hold photos of two users or more: one alone cannot hide",
      f"{users[0]!r} alone in {place}",
    )


def _choose_hold_out(photos: pd.DataFrame, hold_out: str | None) -> str:
  """Returns `hold_out`, or the default: the table's splits, or else classes.

  Raises:
    FieldError: If "split_column" is asked for without such a column.
  """
  if hold_out is None:
    return "split_column" if "split" in photos else "classes"
  if hold_out == "split_column" and "split" not in photos:
    raise errors.FieldError(
      "hold_out",
      f"be one of {', '.join(photo_index.HOLD_OUT[:2])}, without a table that"
      " has a column split",
      hold_out,
    )
  return hold_out


def draw_splits(
  names: Sequence[str],
  eligible: np.ndarray,
  minimum: int,
) -> np.ndarray:
  """Draws what is held out by a keyed hash of each name.

  Names are ordered by their hashes: the first ones are for testing, the next
  for validation, and the others train.

  Args:
    names: Names of classes or of users, `[n]`.
    eligible: bool `[n]`, which of them may be held out; `TEST_SHARE` and
      `VALIDATION_SHARE` are shares of these.
    minimum: Least number held out for each split.

  Returns:
    int8 `[n]` indices into `photo_index.SPLITS`.
  """

  def draw(index: int) -> bytes:
    return hashlib.blake2b(names[index].encode(), key=_KEY).digest()

  splits = np.full(len(names), photo_index.TRAIN, np.int8)
  order = sorted(np.flatnonzero(eligible).tolist(), key=draw)
  test = max(minimum, math.floor(TEST_SHARE * len(order) + 0.5))
  validation = max(minimum, math.floor(VALIDATION_SHARE * len(order) + 0.5))
  splits[order[:test]] = photo_index.TEST
  splits[order[test : test + validation]] = photo_index.VALIDATION
  return splits


def _draw_column(photos: pd.DataFrame, hold_out: str) -> pd.Series:
  """Draws the split of each photo by its class or its user.

  Only classes of two images or more may be held out, and users who have two; if
  users have several classes, any user may.
  """
  column = {"classes": "label", "users": "user"}[hold_out]
  sizes = photos[column].value_counts()
  eligible = sizes.to_numpy() > 1
  minimum = _MIN_CLASSES
  classes_of_user = photos.groupby("user")["label"].nunique()
  # Users of one class are compared with each other, as classes are.
  if hold_out == "users" and classes_of_user.max() > 1:
    eligible = np.ones(sizes.size, bool)
    minimum = 1
  splits = pd.Series(draw_splits(sizes.index, eligible, minimum), sizes.index)
  return photos[column].map(splits)


def assign_splits(
  photos: pd.DataFrame,
  hold_out: str,
) -> tuple[pd.DataFrame, list[str]]:
  """Decides what is held out.

  Args:
    photos: A row for each with the names `user` and `label`, and the list's own
      `split`: an index into `photo_index.SPLITS` or `photo_index.LEFT_OUT`.
    hold_out: One of `photo_index.HOLD_OUT`.

  Returns:
    The photos and the names of all classes: those that train by name, then the
    others. The photos have their `split`; `slot`, the place by name of their
    user among those who train, or -1; and `number`, the place of their class
    among the names.

  Raises:
    FieldError: If there is too little to hold out.
  """
  splits = photos["split"]
  if hold_out != "split_column":
    drawn = _draw_column(photos[splits != photo_index.LEFT_OUT], hold_out)
    splits = drawn.reindex(photos.index, fill_value=photo_index.LEFT_OUT)
  _check(photos["label"], splits, hold_out)
  trains = photos[splits == photo_index.TRAIN]
  users = pd.Index(sorted(trains["user"].unique()))
  trained = set(trains["label"])
  classes = sorted(trained)
  classes += sorted(set(photos["label"]) - trained)
  assigned = photos.assign(
    split=splits,
    slot=users.get_indexer(photos["user"]),
    number=pd.Index(classes).get_indexer(photos["label"]),
  )
  return assigned, classes


def _check(labels: pd.Series, splits: pd.Series, hold_out: str) -> None:
  """Refuses a split that is too small to learn from or to measure on.

  Raises:
    FieldError: If a split lacks two classes, one of them of two images.
  """
  advice = {
    "classes": (
      f"The {labels.nunique()} classes are too few to hold some out;"
      " hold_out=users holds out users."
    ),
    "users": "They are too few, or have too few classes, to hold some out.",
    "split_column": "Correct the table's column split.",
  }[hold_out]
  for number, name in enumerate(photo_index.SPLITS):
    sizes = labels[splits == number].value_counts().to_numpy()
    if sizes.size < _MIN_CLASSES or sizes[0] < 2:
      raise errors.FieldError(
        "hold_out",
        f"leave two classes for {name}, one of them with two images, of"
        f" {hold_out.replace('_', ' ')}",
        f"{sizes.size} with at most {sizes.max(initial=0)} images",
        advice,
      )


def _find_facts(photos: pd.DataFrame) -> dict[str, Any]:
  """Counts training users, photos and classes, for a task's fields.

  It also tells whether evaluation uses training users, and new classes.
  """
  splits = photos["split"]
  trains = photos[splits == photo_index.TRAIN]
  held_out = photos[splits.isin((photo_index.VALIDATION, photo_index.TEST))]
  users = set(trains["user"])
  labels = set(trains["label"])
  classes_of_user = trains.groupby("user")["label"].nunique()
  return {
    "num_users": len(users),
    "num_train_photos": len(trains),
    "task": {
      "num_train_classes": len(labels),
      "one_class_per_user": int(classes_of_user.max()) == 1,
      "evaluation_on_training_users": not users.isdisjoint(held_out["user"]),
      "held_out_classes_are_new": labels.isdisjoint(held_out["label"]),
    },
  }


def _find_watched(
  findings: photo_folder.Findings,
  photos: pd.DataFrame,
) -> pd.DataFrame:
  """Lists files and folders; when one changes, the index is made again.

  Long lists are watched by their folders, except for photos with a fault or a
  copy. A photo that the system would not read may become readable without a
  change of its size or time: it is looked at again at every start.
  """
  if len(photos) > photo_index.MAX_LOOKED_INTO:
    for folder in photos["file"].map(os.path.dirname).unique():
      findings.add_source(folder)
    photos = photos[photos["fault"].notna() | photos["converted"].notna()]
  faults = photos["fault"].fillna("")
  is_refused = faults.str.startswith(bad_examples.CANNOT_BE_READ)
  photos = photos.assign(mtime_ns=photos["mtime_ns"].mask(is_refused, -2))
  for copy in photos["converted"].dropna():
    findings.add_source(copy)
  columns = ["file", "size", "mtime_ns"]
  sources = pd.DataFrame(findings.sources, columns=columns)
  return pd.concat([photos[columns], sources])


def _write(
  place: pathlib.Path,
  path: pathlib.Path,
  *,
  is_table: bool,
  hold_out: str | None,
  decode_all: bool,
) -> None:
  """Lists the photos, checks them, decides what is held out, writes the index.

  Args:
    place: The folder or table.
    path: File of the index; copies go to a folder beside it.
    is_table, hold_out, decode_all: See `open_index`.
  """
  findings = photo_folder.Findings()
  photos, of_people = _list_photos(place, findings, is_table=is_table)
  hold_out = _choose_hold_out(photos, hold_out)
  if "split" not in photos:
    photos["split"] = photo_index.TRAIN
  photo_checks.leave_out_repeated(photos, findings)
  photos = photo_checks.bound_contributions(photos, findings)
  _check_users(photos, place, "table" if is_table else "data_dir")
  copies = path.parent / "photos_converted"
  photo_checks.look_into(photos, copies, decode_all=decode_all)
  photos, classes = assign_splits(photos, hold_out)
  photo_checks.warn(photos, hold_out, findings)
  has_several = photos["user"].str.contains(photo_table.OWNERS, regex=False)
  faults = photos[photos["fault"].notna()]
  paths = map(os.fsdecode, faults["path"])
  facts = _find_facts(photos)
  facts |= {
    "hold_out": hold_out,
    "of_several_owners": is_table and bool(has_several.any()),
    "bad": [*findings.bad, *zip(paths, faults["fault"], strict=True)],
    "class_names": classes,
    "of_people": of_people,
    "warnings": findings.warnings,
  }
  photo_index.write(
    path,
    photos=_select_used(photos),
    watched=_find_watched(findings, photos),
    facts=facts,
  )


def _select_used(photos: pd.DataFrame) -> pd.DataFrame:
  """Returns the rows of the index: photos of a split, without a fault.

  Their file is the converted copy if there is one; labels are class numbers.
  """
  is_used = photos["fault"].isna() & (photos["split"] <= photo_index.TEST)
  used = photos[is_used]
  return pd.DataFrame(
    {
      "slot": used["slot"],
      "label": used["number"],
      "split": used["split"],
      "file": used["converted"].fillna(used["file"]),
    }
  )


def open_index(
  place: pathlib.Path,
  cache_dir: pathlib.Path,
  *,
  is_table: bool = False,
  hold_out: str | None = None,
  decode_all: bool = False,
) -> photo_index.PhotoIndex:
  """Opens the index of a folder or a table; makes it if something changed.

  Changes are noticed by the sizes and times of a table and of photos, and by
  the times of folders, not by contents: a photo replaced by another of the same
  size and time is not noticed.

  Args:
    place: The folder or table.
    cache_dir: Directory of the index. An older one stays, as a program may
      still be training on it.
    is_table: Whether `place` is a table.
    hold_out: One of `photo_index.HOLD_OUT`; None for the table's column split
      if it has one, or else classes.
    decode_all: Whether every image is to be decoded once, to find those that
      cannot be.

  Returns:
    The index.

  Raises:
    FieldError: If there are too few photos, the directory cannot be written, or
      `hold_out` is not possible.
  """
  place = place.absolute()
  identity = (photo_index.VERSION, os.fsencode(place), hold_out, decode_all)
  digest = hashlib.sha256(repr(identity).encode()).hexdigest()
  name = f"photos_{digest[:16]}"
  for path in cache_dir.glob(f"{name}_*.sqlite"):
    try:
      index = photo_index.PhotoIndex(path)
      if index.is_fresh():
        return index
    except errors.DataError:
      continue  # A damaged index is made again.
  path = cache_dir / f"{name}_{uuid.uuid4().hex[:8]}.sqlite"
  with whole_files.caching(path) as partial:
    _write(
      place,
      partial,
      is_table=is_table,
      hold_out=hold_out,
      decode_all=decode_all,
    )
  return photo_index.PhotoIndex(path)
