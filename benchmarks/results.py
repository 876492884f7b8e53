"""The file of a benchmark's figures, and the lines that tell of its goals."""

from collections.abc import Iterable
import json
import pathlib
from typing import Any

from benchmarks import goals
from experiments import command_line


def create_file(
  output_json: str, *, rounds: int, warmup_rounds: int
) -> pathlib.Path:
  """Checks the flags that all benchmarks have, and makes an empty file.

  Args:
    output_json: The file.
    rounds: Measured rounds.
    warmup_rounds: Rounds before those.

  Returns:
    The file.

  Raises:
    UsageError: If a flag is out of its range, or the file cannot be written.
  """
  path = pathlib.Path(output_json)
  if path.is_dir() or not path.absolute().parent.is_dir():
    raise command_line.UsageError(
      f"--output_json must be a file in an existing directory, found {path}."
    )
  for name, value, low in (
    ("rounds", rounds, 1),
    ("warmup_rounds", warmup_rounds, 0),
  ):
    if value < low:
      raise command_line.UsageError(
        f"--{name} must be at least {low}, found {value}."
      )
  try:
    write(path, [])
  except OSError as error:
    raise command_line.UsageError(
      f"--output_json must be a file that can be written, found {path}:"
      f" {error.strerror}."
    ) from error
  return path


def write(path: pathlib.Path, rows: Iterable[dict[str, Any]]) -> None:
  """Replaces the file at once, so that a reader never sees half of it."""
  partial = path.with_name(path.name + ".partial")
  partial.write_text(json.dumps(list(rows), indent=2) + "\n")
  partial.replace(path)


def evaluate(
  all_goals: Iterable[goals.Goal], rows: dict[goals.Entry, dict[str, Any]]
) -> list[str]:
  """Puts the ratios into their rows; returns lines that tell of all goals.

  Args:
    all_goals: Those whose rows are missing are left out.
    rows: By entry; each gets its `ratios`.
  """
  lines = []
  for goal in all_goals:
    value = goal.evaluate(rows)
    if value is None:
      continue
    if goal.denominator is not None:
      rows[goal.numerator]["ratios"][goal.name] = value
    lines.append(
      f"{goal.numerator.case:34} {goal.name:36} {value:10.4g}"
      f"  {goal.verdict(value)}".rstrip()
    )
  return lines
