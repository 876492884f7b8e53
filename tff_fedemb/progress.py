"""Lines and bars on terminals, seconds by part, sizes and times in words."""

from collections.abc import Iterable, Sequence
import sys
import textwrap
import time
from typing import Any

from absl import logging
import psutil
import tqdm

# Size of what a program says at its end, unless you ask it to explain.
_ENDING_LINES, _COLUMNS = 8, 80


def end(
  lines: Iterable[str],
  *,
  rest: str,
  warnings: Sequence[str] = (),
  extras: Iterable[str] = (),
) -> str:
  """Fits what a program says at its end into eight lines of 80 columns.

  Args:
    lines: Text that is always shown, at most six lines of 80 columns.
    rest: Where the reader finds the rest; the last line.
    warnings: Findings that deserve a second look, the most important first; if
      there is no room, they are shortened, and all but the first are counted.
    extras: Text that is shown if there is room, the most important first.

  Returns:
    The lines; a word that is longer than a line is not broken.
  """
  body, last = wrap(lines), wrap([rest])
  room = max(_ENDING_LINES - len(body) - len(last), 1)
  warnings = [f"warning: {warning}" for warning in warnings]
  told = wrap(warnings)
  if len(told) > room:
    told = [_shorten(warning) for warning in warnings]
  if len(told) > room:
    more = len(told) - room + 1
    if room > 1:
      told[room - 1 :] = [f"warning: there are {more:,} more"]
    else:
      end = f" ({more - 1:,} more)"
      told = [_shorten(warnings[0], _COLUMNS - len(end)) + end]
  body += told
  for extra in extras:
    wrapped = wrap([extra])
    if len(body) + len(wrapped) + len(last) <= _ENDING_LINES:
      body += wrapped
  return "\n".join([*body, *last])


def wrap(texts: Iterable[str]) -> list[str]:
  """Breaks texts into lines of 80 columns, indented from the second on.

  Args:
    texts: Texts, each of which begins a line of its own; an empty one is an
      empty line.
  """
  wrapper = textwrap.TextWrapper(
    _COLUMNS,
    subsequent_indent="  ",
    break_long_words=False,
    break_on_hyphens=False,
  )
  lines: list[str] = []
  for text in texts:
    lines += wrapper.wrap(text) or [""]
  return lines


def _shorten(text: str, columns: int = _COLUMNS) -> str:
  """Cuts a text at a space to one line, with dots at its end."""
  return textwrap.shorten(text, columns, placeholder=" ...")


def say(text: str) -> None:
  """Prints text without breaking the progress bar below it.

  Names of users and files may have any letters. Those that standard output
  cannot encode are escaped; without that, Python would end the program.

  Args:
    text: One line or several, without a line break at the end.
  """
  output: Any = sys.stdout
  encoding = getattr(output, "encoding", None) or "utf-8"
  try:
    text.encode(encoding, getattr(output, "errors", None) or "strict")
  except UnicodeEncodeError:
    text = text.encode(encoding, "backslashreplace").decode(encoding)
  tqdm.tqdm.write(text)


def leave_out(beginning: str) -> None:
  """Silences a warning of absl's logger that users can do nothing about.

  Args:
    beginning: Beginning of its message, before any values are filled in.
  """
  logging.get_absl_logger().addFilter(
    lambda record: not str(record.msg).startswith(beginning)
  )


class Stopwatch:
  """Times the parts of a program, one after the other.

  Attributes:
    seconds: Seconds by part, in the order of their first ends.
  """

  def __init__(self):
    """Starts the first part."""
    self.seconds: dict[str, float] = {}
    self._last = time.perf_counter()

  @classmethod
  def of_process(cls) -> "Stopwatch":
    """Returns one whose first part began with the process and ends now.

    Returns:
      A stopwatch with the seconds of `process_before`.
    """
    watch = cls()
    age = time.time() - psutil.Process().create_time()
    watch.seconds["process_before"] = age
    return watch

  def end(self, part: str) -> None:
    """Ends a part, which began when the one before it ended.

    Args:
      part: Its name; seconds of parts with the same name add up.
    """
    now = time.perf_counter()
    self.seconds[part] = self.seconds.get(part, 0.0) + now - self._last
    self._last = now

  def move(self, seconds: float, *, source: str, target: str) -> None:
    """Counts seconds of a part as those of another one.

    Args:
      seconds: Seconds to move.
      source: A part that has ended.
      target: The other part, which need not have ended yet.

    Raises:
      KeyError: If the source has not ended.
    """
    self.seconds[source] -= seconds
    self.seconds[target] = self.seconds.get(target, 0.0) + seconds


def create_bar(
  description: str | None,
  *,
  unit: str,
  items: Iterable[Any] | None = None,
  total: int | None = None,
  **options: Any,
) -> tqdm.tqdm:
  """Creates a progress bar, shown on terminals only and removed at the end.

  It appears after a second, so quick work shows none.

  Args:
    description: Description of the work; None shows no bar.
    unit: Unit of the count, in the plural; "B" for bytes.
    items: Items to go through, each of which counts as one; None to call
      `update`.
    total: Number of items, if they have no length.
    **options: Other options of `tqdm.tqdm`.

  Returns:
    The bar, which iterates over the items, and is a context manager.
  """
  return tqdm.tqdm(
    items,
    desc=description,
    total=total,
    unit=unit if unit == "B" else f" {unit}",
    # tqdm takes None as: show the bar on terminals only.
    disable=True if description is None else None,
    delay=1,
    leave=False,
    **options,
  )


def format_bytes(count: float) -> str:
  """Returns a size in powers of 1000 bytes, for example "12.3GB".

  Args:
    count: Number of bytes.
  """
  return f"{tqdm.tqdm.format_sizeof(count)}B"


def choose_unit(hours: float) -> tuple[float, str]:
  """Returns the unit of time that suits a time.

  Args:
    hours: The time, in hours.

  Returns:
    Hours of the unit, and its name in the plural: days from two days on, hours
    from two hours on, or else minutes.
  """
  for unit_hours, name in ((24.0, "days"), (1.0, "hours")):
    if hours >= 2 * unit_hours:
      return unit_hours, name
  return 1 / 60, "minutes"


def say_time(hours: float) -> str:
  """Returns a time in words, for example '2.5 days'.

  Args:
    hours: The time, in hours; three digits are shown.
  """
  unit_hours, name = choose_unit(hours)
  return f"{hours / unit_hours:.3g} {name}"
