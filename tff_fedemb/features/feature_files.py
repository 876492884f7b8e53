"""Files of labelled features: NumPy's .npz, and TFRecord.

An .npz holds `repr` [n, d] and `label` [n], and `user` [n] if the users are
known; `features` with `labels`, and `users` with either, are read as well. A
TFRecord holds a `tf.train.Example` of the same three names for each example.
Nothing in a file is run: pickled objects are refused.
"""

from collections.abc import Collection, Iterator
import contextlib
import dataclasses
import math
import os
import pathlib
import zipfile

import numpy as np

from tff_fedemb import errors
from tff_fedemb import output_files
from tff_fedemb import whole_files
from tff_fedemb.data import tfrecord_files
from tff_fedemb.features import examples as examples_lib

SUFFIXES = (".npz", ".tfrecord")

_NAMES = ("repr", "label", "user")
_OTHER_NAMES = ("features", "labels", "users")
_LARGEST_LABEL = np.iinfo(np.int64).max
_PARSING_BATCH = 1024


@dataclasses.dataclass(frozen=True)
class FeatureSet:
  """Features of labelled examples.

  Attributes:
    features: `[n, d]` real numbers, n and d at least 1; possibly a file mapped
      into memory.
    labels: int64 `[n]`, at least 0; other integers are converted.
    users: Whose an example is, str `[n]`, or `None` if that is not known; bytes
      and integers are converted.
  """

  features: np.ndarray
  labels: np.ndarray
  users: np.ndarray | None = None

  def __post_init__(self):
    examples_lib.check_features(self.features)
    num_examples = len(self.features)
    examples_lib.check_of_each(
      "labels", self.labels, num_examples, kinds="iu", words="integers"
    )
    # As they are: int64 would make large labels of uint64 negative.
    for label in (self.labels.min(), self.labels.max()):
      if not 0 <= label <= _LARGEST_LABEL:
        raise errors.FieldError("labels", "be at least 0 and below 2^63", label)
    object.__setattr__(self, "labels", np.array(self.labels, np.int64))
    if self.users is not None:
      users = examples_lib.to_users(self.users, num_examples)
      object.__setattr__(self, "users", users)

  def take(self, rows: np.ndarray | slice) -> "FeatureSet":
    """The examples of some rows, a slice or int `[m]`, in that order."""
    return FeatureSet(
      self.features[rows],
      self.labels[rows],
      None if self.users is None else self.users[rows],
    )


def check_suffix(path: str | os.PathLike[str], *, name: str = "path") -> str:
  """Returns the suffix in lower case; FieldError of `name` for another."""
  suffix = pathlib.Path(path).suffix.lower()
  if suffix not in SUFFIXES:
    raise errors.FieldError(
      name, f"end with {' or '.join(SUFFIXES)}", repr(os.fspath(path))
    )
  return suffix


def read_features(path: str | os.PathLike[str]) -> FeatureSet:
  """Reads a file of features.

  An array that is stored in an .npz without compression is mapped into memory,
  read-only: its pages are read as they are used, and its checksum is not
  verified. A TFRecord is read into memory.

  Returns:
    What it holds; features have the file's type of numbers in an .npz, and are
    float32 in a TFRecord.

  Raises:
    errors.FieldError: If the name ends with none of `SUFFIXES`.
    errors.DataError: If there is no such file, or it is damaged or holds
      something else.
  """
  path = pathlib.Path(path)
  read = _read_npz if check_suffix(path) == ".npz" else _read_tfrecord
  if not path.is_file():
    found = "a directory" if path.is_dir() else "none"
    raise _refusal(path, "be a file", found)
  try:
    with mistakes_in(path):
      return read(path)
  except OSError as error:
    raise _refusal(path, "be a file that can be read", error) from error


@contextlib.contextmanager
def mistakes_in(path: str | os.PathLike[str]) -> Iterator[None]:
  """Says which file features or users are from that cannot be used.

  Raises:
    errors.DataError: In place of a FieldError of what a file of features holds.
  """
  try:
    yield
  except errors.FieldError as error:
    if error.name not in ("features", "labels", "users"):
      raise
    raise errors.DataError(f"{os.fspath(path)}: {error}") from error


def _refusal(
  path: pathlib.Path, requirement: str, found: str | Exception
) -> errors.DataError:
  if isinstance(found, OSError):
    found = f"an error: {found.strerror or found}"
  elif isinstance(found, Exception):
    found = f"an error: {errors.first_line(found)}"
  return errors.DataError(f"{path} must {requirement}, found {found}.")


