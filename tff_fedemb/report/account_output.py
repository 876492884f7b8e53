"""Text and JSON values of the program `account`."""

from collections.abc import Sequence
import textwrap
from typing import Any

from tff_fedemb import output_files
from tff_fedemb.participation import registry as participations
from tff_fedemb.privacy import calibration
from tff_fedemb.privacy import composition
from tff_fedemb.privacy import epsilon as epsilon_lib
from tff_fedemb.privacy import planning
from tff_fedemb.privacy import report as report_lib


def tell_epsilon(
  report: report_lib.PrivacyReport,
  mechanism: str | None,
  account: composition.Account,
  notes: Sequence[str],
) -> tuple[dict[str, Any], str]:
  """Returns the whole account of a plan or a run, for a file and in words.

  It covers all that the rounds release; notes are further remarks for readers.
  """
  values, virtual = report.to_json(), report.unit_is_virtual_client_epsilon
  if virtual is None:
    # The participation's own sensitivity is one clip norm.
    values["unit_is_virtual_client_epsilon"] = values["epsilon"]
  # Rounds without noise may come before or after.
  strategies = (n.strategy for n in account.noises if n.strategy)
  values |= {
    "mechanism": mechanism,
    "strategy": planning.strategy_to_json(next(strategies, None)),
    "participation": participations.to_json(account.participation),
    "events": [
      {"event": repr(event), "count": count}
      for event, count in composition.composed_events(*account.run)
    ],
    "notes": list(notes),
  }
  lines = [
    f"epsilon = {_figure(report.epsilon)} at delta = {report.delta:g}"
    f" ({report.accountant}), {report.rounds:,} rounds"
  ]
  if report.zcdp is not None:
    lines.append(f"zCDP    = {_figure(report.zcdp)}")
  relation = f"one user: {report.neighboring_relation}"
  sensitivity = report.sensitivity_in_clip_norms
  rows = [("user-level", sensitivity, _figure(report.epsilon), relation)]
  if virtual is not None:
    unit = epsilon_lib.VIRTUAL_CLIENT_UNIT
    rows.append(("authors", 1.0, _figure(virtual), unit))
  lines += [
    *("", *_readings(*rows), "", wrap(report.statement)),
    *listed("Not covered", report.not_covered),
    *listed("Notes", notes),
    *(f"warning: {warning}" for warning in report.warnings),
  ]
  return values, "\n".join(lines)


def tell_calibration(
  found: calibration.Calibration, plan: planning.Plan, notes: Sequence[str]
) -> tuple[dict[str, Any], str]:
  """Returns what was found for a target epsilon, for a file and in words.

  The search began with the plan.
  """
  solve_for = found.solve_for
  is_noise = solve_for == "noise_multiplier"
  digits = f".{calibration.DIGITS + 3}g" if is_noise else ""
  rows = [
    (
      solution.name,
      solution.sensitivity_in_clip_norms,
      f"{solution.value:,{digits}}",
      f"{solution.protects} (epsilon {_figure(solution.epsilon)}"
      f", z {solution.plan.noise_multiplier:.5g})",
    )
    for solution in (found.user_level, found.authors)
  ]
  lines = [
    f"smallest {solve_for} for epsilon <= {found.target_epsilon:g} at delta ="
    f" {plan.delta:g} ({found.report.accountant}), {plan.rounds:,} rounds",
    "",
    *_readings(*rows),
    *listed("Assumptions", found.assumptions),
    "",
    wrap(found.report.statement),
    *listed("Notes", notes),
    *(f"warning: {warning}" for warning in found.report.warnings),
  ]
  return found.to_json() | {"notes": list(notes)}, "\n".join(lines)


def _figure(value: float) -> str:
  """Four decimals, or digits where those would be 0."""
  return f"{value:.4f}" if value >= 0.1 or not value else f"{value:.4g}"


def wrap(text: str, first: str = "", others: str = "") -> str:
  """A paragraph in lines that fit, behind indents."""
  return textwrap.fill(
    text,
    80,
    initial_indent=first,
    subsequent_indent=others,
    break_on_hyphens=False,
  )


def listed(title: str, items: Sequence[str]) -> list[str]:
  """The lines of a list under its title; none without items."""
  if not items:
    return []
  return ["", f"{title}:"] + [wrap(item, "- ", "  ") for item in items]


def _readings(*rows: tuple[str, float, str, str]) -> list[str]:
  """The lines of a table: name, sensitivity, figure, protects."""
  lines = [f"{'reading':<12}{'Delta':>6}{'':>16}  protects"]
  return lines + [
    f"{name:<12}{sensitivity:>4g} C{figure:>16}  {protects}"
    for name, sensitivity, figure, protects in rows
  ]


def check_output(path: str | None) -> None:
  """Refuses a file that cannot be written, before anything is computed.

  Raises:
    errors.FieldError: If it cannot be.
  """
  output_files.check({"output_json": path}, overwrite=True)


def write(path: str | None, values: dict[str, Any]) -> None:
  """Writes a file, if there is to be one: whole, or not at all.

  Raises:
    errors.FieldError: If it cannot be written.
  """
  if path is not None:
    writer = output_files.json_writer(values)
    output_files.write({"output_json": (path, writer)})
