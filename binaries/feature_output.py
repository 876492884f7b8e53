"""What fits on features write: all files whole, or none."""

from collections.abc import Callable
from collections.abc import Mapping
from collections.abc import Sequence
import json
import os
import pathlib
from typing import Any

import numpy as np

from binaries import command_line
from binaries import output_files


def check(
    outputs: Mapping[str, str | None],
    *,
    inputs: Mapping[str, Sequence[str]],
    overwrite: bool,
) -> None:
  """Finds out before the work whether its results can be written.

  Args:
    outputs: Paths by flag; `None` where none was given.
    inputs: Files by flag that are read, and never replaced.
    overwrite: Whether other files may be replaced.

  Raises:
    UsageError: If one of them cannot be written.
  """
  taken = {
      os.path.realpath(path): name
      for name, paths in inputs.items()
      for path in paths
  }
  for name, path in outputs.items():
    if path is None:
      continue
    target = pathlib.Path(os.path.realpath(path))
    other = taken.setdefault(os.fspath(target), name)
    if other != name:
      raise command_line.UsageError(
          f"--{name} must be another file than --{other}, found {path}."
      )
    output_files.check_writable(name, path, overwrite=overwrite)
    if target.exists() and not target.is_file():
      raise command_line.UsageError(f"--{name} must be a file, found {path}.")


def write(
    writers: Mapping[str, tuple[str, Callable[[pathlib.Path], object]]],
) -> None:
  """Writes files beside their places, and then moves them there.

  Args:
    writers: By flag: path, and what writes the file at another path.

  Raises:
    UsageError: If a file cannot be written; none is then.
  """
  temporaries = {}
  name, path = "", ""
  try:
    for name, (path, writer) in writers.items():
      target = pathlib.Path(os.path.realpath(path))
      temporaries[name] = target.with_name(
          f".{target.name}.{os.getpid()}.partial"
      )
      writer(temporaries[name])
    for name, (path, _) in writers.items():
      os.replace(temporaries[name], os.path.realpath(path))
  except OSError as error:
    raise command_line.UsageError(
        f"--{name} must be a file that can be written, found {path}:"
        f" {error.strerror}."
    ) from error
  finally:
    for temporary in temporaries.values():
      temporary.unlink(missing_ok=True)


def write_json(path: pathlib.Path, *, values: Mapping[str, Any]) -> None:
  """Writes JSON values, none of them infinite."""
  path.write_text(
      json.dumps(values, indent=2, allow_nan=False) + "\n", encoding="utf-8"
  )


def write_arrays(path: pathlib.Path, **arrays: np.ndarray) -> None:
  """Writes arrays by name as .npz, whatever the path's suffix is."""
  with path.open("wb") as file:
    np.savez(file, **arrays)
