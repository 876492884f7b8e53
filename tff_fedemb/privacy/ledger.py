"""The privacy ledger: what happened, round by round, and what it cost.

One event per round, kept run-length encoded, so that the ledger of a long run
is a few numbers. A run's ledger is read from its chain (`program.chain`).
"""

from collections.abc import Iterable, Mapping, Sequence
import dataclasses
import functools
import itertools
from typing import Any

import dp_accounting

from tff_fedemb import config
from tff_fedemb import errors
from tff_fedemb.data import participation_check
from tff_fedemb.data import participation_trace
from tff_fedemb.participation import participation as participation_lib
from tff_fedemb.privacy import arithmetic
from tff_fedemb.privacy import composition
from tff_fedemb.privacy import epsilon as epsilon_lib
from tff_fedemb.privacy import report as report_lib
from tff_fedemb.strategies import strategy as strategy_lib


@dataclasses.dataclass(frozen=True)
class Ledger(composition.Account):
  """The rounds of a run, and what they cost.

  Privacy:
    As `composition.Account`.
  """

  @property
  def noise(self) -> composition.Noise:
    """What every round added.

    Raises:
      errors.DataError: If there was no round, or not the same in all rounds.
    """
    events = (composition.runs_of(event)[0] for event, _ in self.history)
    noises = {composition.noise_of(event) for event in events}
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

  def with_runs(
    self, mechanism_event: dp_accounting.DpEvent, times: Iterable[int]
  ) -> "Ledger":
    """Returns the ledger with rounds added that ran so often each.

    Privacy:
      As the class.

    Args:
      mechanism_event: As in `with_rounds`.
      times: How often each of them ran.

    Raises:
      ValueError: As `with_rounds`.
    """
    ledger = self
    for each, rounds in itertools.groupby(times):
      ledger = ledger.with_rounds(mechanism_event, len([*rounds]), times=each)
    return ledger

  @property
  def times(self) -> list[int]:
    """How often each round ran."""
    return [
      composition.runs_of(event)[1]
      for event, count in self.history
      for _ in range(count)
    ]

  def epsilon(self, accountant: str | None = None) -> float:
    """Returns the epsilon of the rounds so far.

    By RDP it takes well under a second whatever the number of rounds; by PLD
    seconds or, at noise multipliers below 0.1, minutes.

    Args:
      accountant: Its name; the cheapest of the ledger's if None.

    Raises:
      ValueError: If the accountant is not valid for the participation.
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
      ValueError: If the accountant is not valid for the participation.
    """
    accountant = accountant or self.accountants[0]

    @functools.cache
    def epsilon(number: int) -> float:
      first = dataclasses.replace(
        self, accountants=(accountant,), history=self._first_rounds(number)
      )
      return arithmetic.whole_epsilon(first).epsilon

    return [epsilon(number) for number in rounds]

  def _first_rounds(
    self, rounds: int
  ) -> tuple[tuple[dp_accounting.DpEvent, int], ...]:
    found = []
    for event, count in self.history:
      if rounds > 0:
        found.append((event, min(count, rounds)))
      rounds -= count
    return tuple(found)

  def tightest_epsilon(
    self, trace: participation_trace.Trace | None = None
  ) -> float:
    """Returns the epsilon of `report`, without all else that it works out.

    It takes about a second where PLD is among the ledger's accountants and
    nothing is exact.

    Args:
      trace: Who took part, of a trace that need not be checked.
    """
    seen = self
    if trace is not None and not self.participation.is_sampled:
      seen = self.as_seen(self._observe(trace))
    if "gaussian" in self.accountants:
      # No bound is below the exact figure, which takes no time.
      seen = dataclasses.replace(seen, accountants=("gaussian",))
    return arithmetic.whole_epsilon(seen).epsilon

  def _observe(
    self, trace: participation_trace.Trace
  ) -> participation_check.ObservedParticipation:
    return participation_check.observe(trace.num_users, trace.read(self.rounds))

  def as_seen(
    self, observed: participation_check.ObservedParticipation
  ) -> "Ledger":
    """Returns the ledger of what a trace shows, which need not be checked.

    Args:
      observed: What it shows: where users are not sampled, in how many rounds
        one of them is at most.
    """
    if self.participation.is_sampled or not self.rounds:
      return self
    # A schedule is drawn from no data: what it says of users may be used.
    known = self.participation.with_known_schedule(
      max(observed.max_participations, 1)
    )
    return dataclasses.replace(self, participation=known)

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
    seen, observed = self, None
    if trace is not None:
      observed = self._observe(trace)
      self.participation.check_trace(observed, rounds=self.rounds)
      seen = self.as_seen(observed)
    return report_lib.create_report(seen, observed=observed)

  def to_json(self) -> dict[str, Any]:
    """Returns the ledger as JSON values by name."""
    return super().to_json() | {
      "neighboring_relation": self.participation.neighboring_relation_in_words,
      "history": [_Rounds.of(*each).to_json() for each in self.history],
    }

  @classmethod
  def from_json(cls, values: Mapping[str, Any]) -> "Ledger":
    """Inverse of `to_json`.

    Raises:
      ValueError: If a value is out of its range.
      KeyError: If one is missing; or TypeError.
    """
    fields = dict(values)
    del fields["neighboring_relation"]  # The participation says it.
    rounds = [_Rounds.from_json(dict(each)) for each in fields.pop("history")]
    history = tuple((each.event, each.count) for each in rounds)
    return super().from_json({**fields, "history": history})


