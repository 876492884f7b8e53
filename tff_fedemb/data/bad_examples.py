"""Input that cannot be used: named in one message, or left out and counted.

This library calls such input a bad example: a photo that cannot be decoded, a
record without a class, a row of a table without a user.
"""

from collections.abc import Iterable, Sequence
import lzma
import os
import pathlib
import zipfile
import zlib

from tff_fedemb import checks
from tff_fedemb import errors

POLICIES = ("fail", "skip")

# The standard library raises these for a damaged archive: RuntimeError if it is
# encrypted, NotImplementedError if its compression is unknown.
ARCHIVE_ERRORS = (
  EOFError,
  RuntimeError,
  UnicodeDecodeError,
  lzma.LZMAError,
  zipfile.BadZipFile,
  zlib.error,
)

# The fault of a file that no longer exists.
MISSING = "missing"
# How the fault of a file begins that the system refuses to read.
CANNOT_BE_READ = "cannot be read"

_NUM_NAMED = 5


class BadExamples:
  """Collects the faults of a data set while it is read.

  A reader adds each fault that it meets and calls `check` at the end, so that
  you see all faults at once.

  Examples:
    >>> bad = bad_examples.BadExamples("skip")
    >>> bad.add("ann/1.jpg", "empty")
    >>> bad.lines
    ('ann/1.jpg: empty',)
  """

  def __init__(self, policy: str = "fail"):
    """Initialises the collection.

    Args:
      policy: One of `POLICIES`. With "fail", `check` raises if anything was
        noted; with "skip" it does not.

    Raises:
      errors.FieldError: If the policy is unknown.
    """
    checks.check_choice("on_bad_example", policy, POLICIES)
    self._policy = policy
    self._lines: list[str] = []

  def __len__(self) -> int:
    """Number of notes."""
    return len(self._lines)

  @property
  def skips(self) -> bool:
    """Whether the policy is "skip": bad examples are left out, not refused."""
    return self._policy == "skip"

  @property
  def lines(self) -> tuple[str, ...]:
    """The notes in the order of `add`, one line each: "where: what"."""
    return tuple(self._lines)

  def add(self, where: str, what: str) -> None:
    """Notes a fault; `check` reports all of them at once.

    Args:
      where: The file, or the user or record in it.
      what: The fault, in a few words.
    """
    self._lines.append(f"{where}: {what}")

  def check(self) -> None:
    """Refuses the data if anything was noted and the policy is "fail".

    Raises:
      DataError: It names the first bad examples and counts the others.
    """
    if self._lines and not self.skips:
      raise errors.DataError(
        f"data must be readable, found {summarize(self._lines)}."
        " on_bad_example=skip leaves out what is bad."
      )


def summarize(lines: Sequence[str]) -> str:
  """Counts bad examples and names the first five.

  Args:
    lines: A line for each, at least one.

  Returns:
    For example "1 bad example: a: empty".
  """
  number = len(lines)
  plural = "s" if number > 1 else ""
  named = "; ".join(lines[:_NUM_NAMED])
  summary = f"{number} bad example{plural}: {named}"
  if number > _NUM_NAMED:
    summary += f"; and {number - _NUM_NAMED} more"
  return summary


def name_first(names: Iterable[object]) -> str:
  """Lists the first five names, and dots if there are others.

  Args:
    names: Names of anything; none gives an empty text.

  Returns:
    The names, with commas between.
  """
  words = list(map(str, names))
  if len(words) > _NUM_NAMED:
    words[_NUM_NAMED:] = ["..."]
  return ", ".join(words)


def warn_of(text: str, names: Iterable[object]) -> tuple[str, ...]:
  """Words a warning.

  Args:
    text: What is odd, without a full stop.
    names: The users, classes or files that it is true of.

  Returns:
    One warning with the first five names; none if there are no names.
  """
  named = name_first(names)
  return (f"{text}: {named}.",) if named else ()


def create_error(
  path: str | os.PathLike[str],
  error: OSError,
  kind: str = "file",
) -> errors.DataError:
  """Creates the error of a path that cannot be read.

  Args:
    path: The path, if the system's error names none.
    error: The system's error.
    kind: "file" or "folder".

  Returns:
    The error, for its caller to raise.
  """
  return errors.DataError(
    f"{error.filename or path} must be a {kind} that can be read, found:"
    f" {error.strerror}."
  )


def open_zip(path: pathlib.Path) -> zipfile.ZipFile:
  """Opens a zip archive.

  Args:
    path: The archive.

  Returns:
    The archive, for its caller to close.

  Raises:
    DataError: If it cannot be read, or is not a zip archive.
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
  """Describes why a photo cannot be read.

  Args:
    error: The system's error.

  Returns:
    The fault in a few words; `MISSING` if the photo is gone.
  """
  if isinstance(error, FileNotFoundError | NotADirectoryError):
    return MISSING
  return f"{CANNOT_BE_READ}: {error.strerror}"


def read_bytes(path: bytes) -> bytes:
  """Reads a file.

  Args:
    path: The path as the disk has it, which need not be text.

  Returns:
    All bytes of the file.

  Raises:
    DataError: If it cannot be read.
  """
  try:
    return pathlib.Path(os.fsdecode(path)).read_bytes()
  except OSError as error:
    raise create_error(os.fsdecode(path), error) from error
