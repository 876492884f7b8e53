"""Tests of files of tensors."""

import json

import numpy as np
import pytest

from tff_fedemb.phones import tensor_files


def _write(header, data=b"", *, length=None):
  text = header if isinstance(header, bytes) else json.dumps(header).encode()
  length = len(text) if length is None else length
  return length.to_bytes(8, "little") + text + data


def _entry(shape=(1,), offsets=(0, 4), dtype="F32"):
  return {"t": {"dtype": dtype, "shape": shape, "data_offsets": offsets}}


def test_reads_what_others_write():
  """As the format's own description has it, with spaces."""
  content = _write(
    b'{"__metadata__": {"a": "b"}, "t": {"dtype": "F32", "shape": [1, 2],'
    b' "data_offsets": [0, 8]}}  ',
    np.array([1.5, -2.0], "<f4").tobytes(),
  )
  tensors, words = tensor_files.unpack(content)
  assert tensors["t"].tolist() == [[1.5, -2.0]]
  assert words == {"a": "b"}


def test_comes_back_as_it_was():
  tensors = {
    "scalar": np.float32(0.5),
    "empty": np.zeros([0, 3], np.int32),
    "turned": np.arange(6, dtype=np.int64).reshape(2, 3).T,
    "bytes": np.array([1, 255], np.uint8),
  }
  found, words = tensor_files.unpack(tensor_files.pack(tensors, {"round": "3"}))
  assert words == {"round": "3"}
  assert list(found) == list(tensors)
  for name, tensor in tensors.items():
    assert found[name].dtype == tensor.dtype
    np.testing.assert_array_equal(found[name], tensor)


@pytest.mark.parametrize(
  "content",
  [
    b"",
    b"short",
    _write({}, length=2**63),
    _write(b"[1]"),
    _write(b"\xff\xfe"),
    _write({"__metadata__": {"a": 1}}),
    _write({"t": 5}),
    _write(_entry(), b"123"),
    _write(_entry(dtype="F64"), bytes(8)),
    _write(_entry(shape=[2]), bytes(8)),
    _write(_entry(shape=[-1, -1]), bytes(8)),
    _write(_entry(shape=[True]), bytes(8)),
    _write(_entry(shape=[0, 10**30], offsets=[0, 0]), bytes(8)),
    _write(_entry(offsets=[4, 8]), bytes(4)),
    _write(_entry(offsets=[-4, 0]), bytes(4)),
    _write(_entry(offsets=[0]), bytes(4)),
  ],
)
def test_refuses_what_is_damaged(content):
  with pytest.raises(ValueError, match=r"header$"):
    tensor_files.unpack(content)
