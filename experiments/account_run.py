"""The privacy of a run, recomputed from what it left in its directory."""

from collections.abc import Sequence
import dataclasses
import json
import math
import os
import pathlib
from typing import Any

from tff_fedemb import errors
from tff_fedemb.data import participation_trace
from tff_fedemb.privacy import composition
from tff_fedemb.privacy import epsilon as epsilon_lib
from tff_fedemb.privacy import ledger as ledger_lib
from tff_fedemb.privacy import report as report_lib
from tff_fedemb.program import run_directory

# Epsilon of the same events by the same library differs by rounding alone.
_RELATIVE_TOLERANCE = 1e-6
_COMPARED = ("rounds", "delta", "sensitivity_in_clip_norms")
# What comes of values that are not those of the file.
_DAMAGES = (ValueError, KeyError, TypeError, AttributeError)


@dataclasses.dataclass(frozen=True)
class Recomputed:
  """The account of a run, from its ledger and its trace.

  Attributes:
    ledger: What was done in the rounds.
    report: What that cost; the trace has been checked.
    notes: What else a reader should know.
  """

  ledger: ledger_lib.Ledger
  report: report_lib.PrivacyReport
  notes: tuple[str, ...]


def read_ledger(
  run_dir: str | os.PathLike[str], accountants: Sequence[str] | None = None
) -> ledger_lib.Ledger:
  """Returns the ledger as of the last round that was run.

  Args:
    run_dir: Directory of the run.
    accountants: Names of those to ask in place of the ledger's own.

  Raises:
    errors.FieldError: If there is no ledger or it is damaged, or an accountant
      is not valid for its participation.
  """
  path = pathlib.Path(run_dir) / run_directory.LEDGER
  values = _read_json(path)
  if values is None:
    raise errors.FieldError(
      "run_dir",
      f"hold the {run_directory.LEDGER} of a run of at least one round",
      f"{os.fspath(run_dir)} without",
    )
  try:
    ledger = ledger_lib.Ledger.from_json(json.dumps(values))
  except _DAMAGES as error:
    raise _damaged(path, error) from error
  if accountants is not None:
    ledger = dataclasses.replace(ledger, accountants=tuple(accountants))
  return ledger


def recompute(
  run_dir: str | os.PathLike[str], accountants: Sequence[str] | None = None
) -> Recomputed:
  """Computes what a finished or killed run has cost.

  Privacy:
    As `ledger.Ledger.report`, with the trace.

  Args:
    run_dir: Directory of the run.
    accountants: As in `read_ledger`.

  Raises:
    errors.FieldError: If a file is missing or damaged, the trace refutes what
      the ledger assumes, the run's own summary says something else, or PLD
      alone would take minutes.
  """
  ledger = read_ledger(run_dir, accountants)
  epsilon_lib.check_pld(
    composition.merge_rounds(ledger.history),
    ledger.participation,
    ledger.delta,
    accountants=ledger.accountants,
  )
  run_dir = pathlib.Path(run_dir)
  summary = _read_json(run_dir / run_directory.SUMMARY)
  notes = []
  with participation_trace.TraceReader(run_dir / run_directory.TRACE) as trace:
    report = ledger.report(trace)
    more = trace.num_rounds - ledger.rounds
  if summary is None:
    notes.append(
      f"the run is not finished: {ledger.rounds:,} rounds are accounted for"
    )
  if more > 0:
    # A finished run has begun no round that it did not end.
    if summary is not None:
      raise errors.FieldError(
        "run_dir",
        f"hold a trace of the {ledger.rounds:,} rounds of its finished run",
        f"one of {ledger.rounds + more:,}",
      )
    notes.append(
      f"the trace has {more:,} {'round' if more == 1 else 'rounds'} more:"
      " begun when the program was killed, or to be done again by the resumed"
      " run; not accounted for, so nothing of them may be released"
    )
  if summary is not None:
    _compare(run_dir / run_directory.SUMMARY, summary, report)
  return Recomputed(ledger, report, tuple(notes))


def _compare(
  path: pathlib.Path, summary: Any, report: report_lib.PrivacyReport
) -> None:
  """Refuses a summary that says something else than the report."""
  try:
    claimed = report_lib.PrivacyReport.from_json(summary["privacy"])
  except _DAMAGES as error:
    raise _damaged(path, error) from error
  found, there = (
    {name: getattr(r, name) for name in _COMPARED}
    | {f"epsilon by {name}": x for name, x in r.epsilon_by_accountant.items()}
    for r in (report, claimed)
  )
  if set(claimed.epsilon_by_accountant) == set(report.epsilon_by_accountant):
    found["epsilon"], there["epsilon"] = report.epsilon, claimed.epsilon
  for name in filter(there.__contains__, found):
    if not math.isclose(there[name], found[name], rel_tol=_RELATIVE_TOLERANCE):
      raise errors.FieldError(
        "run_dir",
        f"hold a {path.name} that agrees with its ledger",
        f"{name} {there[name]:.6g} there and {found[name]:.6g} by the ledger",
      )


def _read_json(path: pathlib.Path) -> Any:
  """The values in a file, `None` if there is none."""
  try:
    return json.loads(path.read_text(encoding="utf-8"))
  except FileNotFoundError:
    return None
  except (OSError, ValueError) as error:
    raise _damaged(path, error) from error


def _damaged(path: pathlib.Path, error: Exception) -> errors.FieldError:
  return errors.FieldError(
    "run_dir",
    "hold whole files of a run",
    f"{path}: {type(error).__name__}: {error}",
  )
