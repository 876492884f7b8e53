"""Looks into listed photos: what they are, and whose they are as well.

What TensorFlow cannot decode is converted, what is no image is found, and what
would make a model or its guarantee other than its owner thinks is said.
"""

from collections.abc import Iterator
from concurrent import futures
import hashlib
import os
import pathlib
import re

import numpy as np

from tff_fedemb import progress as progress_lib
from tff_fedemb.data import bad_examples
from tff_fedemb.data import encoded_images
from tff_fedemb.data import image_folder
from tff_fedemb.data import photo_folder
from tff_fedemb.data import photo_index
from tff_fedemb.data import photo_splits

# Of more photos the first bytes are not looked at, but their names, and no more
# files of one size than so many are compared.
MAX_SNIFFED, MAX_COMPARED = 100_000, 20_000
_HEAD = 16
_TAIL = 4096
# How formats begin that are converted.
_CONVERTIBLE = re.compile(
  rb"GIF8|BM|RIFF....WEBP|P[1-6]\s|II\*\0|MM\0\*", re.DOTALL
)
_NATIVE_SUFFIXES = (".jpg", ".jpeg", ".jpe", ".jfif", ".png")
_CONVERTIBLE_BY_NAME = "({})".format(
  " OR ".join(
    f"CAST(path AS TEXT) LIKE '%{suffix}'"
    for suffix in image_folder.READABLE_SUFFIXES
    if suffix not in _NATIVE_SUFFIXES
  )
)
# Of labels, from which on they are said to be almost users.
_ALMOST_ALL = 0.9
_CHUNK = 1024
_FAULT = encoded_images.UNREADABLE


