"""What `account` prints and writes."""

from collections.abc import Sequence
import contextlib
import json
import os
import pathlib
import textwrap
from typing import Any

from experiments import command_line
from tff_fedemb.privacy import report as report_lib


def wrapped(text: str) -> str:
  """Returns a paragraph in lines that fit."""
  return textwrap.fill(text, 80, break_on_hyphens=False)


def listed(title: str, items: Sequence[str]) -> list[str]:
  """Returns the lines of a list under its title; none without items."""
  if not items:
    return []
  return ["", f"{title}:"] + [
    textwrap.fill(
      item,
      80,
      initial_indent="- ",
      subsequent_indent="  ",
      break_on_hyphens=False,
    )
    for item in items
  ]


def readings(*rows: tuple[str, float, str, str]) -> list[str]:
  """Returns the lines of a table: name, sensitivity, figure, protects."""
  lines = [f"{'reading':<12}{'Delta':>6}{'':>16}  protects"]
  return lines + [
    f"{name:<12}{sensitivity:>4g} C{figure:>16}  {protects}"
    for name, sensitivity, figure, protects in rows
  ]


def report_text(report: report_lib.PrivacyReport, notes: Sequence[str]) -> str:
  """Returns the whole account of a plan or a run."""
  lines = [
    f"epsilon = {report.epsilon:.4f} at delta = {report.delta:g}"
    f" ({report.accountant}), {report.rounds:,} rounds",
  ]
  if report.zcdp is not None:
    lines.append(f"zCDP    = {report.zcdp:.4f}")
  virtual = report.unit_is_virtual_client_epsilon
  rows = [
    (
      "user-level",
      report.sensitivity_in_clip_norms,
      f"{report.epsilon:.4f}",
      f"one user: {report.neighboring_relation}",
    )
  ]
  if virtual is not None:
    rows.append(
      ("authors", 1.0, f"{virtual:.4f}", report_lib.VIRTUAL_CLIENT_UNIT)
    )
  lines += ["", *readings(*rows), "", wrapped(report.statement)]
  lines += listed("Not covered", report.not_covered)
  lines += listed("Notes", notes)
  lines += [f"warning: {warning}" for warning in report.warnings]
  return "\n".join(lines)


def check_output(path: pathlib.Path) -> None:
  """Refuses a file that cannot be written, before anything is computed."""
  reason = None
  if path.is_dir():
    reason = "it is a directory"
  elif not path.absolute().parent.is_dir():
    reason = "its directory does not exist"
  elif not os.access(
    path if path.exists() else path.absolute().parent, os.W_OK
  ):
    reason = "it is not permitted"
  if reason is not None:
    raise command_line.UsageError(
      "--output_json must be a file that can be written, found"
      f" {os.fspath(path)}: {reason}."
    )


def write(path: pathlib.Path, values: dict[str, Any]) -> None:
  """Writes a file whole or not at all, unless it is a device."""
  text = json.dumps(values, indent=2, allow_nan=False) + "\n"
  try:
    if path.exists() and not path.is_file():
      path.write_text(text, encoding="utf-8")
      return
    # Through a link, to what it stands for.
    path = path.resolve()
    temporary = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
      temporary.write_text(text, encoding="utf-8")
      os.replace(temporary, path)
    finally:
      with contextlib.suppress(OSError):
        temporary.unlink()
  except OSError as error:
    raise command_line.UsageError(
      "--output_json must be a file that can be written, found"
      f" {os.fspath(path)}: {error.strerror}."
    ) from error
