"""EMNIST by writer: handwritten characters, class-disjoint (Xu et al. 2023).

Cohen et al., "EMNIST: an extension of MNIST to handwritten letters", 2017;
federated by writer in Caldas et al., "LEAF: A Benchmark for Federated
Settings", 2018. Read from the file that TFF distributes, `emnist_all.sqlite`,
or from one in the same format (`python -m tasks.synthetic`).
"""

from __future__ import annotations

import collections
import http.client
import os
import pathlib
import string
import tempfile

from etils import epy
import numpy as np

from tasks import task_config
from tff_fedemb import errors
from tff_fedemb.data import bad_examples
from tff_fedemb.data import population
from tff_fedemb.spec import task as task_lib

with epy.lazy_imports():
  import tensorflow as tf
  import tensorflow_federated as tff

  from tff_fedemb.data import pipelines
  from tff_fedemb.data import sqlite_examples
  from tff_fedemb.evaluation import embedding

FILE_NAME = "emnist_all.sqlite"
# Feature of a compact file: pixels as bytes, paper 255.
PIXEL_BYTES = "pixels_uint8"
_SIDE = 28
# 0-9 digits, 10-35 upper case, 36-61 lower case.
FIRST_HELD_OUT_LABEL = 36
NUM_LABELS = 62
CLASS_NAMES = dict(
  enumerate(string.ascii_lowercase, start=FIRST_HELD_OUT_LABEL)
)
SPLIT_DESCRIPTION = (
  f"train: digits and upper case ({FIRST_HELD_OUT_LABEL} classes); validation"
  f" and test: lower case ({NUM_LABELS - FIRST_HELD_OUT_LABEL} classes), from"
  " different images"
)
_ADVICE = (
  f"Put TFF's {FILE_NAME} (storage.googleapis.com/tff-datasets-public/"
  f"{FILE_NAME}.lzma, unpacked) there."
  f" {task_config.advise_synthetic('emnist')}"
)
_SPLIT_OF = {"validation": "all_train", "test": "all_test"}


def _download(directory: pathlib.Path) -> pathlib.Path:
  """Has TFF download the database into a folder, whole or not at all.

  Args:
    directory: The folder; its parents are made too.

  Returns:
    Path of the database.

  Raises:
    FieldError: If it cannot be downloaded, unpacked or read.
  """
  path = directory / FILE_NAME
  try:
    directory.mkdir(parents=True, exist_ok=True)
    # TFF takes any file of this name for the whole database, even the rest of
    # an interrupted download.
    with tempfile.TemporaryDirectory(dir=directory) as temporary:
      tff.simulation.datasets.emnist.load_data(
        only_digits=False, cache_dir=temporary
      )
      downloaded = pathlib.Path(temporary) / FILE_NAME
      _open_splits(downloaded)
      os.replace(downloaded, path)
  except (
    OSError,
    http.client.HTTPException,
    tf.errors.OpError,
    errors.DataError,
    *bad_examples.ARCHIVE_ERRORS,
  ) as error:
    raise errors.FieldError(
      "data_dir",
      f"be given where {FILE_NAME} cannot be downloaded to {directory}",
      f"none, and: {error}",
      _ADVICE,
    ) from error
  return path


def _find_database(data_dir: str | None) -> pathlib.Path:
  """Finds the database, or has it downloaded if no directory is given.

  Args:
    data_dir: Its directory; None for `~/.tff`, where TFF downloads to.

  Raises:
    FieldError: If a directory is given without it, or the download fails.
  """
  path = pathlib.Path(data_dir or pathlib.Path.home() / ".tff") / FILE_NAME
  if path.is_file():
    return path
  if data_dir is None:
    return _download(path.parent)
  raise errors.FieldError(
    "data_dir", f"hold {FILE_NAME}", f"no file {path}", _ADVICE
  )


def _open_splits(
  path: pathlib.Path,
) -> dict[str, sqlite_examples.SqliteExamples]:
  """Opens both splits, so that a lack of one shows before training.

  Args:
    path: The database.

  Returns:
    Examples by the name of the task's split.

  Raises:
    errors.DataError: If the file is no whole database with these splits.
  """
  return {
    split: sqlite_examples.SqliteExamples(path, name)
    for split, name in _SPLIT_OF.items()
  }


def parse(
  serialized: tf.Tensor, *, compact: bool
) -> tuple[tf.Tensor, tf.Tensor]:
  """Parses serialised examples, with TensorFlow operations only.

  `pixels` in the file are 1 for paper and 0 for ink, which become 255 and 0.

  Args:
    serialized: Examples, string `[b]`.
    compact: Whether pixels are bytes (`PIXEL_BYTES`) or floats.

  Returns:
    Images uint8 `[b, 28, 28, 1]`, paper 255, and labels int64 `[b]`.
  """
  label = {"label": tf.io.FixedLenFeature([], tf.int64)}
  if compact:
    pixels = {PIXEL_BYTES: tf.io.FixedLenFeature([], tf.string)}
    features = tf.io.parse_example(serialized, pixels | label)
    images = tf.io.decode_raw(features[PIXEL_BYTES], tf.uint8)
    images = tf.ensure_shape(images, [None, _SIDE * _SIDE])
    images = tf.reshape(images, [-1, _SIDE, _SIDE])
  else:
    pixels = {"pixels": tf.io.FixedLenFeature([_SIDE, _SIDE], tf.float32)}
    features = tf.io.parse_example(serialized, pixels | label)
    images = tf.cast(tf.round(255.0 * features["pixels"]), tf.uint8)
  return images[..., tf.newaxis], features["label"]


