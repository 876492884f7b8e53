"""Errors of files that somebody else wrote, in the same words everywhere."""

import lzma
import os
import pathlib
import zipfile
import zlib

from tff_fedemb import errors

# The standard library raises these for a damaged archive; RuntimeError if it is
# encrypted or (NotImplementedError) packed in an unknown way.
ARCHIVE_ERRORS = (
  EOFError,
  RuntimeError,
  UnicodeDecodeError,
  lzma.LZMAError,
  zipfile.BadZipFile,
  zlib.error,
)

MISSING = "missing"


def create_error(
  path: str | os.PathLike[str], error: OSError, kind: str = "file"
) -> errors.DataError:
  """The error of a path, unless the disk knows better which path it was of."""
  return errors.DataError(
    f"{error.filename or path} must be a {kind} that can be read, found:"
    f" {error.strerror}."
  )


def open_zip(path: pathlib.Path) -> zipfile.ZipFile:
  """Opens a zip archive.

  Raises:
    DataError: If it cannot be read, or is none.
  """
  try:
    return zipfile.ZipFile(path)
  except OSError as error:
    raise create_error(path, error) from error
  except ARCHIVE_ERRORS as error:
    raise errors.DataError(
      f"{path} must be a whole zip archive, found: {error}. Fetch it again."
    ) from error


def describe_fault(error: OSError) -> str:
  """The fault of a photo that cannot be read; `MISSING` if it is gone."""
  if isinstance(error, FileNotFoundError | NotADirectoryError):
    return MISSING
  return f"cannot be read: {error.strerror}"


def read_bytes(path: bytes) -> bytes:
  """Reads a file.

  Raises:
    DataError: If it cannot be read.
  """
  try:
    return pathlib.Path(os.fsdecode(path)).read_bytes()
  except OSError as error:
    raise create_error(os.fsdecode(path), error) from error
