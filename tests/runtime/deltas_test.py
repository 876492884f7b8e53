"""Tests of what a server checks of a delta.

Bad deltas of every kind are in `tflite_test`.
"""

import numpy as np
import pytest

from tff_fedemb.data import tensor_files
from tff_fedemb.runtime import deltas


def test_takes_one_of_each_device_that_was_asked():
  delta = {
    "kernel": np.float32([[0.5, 0.0], [0.0, 0.0]]),
    "bias": np.float32([0.5, -0.5]),
  }
  message = tensor_files.pack(delta, {deltas.SPEC: "abc", deltas.ROUND: "4"})
  inbox = deltas.Inbox(
    {name: tensor.shape for name, tensor in delta.items()},
    clip_norm=1.0,
    spec_digest="abc",
    round_num=4,
    devices=("one", "two"),
  )
  for found, sent in zip(
    inbox.receive("one", message), delta.values(), strict=True
  ):
    np.testing.assert_array_equal(found, sent)
  for device, content, reason in (
    ("one", message, "a device that has sent already"),
    ("three", message, "a device that was not asked"),
    ("two", b"", "no header"),
  ):
    with pytest.raises(ValueError, match=reason):
      inbox.receive(device, content)
  # It may try again.
  inbox.receive("two", message)