def _parse_checked(
  path: pathlib.Path, serialized: list[bytes], *, compact: bool
) -> tuple[np.ndarray, np.ndarray]:
  """Parses as `parse` does, eagerly, and refuses what is not EMNIST's.

  Args:
    path: The database, for the error.
    serialized: Examples.
    compact: See `parse`.

  Returns:
    Images uint8 `[n, 28, 28, 1]`, and labels int64 `[n]`.

  Raises:
    FieldError: If an example cannot be parsed, or a label is not in [0, 62).
  """
  expected = (
    f"hold a {FILE_NAME} with pixels float32 [{_SIDE},"
    f" {_SIDE}] and label int64 in [0, {NUM_LABELS})"
  )
  try:
    parsed = parse(tf.constant(serialized), compact=compact)
    images, labels = (part.numpy() for part in parsed)
  except (tf.errors.OpError, UnicodeDecodeError) as error:
    # TensorFlow quotes what it cannot parse, which need not be text.
    reason = "an example that cannot be parsed"
    if isinstance(error, tf.errors.OpError):
      reason = error.message.splitlines()[0].rpartition("}} ")[2].rstrip(".")
    raise errors.FieldError(
      "data_dir", expected, f"in {path}: {reason}", _ADVICE
    ) from error
  unknown = labels[(labels < 0) | (labels >= NUM_LABELS)]
  if unknown.size:
    raise errors.FieldError(
      "data_dir", expected, f"in {path} label {unknown[0]}", _ADVICE
    )
  return images, labels


class _Characters:
  """The characters in a database, by writer."""

  def __init__(self, path: pathlib.Path):
    """Opens the database and checks an example of each split.

    Args:
      path: The database.

    Raises:
      FieldError: If it is damaged, or its examples are not EMNIST's.
    """
    self._path = path
    try:
      self._splits = _open_splits(path)
    except errors.DataError as error:
      raise errors.FieldError(
        "data_dir", f"hold a whole {FILE_NAME}", f"that {error}", _ADVICE
      ) from error
    # Training reads the split of validation too, but other classes.
    self.train = self._splits["validation"]
    first = [split.read_serialized(limit=1) for split in self._splits.values()]
    # The names of the features are part of a serialised example.
    self._compact = PIXEL_BYTES.encode() in first[0][0]
    for serialized in first:
      _parse_checked(path, serialized, compact=self._compact)

  def create_client_dataset(self, client_id: tf.Tensor) -> tf.data.Dataset:
    """Reads digits and capitals of a virtual client.

    Args:
      client_id: Identifier of the virtual client, string `[]`.

    Returns:
      A data set of one batch, `x` uint8 `[b, 28, 28, 1]` and `y` int64 `[b]`.
    """
    # `pipelines.gather` says why there is no `map`.
    examples = self.train.create_dataset(client_id)
    (serialized,) = pipelines.gather(
      examples.with_options(pipelines.build_options())
    )
    images, labels = parse(serialized, compact=self._compact)
    keep = tf.less(labels, FIRST_HELD_OUT_LABEL)
    return tf.data.Dataset.from_tensors(
      collections.OrderedDict(
        x=tf.boolean_mask(images, keep), y=tf.boolean_mask(labels, keep)
      )
    )

  def load_images(self, split: str) -> embedding.LabelledImages:
    """Reads the small letters of a held-out split.

    Args:
      split: "validation" or "test".

    Returns:
      The images of all writers, with labels in [36, 62).

    Raises:
      FieldError: If an example is not EMNIST's.
    """
    images = []
    labels = []
    batches = self._splits[split].read_batches(f"Reading {split} images")
    for serialized in batches:
      some, numbers = _parse_checked(
        self._path, serialized, compact=self._compact
      )
      keep = numbers >= FIRST_HELD_OUT_LABEL
      images.append(some[keep])
      labels.append(numbers[keep])
    return embedding.LabelledImages(
      np.concatenate(images), np.concatenate(labels)
    )

  def count_images(self, split: str) -> int:
    """Counts the images of a split; none is decoded.

    Args:
      split: "train", "validation" or "test".

    Returns:
      The number of digits and capitals for "train", else of small letters.
    """
    is_train = split == "train"
    source = self.train if is_train else self._splits[split]
    feature = {"label": tf.io.FixedLenFeature([], tf.int64)}
    count = 0
    for serialized in source.read_batches(f"Counting {split} images"):
      labels = tf.io.parse_example(serialized, feature)["label"].numpy()
      is_trained_on = labels < FIRST_HELD_OUT_LABEL
      count += int(np.sum(is_trained_on == is_train))
    return count


def create_emnist_task(config: task_config.TaskConfig) -> task_lib.Task:
  """Creates the EMNIST task.

  A user is a writer. Training: digits and upper case (36 classes) of split
  `all_train`. Held out: the 26 lower-case classes of all writers, in
  `all_train` for validation and in `all_test` for test.

  Args:
    config: `data_dir` holds `emnist_all.sqlite`; without it TFF downloads the
      file to `~/.tff`.

  Returns:
    A task of grey images `[28, 28, 1]` with 36 training classes. The held-out
    images are of writers who train, but of other classes.

  Raises:
    FieldError: If there is no such file, or other data in it, or there are
      options that only other tasks have.
  """
  config.choose_variant("emnist", ("all",))
  config.check_no_photo_options("emnist", _SIDE)
  characters = _Characters(_find_database(config.data_dir))
  return task_lib.Task(
    name="emnist",
    user_meaning="a writer",
    train_users=population.Population.from_ids(characters.train.user_ids),
    create_client_dataset=characters.create_client_dataset,
    image_shape=(_SIDE, _SIDE, 1),
    num_train_classes=FIRST_HELD_OUT_LABEL,
    load_images=characters.load_images,
    count_images=characters.count_images,
    split_description=SPLIT_DESCRIPTION,
    class_names=CLASS_NAMES,
  )
