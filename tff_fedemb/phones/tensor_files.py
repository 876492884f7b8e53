"""Tensors in a file, for programs without TensorFlow and for phones.

The layout is that of safetensors: eight bytes with the length of a JSON header,
the header, and the numbers one after the other. Nothing in it is executed, so
that files from untrusted sources can be read.
"""

from collections.abc import Mapping
import json
from typing import Any

import numpy as np

_METADATA = "__metadata__"
_LENGTH_BYTES = 8
_MAX_HEADER_BYTES = 1 << 20
# Types that are written; others are refused.
_TYPES: dict[str, np.dtype] = {
  "F32": np.dtype("<f4"),
  "I32": np.dtype("<i4"),
  "I64": np.dtype("<i8"),
  "U8": np.dtype("u1"),
}
_NAMES = {dtype: name for name, dtype in _TYPES.items()}
_OF_DAMAGE = (
  ArithmeticError,
  AttributeError,
  LookupError,
  RecursionError,
  TypeError,
  ValueError,
)


def pack(
  tensors: Mapping[str, np.ndarray],
  metadata: Mapping[str, str],
) -> bytes:
  """Returns the contents of a file.

  Args:
    tensors: float32, int32, int64 or uint8, by name.
    metadata: Texts to store beside the tensors.
  """
  header: dict[str, Any] = {_METADATA: dict(metadata)}
  chunks = []
  end = 0
  for name, tensor in tensors.items():
    array = np.asarray(tensor, order="C")
    begin = end
    end = end + array.nbytes
    header[name] = {
      "dtype": _NAMES[array.dtype.newbyteorder("<")],
      "shape": list(array.shape),
      "data_offsets": [begin, end],
    }
    chunks.append(array.astype(array.dtype.newbyteorder("<")).tobytes())
  text = json.dumps(header).encode()
  length = len(text).to_bytes(_LENGTH_BYTES, "little")
  return b"".join([length, text] + chunks)


def unpack(content: bytes) -> tuple[dict[str, np.ndarray], dict[str, str]]:
  """Inverse of `pack`; the content need not be trusted.

  Returns:
    The tensors, and the texts.

  Raises:
    ValueError: If it is no such file; the message quotes nothing of it.
  """
  start = _LENGTH_BYTES + int.from_bytes(content[:_LENGTH_BYTES], "little")
  if not _LENGTH_BYTES < start <= min(len(content), _MAX_HEADER_BYTES):
    raise ValueError("no header")
  try:
    header = json.loads(content[_LENGTH_BYTES:start])
    metadata = header.pop(_METADATA, {})
    if not all(isinstance(value, str) for value in metadata.values()):
      raise ValueError
    tensors = {
      name: _read(content, start, entry) for name, entry in header.items()
    }
    return tensors, metadata
  except _OF_DAMAGE as error:
    raise ValueError("a damaged header") from error


def _read(content: bytes, start: int, entry: Any) -> np.ndarray:
  dtype = _TYPES[entry["dtype"]]
  begin, end = entry["data_offsets"]
  shape = tuple(entry["shape"])
  count = 1
  for size in shape:
    # Python's integers do not overflow. True is an integer too.
    if type(size) is not int or size < 0:
      raise ValueError
    count *= size
  if not 0 <= begin <= end <= len(content) - start or (
    end - begin != count * dtype.itemsize
  ):
    raise ValueError
  return np.frombuffer(
    content, dtype, count=count, offset=start + begin
  ).reshape(shape)
