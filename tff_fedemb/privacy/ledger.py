"""The privacy ledger: what happened, round by round, and what it cost.

One event per round, kept run-length encoded, so that the ledger of a long run
is a few numbers. A run's ledger is read from its chain (`program.chain`).
"""

from collections.abc import Iterator, Mapping, Sequence
import dataclasses
import functools
from typing import Any

import dp_accounting

from tff_fedemb import checks
from tff_fedemb import errors
from tff_fedemb.data import participation_check
from tff_fedemb.data import participation_trace
from tff_fedemb.participation import participation as participation_lib
from tff_fedemb.participation import registry as participations
from tff_fedemb.privacy import arithmetic
from tff_fedemb.privacy import composition
from tff_fedemb.privacy import report as report_lib
from tff_fedemb.strategies import registry as strategies
from tff_fedemb.strategies import strategy as strategy_lib


@dataclasses.dataclass(frozen=True)
class Ledger:
  """The rounds of a run, and what they cost.

  Privacy:
    Unit: user.
    Neighbouring relation: the participation's.
    Sensitivity: the participation's, in clip norms.
    DpEvent: `composition.composed_events` of the rounds.

  Attributes:
    participation: Who takes part in every round.
    delta: At which epsilon is stated, in (0, 1).
    accountants: Names of the accountants, cheapest first; all that the
      participation supports if None.
    history: Pairs of a mechanism's event, at a sensitivity of one clip norm
      and as in `composition.composed_events`, and how many rounds in a row it
      ran.
    round_sum: What is clipped and summed up in every round; None if that is not
      known.

  Raises:
    ValueError: If delta is out of range, an accountant or an event not
      supported, or correlated noise not the same in all rounds.
  """

  participation: participation_lib.Participation
  _: dataclasses.KW_ONLY
  delta: float
  accountants: tuple[str, ...] | None = None
  history: tuple[tuple[dp_accounting.DpEvent, int], ...] = ()
  round_sum: arithmetic.RoundSum | None = None

  def __post_init__(self):
    object.__setattr__(self, "delta", checks.check_delta(self.delta))
    accountants = self.participation.select_accountants(self.accountants)
    object.__setattr__(self, "accountants", accountants)
    for _, count in self.history:
      checks.check_integer("count", count, minimum=1)
    # Refused now rather than hours later, when an epsilon is wanted.
    composition.check_noise(self.history, self.participation)

  @property
  def rounds(self) -> int:
    """Number of rounds recorded."""
    return sum(count for _, count in self.history)

  @property
  def noises(self) -> set[composition.Noise]:
    """What rounds added, each time that they ran."""
    events = (composition.runs_of(event)[0] for event, _ in self.history)
    return {composition.noise_of(event) for event in events}

  @property
  def runs_of_rounds(self) -> list[int]:
    """How many times each round ran, all of which are accounted for."""
    return [
      composition.runs_of(event)[1]
      for event, count in self.history
      for _ in range(count)
    ]

  @property
  def noise(self) -> composition.Noise:
    """What every round added.

    Raises:
      errors.DataError: If there was no round, or not the same in all rounds.
    """
    noises = self.noises
    if len(noises) != 1:
      raise errors.DataError(
        "runs must have had the same noise in all rounds, found "
        f"{len(noises)} kinds: {sorted(map(str, noises))}."
      )
    return noises.pop()

  def with_rounds(
    self,
    mechanism_event: dp_accounting.DpEvent,
    count: int = 1,
    *,
    times: int = 1,
  ) -> "Ledger":
    """Returns the ledger with rounds added at its end.

    Privacy:
      As the class.

    Args:
      mechanism_event: What each of them released.
      count: Their number, at least 1.
      times: How often each ran on the same users, with noise of its own every
        time, as `composition.run_again`.

    Raises:
      ValueError: If the event is not supported, or not after those before it.
    """
    mechanism_event = composition.run_again(mechanism_event, times)
    before = self.history
    if before and before[-1][0] == mechanism_event:
      before, count = before[:-1], before[-1][1] + count
    return dataclasses.replace(
      self, history=(*before, (mechanism_event, count))
    )

  def epsilon(self, accountant: str | None = None) -> float:
    """Returns the epsilon of the rounds so far.

    By RDP it takes well under a second whatever the number of rounds; by PLD
    seconds or, at noise multipliers below 0.1, minutes.

    Args:
      accountant: Its name; the cheapest of the ledger's if None.

    Raises:
      ValueError: If the accountant is not one of the ledger's.
    """
    return self.epsilon_curve([self.rounds], accountant=accountant)[0]

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
    accountant = accountant or self.accountants[0]
    checks.check_choice("accountant", accountant, self.accountants)

    @functools.cache
    def epsilon(number: int) -> float:
      return arithmetic.whole_epsilon(
        composition.merge_rounds([*self._first_rounds(number)]),
        self.participation,
        self.delta,
        accountants=(accountant,),
        round_sum=self.round_sum,
      ).epsilon

    for number in rounds:
      checks.check_integer("rounds", number, minimum=0, maximum=self.rounds)
    return [epsilon(number) for number in rounds]

  def _first_rounds(
    self, rounds: int
  ) -> Iterator[tuple[dp_accounting.DpEvent, int]]:
    for event, count in self.history:
      if rounds > 0:
        yield event, min(count, rounds)
      rounds -= count

  def tightest_epsilon(
    self, trace: participation_trace.Trace | None = None
  ) -> float:
    """Returns the epsilon of `report`, without all else that it works out.

    It takes about a second where PLD is among the ledger's accountants and
    nothing is exact.

    Args:
      trace: Who took part, of a trace that need not be checked.
    """
    # No bound is below the exact figure, which takes no time.
    is_exact = "gaussian" in self.accountants
    participation = self.participation
    if trace is not None and not participation.is_sampled:
      participation = self._as_seen(self._observe(trace))
    return arithmetic.whole_epsilon(
      composition.merge_rounds(self.history),
      participation,
      self.delta,
      accountants=("gaussian",) if is_exact else self.accountants,
      round_sum=self.round_sum,
    ).epsilon

  def _observe(
    self, trace: participation_trace.Trace
  ) -> participation_check.ObservedParticipation:
    return participation_check.observe(
      trace.num_users,
      trace.read(0, min(self.rounds, trace.num_rounds)),
      lag=self.participation.min_separation or 1,
    )

  def _as_seen(
    self, observed: participation_check.ObservedParticipation
  ) -> participation_lib.Participation:
    if self.participation.is_sampled or not self.rounds:
      return self.participation
    # A schedule is drawn from no data: what it says of users may be used.
    return self.participation.with_known_schedule(
      max(observed.max_participations, 1)
    )

  def report(
    self, trace: participation_trace.Trace | None = None
  ) -> report_lib.PrivacyReport:
    """Returns the whole account of the rounds so far.

    Args:
      trace: Who took part. With it the report says that it was checked.

    Raises:
      participation.ClaimError: If the trace shows something else than the
        participation that the ledger accounts for.
    """
    participation, observed = self.participation, None
    if trace is not None:
      observed = self._observe(trace)
      participation.check_trace(observed, rounds=self.rounds)
      participation = self._as_seen(observed)
    return report_lib.create_report(
      composition.merge_rounds(self.history),
      participation,
      self.delta,
      accountants=self.accountants,
      observed=observed,
      round_sum=self.round_sum,
    )

  def to_json(self) -> dict[str, Any]:
    """Returns the ledger as JSON values by name."""
    return {
      "participation": participations.to_json(self.participation),
      "neighboring_relation": self.participation.neighboring_relation_in_words,
      "delta": self.delta,
      "accountants": self.accountants,
      "history": [
        [_event_to_json(event), count] for event, count in self.history
      ],
      "round_sum": self.round_sum and dataclasses.asdict(self.round_sum),
    }

  @classmethod
  def from_json(cls, values: Mapping[str, Any]) -> "Ledger":
    """Inverse of `to_json`.

    Raises:
      ValueError: If the values hold an event of an unknown class.
      KeyError: If one is missing.
    """
    round_sum = values["round_sum"]
    return cls(
      participations.from_json(values["participation"]),
      delta=values["delta"],
      accountants=tuple(values["accountants"]),
      history=tuple(
        (_event_from_json(event), count) for event, count in values["history"]
      ),
      round_sum=round_sum and arithmetic.RoundSum(**round_sum),
    )


