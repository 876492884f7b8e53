"""Photos in TFRecord files, one for each user, like TFF's photo data sets.

`tff.simulation.datasets.gldv2` and `inaturalist` write them, see
`tfrecord_files`. Their loaders in TFF 0.87 cannot read these files again, so
they are read here.

The names of the files alone decide who the users are, never their content: the
number of users and each user's place are assumed public, so they must not
depend on one user's data.
"""

import collections
from collections.abc import Mapping
import hashlib
import os
import pathlib
import stat

import numpy as np
import pandas as pd
import tensorflow as tf

from tff_fedemb import errors
from tff_fedemb import whole_files
from tff_fedemb.data import bad_examples
from tff_fedemb.data import encoded_images
from tff_fedemb.data import population
from tff_fedemb.data import tfrecord_files
from tff_fedemb.data import tfrecord_index


def _parse(serialized: tf.Tensor) -> collections.OrderedDict[str, tf.Tensor]:
  """Parses a batch of serialised examples `[b]`.

  Returns encoded images `x`, string `[b]`, and classes `y`, int64 `[b]`.
  """
  image = tfrecord_files.IMAGE_FEATURE
  label = tfrecord_files.CLASS_FEATURE
  features = tf.io.parse_example(
    serialized,
    {
      image: tf.io.FixedLenFeature([], tf.string),
      label: tf.io.FixedLenFeature([], tf.int64),
    },
  )
  return collections.OrderedDict(x=features[image], y=features[label])


def _copy(path: str, rows: pd.DataFrame, cache_dir: pathlib.Path) -> str:
  """Returns a copy of a file with only some rows of its index, made once.

  A change of the file is noticed by its name, size and time, as by the index,
  not by its content.
  """
  facts = os.stat(path)
  identity = (path, facts.st_size, facts.st_mtime_ns, rows["record"].tolist())
  digest = hashlib.sha256(repr(identity).encode()).hexdigest()
  copy = cache_dir / "without_bad_examples" / digest[:32]
  if not copy.exists():
    images = tfrecord_index.read_images(pathlib.Path(path), rows)
    records = map(tfrecord_files.serialize_image, images, rows["label"])
    with whole_files.caching(copy) as partial:
      tfrecord_files.write_records(partial, records)
  return os.fspath(copy)


def _list_files(directory: str | os.PathLike[str]) -> list[str]:
  """Lists the names of the visible files in a folder, sorted.

  Raises:
    DataError: If it cannot be read, or has no file.
  """
  names = []
  try:
    for entry in os.scandir(directory):
      # A link that leads nowhere may have been a user, whose place it keeps.
      if stat.S_ISREG(entry.stat().st_mode) and entry.name[0] != ".":
        names.append(entry.name)
  except OSError as error:
    kind = "file or folder"
    raise bad_examples.create_error(directory, error, kind) from error
  if not names:
    raise errors.DataError(
      f"{directory} must hold a file for each user, found none."
    )
  return sorted(names)


