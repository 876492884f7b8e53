"""The privacy of a run, recomputed from what it left in its directory.

The ledger has to be that of the run's settings, the trace has to bear out what
the ledger assumes and to be what the run's key draws, and the summary has to
say the same. Whoever writes all these files anew makes another run of them: no
file can prove that this is not what happened.
"""

from collections.abc import Sequence
import dataclasses
import functools
import json
import math
import os
import pathlib
from typing import Any

from experiments import run_claim
from tff_fedemb import errors
from tff_fedemb.data import participation_trace
from tff_fedemb.data.participation import replay
from tff_fedemb.privacy import arithmetic
from tff_fedemb.privacy import composition
from tff_fedemb.privacy import epsilon as epsilon_lib
from tff_fedemb.privacy import ledger as ledger_lib
from tff_fedemb.privacy import report as report_lib
from tff_fedemb.program import deployed_rounds
from tff_fedemb.program import run_directory
from tff_fedemb.program import sampling_key

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
    errors.FieldError: If there is no ledger or it is damaged, it is not that
      of the run's settings, or an accountant is not valid for its
      participation.
  """
  run_dir = pathlib.Path(run_dir)
  path = run_dir / run_directory.LEDGER
  values, ledger = _read_json(path), None
  try:
    if values is not None:
      ledger = ledger_lib.Ledger.from_json(json.dumps(values))
  except _DAMAGES as error:
    raise _damaged(path, error) from error
  if ledger is None or not ledger.rounds:
    raise errors.FieldError(
      "run_dir",
      f"hold the {run_directory.LEDGER} of a run of at least one round",
      f"{os.fspath(run_dir)} without",
    )
  run_claim.check(
    ledger,
    _read_claim(run_dir, ledger.participation.num_users),
    is_finished=(run_dir / run_directory.SUMMARY).exists(),
  )
  if accountants is not None:
    ledger = dataclasses.replace(ledger, accountants=tuple(accountants))
  return ledger


def _read_settings(run_dir: pathlib.Path) -> Any:
  path = run_dir / run_directory.SETTINGS
  settings = _read_json(path)
  if settings is None:
    raise errors.FieldError(
      "run_dir",
      f"hold the {run_directory.SETTINGS} of its run",
      f"{run_dir} without",
    )
  return settings


def _read_claim(run_dir: pathlib.Path, num_users: int) -> run_claim.Claim:
  try:
    return run_claim.create_claim(
      _read_settings(run_dir),
      num_users,
      _read_json(run_dir / run_directory.DEPLOYMENT),
    )
  except errors.FieldError:
    raise
  except _DAMAGES as error:
    raise _damaged(run_dir / run_directory.SETTINGS, error) from error


def _replay(
  run_dir: pathlib.Path,
  ledger: ledger_lib.Ledger,
  trace: participation_trace.TraceReader,
) -> str:
  """Draws the users of all rounds once more; returns what came of it."""
  deployed = _read_json(run_dir / run_directory.DEPLOYMENT)
  if deployed is not None:
    rounds = deployed_rounds.DeployedRounds(
      deployed_rounds.create_simulation(deployed), os.devnull
    )
    source = run_directory.DEPLOYMENT
    replay.check_draw(rounds.draw, trace, source=f"{source} gives")
    return (
      f"the deployment of all {trace.num_rounds:,} rounds was played again from"
      f" {source}: the same users"
    )
  key = sampling_key.read(run_dir / run_directory.CHECKPOINTS)
  source = f"{run_directory.CHECKPOINTS}/{sampling_key.NAME}"
  seed = _read_settings(run_dir).get(run_claim.SAMPLING_SEED)
  if seed is not None:
    key, source = seed, run_claim.SAMPLING_SEED
  if key is None:
    return (
      f"there is no {source}: that the users of the trace were drawn from the"
      " run's key was not replayed"
    )
  replay.check_draw(
    functools.partial(ledger.participation.sample, key=key),
    trace,
    source=f"{ledger.participation.name} draws from the run's key",
  )
  return (
    f"the draw of all {trace.num_rounds:,} rounds was replayed from {source}:"
    " the same users, in the same virtual clients"
  )


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
    errors.FieldError: If a file is missing or damaged, the ledger is not that
      of the run's settings, the run's own summary says something else, or PLD
      alone would take minutes.
    errors.DataError: If the trace refutes what the ledger assumes, or is not
      what the run's key draws.
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
    report = _with_age(ledger.report(trace), ledger)
    notes.append(_replay(run_dir, ledger, trace))
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
    path = run_dir / run_directory.SUMMARY
    notes += _compare(path, summary, ledger, report)
  return Recomputed(ledger, report, tuple(notes))


def _with_age(
  report: report_lib.PrivacyReport, ledger: ledger_lib.Ledger
) -> report_lib.PrivacyReport:
  """Adds a warning where noise may not have been what epsilon is of."""
  has_noise = all(noise.multiplier for noise in ledger.noises)
  if ledger.round_sum is not None or not has_noise:
    return report
  tail = arithmetic.tail_probability(
    composition.merge_rounds(ledger.history),
    ledger.participation,
    reach=arithmetic.EARLIER_NOISE_REACH,
  )
  warning = (
    "the run is of an earlier version, and epsilon of noise that it did not"
    " have: its noise came from as few as 32 bits, which can all be tried, and"
    f" ended at {arithmetic.EARLIER_NOISE_REACH} standard deviations, so that"
    " it is impossible without a user with a probability of up to"
    f" {tail:.2g}, where delta is {ledger.delta:.2g}"
  )
  return dataclasses.replace(report, warnings=(*report.warnings, warning))


def _compare(
  path: pathlib.Path,
  summary: Any,
  ledger: ledger_lib.Ledger,
  report: report_lib.PrivacyReport,
) -> list[str]:
  """Refuses a summary that says something else than the report; notes."""
  try:
    claimed = report_lib.PrivacyReport.from_json(summary["privacy"])
  except _DAMAGES as error:
    raise _damaged(path, error) from error
  secret = ledger.participation.with_secret_schedule()
  if not claimed.amplification and secret != ledger.participation:
    return [
      f"{path.name} is of an earlier version, whose epsilon"
      f" {claimed.epsilon:.4g} assumed that nobody knew who was drawn when:"
      " from a seed that anyone may know, it does not hold"
    ]
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
  return []


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
