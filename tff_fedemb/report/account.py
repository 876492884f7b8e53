"""The privacy of a run, recomputed from the files in its directory.

The ledger comes from the run's chain. All other files must agree with the
chain, the trace must satisfy what the ledger assumes and be what the run's key
draws, and the summary must have the same figures.

A chain that was cut is still a valid chain, but it ends too early for the
trace, or for a later checkpoint, model or row of metrics. If somebody rewrites
all files of a run consistently, they describe another run, and no file can
prove that it did not happen.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
import dataclasses
import functools
import math
import os
import pathlib
from typing import Any

from etils import epy
import numpy as np

from tff_fedemb import errors
from tff_fedemb.accounting import epsilon as epsilon_lib
from tff_fedemb.accounting import ledger as ledger_lib
from tff_fedemb.accounting import report as report_lib
from tff_fedemb.participation import participation as participation_lib
from tff_fedemb.participation import participation_trace
from tff_fedemb.records import chain as chain_lib
from tff_fedemb.records import run_directory
from tff_fedemb.records import sampling_key

with epy.lazy_imports():
  import pandas as pd

  from tff_fedemb.records import model_card
  from tff_fedemb.records import release
  from tff_fedemb.spec import deployment as deployment_lib

# The first line of the chain has digests of these files.
_FILES = (run_directory.SPEC, run_directory.DEPLOYMENT)
_METRICS = "metrics.csv"
TRIAL_WARNING = (
  "this is a trial of a tuning: to choose among trials costs what the tuning"
  " does"
)
# Epsilons of the same events by the same library differ only by rounding.
_RELATIVE_TOLERANCE = 1e-6
_COMPARED = ("rounds", "delta", "sensitivity_in_clip_norms", "epsilon")
# Errors raised by a file whose values have other names or types.
DAMAGES = (ValueError, KeyError, TypeError, AttributeError)


@dataclasses.dataclass(frozen=True)
class Recomputed:
  """The account of a run, from its ledger and its trace.

  `recompute` makes it from the files of a run, without the data.

  Attributes:
    chain: Chain of the run.
    ledger: Ledger of the chain, with the accountants that were asked for.
    report: Report on its cost, after a check of the trace.
    notes: Further notes for a reader.
    mechanism: Name of the run's mechanism; `None` if it had none.
  """

  chain: chain_lib.Chain
  ledger: ledger_lib.Ledger
  report: report_lib.PrivacyReport
  notes: tuple[str, ...]
  mechanism: str | None = None


def digest_files(
  run_dir: str | os.PathLike[str],
) -> dict[str, str | None]:
  """Returns digests of the files that decide a run.

  Args:
    run_dir: Directory of the run.

  Returns:
    Digests by the names of the files; `None` for a file that does not exist.
  """
  digests: dict[str, str | None] = dict.fromkeys(_FILES)
  for name in _FILES:
    path = pathlib.Path(run_dir, name)
    if path.exists():
      digests[name] = chain_lib.digest(path.read_bytes())
  return digests


def is_complete(run_dir: str | os.PathLike[str]) -> bool:
  """Whether a run has ended, and its released model is still there.

  The page may be lost, since `page.restore_release` writes it again.

  Args:
    run_dir: Directory of the run.

  Raises:
    errors.FieldError: If its chain is damaged.
  """
  path = pathlib.Path(run_dir)
  if not (path / run_directory.SUMMARY).exists():
    return False
  names = chain_lib.Chain(path).given_away.keys() - {run_directory.REPORT}
  return all((path / name).exists() for name in names)


def open_chain(run_dir: str | os.PathLike[str]) -> chain_lib.Chain:
  """Opens the chain of a run that goes on or begins.

  A directory without chain, summary and checkpoints is that of a new run.

  Args:
    run_dir: Directory of the run.

  Returns:
    The chain; empty for a new run.

  Raises:
    errors.FieldError: If the run has begun, and its chain is missing, damaged
      or contradicted by another file.
    errors.DataError: If the run has begun, and its trace is missing or damaged.
  """
  path = pathlib.Path(run_dir)
  chain = chain_lib.Chain(path)
  is_finished = (path / run_directory.SUMMARY).exists()
  if chain.found or is_finished or run_directory.checkpointed_rounds(path):
    summary = _check_files(chain, path)
    if summary is not None:
      check_told_cost(path, summary)
  return chain


def _check_files(chain: chain_lib.Chain, path: pathlib.Path) -> Any:
  """Refuses a chain if another file of its run contradicts it.

  This compares the digests of the files that decide the run, the rounds that
  checkpoints, metrics and summary mention, the trace, the card and, for a
  finished run, the released files.

  Args:
    chain: Chain of the run.
    path: Directory of the run.

  Returns:
    JSON values of the summary; None before the run has ended.

  Raises:
    errors.FieldError: If the chain is missing, or a file disagrees or is
      damaged.
    errors.DataError: If the trace is missing or damaged.
  """
  if not chain.found:
    without = "without: it was lost, or is of an earlier version"
    if (path / run_directory.TUNING_DIGESTS).exists():
      without = f"of a tuning, whose {run_directory.TUNING} says what it cost"
    raise errors.FieldError(
      "run_dir", f"hold the {chain_lib.NAME} of its run", f"{path} {without}"
    )
  for name, digest in digest_files(path).items():
    if digest != chain.found["files"][name]:
      there = "no file" if digest is None else "another file"
      raise _gainsaid(name, there, "that of the run's beginning")
  for name, number in _rounds_told(chain, path):
    if number > chain.rounds:
      raise _gainsaid(name, f"round {number:,}", f"{chain.rounds:,} rounds")
  summary = run_directory.read_json(path / run_directory.SUMMARY)
  _check_trace(chain, path, is_finished=summary is not None)
  card = run_directory.read_json(path / _card())
  line = _get(_get(card, "training"), "chain")
  if card is not None and not chain.has_line(line):
    raise _gainsaid(_card(), f"line {line}", "none like it")
  if summary is not None:
    _check_finished(chain, path, summary)
  return summary


def _check_trace(
  chain: chain_lib.Chain,
  path: pathlib.Path,
  *,
  is_finished: bool,
) -> None:
  """Refuses a trace of other rounds, or of other users in them.

  Args:
    chain: Chain of the run.
    path: Directory of the run.
    is_finished: Whether the run has ended; only a killed run's trace may have
      one round more than its chain.

  Raises:
    errors.FieldError: If the trace has more or fewer rounds, or the digest of a
      round's participants differs.
    errors.DataError: If the trace is missing or damaged.
  """
  with participation_trace.TraceReader(path / run_directory.TRACE) as trace:
    begun = trace.num_rounds - chain.rounds
    # One round may have begun when the program was killed.
    most = 0 if is_finished else 1
    if not 0 <= begun <= most:
      rounds = f"{trace.num_rounds:,} rounds"
      raise _gainsaid(run_directory.TRACE, rounds, chain.rounds)
    recorded = trace.read(chain.rounds)
    for each, digest in zip(recorded, chain.participants, strict=True):
      if each.digest != digest:
        here = f"in round {each.number + 1:,}"
        raise _gainsaid(run_directory.TRACE, "other users", here)


def _card() -> str:
  """Returns the name of the card in a run's directory."""
  return f"{run_directory.SAVED_MODEL}/{model_card.PATH}"


