"""Tensors in a file, for programs without TensorFlow and for phones.

The layout is that of safetensors: eight bytes with the length of a JSON header,
the header, and the numbers one after the other. Nothing in a file is executed,
so that you can read files from untrusted sources.
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
# Errors that a damaged header raises in the code below.
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
    metadata: Texts to store beside the tensors, by name.

  Returns:
    Header and numbers, the latter little-endian and without padding.

  Raises:
    KeyError: If a tensor has another type.
  """
  header: dict[str, Any] = {_METADATA: dict(metadata)}
  chunks = []
  end = 0
  for name, tensor in tensors.items():
    array = np.asarray(tensor, order="C")
    dtype = array.dtype.newbyteorder("<")
    begin = end
    end += array.nbytes
    header[name] = {
      "dtype": _NAMES[dtype],
      "shape": list(array.shape),
      "data_offsets": [begin, end],
    }
    chunks.append(array.astype(dtype, copy=False).tobytes())
  text = json.dumps(header).encode()
  length = len(text).to_bytes(_LENGTH_BYTES, "little")
  return b"".join([length, text] + chunks)


def unpack(content: bytes) -> tuple[dict[str, np.ndarray], dict[str, str]]:
  """Reads the contents of a file, the inverse of `pack`.

  Args:
    content: The contents, from anyone.

  Returns:
    The tensors by name, which share the memory of the content, and the texts.

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
    tensors = {}
    for name, entry in header.items():
      tensors[name] = _read(content, start, entry)
    return tensors, metadata
  except _OF_DAMAGE as error:
    raise ValueError("a damaged header") from error


def _read(content: bytes, start: int, entry: Any) -> np.ndarray:
  """Reads a tensor by its entry in the header; raises one of `_OF_DAMAGE`.

  Args:
    content: Contents of the file.
    start: Place of the first number.
    entry: `dtype`, `shape` and `data_offsets`, from anyone.

  Returns:
    An array that shares the memory of the content.

  Raises:
    ValueError: If shape, type and offsets contradict each other or the file.
  """
  dtype = _TYPES[entry["dtype"]]
  begin, end = entry["data_offsets"]
  shape = tuple(entry["shape"])
  count = 1
  for size in shape:
    # Python's integers do not overflow. A truth value is an `int` too, so
    # compare the type.
    if type(size) is not int or size < 0:
      raise ValueError
    count *= size
  is_inside = 0 <= begin <= end <= len(content) - start
  if not is_inside or end - begin != count * dtype.itemsize:
    raise ValueError
  flat = np.frombuffer(content, dtype, count=count, offset=start + begin)
  return flat.reshape(shape)
