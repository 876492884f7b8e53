"""Makes the index of a folder or a table of photos, or finds it made before."""

import hashlib
import itertools
import os
import pathlib
from typing import Any
import uuid

import pandas as pd

from tff_fedemb import errors
from tff_fedemb import whole_files
from tff_fedemb.data import bad_examples
from tff_fedemb.data import photo_checks
from tff_fedemb.data import photo_folder
from tff_fedemb.data import photo_index
from tff_fedemb.data import photo_splits
from tff_fedemb.data import photo_table

Listing = photo_folder.FolderListing | photo_table.TableListing

# With more photos, one that is replaced under the same name is not noticed.
MAX_WATCHED = 100_000
_MIN_USERS = 2
_CHUNK = 10_000
_LAYOUT = (
  "hold <user>/<class>/<image> or <person>/<image>, or there be a table of them"
)


def _refuse_empty(listing: Listing) -> errors.FieldError:
  """Why there is not a single photo."""
  odd, bad = listing.findings.odd, listing.findings.bad
  clues = [text.format(number=len(names)) for text, names in odd.items()]
  if bad:
    clues.append(bad_examples.summarize(list(map(": ".join, bad))))
  found = f"no photo in {listing.place}"
  if clues:
    found += f" ({'; '.join(clues)})"
  return errors.FieldError(listing.field, _LAYOUT, found)


def _list_photos(listing: Listing) -> pd.DataFrame:
  """A row for each `photo_folder.Photo`, with its `file`, and `converted`.

  Raises:
    FieldError: If there are too few.
  """
  listed = listing.list_photos()
  # Some at a time: a row of a table takes less memory than a tuple.
  chunks = []
  while chunk := list(itertools.islice(listed, _CHUNK)):
    chunks.append(pd.DataFrame(chunk, columns=photo_folder.Photo._fields))
  if not chunks:
    raise _refuse_empty(listing)
  photos = pd.concat(chunks, ignore_index=True)
  if photos["user"].nunique() < _MIN_USERS:
    raise errors.FieldError(
      listing.field,
      "hold photos of two users or more: one alone cannot hide",
      f"{photos['user'][0]!r} alone in {listing.place}",
    )
  folder = os.path.join(os.fsencode(listing.root), b"")
  return photos.assign(
    file=[folder + path for path in photos["path"]], converted=None
  )


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


def _find_watched(listing: Listing, photos: pd.DataFrame) -> pd.DataFrame:
  """Files and folders; when one changes, the index is made again."""
  if len(photos) > MAX_WATCHED:
    photos = photos[photos["fault"].notna() | photos["converted"].notna()]
  copies = photos["converted"].dropna()
  others = [(copy, *photo_index.look_at(copy)[:2]) for copy in copies]
  columns = ["file", "size", "mtime_ns"]
  return pd.concat(
    [
      photos[columns],
      pd.DataFrame([*listing.findings.sources, *others], columns=columns),
    ]
  )


def _write(
  listing: Listing,
  path: pathlib.Path,
  *,
  hold_out: str,
  decode_all: bool,
  copies: pathlib.Path,
) -> None:
  """Lists the photos, looks into them and decides what is held out."""
  findings = listing.findings
  photos = _list_photos(listing)
  photo_checks.leave_out_repeated(photos, findings)
  photo_checks.convert(photos, copies)
  if decode_all:
    photo_checks.decode_all(photos)
  num_shared = photo_checks.leave_out_shared(photos, findings)
  photos, classes = photo_splits.assign(photos, hold_out)
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
    watched=_find_watched(listing, photos),
    facts=_find_facts(photos)
    | {
      "num_shared": num_shared,
      "bad": [
        *findings.bad,
        *zip(map(os.fsdecode, faults["path"]), faults["fault"], strict=True),
      ],
      "class_names": classes,
      "of_people": getattr(listing, "of_people", False),
      "warnings": [
        *findings.describe(),
        *photo_checks.describe(photos, hold_out),
      ],
    },
  )


def open_index(
  listing: Listing,
  cache_dir: pathlib.Path,
  *,
  hold_out: str,
  decode_all: bool = False,
) -> photo_index.PhotoIndex:
  """Opens the index of a folder or a table, made before if nothing changed.

  Changes are seen by the size and time of a table, the times of folders, and
  sizes and times of photos: all of them up to `MAX_WATCHED`, otherwise those
  that were at fault or converted.

  Args:
    listing: The folder or table; it is listed at most once.
    cache_dir: Directory of the index. An older one stays, as a program may
      still be training on it.
    hold_out: One of `photo_splits.HOLD_OUT`.
    decode_all: Whether every image is to be decoded once, to find those that
      cannot be.

  Raises:
    FieldError: If there are too few photos, or the directory cannot be written.
  """
  identity = (photo_index.VERSION, os.fsencode(listing.place), hold_out)
  digest = hashlib.sha256(repr((*identity, decode_all)).encode()).hexdigest()
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
      listing,
      partial,
      hold_out=hold_out,
      decode_all=decode_all,
      copies=cache_dir / "photos_converted",
    )
  return photo_index.PhotoIndex(path)
