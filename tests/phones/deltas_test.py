"""Tests of what a server checks of a delta, and how it is passed on.

`litert_test` has bad deltas of every kind.
"""

import tracemalloc

import numpy as np
import pytest

from tff_fedemb.algorithms import learning_process
from tff_fedemb.phones import deltas
from tff_fedemb.phones import simulated_phones
from tff_fedemb.phones import tensor_files


def _open():
  return deltas.Inbox(
    {"kernel": (2, 2), "bias": (2,)},
    clip_norm=1.0,
    spec_digest="abc",
    round_num=4,
    devices=("one", "two"),
  )


def _pack(kernel=((0.5, 0.0), (0.0, 0.0)), bias=(0.5, -0.5)):
  return tensor_files.pack(
    {"kernel": np.float32(kernel), "bias": np.float32(bias)},
    {deltas.SPEC: "abc", deltas.ROUND: "4"},
  )


def test_clips_one_that_is_too_long_and_leaves_others():
  inbox = _open()
  kernel, bias = inbox.receive("one", _pack(bias=(3e38, -3e38)))
  assert kernel.ravel()[0] == pytest.approx(0.5 / (3e38 * 2**0.5))
  np.testing.assert_allclose(bias, np.float32([0.5**0.5, -(0.5**0.5)]))
  # As much longer as rounding may make it.
  _, (largest, _) = inbox.receive("two", _pack(np.zeros([2, 2]), (1 + 9e-6, 0)))
  assert largest > 1
  assert inbox.counts == {"accepted": 2, deltas.TOO_LONG: 1}


def test_takes_one_of_each_device_that_was_asked():
  inbox = _open()
  kernel, bias = inbox.receive("one", _pack())
  assert kernel.tolist() == [[0.5, 0], [0, 0]]
  assert bias.tolist() == [0.5, -0.5]
  for device, message, reason in (
    ("one", _pack(), "a device that has sent already"),
    ("three", _pack(), "a device that was not asked"),
    ("two", b"", "no header"),
  ):
    with pytest.raises(ValueError, match=reason):
      inbox.receive(device, message)
    assert inbox.counts[reason] == 1
  # It may try again.
  inbox.receive("two", _pack())
  assert inbox.counts["accepted"] == 2


def test_an_update_is_copied_once_to_be_encoded():
  delta = np.ones([1000, 1000], np.float32)
  update = learning_process.ClientUpdate(
    (delta,), num_examples=3, num_classes=2, loss_sum=0.5, num_correct=1
  )
  tracemalloc.start()
  try:
    content = simulated_phones.encode_update(update)
    _, peak = tracemalloc.get_traced_memory()
  finally:
    tracemalloc.stop()
  assert np.frombuffer(content, "<f4")[:6].tolist() == [3, 2, 0.5, 1, 0, 1]
  assert peak < 1.1 * delta.nbytes