def check_told_cost(path: pathlib.Path, summary: Any) -> None:
  """Refuses a summary that tells another cost than the card of its model.

  Args:
    path: Directory of the run.
    summary: JSON values of its summary.

  Raises:
    errors.FieldError: If epsilon or delta differs, or the card is damaged. A
      run without a card has nothing to compare with.
  """
  card = run_directory.read_json(path / _card())
  told = _get(summary, "privacy")
  privacy = _get(card, "privacy")
  for name in ("epsilon", "delta"):
    value = _get(privacy, name)
    if value not in (None, _get(told, name)):
      there = f"{name} {_get(told, name)}"
      raise _gainsaid(run_directory.SUMMARY, there, value, _card())


def _check_finished(
  chain: chain_lib.Chain,
  path: pathlib.Path,
  summary: Any,
) -> None:
  """Refuses a finished run with a summary or released files of another run.

  Args:
    chain: Chain of the run.
    path: Directory of the run.
    summary: JSON values of its summary.

  Raises:
    errors.FieldError: If the summary names another line, number of rounds or
      number of parameters, or if a released file has another digest.
  """
  planned = chain.planned
  line = _get(summary, "chain")
  left = chain.given_away_at(str(line))
  if left is None:
    raise _gainsaid(run_directory.SUMMARY, f"chain {line}", chain.head)
  expected = {"rounds": planned.rounds}
  if planned.round_sum is not None:
    expected["num_private_parameters"] = planned.round_sum.num_parameters
  for name, value in expected.items():
    found = _get(summary, name)
    if found != value:
      raise _gainsaid(run_directory.SUMMARY, f"{name} {found}", value)
  now = chain.given_away
  for name in sorted(left.keys() | now.keys()):
    # The page may differ, since it is written again if it was lost.
    if name != run_directory.REPORT and left.get(name) != now.get(name):
      here = f"another digest of {name} behind it"
      raise _gainsaid(run_directory.SUMMARY, f"chain {line}", here)
  # Runs of an earlier version have no digests to compare.
  if now:
    _compare_files(path, now, all_of=False)


