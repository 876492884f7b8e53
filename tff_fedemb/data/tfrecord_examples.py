"""Photos in TFRecord files, one file a user, as TFF's photo data sets are.

`tff.simulation.datasets.gldv2` and `inaturalist` write `<user id>` and
`test.tfRecord`: records of `tf.train.Example` with the features
`image/encoded_jpeg` (bytes) and `class` (int64). Their loaders in TFF 0.87
cannot read these files again, so they are read here.
"""

import collections
from collections.abc import Sequence
import os
import pathlib

import numpy as np
import tensorflow as tf

from tff_fedemb.data import bad_examples
from tff_fedemb.data import population
from tff_fedemb.data import sqlite_examples
from tff_fedemb.data import tfrecord_index


def _parse(serialized: tf.Tensor) -> collections.OrderedDict[str, tf.Tensor]:
  features = tf.io.parse_example(
      serialized,
      {
          tfrecord_index.IMAGE_FEATURE: tf.io.FixedLenFeature([], tf.string),
          tfrecord_index.LABEL_FEATURE: tf.io.FixedLenFeature([], tf.int64),
      },
  )
  return collections.OrderedDict(
      x=features[tfrecord_index.IMAGE_FEATURE],
      y=features[tfrecord_index.LABEL_FEATURE],
  )


class TfRecordExamples:
  """The users of a folder of TFRecord files."""

  def __init__(
      self,
      directory: str | os.PathLike[str],
      cache_dir: str | os.PathLike[str],
      *,
      name: str,
      bad: bad_examples.BadExamples,
  ):
    """Finds the users, and what is wrong with their files.

    A user with fewer than two examples that can be used, or with a record that
    is no example, is noted and left out. Of a file that is cut or damaged the
    whole records before that are used.

    Args:
      directory: The folder; the name of a file is a user's identifier. Hidden
        files and sub-folders are ignored.
      cache_dir: Where the index is kept.
      name: As of `open_index`.
      bad: Takes what is wrong.

    Raises:
      DataError: If there is no file, one cannot be read, or no user is left.
    """
    self._directory = pathlib.Path(directory).resolve()
    try:
      ids = sorted(
          entry.name
          for entry in os.scandir(self._directory)
          if entry.is_file() and not entry.name.startswith(".")
      )
    except OSError as error:
      raise sqlite_examples.DataError(
          f"{directory} must be a folder that can be read, found:"
          f" {error.strerror}."
      ) from error
    if not ids:
      raise sqlite_examples.DataError(
          f"{directory} must hold a file for each user, found none."
      )
    index = tfrecord_index.open_index(
        [self._directory / user_id for user_id in ids], cache_dir, name=name
    )
    kept = self._note_bad(ids, index, bad)
    self._user_ids = [ids[file] for file in kept]
    if not kept:
      raise sqlite_examples.DataError(
          f"{directory} must hold a user of two or more images, found"
          f" {bad_examples.summarize(bad.lines)}."
      )
    damaged = [file for file in kept if index.ends[file] != index.sizes[file]]
    self._damaged_paths = [self._path(ids[file]) for file in damaged]
    self._whole_records = np.diff(index.firsts)[damaged]
    used = index.fine & np.isin(index.files, kept)
    # int64 `[examples]`, of all users' examples that can be used.
    self.labels = index.labels[used]
    self._files_of_labels = index.files[used]
    self._ids = ids

  def _path(self, user_id: str) -> str:
    return os.path.join(self._directory, user_id)

  def _name(self, user_id: str) -> str:
    return f"{self._directory.name}/{user_id}"

  def _note_bad(
      self,
      ids: Sequence[str],
      index: tfrecord_index.RecordIndex,
      bad: bad_examples.BadExamples,
  ) -> list[int]:
    """Notes what is wrong and returns the files of the users who stay."""
    num_fine = np.bincount(index.files[index.fine], minlength=len(ids))
    suspects = (
        (index.ends != index.sizes)
        | (num_fine < 2)
        | (num_fine < np.diff(index.firsts))
    )
    no_examples = set(
        index.files[index.faults == tfrecord_index.NO_EXAMPLE].tolist()
    )
    kept = set(range(len(ids)))
    for file in np.flatnonzero(suspects):
      user_id = ids[file]
      faults = index.describe_faults(file, self._name(user_id))
      for where, what in faults:
        bad.add(where, what)
      if num_fine[file] < 2:
        kept.remove(file)
        if not faults:
          bad.add(
              self._name(user_id),
              "one example, and a user must have two or more"
              if num_fine[file]
              else "empty",
          )
      elif file in no_examples:
        kept.remove(file)
    return sorted(kept)

  @property
  def user_ids(self) -> list[str]:
    """Users, sorted."""
    return self._user_ids

  def name_of_row(self, row: int) -> str:
    """The file that a row of `labels` is from."""
    return self._path(self._ids[self._files_of_labels[row]])

  def create_dataset(self, client_id: tf.Tensor) -> tf.data.Dataset:
    """Examples of a virtual client, in TensorFlow operations only.

    Args:
      client_id: Identifier of the virtual client, a string scalar.

    Returns:
      Batches `OrderedDict(x=string [b] (encoded images), y=int64 [b])`, user by
      user.
    """
    paths = tf.strings.join([
        os.path.join(self._directory, ""),
        tf.strings.split(client_id, population.SEPARATOR),
    ])

    # Not by `ignore_errors`, which would hide any error and, when a file has
    # gone, try it again for ever.
    def read_whole_records(path):
      num_records = tf.reduce_max(
          tf.where(
              tf.equal(self._damaged_paths, path),
              tf.constant(self._whole_records, tf.int64),
              tf.constant(-1, tf.int64),  # All of them.
          )
      )
      return tf.data.TFRecordDataset(path).take(num_records)

    if self._damaged_paths:
      records = tf.data.Dataset.from_tensor_slices(paths).flat_map(
          read_whole_records
      )
    else:
      records = tf.data.TFRecordDataset(paths)
    return records.batch(tfrecord_index.READING_BATCH).map(_parse)

  def find_bad_examples(self, client_id: str) -> list[str]:
    """Reads the files of a virtual client anew and decodes every image.

    Args:
      client_id: Identifier of the virtual client.

    Returns:
      A line for each file or record that cannot be used.
    """
    lines = []
    for user_id in population.user_ids_of(client_id):
      name = self._name(user_id)
      try:
        index = tfrecord_index.build_index(
            [pathlib.Path(self._path(user_id))], decode_all=True
        )
      except (OSError, sqlite_examples.DataError) as error:
        lines.append(f"{name}: {error}")
        continue
      lines += [
          f"{where}: {what}" for where, what in index.describe_faults(0, name)
      ]
    return lines
