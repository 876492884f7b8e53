"""Photos in TFRecord files, one file a user, as TFF's photo data sets are.

`tff.simulation.datasets.gldv2` and `inaturalist` write them, see
`tfrecord_files`. Their loaders in TFF 0.87 cannot read these files again, so
they are read here.

Who the users are follows from the names of the files alone, never from what is
in them: the number of users and everybody's place among them are taken to be
public, and must not change with one user's data.
"""

import collections
import os
import pathlib

import numpy as np
import pandas as pd
import tensorflow as tf

from tff_fedemb import errors
from tff_fedemb.data import bad_examples
from tff_fedemb.data import encoded_images
from tff_fedemb.data import population
from tff_fedemb.data import reading
from tff_fedemb.data import tfrecord_files
from tff_fedemb.data import tfrecord_index

# An image teaches nothing if its user has none to compare it with.
_MIN_EXAMPLES = 2


def _parse(serialized: tf.Tensor) -> collections.OrderedDict[str, tf.Tensor]:
  image, label = tfrecord_files.IMAGE_FEATURE, tfrecord_files.CLASS_FEATURE
  features = tf.io.parse_example(
    serialized,
    {
      image: tf.io.FixedLenFeature([], tf.string),
      label: tf.io.FixedLenFeature([], tf.int64),
    },
  )
  return collections.OrderedDict(x=features[image], y=features[label])


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

    If `bad` skips, every image is decoded once to find those that cannot be;
    they, records that are no example and all records of a user with fewer than
    two others are left out, and the user stays, if need be without an example.
    If it does not skip, only images are decoded that do not begin and end as a
    JPEG does, nothing of what was noted may be used (`bad.check` refuses it),
    and users of one image are fine, but for a warning. A file that is cut or
    damaged is used up to there.

    Args:
      directory: The folder; the name of a file is a user's identifier. Hidden
        files and sub-folders are ignored.
      cache_dir, name: As of `open_index`.
      bad: Takes what is wrong.

    Raises:
      DataError: If there is no file, one cannot be read, or no user has an
        example that can be used.
    """
    self._directory = pathlib.Path(directory).resolve()
    try:
      # Users, one a file.
      self.user_ids = sorted(
        entry.name
        for entry in os.scandir(self._directory)
        if entry.is_file() and not entry.name.startswith(".")
      )
    except OSError as error:
      raise reading.create_error(directory, error, "folder") from error
    if not self.user_ids:
      raise errors.DataError(
        f"{directory} must hold a file for each user, found none."
      )
    index = tfrecord_index.open_index(
      [self._directory / user_id for user_id in self.user_ids],
      cache_dir,
      name=name,
      decode_all=bad.skips,
    )
    is_fine = index["fault"].isna()
    num_users = len(self.user_ids)
    num_fine = np.bincount(index["file"][is_fine], minlength=num_users)
    self._note_bad(index[~is_fine], num_fine, bad)
    used = is_fine
    if bad.skips:
      used = is_fine & (num_fine >= _MIN_EXAMPLES)[index["file"]]
    if not used.any():
      raise errors.DataError(
        f"{directory} must hold a user of two or more images, found"
        f" {bad_examples.summarize(bad.lines)}."
      )
    # int64 `[examples]`, of all users' examples that can be used.
    self.labels = index["label"][used].to_numpy()
    self._files_of_labels = index["file"][used].to_numpy()
    # Warnings about the data, a line each.
    single = np.flatnonzero(num_fine == 1)
    self.warnings = bad_examples.warn_of(
      f"{single.size} of {num_users} users have one image only, with nothing to"
      " compare it with",
      [] if bad.skips else [self._name(self.user_ids[i]) for i in single],
    )
    # Files that are not used as they are: whether each of their records is
    # used, bool `[records]`, and the first record of each file.
    files = np.unique(index["file"][~used])
    self._partial_paths = [self._path(self.user_ids[file]) for file in files]
    is_partial = index["file"].isin(files) & (index["record"] >= 0)
    self._used = used[is_partial].to_numpy()
    self._firsts = np.searchsorted(
      index["file"][is_partial], np.append(files, num_users)
    )
    self._left_out = frozenset(bad.lines) if bad.skips else frozenset()

  def _path(self, user_id: str) -> str:
    return os.path.join(self._directory, user_id)

  def _name(self, user_id: str) -> str:
    return f"{self._directory.name}/{user_id}"

  def _note_bad(
    self,
    faulty: pd.DataFrame,
    num_fine: np.ndarray,
    bad: bad_examples.BadExamples,
  ) -> None:
    """Notes what is wrong, and who is without an example for it."""
    is_faulty = np.bincount(faulty["file"], minlength=num_fine.size) > 0
    for file in np.flatnonzero(is_faulty | (num_fine < _MIN_EXAMPLES)):
      name = self._name(self.user_ids[file])
      rows = faulty[faulty["file"] == file]
      for where, what in tfrecord_index.describe_faults(rows, name):
        bad.add(where, what)
      if bad.skips and num_fine[file] < _MIN_EXAMPLES:
        if num_fine[file]:
          bad.add(name, "left out, one image, and two are needed")
        else:
          reason = "no image" if is_faulty[file] else "empty"
          bad.add(name, f"left out, {reason}")
      elif not num_fine[file] and not is_faulty[file]:
        bad.add(name, "empty")

  def name_of_row(self, row: int) -> str:
    """The file that a row of `labels` is from."""
    return self._path(self.user_ids[self._files_of_labels[row]])

  def create_dataset(self, client_id: tf.Tensor) -> tf.data.Dataset:
    """Examples of a virtual client, in TensorFlow operations only.

    Returns:
      Batches `OrderedDict(x=string [b] (encoded images), y=int64 [b])`, user by
      user; b may be 0.
    """
    paths = tf.strings.join(
      [
        os.path.join(self._directory, ""),
        tf.strings.split(client_id, population.SEPARATOR),
      ]
    )
    if not self._partial_paths:
      return (
        tf.data.TFRecordDataset(paths)
        .batch(encoded_images.READING_BATCH)
        .map(_parse)
      )
    firsts = tf.constant(self._firsts, tf.int64)
    all_used = tf.data.Dataset.from_tensors(True).repeat()

    # Not by `ignore_errors`, which would hide any error and, when a file has
    # gone, try it again for ever.
    def read_with_use(path):
      place = tf.where(tf.equal(self._partial_paths, path))[:, 0]
      first = tf.reduce_sum(tf.gather(firsts, place))
      end = tf.reduce_sum(tf.gather(firsts, place + 1))
      is_partial = tf.size(place) > 0
      return tf.data.Dataset.zip(
        (
          tf.data.TFRecordDataset(path).take(
            tf.where(is_partial, end - first, -1)  # -1: all of them.
          ),
          tf.data.Dataset.from_tensor_slices(
            tf.constant(self._used)[first:end]
          ).concatenate(all_used),
        )
      )

    # The choice is made by the batch: a filter would call a function for every
    # record, of the users too of whom all is used.
    return (
      tf.data.Dataset.from_tensor_slices(paths)
      .flat_map(read_with_use)
      .batch(encoded_images.READING_BATCH)
      .map(lambda records, used: _parse(tf.boolean_mask(records, used)))
    )

  def find_bad_examples(self, client_id: str) -> list[str]:
    """Reads the files of a virtual client anew and decodes every image.

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
