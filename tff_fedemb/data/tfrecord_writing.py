"""Writes labelled images in the files that TFF keeps of federated photos.

`tfrecord_layout` says what these files are (Hsu et al., 2020, "Federated Visual
Classification with Real-World Data Distribution", ECCV).
"""

from collections.abc import Iterable
import errno
import os
import pathlib

import tensorflow as tf

from tff_fedemb.data import tfrecord_layout

PARTIAL_SUFFIX = ".partial"

# Bytes of a record beside the image: the framing of TFRecord (16) and of the
# example (names, lengths, class), rounded up.
RECORD_OVERHEAD = 80


def serialize_image(content: bytes, label: int) -> bytes:
  """Serialises an encoded image and its class, always to the same bytes.

  Args:
    content: The image as it was downloaded (JPEG).
    label: Its class, int64.

  Returns:
    A serialised `tf.train.Example`.
  """
  example = tf.train.Example()
  feature = example.features.feature
  feature[tfrecord_layout.IMAGE_FEATURE].bytes_list.value.append(content)
  feature[tfrecord_layout.CLASS_FEATURE].int64_list.value.append(label)
  return example.SerializeToString(deterministic=True)


def write_records(
  path: str | os.PathLike[str], records: Iterable[bytes]
) -> None:
  """Writes a TFRecord file, whole or not at all.

  The records go to a file of another name first, which takes the place of
  `path` when it is complete and on the disk. If `records` raises, nothing is
  left.

  Args:
    path: Where to write, in a folder that exists.
    records: Serialised examples; they are taken one at a time.

  Raises:
    OSError: If the disk is full.
  """
  path = pathlib.Path(path)
  partial = path.with_name(path.name + PARTIAL_SUFFIX)
  try:
    with tf.io.TFRecordWriter(os.fspath(partial)) as writer:
      for record in records:
        writer.write(record)
    with partial.open("rb+") as written:
      os.fsync(written.fileno())
    partial.replace(path)
  except tf.errors.ResourceExhaustedError as error:
    partial.unlink(missing_ok=True)
    raise OSError(
      errno.ENOSPC, os.strerror(errno.ENOSPC), os.fspath(path)
    ) from error
  except BaseException:
    partial.unlink(missing_ok=True)
    raise
