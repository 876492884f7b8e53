"""A privacy budget that several runs on the same users share, in a file.

Every run is charged for all its rounds before the first of them. This happens
under a lock, so that programs that start at the same time cannot both spend the
rest of the budget. Once the run is done, the charge is the cost of its rounds.
Runs compose: one user's data may be in all of them, and later runs may start
from what earlier ones released. Their noise, cohort and rounds must be chosen
without it (`budget_composition`).

A run's directory may be copied, or restored from a backup, so that the run
continues twice. A charge therefore holds the lines of the run's chain, which
has a line for each round, and the run reports each new line before the model of
that round is used. If a chain lacks one of these lines, it belongs to a copy,
which is charged beside the run. Rounds that both have in common count once. The
other rounds count as repeated rounds, because the copy draws its users with the
same key.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
import dataclasses
import datetime
import functools
import itertools
import json
import math
import os
import pathlib
from typing import Any

from tff_fedemb import checks
from tff_fedemb import config
from tff_fedemb import errors
from tff_fedemb import whole_files
from tff_fedemb.accounting import ledger as ledger_lib
from tff_fedemb.accounting import tuning
from tff_fedemb.planning import budget_composition

_FORMAT = ["tff_fedemb.privacy.budget", 2]
# Charges of the first version have no lines.
_FORMATS = (_FORMAT, ["tff_fedemb.privacy.budget", 1])
# So many digits of a line's digest tell it from all others.
_DIGITS = 16
# A round that a charge does not have, as in `Charge.rounds`.
_NOT_A_ROUND: tuple[int, frozenset[str]] = (0, frozenset())
# In another order, the epsilon of the same events differs by rounding alone.
_ROUNDING = 1e-9


@dataclasses.dataclass(frozen=True, kw_only=True)
class Charge(config.Config):
  """Cost of one run, or of a copy of it: allowed, or spent.

  Attributes:
    id: Tells runs apart, but not a run from its copies. No other file of the
      run has it.
    run_dir: Directory of the run, for the reader.
    time: When it was charged, UTC.
    is_finished: Whether the run is done.
    ledger: Ledger of all its rounds; for a tuning, of one trial.
    selection: How the number of trials was drawn, for a tuning.
    lines: For each round that ran, its lines in the chain, one for each time
      that it ran: the first digits of their digests, separated by spaces.
  """

  id: str = ""
  run_dir: str = ""
  ledger: ledger_lib.Ledger = config.part()
  time: str = ""
  is_finished: bool = False
  selection: tuning.RepeatAndSelect | None = None
  lines: tuple[str, ...] = ()

  @functools.cached_property
  def rounds(self) -> list[tuple[int, frozenset[str]]]:
    """How often each round runs in total, and its known lines in the chain.

    One pair for each round of the ledger or of the lines, whichever has more: 0
    times for a round that the ledger lacks, no lines for one that has not run.
    """
    pairs = itertools.zip_longest(self.ledger.times, self.lines)
    return [
      (times or 0, frozenset((lines or "").split())) for times, lines in pairs
    ]

  @property
  def num_lines(self) -> int:
    """Number of known lines, of all rounds together."""
    return sum(len(lines) for _, lines in self.rounds)

  def goes_on_from(self, other: Charge) -> bool:
    """Returns whether this is the same run as an earlier charge, and no copy.

    Args:
      other: A charge that is in the budget.

    Returns:
      True if both have one id and this charge has all lines of the other in the
      same rounds; if the other is finished, all its rounds must have known
      lines.
    """
    if self.id != other.id:
      return False
    pairs = itertools.zip_longest(
      self.rounds, other.rounds, fillvalue=_NOT_A_ROUND
    )
    for (_, ours), (times, theirs) in pairs:
      if not theirs <= ours:
        return False
      # A finished run may be replaced only if all its lines are known.
      if other.is_finished and times > len(theirs):
        return False
    return True


def _in_short(lines: Iterable[str]) -> str:
  """The first digits of the digests of some lines, separated by spaces."""
  return " ".join(line[:_DIGITS] for line in lines)


def _merge(charges: Sequence[Charge]) -> list[ledger_lib.Ledger]:
  """Returns ledgers of a run and its copies, which draw the same users.

  Privacy:
    Independent noise: a round whose lines differ ran again, on the same users.
    Correlated noise: copies have the same noise up to some round, and noise of
    their own after it. As many releases that have noise of their own from the
    first round on reveal no less. If a user is in the same rounds of all of
    them, they are one release whose noise is divided by the square root of
    their number.

  Args:
    charges: At least one, all of one id.

  Returns:
    One ledger of all copies; their own ledgers if the noise is not the same in
    all rounds of all of them.
  """
  ledgers = [each.ledger for each in charges]
  noises = {each.noise for ledger in ledgers for each in ledger.history}
  if len(charges) == 1 or len(noises) != 1:
    return ledgers
  (noise,) = noises
  times = []
  rounds_of_all = [each.rounds for each in charges]
  for runs in itertools.zip_longest(*rounds_of_all, fillvalue=_NOT_A_ROUND):
    known: set[str] = set()
    to_come = 0
    for count, lines in runs:
      known |= lines
      to_come += max(count - len(lines), 0)
    times.append(len(known) + to_come)
  if noise.strategy is not None:
    multiplier = noise.multiplier / math.sqrt(max(times))
    noise = dataclasses.replace(noise, multiplier=multiplier)
    times = [1] * len(times)
  whole = ledgers[0].without_rounds()
  return [whole.with_runs(noise, times)]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Budget(config.Config):
  """A budget that runs on the same users share.

  Attributes:
    epsilon: Epsilon that all runs together may cost at most.
    delta: Delta of this epsilon.
    num_users: Number of users who train in every run.
    users: Digest of their identifiers; None until the first run sets it.
    charges: Costs of the runs, in the order in which they were charged.
  """

  epsilon: float = config.field(above=0)
  delta: float = config.field(**checks.DELTA_RANGE)
  num_users: int = config.field(minimum=1)
  users: str | None = None
  charges: tuple[Charge, ...] = ()

  @functools.cached_property
  def spent(self) -> float:
    """Epsilon of all charged runs together at `delta`; 0 without a charge.

    Its first use composes all charges, which may take seconds.

    Raises:
      errors.FieldError: If the charged runs cannot be composed.
    """
    return _compose(self.charges, self.delta)

  def to_json(self) -> dict[str, Any]:
    """Returns the fields as JSON values by name, with the file's `format`.

    The charges are written even if there are none.
    """
    return {
      "format": _FORMAT,
      **super().to_json(),
      "charges": [each.to_json() for each in self.charges],
    }

  @classmethod
  def from_json(cls, values: Any) -> Budget:
    """Inverse of `to_json`; `format`, `users` and `charges` may be missing.

    Args:
      values: A mapping of JSON values by name, as it was read from a file.

    Returns:
      The budget; charges of the first version of the format have no lines.

    Raises:
      ValueError: If a value is out of its range, or the format is unknown.
      KeyError: If a value is missing.
      TypeError: If a value has another type.
    """
    fields = dict(values)
    if fields.pop("format", _FORMAT) not in _FORMATS:
      raise ValueError("a file of another version")
    charges = tuple(map(Charge.from_json, fields.pop("charges", ())))
    return super().from_json({**fields, "charges": charges})

  def to_text(self) -> str:
    """Returns the cost of each run, and how much of the budget is spent.

    Returns:
      A line on the whole budget and one for each charge, without a line break
      at the end. What a run costs by itself does not add up to what is spent,
      because runs are composed.
    """
    lines = [
      f"epsilon {self.spent:.4g} of {self.epsilon:.4g} is spent, at delta"
      f" {self.delta:g}, on {self.num_users:,} users:"
    ]
    seen: set[str] = set()
    for each in self.charges:
      alone = _compose([each], self.delta)
      state = "finished" if each.is_finished else "charged for all its rounds"
      if each.selection is not None:
        state = "a tuning, charged for all its trials"
      if each.id in seen:
        state += "; a copy of the run above, with which it shares rounds"
      seen.add(each.id)
      lines.append(
        f"  {each.time}  {each.run_dir}: {each.ledger.rounds:,} rounds, epsilon"
        f" {alone:.4g} by itself ({state})"
      )
    if not self.charges:
      lines.append("  no run yet")
    if len(self.charges) > 1:
      lines.append(
        "This holds if no earlier model decided the noise, cohort or rounds of"
        " a later run."
      )
    return "\n".join(lines)


def _ledgers(charges: Sequence[Charge]) -> list[ledger_lib.Ledger]:
  """Returns ledgers of all runs, each with its copies, without tunings.

  Charges of one id are a run and its copies, which `_merge` combines.
  """
  runs: dict[str, list[Charge]] = {}
  for each in charges:
    if each.selection is None:
      runs.setdefault(each.id, []).append(each)
  ledgers = []
  for copies in runs.values():
    ledgers += _merge(copies)
  return ledgers


def _compose(charges: Sequence[Charge], delta: float) -> float:
  """Returns the epsilon of runs, each with its copies, and of tunings."""
  tunings = []
  for each in charges:
    if each.selection is not None:
      tunings.append((each.ledger, each.selection))
  return budget_composition.compose(_ledgers(charges), delta, tunings=tunings)


def read(path: str | os.PathLike[str]) -> Budget:
  """Reads a budget.

  Args:
    path: A JSON file with epsilon, delta and num_users, and, after the first
      run, with the charges.

  Returns:
    The budget as it is now; another program may charge to it at any time.

  Raises:
    errors.FieldError: If the file is missing or damaged.
  """
  try:
    return Budget.from_json(json.loads(pathlib.Path(path).read_text("utf-8")))
  except FileNotFoundError as error:
    raise errors.FieldError(
      "privacy_budget",
      'be a JSON file like {"epsilon": 4, "delta": 1e-6, "num_users": 20000}',
      f"no file {path}",
    ) from error
  except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
    raise errors.FieldError(
      "privacy_budget", "be a privacy budget", f"{path}: {error}".rstrip(".")
    ) from error


def _add(path: pathlib.Path, charge: Charge, users: str | None) -> Budget:
  """Returns a budget with a charge added, and changes no file.

  Args:
    path: File of the budget.
    charge: The charge, which replaces an earlier one of the same run.
    users: Digest of the identifiers of its users; None if it is not known.

  Raises:
    errors.FieldError: As the function `charge`.
  """
  before = read(path)
  num_users = charge.ledger.participation.num_users
  if num_users != before.num_users:
    raise errors.FieldError(
      "privacy_budget",
      f"be one of a population of {num_users:,} users, as the run's is",
      f"one of {before.num_users:,}",
    )
  if users and before.users not in (None, users):
    raise errors.FieldError(
      "privacy_budget",
      "be one of the users of this run",
      "one that runs on other users were charged to",
    )
  # Replaces the run's earlier charge; among several, that with most in common.
  earlier = max(
    filter(charge.goes_on_from, before.charges),
    key=lambda each: (each.num_lines, each.run_dir == charge.run_dir),
    default=None,
  )
  others = [each for each in before.charges if each is not earlier]
  after = dataclasses.replace(
    before, users=users or before.users, charges=tuple(others + [charge])
  )
  if charge.is_finished:
    return after
  # Usually a planned round has run, which changes nothing.
  is_known = earlier is not None and charge.selection is None
  if is_known and _ledgers(after.charges) == _ledgers(before.charges):
    return after
  if after.spent > after.epsilon * (1.0 + _ROUNDING):
    copies = sorted({each.run_dir for each in others if each.id == charge.id})
    advice = ""
    if copies:
      advice = (
        "A copy of the run, or the run that this is a copy of, went on in"
        f" {', '.join(copies)} and counts as well."
      )
    raise errors.FieldError(
      "privacy_budget",
      f"have enough left for the run, with which all runs would cost epsilon"
      f" {after.spent:.4g} at delta {after.delta:g}",
      f"{before.spent:.4g} of {before.epsilon:.4g} spent in {path}",
      advice,
    )
  return after


def check(
  path: str | os.PathLike[str],
  ledger: ledger_lib.Ledger,
  *,
  users: str | None = None,
) -> None:
  """Checks that a new run could be charged, and changes nothing.

  Args:
    path: File of the budget.
    ledger: All rounds of the run.
    users: Digest of the identifiers of its users; None if it is not known.

  Raises:
    errors.FieldError: As `charge`: the budget must be readable, of as many
      users, of the same users where both are known, and have enough left.
  """
  _add(pathlib.Path(path), Charge(ledger=ledger), users)


def charge(
  path: str | os.PathLike[str],
  ledger: ledger_lib.Ledger,
  *,
  run_id: str,
  run_dir: str,
  users: str,
  lines: Sequence[Sequence[str]] = (),
  is_finished: bool = False,
  selection: tuning.RepeatAndSelect | None = None,
) -> Budget:
  """Charges a run to a budget, in place of its earlier charge.

  An earlier charge stays if it has lines that this run lacks, or if it is
  finished and not known to be a part of this run. The run is then a copy and is
  charged beside it.

  The file is locked while it is read and replaced, so that two programs cannot
  both spend what is left.

  Args:
    path: File of the budget; a symbolic link is followed.
    ledger: All rounds of the run, also those still to come.
    run_id: Tells the run and its copies from all others.
    run_dir: Directory of the run.
    users: Digest of the identifiers of its users.
    lines: For each round that ran, digests of its lines in the run's chain.
    is_finished: Whether the rounds have run. Then their cost is written
      even if it exceeds the budget, because it cannot be taken back.
    selection: How the number of trials was drawn, if it is a tuning.

  Returns:
    The budget that is in the file now.

  Raises:
    errors.FieldError: If too little is left for the run, if it has other users,
      or if there is no such budget. The file is then unchanged.
  """
  path = pathlib.Path(os.path.realpath(path))
  now = datetime.datetime.now(datetime.UTC)
  added = Charge(
    id=run_id,
    run_dir=run_dir,
    ledger=ledger,
    time=now.isoformat(timespec="seconds"),
    is_finished=is_finished,
    selection=selection,
    lines=tuple(_in_short(each) for each in lines),
  )
  read(path)  # So that no lock is left beside a file that does not exist.
  with whole_files.locked(path):
    after = _add(path, added, users)
    with whole_files.replacing(path) as partial:
      partial.write_text(
        json.dumps(after.to_json(), indent=2) + "\n", encoding="utf-8"
      )
  return after
