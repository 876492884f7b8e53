"""Whether TensorFlow can use a GPU, and why not.

TensorFlow itself says so in its log alone, and there in many lines.
"""

import ctypes
import importlib.util
import os
import pathlib

import tensorflow as tf

# TensorFlow 2.14 loads these libraries of CUDA 11.8 and cuDNN 8 for a GPU.
_LIBRARIES = (
  *("libcudart.so.11.0", "libcublas.so.11", "libcublasLt.so.11"),
  *("libcufft.so.10", "libcusolver.so.11", "libcusparse.so.11"),
  "libcudnn.so.8",
)
_DRIVER = "libcuda.so.1"
_VISIBLE = "CUDA_VISIBLE_DEVICES"


def explain_missing_gpu() -> str | None:
  """Returns why TensorFlow sees no GPU, in a phrase; None if it sees one."""
  if tf.config.list_physical_devices("GPU"):
    return None
  if not tf.test.is_built_with_cuda():
    return "a TensorFlow that was built without CUDA"
  visible = os.environ.get(_VISIBLE)
  if visible is not None and visible.strip() in ("", "-1"):
    return f"{_VISIBLE}={visible!r}, which hides all GPUs"
  return (
    _explain_driver()
    or _explain_libraries()
    or "a driver with GPUs, and CUDA, of which TensorFlow uses none; with"
    " TF_CPP_MIN_LOG_LEVEL=0 in the environment it tells why"
  )


def _load(name: str) -> ctypes.CDLL | None:
  try:
    return ctypes.CDLL(name)
  except OSError:
    return None


def _explain_driver() -> str | None:
  """Returns what the driver reports as wrong, or None."""
  driver = _load(_DRIVER)
  if driver is None:
    return f"no NVIDIA driver ({_DRIVER} cannot be loaded)"
  code = driver.cuInit(0)
  if code:
    return f"an NVIDIA driver that does not start (CUDA error {code})"
  number = ctypes.c_int(0)
  driver.cuDeviceGetCount(ctypes.byref(number))
  return None if number.value else "an NVIDIA driver without any GPU"


def _explain_libraries() -> str | None:
  """Which libraries are neither installed as wheels nor on the system."""
  found = set()
  # TensorFlow also looks into the packages nvidia.*.
  spec = importlib.util.find_spec("nvidia")
  for folder in (spec and spec.submodule_search_locations) or ():
    found |= {path.name for path in pathlib.Path(folder).glob("*/lib/*")}
  missing = [name for name in _LIBRARIES if name not in found]
  missing = [name for name in missing if _load(name) is None]
  if not missing:
    return None
  return f"no {', '.join(missing)}; `make setup GPU=1` installs them"
