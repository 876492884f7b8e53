"""From a folder or a table of photos to an index, made now or before."""

from collections.abc import Iterator
import contextlib
import gc
import hashlib
import os
import pathlib
from typing import Any
import uuid

import numpy as np

from tff_fedemb import errors
from tff_fedemb.data import bad_examples
from tff_fedemb.data import photo_checks
from tff_fedemb.data import photo_folder
from tff_fedemb.data import photo_index
from tff_fedemb.data import photo_splits
from tff_fedemb.data import photo_table

Listing = photo_folder.FolderListing | photo_table.TableListing
_MIN_USERS = 2
_LAYOUT = (
  "hold <user>/<class>/<image> or <person>/<image>, or there be a table of them"
)


def _refuse_empty(listing: Listing) -> errors.FieldError:
  """Why there is not a single photo."""
  findings = listing.findings
  clues = [
    text.format(number=len(names)) for text, names in findings.odd.items()
  ]
  if findings.bad:
    clues.append(bad_examples.summarize([": ".join(b) for b in findings.bad]))
  found = f"no photo in {listing.place}"
  if clues:
    found += f" ({'; '.join(clues)})"
  return errors.FieldError(listing.field, _LAYOUT, found)


def _find_facts(
  columns: np.ndarray, assigned: photo_splits.Assignment
) -> dict[str, Any]:
  """Numbers and truths about who trains on what."""
  trains = assigned.split_of_photo == photo_index.TRAIN
  held_out = columns[
    np.isin(assigned.split_of_photo, (photo_index.VALIDATION, photo_index.TEST))
  ]
  pairs = np.unique(columns[trains, :2], axis=0)
  return {
    "num_users": assigned.num_users,
    "num_train_classes": int(np.unique(pairs[:, 1]).size),
    "num_train_photos": int(trains.sum()),
    "num_classes": int(assigned.labels.size),
    "one_class_per_user": len(pairs) == assigned.num_users,
    "evaluation_on_training_users": bool(
      np.isin(held_out[:, 0], pairs[:, 0]).any()
    ),
    "held_out_classes_are_new": not np.isin(held_out[:, 1], pairs[:, 1]).any(),
  }


@contextlib.contextmanager
def _no_garbage_collection() -> Iterator[None]:
  """Millions of rows are made and freed, and form no circles.

  To look for circles meanwhile, among all that TensorFlow holds, takes a third
  of the time.
  """
  was_enabled = gc.isenabled()
  gc.disable()
  try:
    yield
  finally:
    if was_enabled:
      gc.enable()


@_no_garbage_collection()
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
  with contextlib.closing(photo_index.Writer(path)) as writer:
    for photos in listing.list_photos():
      writer.add(photos)
    users, classes = writer.names
    if not len(writer.columns):
      raise _refuse_empty(listing)
    if len(users) < _MIN_USERS:
      raise errors.FieldError(
        listing.field,
        "hold photos of two users or more: one alone cannot hide",
        f"{users[0]!r} alone in {listing.place}",
      )
    checker = photo_checks.Checker(writer, listing.root, findings)
    checker.leave_out_repeated()
    checker.convert(copies)
    if decode_all:
      checker.decode_all()
    checker.find_shared()
    columns = writer.columns
    assigned = photo_splits.assign(users, classes, columns, hold_out)
    writer.finish(
      slots=assigned.slots,
      labels=assigned.labels,
      splits=assigned.splits,
      split_of_photo=assigned.split_of_photo,
      sources=findings.sources,
      facts=_find_facts(columns, assigned)
      | {
        "bad": findings.bad,
        "of_people": isinstance(listing, photo_folder.FolderListing)
        and listing.of_people,
        "warnings": [
          *findings.describe(),
          *photo_checks.describe(users, classes, columns, assigned, hold_out),
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

  What is looked at are size and time of a table, the times of folders, and
  sizes and times of photos: of up to `photo_index.MAX_WATCHED` all, of more
  those that were at fault or converted.

  Args:
    listing: What is to be listed; it is, at most once.
    cache_dir: Where the index is kept. An older one stays, as a program may
      still be training on it.
    hold_out: One of `photo_splits.HOLD_OUT`.
    decode_all: Whether every image is to be decoded once, to find those that
      cannot be.

  Raises:
    FieldError: If there are too few photos, or the directory cannot be written.
  """
  root = os.fsencode(listing.root)
  identity = (photo_index.VERSION, os.fsencode(listing.place), hold_out)
  digest = hashlib.sha256(repr((*identity, decode_all)).encode()).hexdigest()
  name = f"photos_{digest[:16]}"
  for path in cache_dir.glob(f"{name}_*.sqlite"):
    try:
      index = photo_index.PhotoIndex(path, root)
      if index.is_fresh():
        return index
    except errors.DataError:
      continue  # It is damaged.
  path = cache_dir / f"{name}_{uuid.uuid4().hex[:8]}.sqlite"
  partial = cache_dir / f".{path.name}.partial"
  try:
    cache_dir.mkdir(parents=True, exist_ok=True)
    partial.touch()
  except OSError as error:
    raise errors.FieldError(
      "cache_dir", "be writable", f"{cache_dir}: {error.strerror}"
    ) from error
  try:
    _write(
      listing,
      partial,
      hold_out=hold_out,
      decode_all=decode_all,
      copies=cache_dir / "photos_converted",
    )
    partial.replace(path)
  finally:
    partial.unlink(missing_ok=True)
  return photo_index.PhotoIndex(path, root)
