"""Files that appear whole or not at all."""

from collections.abc import Iterator
import contextlib
import fcntl
import os
import pathlib

from tff_fedemb import errors

# Part of the names of files that are not whole yet, which are hidden.
PARTIAL = ".partial"


@contextlib.contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[pathlib.Path]:
  """Yields where to write a file, which takes its place at the end.

  An existing file is replaced. The file that you write has a name of its own in
  the same folder, with the same suffix. If several programs write at once, the
  last one therefore wins. The file is moved once it is on the disk, and removed
  if anything is raised within.

  Args:
    path: The place, in a folder that exists.

  Yields:
    The path to write to.

  Raises:
    OSError: If the file cannot be written or moved.

  Examples:
    >>> with whole_files.replacing("report.json") as partial:
    ...   partial.write_text("{}")
    2
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

  It waits until no other program holds the lock. Only programs that use this
  function are kept out; a hidden lock file stays beside the file.

  Args:
    path: The file, which need not be there, in a folder that exists.

  Yields:
    Nothing; the lock is held until the block ends.

  Raises:
    OSError: If the lock file cannot be opened.
  """
  path = pathlib.Path(path)
  with (path.parent / f".{path.name}.lock").open("a") as lock:
    fcntl.flock(lock, fcntl.LOCK_EX)
    yield


@contextlib.contextmanager
def caching(path: str | os.PathLike[str]) -> Iterator[pathlib.Path]:
  """Yields where to write a file of a cache, as `replacing` does.

  It first makes the folder and checks that it can be written: the work may take
  minutes.

  Args:
    path: The place; its folder need not exist.

  Yields:
    The path to write to.

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
