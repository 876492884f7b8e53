"""Files that programs write: whole or not at all, and not over others.

`check` finds out before the work whether the files can be written; `write`
writes them at the end, all or none.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
import contextlib
import json
import os
import pathlib
import shutil
import tempfile
from typing import Any

import numpy as np

from tff_fedemb import errors
from tff_fedemb import whole_files
from tff_fedemb.accounting import report as report_lib


def check(
  outputs: Mapping[str, str | None],
  *,
  overwrite: bool,
  inputs: Mapping[str, Sequence[str]] | None = None,
) -> None:
  """Finds out before the work whether its results can be written.

  Raised errors name the flag.

  Args:
    outputs: Paths by flag; `None` where no file is asked for.
    overwrite: Whether existing files may be replaced.
    inputs: Paths by flag that the program reads; they are never replaced.

  Raises:
    FieldError: If a file cannot be written, or if two paths lead to the same
      file, by links too.
  """
  taken: dict[str, str] = {}
  for name, paths in (inputs or {}).items():
    taken |= {os.path.realpath(source): name for source in paths}
  for name, path in outputs.items():
    if path is None:
      continue
    other = taken.setdefault(os.path.realpath(path), name)
    if other != name:
      raise errors.FieldError(name, f"be another file than {other}", path)
    _check_writable(name, path, overwrite=overwrite)


def _check_writable(name: str, path: str, *, overwrite: bool) -> None:
  """Refuses a path at which no file can be written or replaced.

  Args:
    name: Flag of the path.
    path: The path; links are followed.
    overwrite: Whether an existing file may be replaced.

  Raises:
    FieldError: If the path is a directory or a special file, exists without
      `overwrite`, or is in a directory that cannot be written.
  """
  target = pathlib.Path(os.path.realpath(path))
  try:
    if target.is_dir():
      raise errors.FieldError(name, "be a file", f"directory {path}")
    if target.exists() and not overwrite:
      raise errors.FieldError(
        name, "be a new file unless overwrite is given", path
      )
    if target.exists() and not target.is_file():
      raise errors.FieldError(name, "be a file", path)
    with tempfile.NamedTemporaryFile(dir=target.parent):
      pass
  except OSError as error:
    raise errors.FieldError(
      name, "be in a directory that can be written", f"{path}: {error.strerror}"
    ) from error


@contextlib.contextmanager
def directory(path: str | os.PathLike[str]) -> Iterator[pathlib.Path]:
  """Makes the directory of flag output_dir, and yields it to write into.

  Args:
    path: The directory; its parents are made too.

  Yields:
    The directory.

  Raises:
    FieldError: If the directory cannot be made, or if an `OSError` is raised
      within.
  """
  folder = pathlib.Path(path)
  try:
    folder.mkdir(parents=True, exist_ok=True)
    yield folder
  except OSError as error:
    raise errors.FieldError(
      "output_dir",
      "be a directory that can be written",
      f"{path}: {error.strerror}",
    ) from error


def json_writer(values: Any) -> Callable[[pathlib.Path], object]:
  """Returns a function that writes values as JSON to a path.

  Args:
    values: JSON values; infinity becomes "inf".

  Returns:
    A writer for `write`. The values are encoded at once, so an error shows
    before any file is written.

  Raises:
    TypeError: If a value has no JSON.
    ValueError: If a number is not a number (NaN).
  """
  safe = report_lib.json_safe(values)
  text = json.dumps(safe, indent=2, allow_nan=False)
  return lambda path: path.write_text(f"{text}\n", encoding="utf-8")


def write_json(path: str | None, values: Any) -> None:
  """Writes values to the file of flag output_json.

  Args:
    path: The file; `None` writes nothing.
    values: As in `json_writer`.

  Raises:
    FieldError: As `write`.
  """
  if path is not None:
    write({"output_json": (path, json_writer(values))})


def arrays_writer(**arrays: np.ndarray) -> Callable[[pathlib.Path], object]:
  """Returns a function that writes arrays as .npz, whatever the suffix is.

  Args:
    **arrays: Arrays by their names in the file.

  Returns:
    A writer for `write`.
  """

  def write_arrays(path: pathlib.Path) -> None:
    with path.open("wb") as file:
      np.savez(file, allow_pickle=True, **arrays)

  return write_arrays


def write(
  writers: Mapping[str, tuple[str, Callable[[pathlib.Path], object]]],
) -> None:
  """Writes files beside their places, and moves them there at the end.

  If a file cannot be written or moved, all places are as they were. Only a
  program that is killed between two moves leaves some files moved.

  Args:
    writers: By flag, the path and the function that writes the file. It is
      called, in order, with another path of the same suffix.

  Raises:
    FieldError: If a file cannot be written or moved; names its flag.
  """
  # The files are moved when `moves` exits; `undoing` exits after it.
  with contextlib.ExitStack() as undoing, contextlib.ExitStack() as moves:
    for name, (path, writer) in writers.items():
      partial = moves.enter_context(_replacing(name, path, undoing))
      writer(partial)


@contextlib.contextmanager
def _replacing(
  name: str,
  path: str,
  undoing: contextlib.ExitStack,
) -> Iterator[pathlib.Path]:
  """Yields where to write a file; `undoing` can put the former one back.

  Args:
    name: Flag of the file, for errors.
    path: The file; links are followed.
    undoing: Gets a context that restores the former file if it ends by an
      error.

  Yields:
    Path beside the file, with the same suffix.

  Raises:
    FieldError: In place of an `OSError`.
  """
  target = pathlib.Path(os.path.realpath(path))
  try:
    with whole_files.replacing(target) as partial:
      yield partial
      undoing.enter_context(_restoring(target))
  except OSError as error:
    raise errors.FieldError(
      name,
      "be a file that can be written",
      f"{path}: {error.strerror or error}",
    ) from error


@contextlib.contextmanager
def _restoring(target: pathlib.Path) -> Iterator[None]:
  """Puts back what was at a place if anything is raised within."""
  former = target.with_name(
    f".{os.getpid()}{whole_files.PARTIAL}.former.{target.name}"
  )
  existed = target.exists()
  if existed:
    _link_or_copy(target, former)
  try:
    yield
  except BaseException:
    if existed:
      former.replace(target)
    else:
      target.unlink(missing_ok=True)
    raise
  finally:
    former.unlink(missing_ok=True)


def _link_or_copy(path: pathlib.Path, copy: pathlib.Path) -> None:
  """Gives a file another name, or copies it where links are impossible."""
  try:
    os.link(path, copy)
  except OSError:
    shutil.copy2(path, copy)
