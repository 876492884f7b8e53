"""The privacy ledger: what happened, round by round, and what it cost.

One event per round, kept run-length encoded, so that the ledger of a long run
is a few numbers. It is stored in the checkpoint; a resumed run goes on as if
it had never stopped.
"""

from collections.abc import Sequence
import json
from typing import Any

import dp_accounting

from tff_fedemb import checks
from tff_fedemb.data import participation_check
from tff_fedemb.data import participation_trace
from tff_fedemb.data.participation import participation as participation_lib
from tff_fedemb.data.participation import registry as participations
from tff_fedemb.privacy import composition
from tff_fedemb.privacy import epsilon as epsilon_lib
from tff_fedemb.privacy import report as report_lib
from tff_fedemb.strategies import registry as strategies
from tff_fedemb.strategies import strategy as strategy_lib

_FORMAT = "tff_fedemb.privacy.ledger"
_VERSION = 1

# Events that a stored ledger may hold, with their parameters.
_EVENT_CLASSES: dict[str, tuple[type[dp_accounting.DpEvent], tuple[str, ...]]]
_EVENT_CLASSES = {
  "CorrelatedGaussianDpEvent": (
    strategy_lib.CorrelatedGaussianDpEvent,
    ("noise_multiplier", "strategy"),
  ),
  "GaussianDpEvent": (dp_accounting.GaussianDpEvent, ("noise_multiplier",)),
  "NonPrivateDpEvent": (dp_accounting.NonPrivateDpEvent, ()),
}

_Run = tuple[dp_accounting.DpEvent, int]


