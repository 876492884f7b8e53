"""Tests of the files of photos; TFF's own functions are the reference."""

import errno
import os

import pytest
import tensorflow as tf
from tensorflow_federated.python.simulation.datasets import (
  vision_datasets_utils,
)

from tff_fedemb.data import tfrecord_files


@pytest.mark.parametrize(
  ("content", "label"), [(b"", 2**62), (b"\xff\xd8 image", 0)]
)
def test_record_is_that_of_tff(content, label):
  record = tfrecord_files.serialize_image(content, label)
  reference = vision_datasets_utils.create_example(content, label)
  assert tf.train.Example.FromString(record) == reference
  assert record == tfrecord_files.serialize_image(content, label)


def test_overhead_is_enough(tmp_path):
  content = bytes(10**6)
  record = tfrecord_files.serialize_image(content, 2**62)
  path = tmp_path / "file"
  tfrecord_files.write_records(path, [record] * 3)
  overhead = path.stat().st_size / 3 - len(content)
  assert 0 < overhead <= tfrecord_files.RECORD_OVERHEAD


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="Linux only")
def test_full_disk_is_an_os_error(tmp_path):
  (tmp_path / f".{os.getpid()}.partial.file").symlink_to("/dev/full")
  with pytest.raises(OSError, match="file") as caught:
    tfrecord_files.write_records(tmp_path / "file", [bytes(10**6)])
  assert caught.value.errno == errno.ENOSPC