def create_ledger(
  participation: participation_lib.Participation,
  noise: composition.Noise,
  rounds: int,
  *,
  delta: float,
  accountants: Sequence[str] | None = None,
  round_sum: composition.RoundSum | None = None,
) -> Ledger:
  """Creates the account of rounds that are alike.

  Plans, runs, tunings, extrapolations and budgets all have their accounts from
  here, so that the same rounds cost the same in each of them.

  Privacy:
    As `Ledger`.

  Args:
    participation: Who takes part.
    noise: What every round adds to its sum.
    rounds: Number of rounds, at least 0.
    delta: At which epsilon is stated, in (0, 1).
    accountants: Names of those to ask [`epsilon.default_accountants`].
    round_sum: What is clipped and summed up in every round; without it the
      noise is taken for a Gaussian.

  Raises:
    ValueError: As `composition.Account`, for such noise even without rounds.
  """
  event = composition.event_of(noise)
  composition.check_noise([(event, 1)], participation)
  if accountants is None:
    accountants = epsilon_lib.default_accountants(
      participation, noise.multiplier
    )
  return Ledger(
    participation,
    delta=delta,
    accountants=tuple(accountants),
    history=((event, rounds),) if rounds else (),
    round_sum=round_sum,
  )


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Rounds(config.Config):
  """Rounds of one event, as a file has them.

  Attributes:
    count: How many.
    times: How often each ran.
    noise: What each run added; None if an event says that there was none.
  """

  count: int = config.field(minimum=1)
  times: int = config.field(1, minimum=1)
  noise: composition.Noise | None = None

  @classmethod
  def of(cls, event: dp_accounting.DpEvent, count: int) -> "_Rounds":
    """Rounds of this event."""
    event, times = composition.runs_of(event)
    noise = None
    if not isinstance(event, dp_accounting.NonPrivateDpEvent):
      noise = composition.noise_of(event)
    return cls(count=count, times=times, noise=noise)

  @property
  def event(self) -> dp_accounting.DpEvent:
    """What each of them released."""
    if self.noise is None:
      return dp_accounting.NonPrivateDpEvent()
    event = strategy_lib.round_event(self.noise.multiplier, self.noise.strategy)
    return composition.run_again(event, self.times)