class Ledger:
  """Records the rounds of a run and says what they cost.

  Privacy:
    Unit: user.
    Neighbouring relation: the participation's.
    Sensitivity: the participation's, in clip norms.
    DpEvent: `composition.composed_events` of the rounds.
  """

  def __init__(
    self,
    participation: participation_lib.Participation,
    *,
    delta: float,
    accountants: Sequence[str] | None = None,
  ):
    """Creates an empty ledger.

    Args:
      participation: Who takes part in every round.
      delta: At which epsilon is stated, in (0, 1).
      accountants: Names of the accountants; all that the participation
        supports if None.

    Raises:
      ValueError: If delta is out of range or an accountant not supported.
    """
    checks.check_delta(delta)
    self._participation = participation
    self._delta = float(delta)
    self._accountants = participation.select_accountants(accountants)
    self._history: list[_Run] = []

  @property
  def participation(self) -> participation_lib.Participation:
    """Who takes part in every round."""
    return self._participation

  @property
  def delta(self) -> float:
    """At which epsilon is stated."""
    return self._delta

  @property
  def accountants(self) -> tuple[str, ...]:
    """Names of the accountants, cheapest first."""
    return self._accountants

  @property
  def rounds(self) -> int:
    """Number of rounds recorded."""
    return sum(count for _, count in self._history)

  @property
  def history(self) -> tuple[tuple[dp_accounting.DpEvent, int], ...]:
    """Pairs of a mechanism's event and how many rounds in a row it ran."""
    return tuple(self._history)

  def record_round(self, mechanism_event: dp_accounting.DpEvent) -> None:
    """Adds one round.

    Privacy:
      As the class; the event is stated at a sensitivity of one clip norm.

    Args:
      mechanism_event: As in `composition.composed_events`.

    Raises:
      ValueError: If the event is not supported, or not after those before it.
    """
    # Refused now rather than hours later, when an epsilon is wanted.
    composition.check_mechanism_event(mechanism_event, self._participation)
    correlated = strategy_lib.CorrelatedGaussianDpEvent
    if (
      self._history
      and mechanism_event != self._history[-1][0]
      and isinstance(mechanism_event, correlated)
      | isinstance(self._history[-1][0], correlated)
    ):
      raise ValueError(
        "mechanism_event must be the same in all rounds where noise is "
        f"correlated over rounds, found {mechanism_event} after "
        f"{self._history[-1][0]}."
      )
    if self._history and self._history[-1][0] == mechanism_event:
      self._history[-1] = (mechanism_event, self._history[-1][1] + 1)
    else:
      self._history.append((mechanism_event, 1))

  def epsilon(self, accountant: str | None = None) -> float:
    """Returns the epsilon of the rounds so far.

    By RDP it takes well under a second whatever the number of rounds; by PLD
    seconds or, at noise multipliers below 0.1, minutes.

    Args:
      accountant: Its name; the cheapest of the ledger's if None.

    Raises:
      ValueError: If the accountant is not one of the ledger's.
    """
    return self._epsilon(self._check_accountant(accountant), self._history)

  def epsilon_curve(
    self, rounds: Sequence[int], *, accountant: str | None = None
  ) -> list[float]:
    """Returns epsilon after each of the given numbers of rounds.

    Args:
      rounds: Numbers of rounds, each in [0, self.rounds], in any order.
      accountant: Its name; the cheapest of the ledger's if None.

    Raises:
      ValueError: If a number is out of range, or the accountant is not one of
        the ledger's.
    """
    accountant = self._check_accountant(accountant)
    rounds = [
      checks.check_integer("rounds", number, minimum=0) for number in rounds
    ]
    for number in rounds:
      if number > self.rounds:
        raise ValueError(
          f"rounds must be at most {self.rounds}, found {number}."
        )
    epsilons = {
      number: self._epsilon(accountant, _prefix(self._history, number))
      for number in sorted(set(rounds))
    }
    return [epsilons[number] for number in rounds]

  def report(
    self, trace: participation_trace.TraceReader | None = None
  ) -> report_lib.PrivacyReport:
    """Returns the whole account of the rounds so far.

    Args:
      trace: Who took part. With it the report says that it was checked.

    Raises:
      participation.ClaimError: If the trace shows something else than the
        participation that the ledger accounts for.
    """
    observed = None
    if trace is not None:
      observed = participation_check.observe(
        trace, rounds=min(self.rounds, trace.num_rounds)
      )
      self._participation.check_trace(observed, rounds=self.rounds)
    return report_lib.create_report(
      composition.merge_rounds(self._history),
      self._participation,
      self._delta,
      accountants=self._accountants,
      observed=observed,
    )

  def to_json(self) -> str:
    """Returns the ledger as text, for a checkpoint."""
    return json.dumps(
      {
        "format": _FORMAT,
        "version": _VERSION,
        "participation": participations.to_json(self._participation),
        "delta": self._delta,
        "accountants": self._accountants,
        "history": [
          [_event_to_json(event), count] for event, count in self._history
        ],
      },
      allow_nan=False,
    )

  @classmethod
  def from_json(cls, text: str) -> "Ledger":
    """Inverse of `to_json`.

    Raises:
      ValueError: If the text is not a ledger of this version, or holds an
        event of an unknown class.
    """
    values = json.loads(text)
    found = None
    if isinstance(values, dict):
      found = (values.get("format"), values.get("version"))
    if found != (_FORMAT, _VERSION):
      raise ValueError(
        f"ledger must be of format and version {(_FORMAT, _VERSION)}, "
        f"found {found}."
      )
    ledger = cls(
      participations.from_json(values["participation"]),
      delta=values["delta"],
      accountants=values["accountants"],
    )
    for event_values, count in values["history"]:
      checks.check_integer("count", count, minimum=1)
      ledger.record_round(_event_from_json(event_values))
      event, recorded = ledger._history[-1]
      ledger._history[-1] = (event, recorded + count - 1)
    return ledger

  def __eq__(self, other: object) -> bool:
    if not isinstance(other, Ledger):
      return NotImplemented
    return self._identity() == other._identity()

  __hash__ = None  # A ledger changes with every round.

  def __repr__(self) -> str:
    return f"Ledger.from_json({self.to_json()!r})"

  def _identity(self) -> tuple[Any, ...]:
    return (
      self._participation,
      self._delta,
      self._accountants,
      self._history,
    )

  def _check_accountant(self, name: str | None) -> str:
    if name is None:
      return self._accountants[0]
    if name not in self._accountants:
      raise ValueError(
        f"accountant must be one of {self._accountants}, found {name!r}."
      )
    return name

  def _epsilon(self, accountant: str, history: Sequence[_Run]) -> float:
    return epsilon_lib.epsilon_by_accountant(
      composition.merge_rounds(history),
      self._participation,
      self._delta,
      accountants=(accountant,),
    )[accountant]


def _prefix(history: Sequence[_Run], rounds: int) -> list[_Run]:
  prefix = []
  for event, count in history:
    if rounds <= 0:
      break
    prefix.append((event, min(count, rounds)))
    rounds -= count
  return prefix


def _event_to_json(event: dp_accounting.DpEvent) -> dict[str, Any]:
  name = type(event).__name__
  _, parameters = _EVENT_CLASSES[name]
  values = {parameter: getattr(event, parameter) for parameter in parameters}
  if "strategy" in values:
    values["strategy"] = strategies.to_json(values["strategy"])
  return {"class": name} | values


def _event_from_json(values: dict[str, Any]) -> dp_accounting.DpEvent:
  name = values.get("class")
  if name not in _EVENT_CLASSES:
    raise ValueError(
      f"event class must be one of {sorted(_EVENT_CLASSES)}, found {name!r}."
    )
  event_class, parameters = _EVENT_CLASSES[name]
  if set(values) != {"class", *parameters}:
    raise ValueError(
      f"{name} must have the parameters {parameters}, found "
      f"{sorted(set(values) - {'class'})}."
    )
  values = {parameter: values[parameter] for parameter in parameters}
  if "strategy" in values:
    values["strategy"] = strategies.from_json(values["strategy"])
  return event_class(**values)
