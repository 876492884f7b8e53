"""Files that programs write: whole or not at all, and not over others."""

from collections.abc import Callable, Iterator, Mapping, Sequence
import contextlib
import json
import os
import pathlib
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

  Args:
    outputs: Paths by flag; `None` where none was given.
    overwrite: Whether files may be replaced.
    inputs: Files by flag that are read, and never replaced.

  Raises:
    FieldError: If one of them cannot be written, or would be written twice,
      whatever links lead to it.
  """
  taken = {}
  for name, paths in (inputs or {}).items():
    for path in paths:
      taken[os.path.realpath(path)] = name
  for name, path in outputs.items():
    if path is None:
      continue
    other = taken.setdefault(os.path.realpath(path), name)
    if other != name:
      raise errors.FieldError(name, f"be another file than {other}", path)
    _check_writable(name, path, overwrite=overwrite)


def _check_writable(name: str, path: str, *, overwrite: bool) -> None:
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

  Raises:
    FieldError: If it cannot be made, or not be written within.
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
  """Returns what writes values as JSON to a path, infinity as "inf"."""
  text = json.dumps(report_lib.json_safe(values), indent=2, allow_nan=False)
  return lambda path: path.write_text(f"{text}\n", encoding="utf-8")


def write_json(path: str | None, values: Any) -> None:
  """Writes values to the file of `output_json`, if there is to be one."""
  if path is not None:
    write({"output_json": (path, json_writer(values))})


def arrays_writer(**arrays: np.ndarray) -> Callable[[pathlib.Path], object]:
  """Returns what writes arrays by name, as .npz whatever the suffix is."""

  def write_arrays(path: pathlib.Path) -> None:
    with path.open("wb") as file:
      np.savez(file, allow_pickle=True, **arrays)

  return write_arrays


def write(
  writers: Mapping[str, tuple[str, Callable[[pathlib.Path], object]]],
) -> None:
  """Writes files beside their places, and then moves them there.

  By flag, these are path and what writes the file at another path of the same
  suffix; they are called in their order.

  Raises:
    FieldError: If a file cannot be written; none is then.
  """
  name = ""
  path = ""
  try:
    with contextlib.ExitStack() as stack:
      for name in writers:
        path, writer = writers[name]
        target = whole_files.replacing(os.path.realpath(path))
        writer(stack.enter_context(target))
  except OSError as error:
    raise errors.FieldError(
      name,
      "be a file that can be written",
      f"{path}: {error.strerror or error}",
    ) from error
