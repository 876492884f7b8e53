"""Text and JSON values of the program `account`."""

from collections.abc import Sequence
from typing import Any

from tff_fedemb import output_files
from tff_fedemb.participation import registry as participations
from tff_fedemb.privacy import calibration
from tff_fedemb.privacy import composition
from tff_fedemb.privacy import epsilon as epsilon_lib
from tff_fedemb.privacy import extrapolation
from tff_fedemb.privacy import planning
from tff_fedemb.privacy import published
from tff_fedemb.privacy import report as report_lib
from tff_fedemb.report import templates


def tell_epsilon(
  report: report_lib.PrivacyReport,
  mechanism: str | None,
  account: composition.Account,
  notes: Sequence[str],
) -> tuple[dict[str, Any], str]:
  """Returns the whole account of a plan or a run, for a file and in words.

  It covers all that the rounds release; notes are further remarks for readers.
  """
  values = report.to_json()
  if report.unit_is_virtual_client_epsilon is None:
    # The participation's own sensitivity is one clip norm.
    values["unit_is_virtual_client_epsilon"] = values["epsilon"]
  # Rounds without noise may come before or after.
  strategies = (n.strategy for n in account.noises if n.strategy)
  values |= {
    "mechanism": mechanism,
    "strategy": planning.strategy_to_json(next(strategies, None)),
    "participation": participations.PARTICIPATIONS.to_json(
      account.participation
    ),
    "events": [
      {"event": repr(event), "count": count}
      for event, count in composition.composed_events(*account.run)
    ],
    "notes": list(notes),
  }
  unit = epsilon_lib.VIRTUAL_CLIENT_UNIT
  return values, templates.render(
    "epsilon.txt", report=report, notes=notes, virtual_client_unit=unit
  )


def tell_calibration(
  found: calibration.Calibration, plan: planning.Plan, notes: Sequence[str]
) -> tuple[dict[str, Any], str]:
  """Returns what was found for a target epsilon, for a file and in words.

  The search began with the plan.
  """
  is_noise = found.solve_for == "noise_multiplier"
  layout = f"{{:,.{calibration.DIGITS + 3}g}}" if is_noise else "{:,}"
  text = templates.render(
    "calibration.txt", found=found, plan=plan, notes=notes, layout=layout
  )
  return found.to_json() | {"notes": list(notes)}, text


def tell_extrapolation(
  found: extrapolation.Extrapolation,
) -> tuple[dict[str, Any], str]:
  """Returns both readings side by side, for a file and in words."""
  return found.to_json(), templates.render("extrapolation.txt", found=found)


def tell_table(rows: Sequence[published.Row]) -> tuple[dict[str, Any], str]:
  """Returns the authors' table with what each row assumes, as the others."""
  text = templates.render("table.txt", rows=rows, published=published)
  return {"rows": [row.to_json() for row in rows]}, text


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
