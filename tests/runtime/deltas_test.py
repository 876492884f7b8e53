"""Tests of what a server checks of a delta."""

import numpy as np
import pytest

from tff_fedemb.data import tensor_files
from tff_fedemb.runtime import deltas

_SHAPES = {"kernel": (2, 2), "bias": (2,)}
_WORDS = {deltas.SPEC: "abc", deltas.ROUND: "4"}


def _open(devices=("one", "two")):
  return deltas.Inbox(
    _SHAPES, clip_norm=1.0, spec_digest="abc", round_num=4, devices=devices
  )


def _pack(kernel=((0.5, 0.0), (0.0, 0.0)), bias=(0.5, -0.5), words=(), **more):
  tensors = {"kernel": kernel, "bias": bias, **more}
  return tensor_files.pack(
    {
      name: np.asarray(x, getattr(x, "dtype", np.float32))
      for name, x in tensors.items()
    },
    {**_WORDS, **dict(words)},
  )


def test_takes_a_delta_as_it_is():
  inbox = _open()
  kernel, bias = inbox.receive("one", _pack())
  assert kernel.tolist() == [[0.5, 0], [0, 0]]
  assert bias.tolist() == [0.5, -0.5]
  assert inbox.counts == {"accepted": 1}


def test_clips_one_that_is_too_long():
  inbox = _open()
  kernel, bias = inbox.receive("one", _pack(bias=(3e38, -3e38)))
  assert kernel.ravel()[0] == pytest.approx(0.5 / (3e38 * 2**0.5))
  np.testing.assert_allclose(bias, np.float32([0.5**0.5, -(0.5**0.5)]))
  # As much longer as rounding may make it.
  _, (largest, _) = inbox.receive(
    "two", _pack(np.zeros([2, 2], "f4"), (1 + 9e-6, 0))
  )
  assert largest > 1
  assert inbox.counts == {"accepted": 2, deltas.TOO_LONG: 1}


@pytest.mark.parametrize(
  ("message", "reason"),
  [
    (b"nothing of the kind", "no header"),
    (_pack()[:-1], "a damaged header"),
    (_pack() + bytes(2**17), "too many bytes"),
    (_pack(words={deltas.ROUND: "3"}), "another round"),
    (_pack(words={deltas.SPEC: "abd"}), "another run"),
    (_pack(more=np.zeros(1, "f4")), "other tensors"),
    (_pack(bias=np.zeros(2, "i4")), "another type"),
    (_pack(bias=np.zeros([2, 1], "f4")), "another shape"),
    (_pack(bias=(np.nan, 0)), "not finite"),
  ],
)
def test_refuses_with_the_reason(message, reason):
  inbox = _open()
  with pytest.raises(ValueError, match=f"^{reason}$"):
    inbox.receive("one", message)
  assert inbox.counts == {reason: 1}
  # A device may try again.
  inbox.receive("one", _pack())


def test_takes_one_of_each_device_that_was_asked():
  inbox = _open()
  inbox.receive("one", _pack())
  with pytest.raises(ValueError, match="has sent already"):
    inbox.receive("one", _pack())
  with pytest.raises(ValueError, match="was not asked"):
    inbox.receive("three", _pack())
  inbox.receive("two", _pack())
  assert inbox.counts["accepted"] == 2
