"""Input that cannot be used: named in one message, or left out and counted."""

from collections.abc import Iterable, Sequence

from tff_fedemb import checks
from tff_fedemb import errors

POLICIES = ("fail", "skip")

_NUM_NAMED = 5


class BadExamples:
  """Collects what is wrong with a data set while it is looked through."""

  def __init__(self, policy: str = "fail"):
    """Initialises the collection.

    Args:
      policy: One of `POLICIES`: "fail" has `check` raise, "skip" has it let
        pass what was noted.
    """
    checks.check_choice("on_bad_example", policy, POLICIES)
    self._policy = policy
    self._lines: list[str] = []

  def __len__(self) -> int:
    return len(self._lines)

  @property
  def skips(self) -> bool:
    """Whether bad examples are left out, rather than refused."""
    return self._policy == "skip"

  @property
  def lines(self) -> tuple[str, ...]:
    """The notes, one line each."""
    return tuple(self._lines)

  def add(self, where: str, what: str) -> None:
    """Notes what is wrong with a file, or with a user or a record in it."""
    self._lines.append(f"{where}: {what}")

  def check(self) -> None:
    """Raises DataError of what was noted, unless it is to be skipped."""
    if self._lines and not self.skips:
      raise errors.DataError(
        f"data must be readable, found {summarize(self._lines)}."
        " on_bad_example=skip leaves out what is bad."
      )


def summarize(lines: Sequence[str]) -> str:
  """The number of bad examples and the first: "1 bad example: a: empty"."""
  named = "; ".join(lines[:_NUM_NAMED])
  more = len(lines) - _NUM_NAMED
  return f"{len(lines)} bad example{'s' if len(lines) > 1 else ''}: {named}" + (
    f"; and {more} more" if more > 0 else ""
  )


def name_first(names: Iterable[object]) -> str:
  """The first few names, and dots if there are others."""
  words = [str(name) for name in names]
  dots = ["..."] if len(words) > _NUM_NAMED else []
  return ", ".join(words[:_NUM_NAMED] + dots)


def warn_of(text: str, names: Iterable[object]) -> tuple[str, ...]:
  """A warning of text and the first few names; none if there are no names."""
  named = name_first(names)
  return (f"{text}: {named}.",) if named else ()
