"""The privacy of a run, recomputed from what it left in its directory.

The ledger is that of the run's chain, with which all its files have to agree;
the trace has to bear out what the ledger assumes and to be what the run's key
draws, and the summary has to say the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
import dataclasses
import functools
import math
import os
import pathlib
from typing import Any

from etils import epy
import numpy as np

from tff_fedemb import errors
from tff_fedemb.data import participation_trace
from tff_fedemb.participation import participation as participation_lib
from tff_fedemb.privacy import epsilon as epsilon_lib
from tff_fedemb.privacy import ledger as ledger_lib
from tff_fedemb.privacy import report as report_lib
from tff_fedemb.program import chain as chain_lib
from tff_fedemb.program import run_directory
from tff_fedemb.program import sampling_key

with epy.lazy_imports():
  from tff_fedemb.program import chain_checks
  from tff_fedemb.run import deployment as deployment_lib

# Epsilon of the same events by the same library differs by rounding alone.
_RELATIVE_TOLERANCE = 1e-6
_COMPARED = ("rounds", "delta", "sensitivity_in_clip_norms", "epsilon")
# Values that are not those of the file lead to these errors.
_DAMAGES = (ValueError, KeyError, TypeError, AttributeError)


@dataclasses.dataclass(frozen=True)
class Recomputed:
  """The account of a run, from its ledger and its trace.

  Attributes:
    chain: Chain of the run.
    ledger: Ledger of the chain, with the accountants that were asked for.
    report: Report on its cost; the trace has been checked.
    notes: Further notes for a reader.
    mechanism: The name of the run's; None if it had none.
  """

  chain: chain_lib.Chain
  ledger: ledger_lib.Ledger
  report: report_lib.PrivacyReport
  notes: tuple[str, ...]
  mechanism: str | None = None


def read_ledger(
  run_dir: str | os.PathLike[str], accountants: Sequence[str] | None = None
) -> tuple[chain_lib.Chain, ledger_lib.Ledger]:
  """Returns what happened in a run, and what that has cost.

  Args:
    run_dir: Directory of the run.
    accountants: Names of those to ask in place of the ledger's own.

  Raises:
    errors.FieldError: If no round ran, a file of the run is missing, damaged or
      disagrees with the others, or an accountant is not valid for its
      participation.
  """
  chain = chain_checks.read(run_dir)
  if not chain.rounds:
    raise errors.FieldError(
      "run_dir", "hold a run of at least one round", f"{run_dir} without"
    )
  ledger = chain.ledger
  if accountants is not None:
    ledger = dataclasses.replace(ledger, accountants=tuple(accountants))
  return chain, ledger


def check_draw(
  draw: Callable[[int], list[np.ndarray]],
  rounds: Iterable[participation_trace.RecordedRound],
  *,
  source: str,
) -> None:
  """Refuses a trace that is not what is drawn.

  With the key at hand, the code draws who took part, and with whom.

  Args:
    draw: Maps a round's number to its virtual clients, in the order of the
      rounds.
    rounds: Rounds of the trace.
    source: Source that draws them, in words.

  Raises:
    participation_lib.ClaimError: Names the first round that is another one.
  """
  for recorded in rounds:
    drawn = participation_trace.RecordedRound.of(
      recorded.number, draw(recorded.number)
    )
    if not recorded.is_as(drawn):
      raise participation_lib.ClaimError(
        f"the users of every round must be those that {source}; round"
        f" {recorded.number:,} of the trace has {recorded.slots.size:,} users"
        f" in {recorded.num_clients:,} virtual clients where it draws others,"
        f" {drawn.slots.size:,} in {drawn.num_clients:,}."
      )


def _replay(
  run_dir: pathlib.Path,
  sampling_seed: int | None,
  ledger: ledger_lib.Ledger,
  trace: participation_trace.TraceReader,
) -> str:
  """Draws the users of all rounds once more; returns what came of it."""
  deployed = run_directory.read_json(run_dir / run_directory.DEPLOYMENT)
  if deployed is not None:
    rounds = deployment_lib.DeployedRounds(
      deployment_lib.read_simulation(deployed), os.devnull
    )
    source = run_directory.DEPLOYMENT
    check_draw(rounds.draw, trace, source=f"{source} gives")
    return (
      f"the deployment of all {trace.num_rounds:,} rounds was played again from"
      f" {source}: the same users"
    )
  key = sampling_key.read(run_dir / run_directory.CHECKPOINTS)
  source = f"{run_directory.CHECKPOINTS}/{sampling_key.NAME}"
  if sampling_seed is not None:
    key, source = sampling_seed, "sampling_seed"
  if key is None:
    return (
      f"there is no {source}: the draw was not replayed, and whether users were"
      " drawn at random is unchecked"
    )
  check_draw(
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
    errors.FieldError: As `read_ledger`, or if the run's own summary says
      something else, or PLD alone would take minutes.
    errors.DataError: If the trace refutes what the ledger assumes, or is not
      what the run's key draws.
  """
  chain, ledger = read_ledger(run_dir, accountants)
  epsilon_lib.check_pld(ledger)
  run_dir = pathlib.Path(run_dir)
  asked = run_directory.read_json(run_dir / run_directory.SPEC)
  summary = run_directory.read_json(run_dir / run_directory.SUMMARY)
  notes = []
  with participation_trace.TraceReader(run_dir / run_directory.TRACE) as trace:
    report = ledger.report(trace)
    notes.append(_replay(run_dir, asked.get("sampling_seed"), ledger, trace))
    more = trace.num_rounds - ledger.rounds
  if summary is None:
    notes.append(
      f"the run is not finished: {ledger.rounds:,} rounds are accounted for"
    )
  if more:
    notes.append(
      "the trace has 1 round more, which had begun when the program was killed"
      " and has released nothing"
    )
  if summary is not None:
    path = run_dir / run_directory.SUMMARY
    _compare(path, summary, report, all_accountants=accountants is None)
  return Recomputed(
    chain,
    ledger,
    report,
    tuple(notes),
    (asked.get("mechanism") or {}).get("kind"),
  )


def _compare(
  path: pathlib.Path,
  summary: Any,
  report: report_lib.PrivacyReport,
  *,
  all_accountants: bool,
) -> None:
  """Refuses a summary that says something else than the report."""

  def figures(values: Any) -> dict[str, float]:
    by_name = {name: float(values[name]) for name in _COMPARED}
    for name, epsilon in values["epsilon_by_accountant"].items():
      by_name[f"epsilon by {name}"] = float(epsilon)
    return by_name

  found = figures(report.to_json())
  try:
    there = figures(summary["privacy"])
  except _DAMAGES as error:
    raise run_directory.damaged(path, error) from error
  names = found.keys() | there.keys()
  if not all_accountants:
    names = (found.keys() & there.keys()) - {"epsilon"}
  for name in sorted(names):
    one, other = there.get(name, math.nan), found.get(name, math.nan)
    if not math.isclose(one, other, rel_tol=_RELATIVE_TOLERANCE):
      raise errors.FieldError(
        "run_dir",
        f"hold a {path.name} that agrees with its ledger",
        f"{name} {one:.6g} there and {other:.6g} by the ledger",
      )