class TfRecordExamples:
  """The users of a folder of TFRecord files.

  Attributes:
    user_ids: The users, sorted, one for each file.
    labels: Labels of all users' examples that can be used, int64 `[examples]`.
    warnings: Warnings about the data, one line each.
  """

  def __init__(
    self,
    directory: str | os.PathLike[str],
    cache_dir: str | os.PathLike[str],
    *,
    name: str,
    bad: bad_examples.BadExamples,
  ):
    """Finds the users, and what is wrong with their files.

    If `bad` skips, every image is decoded once. Images that cannot be decoded,
    and records that are not examples, are left out; the user stays, even
    without examples. Otherwise only images that do not begin and end like a
    JPEG are decoded, and `bad.check` refuses the data if anything was noted. A
    truncated or damaged file is used up to the damage.

    Args:
      directory: The folder; the name of a file is a user's identifier. Hidden
        files and sub-folders are ignored.
      cache_dir: Directory of the index, and of copies of files without the
        examples that are left out.
      name: See `tfrecord_index.open_index`.
      bad: Collects the faults.

    Raises:
      DataError: If there is no file, one cannot be read, or no user has an
        example that can be used.
      errors.FieldError: If the cache directory cannot be written.
    """
    self._directory = pathlib.Path(directory).resolve()
    self.user_ids = _list_files(directory)
    index = tfrecord_index.open_index(
      [self._directory / user_id for user_id in self.user_ids],
      cache_dir,
      name=name,
      decode_all=bad.skips,
    )
    fine = index[index["fault"].isna()]
    num_fine = np.bincount(fine["file"], minlength=len(self.user_ids))
    rows_with_faults = index[index["fault"].notna()]
    faulty = dict(list(rows_with_faults.groupby("file")))
    self._note_faults(bad, faulty, num_fine)
    if fine.empty:
      raise errors.DataError(
        f"{directory} must hold images that can be used, found"
        f" {bad_examples.summarize(bad.lines)}."
      )
    self.labels = fine["label"].to_numpy()
    self._files_of_labels = fine["file"].to_numpy()
    single = np.flatnonzero(num_fine == 1)
    self.warnings = bad_examples.warn_of(
      f"{single.size} of {len(self.user_ids)} users have one image only, with"
      " nothing to compare it with",
      [self._name(self.user_ids[file]) for file in single],
    )
    # Copies of the files that are not used as they are.
    self._copies: dict[str, str] = {}
    self._left_out: frozenset[str] = frozenset()
    if bad.skips:
      for file in faulty:
        path = self._path(self.user_ids[file])
        rows = fine[fine["file"] == file]
        self._copies[path] = _copy(path, rows, pathlib.Path(cache_dir))
      self._left_out = frozenset(bad.lines)

  def _note_faults(
    self,
    bad: bad_examples.BadExamples,
    faulty: Mapping[int, pd.DataFrame],
    num_fine: np.ndarray,
  ) -> None:
    """Notes the faults of files by number, and the files without an image."""
    without = np.flatnonzero(num_fine == 0).tolist()
    for file in sorted(set(faulty) | set(without)):
      name = self._name(self.user_ids[file])
      if file in faulty:
        for where, what in tfrecord_index.describe_faults(faulty[file], name):
          bad.add(where, what)
      if not num_fine[file]:
        bad.add(name, "no image")

  def _path(self, user_id: str) -> str:
    """Path of a user's file."""
    return os.path.join(self._directory, user_id)

  def _name(self, user_id: str) -> str:
    """Name of a user's file in notes and warnings."""
    return f"{self._directory.name}/{user_id}"

  def name_of_row(self, row: int) -> str:
    """Returns the path of the file that an example is in.

    Args:
      row: The example's place in `labels`, in [0, examples).

    Returns:
      The path of the user's file, even if a copy is read in its place.
    """
    return self._path(self.user_ids[self._files_of_labels[row]])

  def create_dataset(self, client_id: tf.Tensor) -> tf.data.Dataset:
    """Reads a virtual client's examples, with TensorFlow operations only.

    Args:
      client_id: Identifier of the virtual client, a string scalar.

    Returns:
      Batches `OrderedDict(x=string [b] (encoded images), y=int64 [b])`, user by
      user; b may be 0.
    """
    users = tf.strings.split(client_id, population.SEPARATOR)
    paths = tf.strings.join([os.path.join(self._directory, ""), users])
    if self._copies:
      is_copied = tf.equal(paths[:, tf.newaxis], list(self._copies))
      places = tf.argmax(tf.cast(is_copied, tf.int32), axis=1)
      copies = tf.gather(list(self._copies.values()), places)
      paths = tf.where(tf.reduce_any(is_copied, axis=1), copies, paths)
    records = tf.data.TFRecordDataset(paths)
    return records.batch(encoded_images.READING_BATCH).map(_parse)

  def find_bad_examples(self, client_id: str) -> list[str]:
    """Reads the files of a virtual client anew and decodes every image.

    Args:
      client_id: Identifier of the virtual client.

    Returns:
      A line for each file or record that cannot be used and is not left out.
    """
    lines = []
    for user_id in population.user_ids_of(client_id):
      name = self._name(user_id)
      try:
        index = tfrecord_index.build_index(
          [pathlib.Path(self._path(user_id))], decode_all=True
        )
      except (OSError, errors.DataError) as error:
        lines.append(f"{name}: {error}")
        continue
      faults = tfrecord_index.describe_faults(index, name)
      lines += [f"{where}: {what}" for where, what in faults]
    return [line for line in lines if line not in self._left_out]
