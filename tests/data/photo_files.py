"""Small files of photos for the tests, whole and damaged."""

import functools
import io
import os

import numpy as np
from PIL import Image
import tensorflow as tf

from tff_fedemb.data import tfrecord_files


@functools.cache
def encode(seed, form="JPEG", mode="RGB", size=(20, 16)):
  """A picture of its own for each seed, a number or a name, encoded."""
  if isinstance(seed, str):
    seed = tuple(os.fsencode(seed))
  pixels = np.random.default_rng(seed).integers(0, 256, (4, 5, 3), np.uint8)
  content = io.BytesIO()
  Image.fromarray(pixels).resize(size).convert(mode).save(content, form)
  return content.getvalue()


def example(content, label):
  """A serialised example; a feature that is `None` is left out."""
  features = {"image/encoded_jpeg": content, "class": label}
  return tfrecord_files.serialize_example(
    {name: value for name, value in features.items() if value is not None}
  )


def write(path, records):
  """Writes a TFRecord file of serialised examples or (content, label)."""
  path.parent.mkdir(parents=True, exist_ok=True)
  with tf.io.TFRecordWriter(str(path)) as writer:
    for record in records:
      writer.write(record if isinstance(record, bytes) else example(*record))
  return path


def read(path):
  """Contents and labels of the records of a file."""
  records = []
  for record in tf.data.TFRecordDataset(str(path)).as_numpy_iterator():
    feature = tf.train.Example.FromString(record).features.feature
    (content,) = feature["image/encoded_jpeg"].bytes_list.value
    (label,) = feature["class"].int64_list.value
    records.append((content, label))
  return records


def write_users(directory, users):
  """Writes a file for each user, of pictures with the labels given."""
  for number, (user_id, labels) in enumerate(users.items()):
    write(
      directory / user_id,
      [(encode(100 * number + i), label) for i, label in enumerate(labels)],
    )
  return directory


def cut(path, end=-50):
  """Cuts off the end of a file."""
  path.write_bytes(path.read_bytes()[:end])


def flip(path, offset):
  """Changes one byte of a file."""
  content = bytearray(path.read_bytes())
  content[offset] ^= 0xFF
  path.write_bytes(bytes(content))
