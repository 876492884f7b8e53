"""A privacy budget that several runs on the same users share, in a file.

Every run is charged for all its rounds before the first of them, under a lock,
so that programs that start at once cannot both spend what is left. Once it is
done, the charge is what its rounds have cost. Runs compose: one user's data may
be in all of them, and later ones may depend on what earlier ones released.
"""

from __future__ import annotations

from collections.abc import Sequence
import dataclasses
import datetime
import functools
import json
import math
import os
import pathlib
from typing import Any

from tff_fedemb import checks
from tff_fedemb import config
from tff_fedemb import errors
from tff_fedemb import whole_files
from tff_fedemb.privacy import arithmetic
from tff_fedemb.privacy import composition
from tff_fedemb.privacy import epsilon as epsilon_lib
from tff_fedemb.privacy import ledger as ledger_lib
from tff_fedemb.privacy import monte_carlo
from tff_fedemb.privacy import tuning

_FORMAT = ["tff_fedemb.privacy.budget", 1]
# Epsilon of the same events in another order differs by rounding alone.
_ROUNDING = 1e-9


def compose(
  ledgers: Sequence[ledger_lib.Ledger],
  delta: float,
  *,
  tunings: Sequence[tuple[ledger_lib.Ledger, tuning.RepeatAndSelect]] = (),
) -> float:
  """Returns the epsilon of all rounds of several runs on the same users.

  Privacy:
    Unit: user.
    Neighbouring relation: that of the participations, the same for all; the
      user's slot stays empty in every run.
    Sensitivity: each participation's own.
    DpEvent: the adaptive composition of the runs' `composed_events`, and of a
      `RepeatAndSelectDpEvent` for each tuning.

  Args:
    ledgers: Ledgers of the runs; their own deltas do not count.
    delta: At which epsilon is wanted, in (0, 1).
    tunings: Ledgers of one trial each, and how many there were.

  Returns:
    Epsilon by the tightest accountant that all runs have, and what the
    arithmetic of independent noise adds; 0 without a round.

  Raises:
    errors.FieldError: If these runs cannot be composed.
  """
  checks.check_delta(delta)
  ledgers = [each for each in ledgers if each.rounds]
  if not ledgers and not tunings:
    return 0.0
  events = composition.merge_rounds(
    [
      event
      for each in ledgers
      for event in composition.composed_events(*each.run)
    ]
    + [(selection.event(trial), 1) for trial, selection in tunings]
  )
  claims = [each.participation for each in ledgers]
  claims += [trial.participation for trial, _ in tunings]
  relations = {each.neighboring_relation for each in claims}
  names = [
    name
    for name in claims[0].accountants
    if all(name in each.accountants for each in claims)
    and name != "monte_carlo"
  ]
  if tunings:
    # No other accountant knows of a choice.
    names = [name for name in names if name == "rdp"]
  is_mixture = any(
    isinstance(event, monte_carlo.MixtureDpEvent) for event, _ in events
  )
  if len(relations) > 1 or not names or is_mixture:
    raise errors.FieldError(
      "participation",
      "have the neighbouring relation of the other runs of privacy_budget, and"
      " an accountant in common with them",
      sorted({f"{p.name}: {p.neighboring_relation.name}" for p in claims}),
      "What a whole run costs by Monte Carlo is not composed with others.",
    )
  # Where the exact figure is known, no bound adds anything.
  names = ["gaussian"] if "gaussian" in names else names
  (relation,) = relations

  def epsilon_at(delta: float) -> float:
    return epsilon_lib.leading(
      epsilon_lib.epsilons_of(
        events, delta, accountants=names, neighboring_relation=relation
      )
    )[1]

  computed = [each for each in ledgers if arithmetic.is_known(each)]
  if not computed:
    return epsilon_at(delta)
  # One sum that is no better than any of the runs'.
  sums = [each.round_sum for each in computed]
  size = max(each.num_parameters for each in sums)
  coarsest = max(s.noise_multiplier * math.sqrt(s.num_parameters) for s in sums)
  round_sum = composition.RoundSum(1.0, coarsest / math.sqrt(size), size)
  return arithmetic.add_to_epsilon(
    epsilon_at,
    delta,
    round_sum=round_sum,
    runs=sum(each.num_runs for each in computed),
  )