def _compare_files(
  path: pathlib.Path,
  recorded: Mapping[str, str] | None,
  record: str = chain_lib.NAME,
  *,
  all_of: bool = True,
) -> int:
  """Refuses files to be given away that differ from the recorded digests.

  Args:
    path: Directory of the run or the tuning.
    recorded: Digests by name; None or empty if there are none.
    record: Name of the file that has the digests, for errors.
    all_of: Whether all recorded files must exist.

  Returns:
    Number of files that exist and may be given away.

  Raises:
    errors.FieldError: If nothing was recorded, or a file differs.
  """
  if not recorded:
    raise errors.FieldError(
      "run_dir",
      f"hold a {record} with digests of {run_directory.RELEASE}/",
      "none: the run or tuning was cut off at its end, or is of an earlier"
      " version",
      "If it was cut off, the command that began it writes them.",
    )
  found = release.digest_files(path)
  names = set(found)
  if all_of:
    names.update(recorded)
  for name in sorted(names):
    if found.get(name) != recorded.get(name):
      there = _in_short(found.get(name))
      here = _in_short(recorded.get(name))
      raise _gainsaid(name, there, here, record)
  return len(found)


def _in_short(digest: str | None) -> str:
  """Describes a digest for a message."""
  return "none" if digest is None else f"digest {digest[:8]}"


def _rounds_told(
  chain: chain_lib.Chain, path: pathlib.Path
) -> Iterator[tuple[str, int]]:
  """Yields files that mention rounds, each with the last round mentioned.

  Args:
    chain: Chain of the run.
    path: Directory of the run.

  Yields:
    Name of a file and number of a round, from 1. A finished run's summary
    stands for all planned rounds.

  Raises:
    errors.FieldError: If the metrics are damaged.
  """
  for number in run_directory.checkpointed_rounds(path):
    yield f"{run_directory.CHECKPOINTS}/round_{number}", number
  if (path / _METRICS).exists():
    try:
      rows = pd.read_csv(path / _METRICS, usecols=["round_num"], dtype=int)
    except (OSError, ValueError) as error:
      raise run_directory.damaged(path / _METRICS, error) from error
    yield _METRICS, max(rows.round_num, default=0)
  if (path / run_directory.SUMMARY).exists():
    yield run_directory.SUMMARY, chain.planned.rounds


def _get(values: Any, name: str) -> Any:
  """Returns a value by its name; `None` if there is none."""
  return values.get(name) if isinstance(values, dict) else None


def _gainsaid(
  name: str,
  there: object,
  here: object,
  record: str = chain_lib.NAME,
) -> errors.FieldError:
  """Returns the error for a file that disagrees with a record.

  Args:
    name: Name of the file.
    there: What the file has.
    here: What the record has.
    record: Name of the record.
  """
  in_words = "the chain" if record == chain_lib.NAME else record
  return errors.FieldError(
    "run_dir",
    f"hold a {name} that agrees with its {record}",
    f"{there} there and {here} in {in_words}",
  )


