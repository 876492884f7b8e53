"""The layout of TFF's files of federated photos, and how to write them.

TensorFlow Federated (0.87) keeps federated Google Landmarks v2 and iNaturalist
2017 (Hsu et al., 2020, "Federated Visual Classification with Real-World Data
Distribution", ECCV) as one folder for each variant: `train/<user id>`, a
TFRecord file for each user, and `test.tfRecord`. A record is a
`tf.train.Example` of an encoded image and its class.
"""

from collections.abc import Iterable, Mapping
import errno
import json
import os
import pathlib
from typing import Any

from etils import epy
import numpy as np

from tff_fedemb import whole_files

# TensorFlow takes seconds to load; a program's help does not need it.
with epy.lazy_imports():
  import tensorflow as tf

TRAIN_FOLDER = "train"
TEST_FILE_NAME = "test.tfRecord"
# Says how a folder of synthetic data was made; TFF ignores it.
GENERATOR_FILE_NAME = "generator.json"

# Features of a record: bytes (JPEG as it was downloaded) and int64.
IMAGE_FEATURE = "image/encoded_jpeg"
CLASS_FEATURE = "class"

# Bytes of a record beside the image: the framing of TFRecord (16) and of the
# example (names, lengths, class), rounded up.
RECORD_OVERHEAD = 80


def read_json(path: pathlib.Path) -> dict[str, Any]:
  """Reads an object from a JSON file.

  Args:
    path: The file, which need not exist.

  Returns:
    The object; an empty one if there is no file, or something else in it.
  """
  try:
    found = json.loads(path.read_text())
  except (OSError, ValueError):
    return {}
  return found if isinstance(found, dict) else {}


def serialize_example(
  features: Mapping[str, bytes | int | np.ndarray],
) -> bytes:
  """Serialises a `tf.train.Example`, always to the same bytes.

  Args:
    features: Bytes, integers (int64) and float arrays (flattened) by name.

  Returns:
    The serialised example.
  """
  example = tf.train.Example()
  for name, value in features.items():
    feature = example.features.feature[name]
    if isinstance(value, bytes):
      feature.bytes_list.value.append(value)
    elif isinstance(value, int | np.integer):
      feature.int64_list.value.append(value)
    else:
      feature.float_list.value.extend(np.ravel(value).tolist())
  return example.SerializeToString(deterministic=True)


def serialize_image(content: bytes, label: int) -> bytes:
  """Serialises an encoded image and its class to a record of these files.

  Args:
    content: The image, as it was downloaded.
    label: Its class, in the range of int64.

  Returns:
    The record, always the same bytes.
  """
  return serialize_example({IMAGE_FEATURE: content, CLASS_FEATURE: label})


def write_records(
  path: str | os.PathLike[str],
  records: Iterable[bytes],
) -> None:
  """Writes a TFRecord file, whole or not at all.

  Args:
    path: Path of the file, in a folder that exists; an old file is replaced.
    records: Serialised records, read one at a time.

  Raises:
    OSError: If the disk is full, or the file cannot be moved to its place.
  """
  with whole_files.replacing(path) as partial:
    try:
      with tf.io.TFRecordWriter(os.fspath(partial)) as writer:
        for record in records:
          writer.write(record)
    except tf.errors.ResourceExhaustedError as error:
      raise OSError(
        errno.ENOSPC, os.strerror(errno.ENOSPC), os.fspath(path)
      ) from error