@dataclasses.dataclass(frozen=True, kw_only=True)
class Charge(config.Config):
  """What one run may cost, or has cost.

  Attributes:
    id: Tells runs apart; it is in no other file of the run.
    run_dir: Where the run was, for the reader.
    time: When it was charged, UTC.
    is_finished: Whether the ledger is that of a run that is done.
    ledger: Ledger of all its rounds; for a tuning, of one trial.
    selection: How many trials there were, for a tuning.
  """

  id: str = ""
  run_dir: str = ""
  ledger: ledger_lib.Ledger = config.part()
  time: str = ""
  is_finished: bool = False
  selection: tuning.RepeatAndSelect | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Budget(config.Config):
  """What runs on the same users may cost together.

  Attributes:
    epsilon: Epsilon of all runs together.
    delta: At which epsilon is stated.
    num_users: Number of users who train in every run.
    users: Digest of their identifiers; that of the first run if None.
    charges: What the runs cost, in the order in which they were charged.
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
    if fields.pop("format", _FORMAT) != _FORMAT:
      raise ValueError("a file of another version")
    charges = tuple(map(Charge.from_json, fields.pop("charges", ())))
    return cls(**config.read_fields(cls, fields), charges=charges)

  def to_text(self) -> str:
    """Who spent what, and what is left."""
    lines = [
      f"epsilon {self.spent:.4g} of {self.epsilon:.4g} is spent, at delta"
      f" {self.delta:g}, on {self.num_users:,} users:"
    ]
    for each in self.charges:
      alone = _compose([each], self.delta)
      state = "finished" if each.is_finished else "charged for all its rounds"
      if each.selection is not None:
        state = "a tuning, charged for all its trials"
      lines.append(
        f"  {each.time}  {each.run_dir}: {each.ledger.rounds:,} rounds, epsilon"
        f" {alone:.4g} by itself ({state})"
      )
    if not self.charges:
      lines.append("  no run yet")
    return "\n".join(lines)


def _compose(charges: Sequence[Charge], delta: float) -> float:
  """Returns the epsilon of runs and tunings."""
  return compose(
    [each.ledger for each in charges if each.selection is None],
    delta,
    tunings=[
      (each.ledger, each.selection)
      for each in charges
      if each.selection is not None
    ],
  )


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
  before, num_users = read(path), charge.ledger.participation.num_users
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
  # In place of its earlier charge.
  others = [each for each in before.charges if each.id != charge.id]
  after = dataclasses.replace(
    before, users=users or before.users, charges=(*others, charge)
  )
  if not charge.is_finished and after.spent > after.epsilon * (1.0 + _ROUNDING):
    raise errors.FieldError(
      "privacy_budget",
      f"have enough left for the run, with which all runs would cost epsilon"
      f" {after.spent:.4g} at delta {after.delta:g}",
      f"{before.spent:.4g} of {before.epsilon:.4g} spent in {path}",
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
  is_finished: bool = False,
  selection: tuning.RepeatAndSelect | None = None,
) -> Budget:
  """Charges a run to a budget, in place of what it was charged before.

  Args:
    path: File of the budget.
    ledger: All rounds of the run, before the first of them or after the last.
    run_id: Tells the run from all others.
    run_dir: Where it is.
    users: Digest of the identifiers of its users.
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
  )
  read(path)  # No lock is left beside a file that is not there.
  with whole_files.locked(path):
    after = _add(path, added, users)
    with whole_files.replacing(path) as partial:
      partial.write_text(
        json.dumps(after.to_json(), indent=2) + "\n", encoding="utf-8"
      )
  return after
