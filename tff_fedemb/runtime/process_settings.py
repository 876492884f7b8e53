"""What a process sets before TensorFlow computes anything in it."""

import ctypes
import os

# Number of a setting in glibc: the most arenas that threads allocate from.
_ARENA_MAX = -8


def prepare() -> None:
  """Prepares this process for rounds; what the environment says is kept.

  Sessions get threads of their own, also beside computations outside of them,
  and all threads allocate memory from one arena. By default glibc has eight for
  each core and keeps what was freed in each of them, for itself: up to a
  gigabyte in rounds of ResNet-50.
  """
  os.environ.setdefault("TF_OVERRIDE_GLOBAL_THREADPOOL", "1")
  library = ctypes.CDLL(None)
  # Other C libraries have no arenas.
  if "MALLOC_ARENA_MAX" not in os.environ and hasattr(library, "mallopt"):
    library.mallopt(_ARENA_MAX, 1)