def read_ledger(
  run_dir: str | os.PathLike[str],
  accountants: Sequence[str] | None = None,
) -> tuple[chain_lib.Chain, ledger_lib.Ledger]:
  """Reads the chain and the ledger of a run, and compares its files with them.

  Args:
    run_dir: Directory of the run.
    accountants: Names of accountants [those of the ledger].

  Returns:
    The chain, and the ledger of the rounds that ran.

  Raises:
    errors.FieldError: If no round ran, if a file of the run is missing, damaged
      or contradicts the others, or if an accountant is not valid for the
      participation.
    errors.DataError: If the trace is missing or damaged.
  """
  chain = chain_lib.Chain(run_dir)
  _check_files(chain, pathlib.Path(run_dir))
  if not chain.rounds:
    raise errors.FieldError(
      "run_dir", "hold a run of at least one round", f"{run_dir} without"
    )
  ledger = chain.ledger
  if accountants is not None:
    names = ledger.participation.select_accountants(accountants)
    ledger = dataclasses.replace(ledger, accountants=names)
  return chain, ledger


def recompute(
  run_dir: str | os.PathLike[str],
  accountants: Sequence[str] | None = None,
) -> Recomputed:
  """Computes what a finished or killed run has cost.

  Privacy:
    As `ledger.Ledger.report`, with the trace.

  Args:
    run_dir: Directory of the run.
    accountants: As in `read_ledger`.

  Returns:
    The account. Its notes say whether the draw was replayed, and whether the
    run is finished.

  Raises:
    errors.FieldError: As `read_ledger`; if the run's own summary has other
      figures; or if PLD is the only accountant and would take minutes.
    errors.DataError: If the trace refutes what the ledger assumes, or is not
      what the run's key draws.
  """
  chain, ledger = read_ledger(run_dir, accountants)
  epsilon_lib.check_pld(ledger)
  run_dir = pathlib.Path(run_dir)
  asked = run_directory.read_json(run_dir / run_directory.SPEC)
  with participation_trace.TraceReader(run_dir / run_directory.TRACE) as trace:
    report = ledger.report(trace)
    if chain.is_trial:
      warnings = (TRIAL_WARNING, *report.warnings)
      report = dataclasses.replace(report, warnings=warnings)
    notes = [_replay(run_dir, asked.get("sampling_seed"), ledger, trace)]
    if trace.num_rounds > ledger.rounds:
      notes.append(
        "the trace has 1 round more, which had begun when the program was"
        " killed and has released nothing"
      )
  if not (run_dir / run_directory.SUMMARY).exists():
    notes.append(
      f"the run is not finished: {ledger.rounds:,} rounds are accounted for"
    )
  else:
    _compare(run_dir, run_directory.SUMMARY, report, all_of=accountants is None)
  mechanism = (asked.get("mechanism") or {}).get("kind")
  return Recomputed(chain, ledger, report, tuple(notes), mechanism)


def check_release(run_dir: str | os.PathLike[str]) -> dict[str, Any] | None:
  """Checks that the files to be given away are those that were recorded.

  The figures of a run are recomputed and compared too.

  Args:
    run_dir: Directory of a run or a tuning.

  Returns:
    Figures that the files agree with, JSON values by name: "epsilon", "delta",
    "num_files", and for a run "accountant" and "rounds". `None` if neither a
    run nor a tuning is finished.

  Raises:
    errors.FieldError: As `recompute`; if a file in release/ differs from the
      recorded one; or if an earlier version recorded none.
    errors.DataError: As `recompute`.
  """
  path = pathlib.Path(run_dir)
  names = ["epsilon", "delta"]
  if (path / run_directory.SUMMARY).exists():
    run = recompute(run_dir)
    if run.chain.is_trial:
      raise errors.FieldError(
        "run_dir",
        "be of a run or a tuning",
        f"a trial of a tuning in {path}",
        "All of it is secret; the tuning's own release/ may be given away.",
      )
    files = _compare_files(path, run.chain.given_away)
    _compare(path, _card(), run.report)
    values = run.report.to_json()
    names += ["accountant", "rounds"]
  elif (path / run_directory.TUNING).exists():
    record = run_directory.TUNING_DIGESTS
    recorded = run_directory.read_json(path / record)
    files = _compare_files(path, recorded, record)
    values = run_directory.read_json(path / run_directory.TUNING)["privacy"]
  else:
    return None
  figures = {name: _get(values, name) for name in names}
  return figures | {"num_files": files}


