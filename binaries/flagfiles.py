"""Files of flags: one a line, `#` begins a comment, a file may include others.

They work as `--flagfile` of absl does. Where there is no file of that name, it
is one of the project's own: `binaries/flagfiles/demo.flags`, or `demo.flags`,
works from any directory.
"""

from collections.abc import Iterable, Sequence
import itertools
import os
import pathlib

from tff_fedemb import errors

_FOLDER = pathlib.Path(__file__).parent / "flagfiles"
_FLAG = "flagfile"
_COMMENTS = ("#", "//")


def find(name: str) -> pathlib.Path | None:
  """Finds a file by its path, or else among the project's own flagfiles.

  Args:
    name: Path as the user gave it, or as a flagfile includes another.

  Returns:
    The file; None if there is none.
  """
  path = pathlib.Path(os.path.expanduser(name))
  places = (path, _FOLDER.parents[1] / path, _FOLDER / path)
  return next((place for place in places if place.is_file()), None)


def expand(arguments: Sequence[str]) -> list[str]:
  """Replaces each flagfile by the flags in it.

  Args:
    arguments: Words of a command line, without the program's name.

  Returns:
    The words, with no flagfile among them.

  Raises:
    errors.FieldError: If a file is missing, is not text or includes itself.
  """
  return list(_expand(arguments, ()))


def _expand(
  words: Iterable[str], parents: tuple[pathlib.Path, ...]
) -> Iterable[str]:
  """As `expand`, for words in a file that the parents include."""
  words = iter(words)
  for word in words:
    name, equals, value = word.partition("=")
    if word == "--":
      # No flag follows.
      yield from itertools.chain([word], words)
    elif name.startswith("-") and name.lstrip("-") == _FLAG:
      if not equals:
        value = next(words, "")
      yield from _read(value, parents)
    else:
      yield word


def _read(name: str, parents: tuple[pathlib.Path, ...]) -> Iterable[str]:
  """The flags in a file, and in those that it includes."""
  path = find(name)
  if path is None:
    raise errors.FieldError(f"--{_FLAG}", "be a file", repr(name))
  if path in parents:
    raise errors.FieldError(f"--{_FLAG}", "not include itself", repr(name))
  try:
    lines = path.read_text(encoding="utf-8").splitlines()
  except UnicodeDecodeError as error:
    raise errors.FieldError(f"--{_FLAG}", "be text", repr(name)) from error
  stripped = [line.strip() for line in lines]
  flags = [line for line in stripped if line and not line.startswith(_COMMENTS)]
  yield from _expand(flags, (*parents, path))
