"""A privacy budget that several runs on the same users share, in a file.

Every run is charged for all its rounds before the first of them, under a lock,
so that programs that start at once cannot both spend what is left. Once it is
done, the charge is what its rounds have cost. Runs compose: one user's data may
be in all of them, and later ones may depend on what earlier ones released.

A directory may be copied, or restored from a backup, and go on twice. So a
charge holds the lines that the run's chain has of its rounds, and the run tells
of each new one before the model of that round is used. A chain that lacks one
of them is that of a copy, which is charged beside the run. What both have in
common counts once. The other rounds count as rounds that ran again, because the
copy has the key that the users are drawn from.
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
# Digits of a line's digest that tell it from all others.
_DIGITS = 16
# Epsilon of the same events in another order differs by rounding alone.
_ROUNDING = 1e-9


@dataclasses.dataclass(frozen=True, kw_only=True)
class Charge(config.Config):
  """Cost of one run, or of a copy of it: allowed, or spent.

  Attributes:
    id: Tells runs apart, but not a run from its copies; it is in no other file
      of the run.
    run_dir: Where the run was, for the reader.
    time: When it was charged, UTC.
    is_finished: Whether the ledger is that of a run that is done.
    ledger: Ledger of all its rounds; for a tuning, of one trial.
    selection: How many trials there were, for a tuning.
    lines: For each round that ran, the lines of its chain, one for each time:
      the first digits of their digests, with spaces between them.
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
    """How often each round is to run in all, and the lines that tell of it."""
    pairs = itertools.zip_longest(
      self.ledger.times, (frozenset(lines.split()) for lines in self.lines)
    )
    return [(times or 0, lines or frozenset()) for times, lines in pairs]

  @property
  def num_lines(self) -> int:
    """Number of lines that are known."""
    return sum(len(lines) for _, lines in self.rounds)

  def goes_on_from(self, other: Charge) -> bool:
    """Whether this is the same run as an earlier charge, and no copy of it."""
    if self.id != other.id:
      return False
    pairs = itertools.zip_longest(
      self.rounds, other.rounds, fillvalue=(0, frozenset())
    )
    for (_, ours), (times, theirs) in pairs:
      if not theirs <= ours:
        return False
      # All that a finished run cost is known, or nothing may take its place.
      if other.is_finished and times > len(theirs):
        return False
    return True


def _in_short(lines: Iterable[str]) -> str:
  """The first digits of the digests of some lines, with spaces in between."""
  return " ".join(line[:_DIGITS] for line in lines)


def _merge(charges: Sequence[Charge]) -> list[ledger_lib.Ledger]:
  """Returns what a run and its copies cost, which draw the same users.

  Privacy:
    Independent noise: a round whose lines differ ran again, on the same users.
    Correlated noise: copies have it in common up to some round, and noise of
    their own from there on. As many releases with noise of their own from the
    first round on tell no less, and with the same rounds of a user they are one
    release with the noise over the square root of their number.

  Args:
    charges: At least one, all of one id.
  """
  ledgers = [each.ledger for each in charges]
  noises = {each.noise for ledger in ledgers for each in ledger.history}
  if len(charges) == 1 or len(noises) != 1:
    return ledgers
  (noise,) = noises
  times = []
  rounds_of_all = [each.rounds for each in charges]
  for runs in itertools.zip_longest(*rounds_of_all, fillvalue=(0, frozenset())):
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
  whole = dataclasses.replace(ledgers[0], history=())
  return [whole.with_runs(noise, times)]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Budget(config.Config):
  """The cost that runs on the same users share.

  Attributes:
    epsilon: Epsilon of all runs together.
    delta: At which epsilon is stated.
    num_users: Number of users who train in every run.
    users: Digest of their identifiers; that of the first run if None.
    charges: Costs of the runs, in the order in which they were charged.
  """

  epsilon: float = config.field(above=0)
  delta: float = config.field(**checks.DELTA_RANGE)
  num_users: int = config.field(minimum=1)
  users: str | None = None
  charges: tuple[Charge, ...] = ()

  @functools.cached_property
  def spent(self) -> float:
    """Epsilon of all runs that were charged."""
    return _compose(self.charges, self.delta)

  def to_json(self) -> dict[str, Any]:
    return {
      "format": _FORMAT,
      **super().to_json(),
      "charges": [each.to_json() for each in self.charges],
    }

  @classmethod
  def from_json(cls, values: Any) -> Budget:
    """Inverse of `to_json`; `format`, `users` and `charges` may be missing.

    Raises:
      ValueError: If a value is out of its range.
      KeyError: If one is missing; or TypeError.
    """
    fields = dict(values)
    if fields.pop("format", _FORMAT) not in _FORMATS:
      raise ValueError("a file of another version")
    charges = tuple(map(Charge.from_json, fields.pop("charges", ())))
    return cls(**config.read_fields(cls, fields), charges=charges)

  def to_text(self) -> str:
    """Who spent what, and what is left."""
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
    return "\n".join(lines)