def _compare(
  run_dir: pathlib.Path,
  name: str,
  report: report_lib.PrivacyReport,
  *,
  all_of: bool = True,
) -> None:
  """Refuses a file whose `privacy` differs from a report on the same rounds.

  Without `all_of`, they may be by different accountants.

  Args:
    run_dir: Directory of the run.
    name: JSON file with `privacy`, such as the summary.
    report: Report on the rounds of the chain.
    all_of: Whether all figures must be there and agree; otherwise the common
      ones except `epsilon`.

  Raises:
    errors.FieldError: If a figure differs by more than a millionth of it, or
      the file is damaged.
  """
  values = run_directory.read_json(run_dir / name)
  try:
    there = _figures(values["privacy"])
  except DAMAGES as error:
    raise run_directory.damaged(run_dir / name, error) from error
  here = _figures(report.to_json())
  names = here.keys() | there.keys()
  if not all_of:
    names = (here.keys() & there.keys()) - {"epsilon"}
  for figure in sorted(names):
    one = there.get(figure, math.nan)
    other = here.get(figure, math.nan)
    if not math.isclose(one, other, rel_tol=_RELATIVE_TOLERANCE):
      raise _gainsaid(name, f"{figure} {one:.6g}", f"{other:.6g}")


def _figures(privacy: Any) -> dict[str, float]:
  """Returns the figures that a summary and an account have in common.

  Args:
    privacy: JSON values of a report.

  Returns:
    Figures by name, infinity included.

  Raises:
    KeyError, TypeError, ValueError, AttributeError: If a figure is missing or
      damaged; see `DAMAGES`.
  """
  figures = {name: float(privacy[name]) for name in _COMPARED}
  for name, epsilon in privacy["epsilon_by_accountant"].items():
    figures[f"epsilon by {name}"] = float(epsilon)
  return figures


def _replay(
  run_dir: pathlib.Path,
  sampling_seed: int | None,
  ledger: ledger_lib.Ledger,
  trace: participation_trace.TraceReader,
) -> str:
  """Draws the users of all rounds again; returns a note on the comparison.

  A run without a key cannot be replayed, which the note says.

  Args:
    run_dir: Directory of the run.
    sampling_seed: Seed of the draw, if the spec has one.
    ledger: Ledger of the run.
    trace: Trace of the run.

  Raises:
    participation_lib.ClaimError: If a round has other users, or other virtual
      clients; names the first.
  """
  draw: Callable[[int], list[np.ndarray]]
  deployed = run_directory.read_json(run_dir / run_directory.DEPLOYMENT)
  if deployed is not None:
    source = run_directory.DEPLOYMENT
    drawn_by = "the run's deployment gives"
    simulation = deployment_lib.read_simulation(deployed)
    draw = deployment_lib.DeployedRounds(simulation, os.devnull).draw
  else:
    key = sampling_seed
    source = "sampling_seed"
    if key is None:
      key = sampling_key.read(run_dir / run_directory.CHECKPOINTS)
      source = f"{run_directory.CHECKPOINTS}/{sampling_key.NAME}"
    if key is None:
      return (
        f"there is no {source}: the draw was not replayed, and whether users"
        " were drawn at random is unchecked"
      )
    drawn_by = f"{ledger.participation.name} draws from the run's key"
    draw = functools.partial(ledger.participation.sample, key=key)
  for recorded in trace:
    number = recorded.number
    drawn = participation_trace.RecordedRound.of(number, draw(number))
    if not recorded.is_as(drawn):
      raise participation_lib.ClaimError(
        f"the users of every round must be those that {drawn_by}; round"
        f" {number:,} of the trace has {recorded.slots.size:,} users"
        f" in {recorded.num_clients:,} virtual clients where it draws others,"
        f" {drawn.slots.size:,} in {drawn.num_clients:,}."
      )
  return (
    f"the draw of all {trace.num_rounds:,} rounds was replayed from {source}:"
    " the same users, in the same virtual clients"
  )
