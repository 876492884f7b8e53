"""Files and folders that appear whole or not at all."""

from collections.abc import Iterator
import contextlib
import os
import pathlib
import shutil

# Of the hidden file or folder that is not complete yet.
PARTIAL_SUFFIX = ".partial"


def _remove(path: pathlib.Path) -> None:
  if path.is_dir():
    shutil.rmtree(path)
  else:
    path.unlink(missing_ok=True)


@contextlib.contextmanager
def write_whole(path: pathlib.Path) -> Iterator[pathlib.Path]:
  """Has a file or a folder written beside its place, which it takes at the end.

  It is on the disk by then. If the block raises, nothing is left. What a
  program that was killed has left is removed.

  Args:
    path: Where it belongs; an existing file is replaced, a folder is not.

  Yields:
    Where to write it. There is nothing yet.
  """
  partial = path.with_name(f".{path.name}{PARTIAL_SUFFIX}")
  _remove(partial)
  try:
    yield partial
    if partial.is_dir():
      os.sync()
    else:
      with partial.open("rb+") as written:
        os.fsync(written.fileno())
    partial.replace(path)
  except BaseException:
    _remove(partial)
    raise
