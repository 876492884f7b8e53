"""Errors that you can fix: a value out of range, a file that cannot be used.

A program prints each of these in one line. Any other exception is a bug, and
keeps its stack trace.
"""

from collections.abc import Iterator
import contextlib
import errno

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class FieldError(ValueError):
  """A field, argument or flag has a value that it may not have.

  Attributes:
    name: The field's, as it is called in the library, for example `clip_norm`.
    requirement: Requirement that it fails, for example "be positive".
    found: Value that was found; quote it if it is a text.
    advice: Sentences that say what to do; may be empty.

  Examples:
    >>> try:
    ...   fe.Gaussian(clip_norm=-1.0)
    ... except fe.FieldError as error:
    ...   print(error)
    clip_norm must be positive, found -1.0.
  """

  def __init__(
    self, name: str, requirement: str, found: object, advice: str = ""
  ):
    """Creates the error, whose text is "NAME must REQUIREMENT, found FOUND.".

    Args:
      name: The field's, argument's or flag's.
      requirement: Words that follow "must", for example "be positive".
      found: The value; pass `repr(value)` of a text.
      advice: Sentences to end with; may be empty.
    """
    super().__init__(name, requirement, found, advice)
    self.name = name
    self.requirement = requirement
    self.found = found
    self.advice = advice

  def renamed(self, name: str) -> "FieldError":
    """Returns the same error of another name, for example that of a flag.

    Args:
      name: The other name.
    """
    return FieldError(name, self.requirement, self.found, self.advice)

  def __str__(self) -> str:
    """The error in one line, as a program prints it."""
    message = f"{self.name} must {self.requirement}, found {self.found}."
    return f"{message} {self.advice}".rstrip()


@contextlib.contextmanager
def as_field_error(
  name: str, requirement: str, where: object
) -> Iterator[None]:
  """Turns any exception of a library into an error of a field.

  The found value of the error is `where`, and the first line of the exception.

  Args:
    name: The field's, as in `FieldError`.
    requirement: Requirement that the value fails, as there.
    where: The file or value that the library was given.

  Yields:
    Nothing: use it in a `with` block around the call of the library.

  Raises:
    FieldError: In place of any exception other than `FieldError` and
      `DataError`, which pass.
  """
  try:
    yield
  except (FieldError, DataError):
    raise
  except Exception as error:
    found = f"{where}: {first_line(error)}"
    raise FieldError(name, requirement, found) from error


class DataError(ValueError):
  """A file or a directory cannot be used; says which, why and what to do.

  Examples:
    >>> try:
    ...   fe.train(spec, run_dir="runs/first")
    ... except fe.DataError as error:
    ...   print(error)
  """


class StorageError(DataError):
  """A file cannot be written: the disk is full, or the file too large."""

  @classmethod
  def of(cls, error: OSError) -> "StorageError":
    """Returns the error of a system call that found no room, in words.

    Args:
      error: The error: a full disk, a quota that is used up, or a file too
        large.

    Returns:
      The error, which names the file.

    Raises:
      OSError: The error that was given, if it has another cause.
    """
    if not is_no_room(error):
      raise error
    file = error.filename or "a file"
    return cls(f"{file} cannot be written: {error.strerror}.")


def is_no_room(error: Exception) -> bool:
  """Whether an error of the system is for want of room.

  Args:
    error: The error.

  Returns:
    True for a full disk, a quota that is used up, or a file too large.
  """
  return isinstance(error, OSError) and error.errno in _FULL


class DivergedError(ValueError):
  """Training led to numbers that are not finite; says what may help."""


def first_line(error: Exception) -> str:
  """Returns the first line of an error's message, or else its type's name.

  Args:
    error: An error of any library.

  Returns:
    At most 200 characters, without a full stop at the end.
  """
  lines = str(error).strip().splitlines()
  return lines[0][:200].rstrip(".") if lines else type(error).__name__
