"""The help of a program: its flags with what they are for, by section."""

from collections.abc import Mapping, Sequence
import dataclasses
import textwrap

# A flag that more classes have is of use with nearly all of them.
_MOST_CLASSES = 6


@dataclasses.dataclass(frozen=True)
class Entry:
  """A flag.

  Attributes:
    shown: What the user types.
    text: What it is for.
    used_with: Choices and classes with which alone it is of use.
  """

  shown: str
  text: str
  used_with: tuple[tuple[str, str], ...] = ()


def format_help(
  documentation: str, sections: Mapping[str, Sequence[Entry]]
) -> str:
  """Returns the help of a program.

  Args:
    documentation: What the program does.
    sections: Its flags by the titles of sections.
  """
  lines = [documentation.strip(), "", "Flags:"]
  for title, entries in sections.items():
    lines += ["", title]
    for entry in entries:
      lines += [f"  {entry.shown}", *_wrap(entry.text + _say_classes(entry))]
  lines += ["", "  --flagfile", *_wrap("File with a flag in each line.")]
  return "\n".join(lines)


def _wrap(text: str) -> list[str]:
  indent = "    "
  return textwrap.wrap(
    text, width=80, initial_indent=indent, subsequent_indent=indent
  )


def _say_classes(entry: Entry) -> str:
  choices = {choice for choice, _ in entry.used_with}
  if len(choices) != 1 or len(entry.used_with) > _MOST_CLASSES:
    return ""
  (choice,) = choices
  names = ", ".join(name for _, name in entry.used_with)
  return f" (--{choice}={names})"
