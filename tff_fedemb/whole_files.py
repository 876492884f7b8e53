"""Files that appear whole or not at all."""

from collections.abc import Iterator
import contextlib
import fcntl
import os
import pathlib

from tff_fedemb import errors

# Stands in the names of files that are not whole yet; they are hidden.
PARTIAL = ".partial"


@contextlib.contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[pathlib.Path]:
  """Yields where to write a file, which takes its place at the end.

  An existing file is replaced. What is written has a name of its own in the
  same folder, with the same suffix, so that programs that write at once replace
  each other's. It is moved when it is on the disk. If anything is raised
  within, it is removed.

  Args:
    path: The place, in a folder that exists.

  Raises:
    OSError: If the file cannot be written or moved.
  """
  path = pathlib.Path(path)
  partial = path.with_name(f".{os.getpid()}{PARTIAL}.{path.name}")
  try:
    yield partial
    with partial.open("rb+") as written:
      os.fsync(written.fileno())
    partial.replace(path)
  finally:
    partial.unlink(missing_ok=True)


@contextlib.contextmanager
def locked(path: str | os.PathLike[str]) -> Iterator[None]:
  """Keeps other programs on this machine from changing a file.

  Args:
    path: The file, which need not be there, in a folder that exists.
  """
  path = pathlib.Path(path)
  with (path.parent / f".{path.name}.lock").open("a") as lock:
    fcntl.flock(lock, fcntl.LOCK_EX)
    yield


@contextlib.contextmanager
def caching(path: str | os.PathLike[str]) -> Iterator[pathlib.Path]:
  """Yields where to write a file of a cache, as `replacing` does.

  The folder is made, and that it can be written is found out first: the work
  may take minutes.

  Raises:
    FieldError: If the file cannot be written.
  """
  folder = pathlib.Path(path).parent
  try:
    folder.mkdir(parents=True, exist_ok=True)
    with replacing(path) as partial:
      partial.touch()
      yield partial
  except OSError as error:
    found = f"{error.filename or folder}: {error.strerror or error}"
    raise errors.FieldError("cache_dir", "be writable", found) from error
