"""Makes the index of a folder or a table of photos, or finds it made before."""

import hashlib
import os
import pathlib
from typing import Any
import uuid

import pandas as pd

from tff_fedemb import errors
from tff_fedemb import whole_files
from tff_fedemb.data import photo_checks
from tff_fedemb.data import photo_folder
from tff_fedemb.data import photo_index
from tff_fedemb.data import photo_splits
from tff_fedemb.data import photo_table

_MIN_USERS = 2


def _list_photos(
  place: pathlib.Path, findings: photo_folder.Findings, *, is_table: bool
) -> tuple[pd.DataFrame, bool]:
  """As `photo_folder.list_folder`, with each photo's `file`, and `converted`.

  Raises:
    FieldError: If there are too few.
  """
  if is_table:
    photos, of_people = photo_table.list_table(place, findings), False
  else:
    photos, of_people = photo_folder.list_folder(place, findings)
  field = "table" if is_table else "data_dir"
  if photos.empty:
    clues = [*map(": ".join, findings.bad), *findings.warnings]
    raise errors.FieldError(
      field,
      "hold <user>/<class>/<image> or <person>/<image>, or there be a table",
      f"no photo in {place}" + (f" ({' '.join(clues[:3])})" if clues else ""),
    )
  if photos["user"].nunique() < _MIN_USERS:
    raise errors.FieldError(
      field,
      "hold photos of two users or more: one alone cannot hide",
      f"{photos['user'][0]!r} alone in {place}",
    )
  root = os.path.join(os.fsencode(place.parent if is_table else place), b"")
  files = [root + path for path in photos["path"]]
  return photos.assign(file=files, converted=None), of_people


def _choose_hold_out(photos: pd.DataFrame, hold_out: str | None) -> str:
  """What is held out; by default what a table says, else classes."""
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


def _find_facts(photos: pd.DataFrame) -> dict[str, Any]:
  """Counts of what trains, and facts as fields of a task."""
  trains = photos[photos["split"] == photo_index.TRAIN]
  held_out = photos[
    photos["split"].isin((photo_index.VALIDATION, photo_index.TEST))
  ]
  users, labels = set(trains["user"]), set(trains["label"])
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
  findings: photo_folder.Findings, photos: pd.DataFrame
) -> pd.DataFrame:
  """Files and folders; when one changes, the index is made again."""
  copies = photos["converted"].dropna()
  others = [(copy, *photo_index.look_at(copy)[:2]) for copy in copies]
  columns = ["file", "size", "mtime_ns"]
  return pd.concat(
    [
      photos[columns],
      pd.DataFrame([*findings.sources, *others], columns=columns),
    ]
  )


def _write(
  place: pathlib.Path,
  path: pathlib.Path,
  *,
  is_table: bool,
  hold_out: str | None,
  decode_all: bool,
) -> None:
  """Lists the photos, looks into them and decides what is held out."""
  findings = photo_folder.Findings()
  photos, of_people = _list_photos(place, findings, is_table=is_table)
  hold_out = _choose_hold_out(photos, hold_out)
  if "split" not in photos:
    photos["split"] = photo_index.TRAIN
  photo_checks.leave_out_repeated(photos, findings)
  copies = path.parent / "photos_converted"
  photo_checks.look_into(photos, copies, decode_all=decode_all)
  num_shared = photo_checks.leave_out_shared(photos, findings)
  photos, classes = photo_splits.assign(photos, hold_out)
  photo_checks.warn(photos, hold_out, findings)
  is_used = photos["fault"].isna() & (photos["split"] <= photo_index.TEST)
  faults = photos[photos["fault"].notna()]
  photo_index.write(
    path,
    photos=pd.DataFrame(
      {
        "slot": photos["slot"],
        "label": photos["number"],
        "split": photos["split"],
        "file": photos["converted"].fillna(photos["file"]),
      }
    )[is_used],
    watched=_find_watched(findings, photos),
    facts=_find_facts(photos)
    | {
      "hold_out": hold_out,
      "num_shared": num_shared,
      "bad": [
        *findings.bad,
        *zip(map(os.fsdecode, faults["path"]), faults["fault"], strict=True),
      ],
      "class_names": classes,
      "of_people": of_people,
      "warnings": findings.warnings,
    },
  )


def open_index(
  place: pathlib.Path,
  cache_dir: pathlib.Path,
  *,
  is_table: bool = False,
  hold_out: str | None = None,
  decode_all: bool = False,
) -> photo_index.PhotoIndex:
  """Opens the index of a folder or a table, made before if nothing changed.

  Changes are seen by the sizes and times of a table and of photos, and by the
  times of folders.

  Args:
    place: The folder or table.
    cache_dir: Directory of the index. An older one stays, as a program may
      still be training on it.
    is_table: Whether it is a table.
    hold_out: One of `photo_index.HOLD_OUT`; None for what a table says, or
      classes.
    decode_all: Whether every image is to be decoded once, to find those that
      cannot be.

  Raises:
    FieldError: If there are too few photos, the directory cannot be written, or
      that cannot be held out.
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
      continue  # It is damaged.
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