def write_features(
  path: str | os.PathLike[str], feature_set: FeatureSet
) -> None:
  """Writes a file of features, whole or not at all.

  An .npz keeps the features' type of numbers, and is not compressed; a TFRecord
  has float32.

  Args:
    path: In a directory that exists; it is replaced if there is one.
    feature_set: What to write.

  Raises:
    errors.FieldError: If the name ends with none of `SUFFIXES`.
    OSError: If the file cannot be written.
  """
  path = pathlib.Path(path)
  if check_suffix(path) == ".tfrecord":
    tfrecord_files.write_records(path, _serialize(feature_set))
    return
  arrays = {"repr": feature_set.features, "label": feature_set.labels}
  if feature_set.users is not None:
    arrays["user"] = feature_set.users
  with whole_files.replacing(path) as partial:
    output_files.arrays_writer(**arrays)(partial)


def _choose_names(path: pathlib.Path, found: Collection[str]) -> list[str]:
  """The names of features, labels and users in a file, users' last."""
  for names, others in ((_NAMES, _OTHER_NAMES), (_OTHER_NAMES, _NAMES)):
    if set(names[:2]) <= set(found):
      users = [name for name in (names[2], others[2]) if name in found]
      return [*names[:2], *users[:1]]
  requirement = "hold repr and label, or features and labels"
  raise _refusal(path, requirement, str(sorted(found)))


def _read_npz(path: pathlib.Path) -> FeatureSet:
  try:
    with zipfile.ZipFile(path) as archive:
      members = {
        info.filename.removesuffix(".npy"): info for info in archive.infolist()
      }
      names = _choose_names(path, members)
      return FeatureSet(
        *(_read_member(path, archive, members[name]) for name in names)
      )
  except (errors.DataError, errors.FieldError, MemoryError, OSError):
    raise
  # NumPy and the standard library raise whatever comes of what is damaged.
  except Exception as error:
    raise _refusal(path, "be an npz file of arrays", error) from error


def _read_member(
  path: pathlib.Path, archive: zipfile.ZipFile, info: zipfile.ZipInfo
) -> np.ndarray:
  """Reads an array of an .npz, or maps it into memory."""
  with archive.open(info) as member:
    # Behind the header of the member, which the zip's directory leaves out.
    start = archive.fp.tell()
    major, minor = np.lib.format.read_magic(member)
    # Later versions are of arrays with fields, and have no such function.
    read_header = getattr(np.lib.format, f"read_array_header_{major}_{minor}")
    shape, is_fortran, dtype = read_header(member)
    size = member.tell() + dtype.itemsize * math.prod(shape)
    if dtype.hasobject:
      raise ValueError(f"{info.filename} holds pickled objects")
    if info.file_size != size:
      raise ValueError(
        f"{info.filename} has {info.file_size} bytes, and {dtype}"
        f" {list(shape)} has {size}"
      )
    # NumPy maps no array of no size.
    if info.compress_type == zipfile.ZIP_STORED and math.prod(shape):
      return np.memmap(
        path,
        dtype=dtype,
        mode="r",
        offset=start + member.tell(),
        shape=shape,
        order="F" if is_fortran else "C",
      )
    member.seek(0)
    return np.lib.format.read_array(member, allow_pickle=False)


def _serialize(feature_set: FeatureSet) -> Iterator[bytes]:
  features, users = feature_set.features, feature_set.users
  for row, label in enumerate(feature_set.labels):
    example = {"repr": features[row].astype(np.float32), "label": label}
    if users is not None:
      example["user"] = users[row].encode()
    yield tfrecord_files.serialize_example(example)


def _read_tfrecord(path: pathlib.Path) -> FeatureSet:
  # TensorFlow takes seconds to import, and an .npz does without it.
  from google.protobuf import message
  import tensorflow as tf

  records = tf.data.TFRecordDataset(os.fspath(path))
  try:
    first = list(records.take(1).as_numpy_iterator())
    if not first:
      raise _refusal(path, "hold examples", "none")
    found = tf.train.Example.FromString(first[0]).features.feature
    names = _choose_names(path, found)
    dim = len(found[names[0]].float_list.value)
    if not dim:
      raise _refusal(path, f"hold {names[0]} of floats", "none")
    kinds = ([dim], tf.float32), ([], tf.int64), ([], tf.string)
    specs = {
      name: tf.io.FixedLenFeature(*kind)
      for name, kind in zip(names, kinds, strict=False)
    }
    batches = [
      tf.io.parse_example(batch, specs)
      for batch in records.batch(_PARSING_BATCH)
    ]
    arrays = [
      np.concatenate([batch[name].numpy() for batch in batches])
      for name in names
    ]
    # TensorFlow's strings are objects.
    users = [each.astype(np.bytes_) for each in arrays[2:]]
    return FeatureSet(*arrays[:2], *users)
  except (message.DecodeError, tf.errors.OpError, UnicodeDecodeError) as error:
    requirement = (
      "be a TFRecord of examples with repr (floats, as many in each), label"
      " (int64) and, in all or none, user (bytes)"
    )
    raise _refusal(path, requirement, error) from error
