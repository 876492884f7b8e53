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
  """Has TFF download the database, whole or not at all."""
  path = directory / FILE_NAME
  try:
    directory.mkdir(parents=True, exist_ok=True)
    # TFF takes whatever lies at its place for the whole file, even what an
    # interrupted download left there.
    with tempfile.TemporaryDirectory(dir=directory) as temporary:
      tff.simulation.datasets.emnist.load_data(
        only_digits=False, cache_dir=temporary
      )
      downloaded = pathlib.Path(temporary) / FILE_NAME
      _open_splits(downloaded)
      os.replace(downloaded, path)
  except (
    *(OSError, http.client.HTTPException, tf.errors.OpError),
    *(errors.DataError, *bad_examples.ARCHIVE_ERRORS),
  ) as error:
    raise errors.FieldError(
      "data_dir",
      f"be given where {FILE_NAME} cannot be downloaded to {directory}",
      f"none, and: {error}",
      _ADVICE,
    ) from error
  return path


def _find_database(data_dir: str | None) -> pathlib.Path:
  """Finds the database, or has it downloaded if no directory is given."""
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
  """Opens both splits, so that a lack of one shows before training."""
  return {
    split: sqlite_examples.SqliteExamples(path, name)
    for split, name in _SPLIT_OF.items()
  }


def parse(
  serialized: tf.Tensor, *, compact: bool
) -> tuple[tf.Tensor, tf.Tensor]:
  """Parses serialised examples `[b]` to uint8 images and int64 labels."""
  name = PIXEL_BYTES if compact else "pixels"
  pixels = (
    tf.io.FixedLenFeature([], tf.string)
    if compact
    else tf.io.FixedLenFeature([_SIDE, _SIDE], tf.float32)
  )
  features = tf.io.parse_example(
    serialized, {name: pixels, "label": tf.io.FixedLenFeature([], tf.int64)}
  )
  if compact:
    images = tf.io.decode_raw(features[name], tf.uint8)
    images = tf.ensure_shape(images, [None, _SIDE * _SIDE])
    images = tf.reshape(images, [-1, _SIDE, _SIDE])
  else:
    images = tf.cast(tf.round(255.0 * features[name]), tf.uint8)
  return images[..., tf.newaxis], features["label"]


def _parse_checked(
  path: pathlib.Path, serialized: list[bytes], *, compact: bool
) -> tuple[np.ndarray, np.ndarray]:
  """Does what `parse` does, eagerly, and refuses what is not EMNIST's."""
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


def create_emnist_task(config: task_config.TaskConfig) -> task_lib.Task:
  """Creates the EMNIST task.

  A user is a writer. Training: digits and upper case (36 classes) of split
  `all_train`. Held out: the 26 lower-case classes of all writers, in
  `all_train` for validation and in `all_test` for test.

  Args:
    config: `data_dir` holds `emnist_all.sqlite`; without it TFF downloads the
      file to `~/.tff`.
  """
  config.choose_variant("emnist", ("all",))
  config.check_no_photo_options("emnist", _SIDE)
  path = _find_database(config.data_dir)
  try:
    splits = _open_splits(path)
  except errors.DataError as error:
    raise errors.FieldError(
      "data_dir", f"hold a whole {FILE_NAME}", f"that {error}", _ADVICE
    ) from error
  first = {
    name: split.read_serialized(limit=1) for name, split in splits.items()
  }
  # Examples name their features.
  compact = PIXEL_BYTES.encode() in first["validation"][0]
  for serialized in first.values():
    _parse_checked(path, serialized, compact=compact)
  # Training reads the split of validation too, but other classes.
  examples = splits["validation"]

  def create_client_dataset(client_id):
    # `pipelines.gather` says why there is no `map`.
    (serialized,) = pipelines.gather(
      examples.create_dataset(client_id).with_options(pipelines.build_options())
    )
    images, labels = parse(serialized, compact=compact)
    keep = tf.less(labels, FIRST_HELD_OUT_LABEL)
    return tf.data.Dataset.from_tensors(
      collections.OrderedDict(
        x=tf.boolean_mask(images, keep), y=tf.boolean_mask(labels, keep)
      )
    )

  def load_images(split):
    parts = []
    for serialized in splits[split].read_batches(f"Reading {split} images"):
      images, labels = _parse_checked(path, serialized, compact=compact)
      keep = labels >= FIRST_HELD_OUT_LABEL
      parts.append((images[keep], labels[keep]))
    images, labels = map(np.concatenate, zip(*parts, strict=True))
    return embedding.LabelledImages(images, labels)

  def count_images(split):
    source = splits["validation" if split == "train" else split]
    label, count = {"label": tf.io.FixedLenFeature([], tf.int64)}, 0
    for serialized in source.read_batches(f"Counting {split} images"):
      labels = tf.io.parse_example(serialized, label)["label"].numpy()
      is_held_out = labels >= FIRST_HELD_OUT_LABEL
      count += int(np.sum(is_held_out == (split != "train")))
    return count

  return task_lib.Task(
    name="emnist",
    user_meaning="a writer",
    train_users=population.Population.from_ids(examples.user_ids),
    create_client_dataset=create_client_dataset,
    image_shape=(_SIDE, _SIDE, 1),
    num_train_classes=FIRST_HELD_OUT_LABEL,
    load_images=load_images,
    count_images=count_images,
    split_description=SPLIT_DESCRIPTION,
    class_names=CLASS_NAMES,
  )
