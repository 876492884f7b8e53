"""EMNIST by writer: handwritten characters, class-disjoint (Xu et al. 2023).

Cohen et al., "EMNIST: an extension of MNIST to handwritten letters", 2017;
federated by writer in Caldas et al., "LEAF: A Benchmark for Federated
Settings", 2018. Read from the file that TFF distributes, `emnist_all.sqlite`,
or from one in the same format (`python -m tasks.synthetic`).
"""

import collections
import os
import pathlib

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from tasks import task
from tff_fedemb.data import population
from tff_fedemb.data import sqlite_examples
from tff_fedemb.evaluation import embedding

_FILE_NAME = "emnist_all.sqlite"
_SIDE = 28
# 0-9 digits, 10-35 upper case, 36-61 lower case.
_FIRST_HELD_OUT_LABEL = 36
_NUM_LABELS = 62
_PARSING_BATCH = 512
_ADVICE = (
    f"Put TFF's {_FILE_NAME} (storage.googleapis.com/tff-datasets-public/"
    f"{_FILE_NAME}.lzma, unpacked) there, or make synthetic data: python -m"
    " tasks.synthetic --task=emnist --output_dir=DIR, then --data_dir=DIR."
)
_SPLIT_OF = {"validation": "all_train", "test": "all_test"}


def _find_database(data_dir: str | None) -> pathlib.Path:
  """Finds the database, or has TFF download it if no directory is given."""
  if data_dir is not None:
    path = pathlib.Path(data_dir) / _FILE_NAME
    if not path.is_file():
      raise sqlite_examples.DataError(
          f"--data_dir must hold {_FILE_NAME}, found no file {path}. {_ADVICE}"
      )
    return path
  path = pathlib.Path.home() / ".tff" / _FILE_NAME
  if not path.is_file():
    try:
      tff.simulation.datasets.emnist.load_data(
          only_digits=False, cache_dir=os.fspath(path.parent)
      )
    except OSError as error:
      # TFF would take what it left for the whole file the next time.
      path.unlink(missing_ok=True)
      raise sqlite_examples.DataError(
          f"--data_dir is not given and {_FILE_NAME} could not be downloaded to"
          f" {path.parent} ({error}). {_ADVICE}"
      ) from error
  return path


def _parse(serialized: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
  """From serialised examples `[b]` to uint8 images and int64 labels."""
  features = tf.io.parse_example(
      serialized,
      {
          "pixels": tf.io.FixedLenFeature([_SIDE, _SIDE], tf.float32),
          "label": tf.io.FixedLenFeature([], tf.int64),
      },
  )
  pixels = tf.cast(tf.round(255.0 * features["pixels"]), tf.uint8)
  return pixels[..., tf.newaxis], features["label"]


def _check_example(path: pathlib.Path, serialized: bytes) -> None:
  try:
    _parse(tf.constant([serialized]))
  except tf.errors.OpError as error:
    raise sqlite_examples.DataError(
        f"{path} must hold examples with pixels float32 [{_SIDE}, {_SIDE}] and"
        f" label int64, found: {error.message.splitlines()[0]}"
    ) from error


def create_emnist_task(config: task.TaskConfig) -> task.Task:
  """Creates the EMNIST task.

  A user is a writer. Training: digits and upper case (36 classes) of split
  `all_train`. Held out: the 26 lower-case classes of all writers, in
  `all_train` for validation and in `all_test` for test.

  Args:
    config: `data_dir` holds `emnist_all.sqlite`; without it TFF downloads the
      file to `~/.tff`.

  Returns:
    The task.

  Raises:
    DataError: If the data are missing or damaged.
  """
  path = _find_database(config.data_dir)
  examples = sqlite_examples.SqliteExamples(path, _SPLIT_OF["validation"])
  for example in examples.read_serialized(limit=1):
    _check_example(path, example)

  def create_client_dataset(client_id):
    def keep_training_classes(serialized):
      images, labels = _parse(serialized)
      keep = tf.less(labels, _FIRST_HELD_OUT_LABEL)
      return collections.OrderedDict(
          x=tf.boolean_mask(images, keep), y=tf.boolean_mask(labels, keep)
      )

    return (
        examples.create_dataset(client_id)
        .batch(_PARSING_BATCH)
        .map(keep_training_classes)
    )

  def load_images(split):
    serialized = sqlite_examples.SqliteExamples(
        path, _SPLIT_OF[split]
    ).read_serialized()
    images, labels = [], []
    for start in range(0, len(serialized), _PARSING_BATCH):
      batch_images, batch_labels = _parse(
          tf.constant(serialized[start : start + _PARSING_BATCH])
      )
      keep = batch_labels.numpy() >= _FIRST_HELD_OUT_LABEL
      images.append(batch_images.numpy()[keep])
      labels.append(batch_labels.numpy()[keep])
    return embedding.LabelledImages(
        np.concatenate(images), np.concatenate(labels)
    )

  return task.Task(
      name="emnist",
      user_meaning="a writer",
      train_users=population.Population.from_ids(examples.user_ids),
      create_client_dataset=create_client_dataset,
      image_shape=(_SIDE, _SIDE, 1),
      num_train_classes=_FIRST_HELD_OUT_LABEL,
      load_images=load_images,
      split_description=(
          f"train: digits and upper case ({_FIRST_HELD_OUT_LABEL} classes);"
          " validation and test: lower case"
          f" ({_NUM_LABELS - _FIRST_HELD_OUT_LABEL} classes), from different"
          " images"
      ),
  )