def _ledgers(charges: Sequence[Charge]) -> list[ledger_lib.Ledger]:
  """Ledgers of all charged runs and their copies, without tunings."""
  runs: dict[str, list[Charge]] = {}
  for each in charges:
    if each.selection is None:
      runs.setdefault(each.id, []).append(each)
  return [ledger for each in runs.values() for ledger in _merge(each)]


def _compose(charges: Sequence[Charge], delta: float) -> float:
  """Returns the epsilon of runs, each with its copies, and of tunings."""
  tunings = [
    (each.ledger, each.selection)
    for each in charges
    if each.selection is not None
  ]
  return budget_composition.compose(_ledgers(charges), delta, tunings=tunings)


def read(path: str | os.PathLike[str]) -> Budget:
  """Reads a budget.

  Args:
    path: A JSON file with epsilon, delta and num_users, and after the first
      run what was charged.

  Raises:
    errors.FieldError: If there is none, or it is damaged.
  """
  try:
    return Budget.from_json(json.loads(pathlib.Path(path).read_text("utf-8")))
  except FileNotFoundError as error:
    raise errors.FieldError(
      "privacy_budget",
      'be a JSON file like {"epsilon": 4, "delta": 1e-6, "num_users": 20000}',
      f"no file {path}",
    ) from error
  except (OSError, ValueError, KeyError, TypeError) as error:
    raise errors.FieldError(
      "privacy_budget", "be a privacy budget", f"{path}: {error}"
    ) from error


def _add(path: pathlib.Path, charge: Charge, users: str | None) -> Budget:
  """Returns a budget with a charge, if that may be added."""
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
  # In place of its earlier charge: of several, that with most in common.
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
  # A round that was to come has run, as a rule, and changes nothing.
  is_known = earlier is not None and charge.selection is None
  if is_known and _ledgers(after.charges) == _ledgers(before.charges):
    return after
  if after.spent > after.epsilon * (1.0 + _ROUNDING):
    copies = sorted({each.run_dir for each in others if each.id == charge.id})
    advice = (
      "A copy of the run, or the run that this is a copy of, went on in"
      f" {', '.join(copies)} and counts as well."
    )
    raise errors.FieldError(
      "privacy_budget",
      f"have enough left for the run, with which all runs would cost epsilon"
      f" {after.spent:.4g} at delta {after.delta:g}",
      f"{before.spent:.4g} of {before.epsilon:.4g} spent in {path}",
      advice if copies else "",
    )
  return after


def check(
  path: str | os.PathLike[str],
  ledger: ledger_lib.Ledger,
  *,
  users: str | None = None,
) -> None:
  """Finds out whether a new run could be charged, and changes nothing.

  Args:
    path: File of the budget.
    ledger: All rounds of the run.
    users: Digest of the identifiers of its users, if it is known.

  Raises:
    errors.FieldError: As `charge`.
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
  """Charges a run to a budget, in place of what it was charged before.

  A charge that has lines which this run lacks, or that is finished and is not
  known to be a part of it, stays: the run is then a copy, and charged beside.

  Args:
    path: File of the budget.
    ledger: All rounds of the run, those to come as well.
    run_id: Tells the run and its copies from all others.
    run_dir: Where it is.
    users: Digest of the identifiers of its users.
    lines: For each round that ran, digests of its lines in the run's chain.
    is_finished: Whether the rounds have run. Their cost is written down
      whatever it is: nothing takes it back.
    selection: How the number of trials was drawn, if it is a tuning.

  Returns:
    The budget, as it is in the file now.

  Raises:
    errors.FieldError: If too little is left for the run, it is on other users,
      or there is no such budget; the file is as it was then.
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
  read(path)  # No lock is left beside a file that is not there.
  with whole_files.locked(path):
    after = _add(path, added, users)
    with whole_files.replacing(path) as partial:
      partial.write_text(
        json.dumps(after.to_json(), indent=2) + "\n", encoding="utf-8"
      )
  return after