def _event_to_json(event: dp_accounting.DpEvent) -> dict[str, Any]:
  event, times = composition.runs_of(event)
  noise = composition.noise_of(event)
  values: dict[str, Any] = {"class": type(event).__name__}
  if not isinstance(event, dp_accounting.NonPrivateDpEvent):
    values["noise_multiplier"] = noise.multiplier
  if noise.strategy is not None:
    values["strategy"] = strategies.to_json(noise.strategy)
  if times > 1:
    values["times"] = times
  return values


def _event_from_json(values: dict[str, Any]) -> dp_accounting.DpEvent:
  parameters = dict(values)
  times = parameters.pop("times", 1)
  if times != 1:
    return composition.run_again(_event_from_json(parameters), times)
  match parameters.pop("class", None), sorted(parameters):
    case "NonPrivateDpEvent", []:
      return dp_accounting.NonPrivateDpEvent()
    case "GaussianDpEvent", ["noise_multiplier"]:
      return dp_accounting.GaussianDpEvent(values["noise_multiplier"])
    case "CorrelatedGaussianDpEvent", ["noise_multiplier", "strategy"]:
      return strategy_lib.round_event(
        values["noise_multiplier"], strategies.from_json(values["strategy"])
      )
  raise errors.DataError(
    "the class and the parameters of an event must be those that a ledger may"
    f" hold, found {dict(values)}."
  )