class Checker:
  """Looks into the photos that a writer has been given."""

  def __init__(
    self,
    writer: photo_index.Writer,
    root: pathlib.Path,
    findings: photo_folder.Findings,
  ):
    self._writer = writer
    self._root = os.fsencode(root)
    self._findings = findings

  def _paths(self, where: str = "TRUE") -> Iterator[tuple[int, bytes]]:
    """Numbers and paths of the photos that have no fault."""
    for photo, path in self._writer.query(
      "SELECT id, path FROM photos WHERE id NOT IN (SELECT photo FROM faults)"
      f" AND {where} ORDER BY id"
    ):
      yield photo, os.path.join(self._root, path)

  def convert(self, folder: pathlib.Path) -> None:
    """Converts to PNG, once, what TensorFlow does not decode."""
    total = len(self._writer.columns)
    found, faults = [], []
    if total > MAX_SNIFFED:
      found = list(self._paths(_CONVERTIBLE_BY_NAME))
    else:
      for photo, path in progress_lib.create_bar(
        "Looking at photos", unit="photos", items=self._paths(), total=total
      ):
        kind = _sniff(path)
        if kind is None:
          found.append((photo, path))
        elif kind:
          faults.append((photo, kind))
    self._writer.add_faults(faults)
    if not found:
      return
    folder.mkdir(parents=True, exist_ok=True)
    with futures.ThreadPoolExecutor(os.cpu_count()) as pool:
      converted = pool.map(lambda item: _convert(item[1], folder), found)
      for (photo, _), (copy, what) in zip(
        found,
        progress_lib.create_bar(
          "Converting to PNG", unit="photos", items=converted, total=len(found)
        ),
        strict=True,
      ):
        if copy is None:
          self._writer.add_faults([(photo, what)])
        else:
          self._writer.set_converted(photo, os.fsencode(copy.absolute()))

  def decode_all(self) -> None:
    """Decodes every photo to find those that cannot be."""
    photos = list(self._paths("converted IS NULL"))
    with progress_lib.create_bar(
      "Decoding", unit="photos", total=len(photos)
    ) as progress:
      for start in range(0, len(photos), encoded_images.READING_BATCH):
        some = photos[start : start + encoded_images.READING_BATCH]
        for row, what in encoded_images.find_faults([path for _, path in some]):
          self._writer.add_faults([(some[row][0], what)])
        progress.update(len(some))

  def leave_out_repeated(self) -> None:
    """Leaves out rows that list an image again, or again with other labels."""
    hashes = self._writer.path_hashes
    values, counts = np.unique(hashes, return_counts=True)
    repeated = np.flatnonzero(np.isin(hashes, values[counts > 1]))
    first: dict[int, int] = {}
    columns = self._writer.columns
    for photo in repeated.tolist():
      original = first.setdefault(int(hashes[photo]), photo)
      if original == photo or columns[original, 0] != columns[photo, 0]:
        continue  # Of two users: their contents are compared.
      ((path,),) = self._writer.query(
        f"SELECT path FROM photos WHERE id = {photo}"
      )
      if columns[original, 1] == columns[photo, 1]:
        self._writer.leave_out(photo)
        self._findings.add_odd(
          "{number} rows list an image again and are left out",
          os.fsdecode(path),
        )
      else:
        self._writer.add_faults([(photo, "listed with another label before")])

  def find_shared(self) -> None:
    """Finds files that two users have, by size and then by content."""
    users, sizes = self._writer.columns[:, 0], self._writer.sizes
    order = np.lexsort((users, sizes))
    order = order[sizes[order] > 0]
    of_size, of_user = sizes[order], users[order]
    starts = np.flatnonzero(np.diff(of_size, prepend=-1))
    ends = np.append(starts[1:], len(order))[: len(starts)]
    shared = [
      slice(a, b)
      for a, b in zip(starts.tolist(), ends.tolist(), strict=True)
      if of_user[a] != of_user[b - 1]
    ]
    num_all = sum(s.stop - s.start for s in shared)
    chosen: list[int] = []
    limit = len(users) if len(users) <= MAX_SNIFFED else MAX_COMPARED
    # Few large files are of one size by chance: they come first.
    for part in reversed(shared):
      if len(chosen) + part.stop - part.start <= limit:
        chosen += order[part].tolist()
    if len(chosen) < num_all:
      self._findings.remarks.append(
        f"of {num_all:,} files that are as long as another user's,"
        f" {len(chosen):,}"
        " were compared with it, so two users may have one file unnoticed;"
        " nothing is to be done if you know that they have not."
      )
    self._compare(chosen)

  def _compare(self, photos: list[int]) -> None:
    groups: dict[bytes, list[tuple[int, bytes]]] = {}
    with progress_lib.create_bar(
      "Comparing", unit="photos", total=len(photos)
    ) as progress:
      for start in range(0, len(photos), _CHUNK):
        numbers = ",".join(map(str, photos[start : start + _CHUNK]))
        for photo, path in list(self._paths(f"id IN ({numbers})")):
          digest = _digest(path, _TAIL)
          groups.setdefault(digest, []).append((photo, path))
          progress.update()
    users = self._writer.columns[:, 0]
    for group in groups.values():
      if len({users[photo] for photo, _ in group}) < 2:
        continue
      same: dict[bytes, list[tuple[int, bytes]]] = {}
      for photo, path in group:
        same.setdefault(_digest(path, None), []).append((photo, path))
      for copies in same.values():
        if len({users[photo] for photo, _ in copies}) > 1:
          self._findings.add_odd(
            "{number} images are files that two users have; the guarantee is"
            " for one user's images, so leave all but one of the copies out",
            photo_folder.show_name(
              os.fsdecode(os.path.relpath(copies[0][1], self._root))
            ),
          )


def _sniff(path: bytes) -> str | None:
  """What is wrong; "" for what TensorFlow decodes, None if to be converted."""
  try:
    with open(path, "rb", buffering=0) as file:
      head = file.read(_HEAD)
  except OSError as error:
    return f"cannot be read: {error.strerror}"
  if head.startswith(encoded_images.STARTS):
    return ""
  return None if _CONVERTIBLE.match(head) else _FAULT


