"""Files that programs write: whole or not at all, and not over others."""

import pathlib
import tempfile

from binaries import command_line


def check_writable(name: str, path: str | None, *, overwrite: bool) -> None:
  """Finds out before the work whether its result can be written.

  Args:
    name: The flag that the path is from.
    path: File to write, or `None` for none.
    overwrite: Whether it may be replaced.

  Raises:
    UsageError: If it is a directory, or a file that may not be replaced, or in
      a directory that cannot be written.
  """
  if path is None:
    return
  target = pathlib.Path(path)
  try:
    if target.is_dir():
      raise command_line.UsageError(
          f"--{name} must be a file, found directory {path}."
      )
    if target.exists() and not overwrite:
      raise command_line.UsageError(
          f"--{name} must be a new file unless --overwrite is given, found"
          f" {path}."
      )
    with tempfile.NamedTemporaryFile(dir=target.parent):
      pass
  except OSError as error:
    raise command_line.UsageError(
        f"--{name} must be in a directory that can be written, found {path}:"
        f" {error.strerror}."
    ) from error
