"""Text of a program's help: on two screens, unless you ask for all of it."""

from collections.abc import Mapping, Sequence
import dataclasses
import textwrap

_MAX_LINES = 100
_COLUMNS = 80


@dataclasses.dataclass(frozen=True)
class Flag:
  """The text of a flag in the help.

  Attributes:
    name: Its name.
    text: Its purpose.
    is_boolean: Whether it may be negated.
    is_of_part: Whether it is of a part of a configuration.
    names: Names of the classes that it chooses from.
  """

  name: str
  text: str
  is_boolean: bool = False
  is_of_part: bool = False
  names: tuple[str, ...] = ()


def render(
  documentation: str, sections: Mapping[str, Sequence[Flag]], *, is_full: bool
) -> str:
  """Returns the help of a program.

  Args:
    documentation: Its beginning.
    sections: Flags by the title of their section.
    is_full: Whether it may be longer than two screens.

  Returns:
    The text, with lines of at most 80 columns.
  """
  start = [documentation.strip(), "", "Flags:"]
  full, short = list(start), list(start)
  for title, flags in sections.items():
    full += ["", title]
    short += ["", title]
    for flag in flags:
      shown = f"--[no]{flag.name}" if flag.is_boolean else f"--{flag.name}"
      full += [f"  {shown}", *_indent(flag.text)]
      if not flag.is_of_part:
        short += _shorten(flag)
    # Flags of parts are shown by name alone.
    parts = [f"--{flag.name}" for flag in flags if flag.is_of_part]
    short += _indent(" ".join(parts))
  full += ["", "  --flagfile", *_indent("File with a flag in each line.")]
  short += ["", "  --flagfile  File with a flag in each line."]
  short.append("  --helpfull  What each of them is for, and its values.")
  text = "\n".join(full)
  return text if is_full or text.count("\n") < _MAX_LINES else "\n".join(short)


def _shorten(flag: Flag) -> list[str]:
  """A flag in one line, or with all names that you can choose from."""
  if flag.names:
    text = f"  --{flag.name}  {', '.join(flag.names)}"
    return textwrap.wrap(text, _COLUMNS, subsequent_indent="    ")
  room = _COLUMNS - len(f"  --{flag.name}  ")
  text = textwrap.shorten(flag.text, width=room, placeholder=" ...")
  return [f"  --{flag.name}  {text}"]


def _indent(text: str) -> list[str]:
  """Lines of a text, each indented."""
  return textwrap.wrap(
    text, _COLUMNS, initial_indent="    ", subsequent_indent="    "
  )