def _convert(
  path: bytes, folder: pathlib.Path
) -> tuple[pathlib.Path | None, str]:
  """Converts a file to a PNG of a name that follows from its path and time."""
  identity = repr((path, photo_index.find_facts(path))).encode()
  copy = folder / f"{hashlib.sha256(identity).hexdigest()[:32]}.png"
  if copy.exists():
    return copy, ""
  try:
    content = image_folder.convert_to_png(os.fsdecode(path))
  except image_folder.ImageFolderError:
    return None, _FAULT
  partial = copy.with_suffix(f".{os.getpid()}")
  partial.write_bytes(content)
  partial.replace(copy)
  return copy, ""


def _digest(path: bytes, size: int | None) -> bytes:
  """Of a file's end, or of all of it; of its name if it cannot be read."""
  try:
    with open(path, "rb", buffering=0) as file:
      if size is not None:
        file.seek(max(0, os.fstat(file.fileno()).st_size - size))
      return hashlib.blake2b(file.read()).digest()
  except OSError:
    return path


def describe(
  users: list[str],
  classes: list[str],
  columns: np.ndarray,
  assigned: photo_splits.Assignment,
  hold_out: str,
) -> list[str]:
  """What a user should know about who has what, a line each."""
  used = assigned.split_of_photo <= photo_index.TEST
  trains = assigned.split_of_photo == photo_index.TRAIN
  pairs = np.unique(columns[trains, :2], axis=0)
  lines: list[str] = []

  def warn(text: str, names: list[str], chosen: np.ndarray) -> None:
    numbers = np.flatnonzero(chosen).tolist()
    lines.extend(
      bad_examples.warn_of(
        text.format(number=f"{len(numbers):,}", total=f"{len(names):,}"),
        (names[i] for i in numbers),
      )
    )

  of_user = np.bincount(pairs[:, 0], minlength=len(users))
  if (of_user > 1).any():
    warn(
      "{number} of {total} users have one class to train on, with nothing to"
      " tell it from; users_per_client=2 or more merges users",
      users,
      of_user == 1,
    )
  warn(
    "{number} of {total} classes have one image, with nothing to compare it"
    " with; add images, or leave them out",
    classes,
    np.bincount(columns[used, 1], minlength=len(classes)) == 1,
  )
  in_train, held_out = (
    np.bincount(columns[rows, 0], minlength=len(users)) > 0
    for rows in (trains, used & ~trains)
  )
  advice = {
    "split_column": "; give all images of a user one split to avoid that",
    "classes": "; hold_out=users holds out users",
  }.get(hold_out, "")
  warn(
    "{number} of {total} users have images both to train on and held out, so"
    f" that evaluations are not covered by the guarantee{advice}",
    users,
    in_train & held_out,
  )
  if hold_out != "users":
    warn(
      "{number} of {total} users have no image to train on, and take no part",
      users,
      ~in_train & (in_train & held_out).any(),
    )
  lines += _describe_labels(classes, pairs, of_user)
  return lines


def _describe_labels(
  classes: list[str], pairs: np.ndarray, of_user: np.ndarray
) -> list[str]:
  """What is odd about the labels."""
  lines = []
  owners = np.bincount(pairs[:, 1], minlength=len(classes))
  single = int((owners == 1).sum())
  total = int((owners > 0).sum())
  if (of_user > 1).any() and total > 2 and single >= _ALMOST_ALL * total:
    lines.append(
      f"{single:,} of {total:,} classes to train on are of one user each:"
      " labels are almost users, and a model may learn to tell users apart;"
      " use labels that users share, or one class for each user."
    )
  first: dict[str, str] = {}
  twins = [
    f"{name} and {first[name.casefold()]}"
    for name in classes
    if first.setdefault(name.casefold(), name) != name
  ]
  lines += bad_examples.warn_of(
    f"{len(twins):,} classes differ from another in capitals alone and are"
    " taken for two; rename those that are one",
    twins,
  )
  return lines
