"""Files of labelled features: NumPy's .npz.

A file holds `repr` [n, d] and `label` [n], and `user` [n] if the users are
known; the names `features`, `labels` and `users` are accepted too. The names of
the classes, `class_name` [K], tell whether two files number them alike. Nothing
in a file is executed: pickled objects are refused.
"""

from collections.abc import Iterator
import contextlib
import dataclasses
import math
import os
import pathlib
from typing import Any
import zipfile

import numpy as np

from tff_fedemb import errors
from tff_fedemb.data import arrays
from tff_fedemb.features import examples as examples_lib
from tff_fedemb.records import output_files

_NAMES = {
  "features": "repr",
  "labels": "label",
  "users": "user",
  "class_names": "class_name",
}


@dataclasses.dataclass(frozen=True)
class FeatureSet:
  """Features of labelled examples.

  Attributes:
    features: `[n, d]` real numbers, n and d at least 1; possibly a file mapped
      into memory.
    labels: int64 `[n]`, at least 0; other integers are converted.
    users: User of each example, str `[n]`, or `None` if not known; bytes and
      integers are converted.
    class_names: Names of the classes by label, str `[K]`, or `None` if not
      known.

  Raises:
    errors.FieldError: If a shape, a type or a value is another.
  """

  features: np.ndarray
  labels: np.ndarray
  users: np.ndarray | None = None
  class_names: np.ndarray | None = None

  def __post_init__(self):
    """Checks the arrays, and converts labels and names."""
    examples_lib.check_features(self.features)
    num_examples = len(self.features)
    labels = arrays.to_labels("labels", self.labels, num_examples)
    if labels.min() < 0:
      must = "be at least 0 and below 2^63"
      raise errors.FieldError("labels", must, labels.min())
    object.__setattr__(self, "labels", labels)
    if self.users is not None:
      users = arrays.to_names("users", self.users, num_examples)
      object.__setattr__(self, "users", users.astype(str))
    if self.class_names is not None:
      names = np.asarray(self.class_names)
      if names.ndim != 1 or names.dtype.kind != "U":
        found = f"{names.dtype} {list(names.shape)}"
        raise errors.FieldError("class_names", "be texts [K]", found)

  def take(self, rows: np.ndarray | slice) -> "FeatureSet":
    """Copies some examples, or shares their memory if rows are a slice.

    Args:
      rows: A slice, numbers int `[m]` in any order, or a mask bool `[n]`.

    Returns:
      The chosen examples, with their users if these are known.

    Raises:
      errors.FieldError: If none is chosen.
    """
    users = self.users
    if users is not None:
      users = users[rows]
    return FeatureSet(
      self.features[rows], self.labels[rows], users, self.class_names
    )

  def check_numbers_classes_as(self, other: "FeatureSet") -> None:
    """Refuses a set in which a label that both name is another class.

    Args:
      other: The other set.

    Raises:
      errors.FieldError: If a name differs. A set without names is not checked.
    """
    if self.class_names is None or other.class_names is None:
      return
    pairs = zip(self.class_names, other.class_names, strict=False)
    for label, (name, known) in enumerate(pairs):
      if name != known:
        raise errors.FieldError(
          "class_names",
          f"number the classes as the other file does, in which {label} is"
          f" {known}",
          name,
          "Extract both from folders with the same sub-folders, of which some"
          " may be empty.",
        )


def read_features(path: str | os.PathLike[str]) -> FeatureSet:
  """Reads a file of features.

  An array that is stored without compression is mapped into memory, read-only:
  its pages are read as they are used, and its checksum is not verified.

  Args:
    path: A file as in the module's docstring, whatever its suffix.

  Returns:
    The features, with labels and users.

  Raises:
    errors.DataError: If there is no such file, or it is damaged or holds
      something else.
  """
  try:
    with mistakes_in(path), np.load(path) as archive:
      members = {_NAMES.get(name, name): name for name in archive.files}
      if len(members) < len(archive.files):
        raise ValueError(f"an array under two names: {sorted(archive.files)}")
      if not {"repr", "label"} <= members.keys():
        raise ValueError(f"no features and labels among {sorted(members)}")
      values = {}
      for field, name in _NAMES.items():
        if name in members:
          values[field] = _read(path, archive, members[name])
      return FeatureSet(**values)
  except (errors.DataError, MemoryError):
    raise
  # NumPy and the standard library raise many kinds of errors on damaged files.
  except Exception as error:
    found = getattr(error, "strerror", None) or errors.first_line(error)
    raise errors.DataError(
      f"{os.fspath(path)} must be an npz file of arrays, found: {found}."
    ) from error


@contextlib.contextmanager
def mistakes_in(path: str | os.PathLike[str]) -> Iterator[None]:
  """Names the file in errors about its arrays.

  Args:
    path: The file that these come from.

  Yields:
    Nothing; the block reads or uses the file's arrays.

  Raises:
    errors.DataError: In place of a FieldError about one of them.
  """
  try:
    yield
  except errors.FieldError as error:
    if error.name not in _NAMES:
      raise
    raise errors.DataError(f"{os.fspath(path)}: {error}") from error


def _read(path: str | os.PathLike[str], archive: Any, name: str) -> np.ndarray:
  """Reads an array of an .npz, or maps it into memory, read-only.

  Compressed and empty arrays are read. `name` is the array's name in the
  archive.
  """
  info = archive.zip.getinfo(f"{name}.npy")
  with archive.zip.open(info) as member:
    # The array begins after the member's header, whose size the zip's directory
    # does not have.
    start = archive.zip.fp.tell()
    read_header = np.lib.format.read_array_header_2_0
    if np.lib.format.read_magic(member) == (1, 0):
      read_header = np.lib.format.read_array_header_1_0
    shape, is_fortran, dtype = read_header(member)
    header_size = member.tell()
  size = dtype.itemsize * math.prod(shape)
  is_whole = size > 0 and info.file_size == header_size + size
  is_stored = info.compress_type == zipfile.ZIP_STORED
  if dtype.hasobject or not (is_stored and is_whole):
    # NumPy cannot map an empty array; it explains what is wrong with others.
    return archive[name]
  return np.memmap(
    path,
    dtype=dtype,
    mode="r",
    offset=start + header_size,
    shape=shape,
    order="F" if is_fortran else "C",
  )


def write_features(path: pathlib.Path, feature_set: FeatureSet) -> None:
  """Writes a file of features without compression.

  Args:
    path: The file, whatever its suffix; it is replaced if it exists.
    feature_set: Its content; `user` and `class_name` are written only if they
      are known.
  """
  arrays = {"repr": feature_set.features, "label": feature_set.labels}
  if feature_set.users is not None:
    arrays["user"] = feature_set.users
  if feature_set.class_names is not None:
    arrays["class_name"] = feature_set.class_names
  output_files.arrays_writer(**arrays)(path)
