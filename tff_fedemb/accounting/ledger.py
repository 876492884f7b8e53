"""The privacy ledger: what happened, round by round, and what it cost.

Consecutive rounds that are alike are one entry, so that the ledger of a long
run is a few numbers. A run's ledger is read from its chain (`records.chain`).
"""

from collections.abc import Iterable, Mapping, Sequence
import dataclasses
import itertools
from typing import Any

from tff_fedemb import errors
from tff_fedemb.accounting import arithmetic
from tff_fedemb.accounting import composition
from tff_fedemb.accounting import epsilon as epsilon_lib
from tff_fedemb.accounting import report as report_lib
from tff_fedemb.participation import participation as participation_lib
from tff_fedemb.participation import participation_check
from tff_fedemb.participation import participation_trace


@dataclasses.dataclass(frozen=True)
class Ledger(composition.Account):
  """The rounds of a run, and what they cost.

  A ledger does not change: its methods return new ones.

  Privacy:
    As `composition.Account`.
  """

  @property
  def noise(self) -> composition.Noise:
    """Noise that every round added.

    Raises:
      errors.DataError: If there was no round, or noise differs between rounds.
    """
    noises = {each.noise for each in self.history}
    if len(noises) != 1:
      raise errors.DataError(
        "runs must have had the same noise in all rounds, found "
        f"{len(noises)} kinds: {sorted(map(str, noises))}."
      )
    return noises.pop()

  def with_rounds(
    self,
    noise: composition.Noise,
    count: int = 1,
    *,
    times: int = 1,
  ) -> "Ledger":
    """Returns the ledger with rounds added at its end.

    Privacy:
      As the class.

    Args:
      noise: Noise that each run of each round added.
      count: Number of rounds, at least 1.
      times: How often each round ran on the same users, with noise of its own
        every time.

    Returns:
      A ledger whose last entry grows by `count` if it is of the same noise and
      the same `times`, else has a new entry.

    Raises:
      errors.FieldError: If a number is below 1, or a round of correlated noise
        ran more than once.
      ValueError: If the noise differs from that of earlier rounds, and either
        is correlated over rounds.
    """
    added = composition.Rounds(count=count, times=times, noise=noise)
    before = self.history
    if before and dataclasses.replace(before[-1], count=count) == added:
      count += before[-1].count
      before = before[:-1]
      added = dataclasses.replace(added, count=count)
    return dataclasses.replace(self, history=before + (added,))

  def with_runs(
    self,
    noise: composition.Noise,
    times: Iterable[int],
  ) -> "Ledger":
    """Returns the ledger with rounds added, some of which ran several times.

    Privacy:
      As the class.

    Args:
      noise: Noise that each run of each round added.
      times: How often each of the rounds ran, in their order, each at least 1.

    Returns:
      The ledger with one more round for each number; this ledger without any.

    Raises:
      ValueError: As `with_rounds`.
    """
    ledger = self
    for each, rounds in itertools.groupby(times):
      ledger = ledger.with_rounds(noise, len(list(rounds)), times=each)
    return ledger

  def without_rounds(self) -> "Ledger":
    """Returns the ledger before any round.

    Participation, delta, accountants and the sum of a round stay.
    """
    return dataclasses.replace(self, history=())

  @property
  def times(self) -> list[int]:
    """How often each round ran, in the order of the rounds, `[rounds]`."""
    found = []
    for each in self.history:
      found += [each.times] * each.count
    return found

  def epsilon_curve(
    self,
    rounds: Sequence[int],
    *,
    accountant: str,
  ) -> list[float]:
    """Returns epsilon after each of the given numbers of rounds.

    By RDP each takes well under a second, however many rounds; by PLD seconds
    or, at noise multipliers below 0.1, minutes.

    Args:
      rounds: Numbers of rounds, each in [0, self.rounds], in any order.
      accountant: Name of the accountant.

    Returns:
      Epsilons at the ledger's delta, one for each number, with the cost of the
      noise's arithmetic where it is known; 0 for no rounds.

    Raises:
      errors.FieldError: If the accountant is not valid for the participation.
    """
    names: tuple[str, ...] = (accountant,)
    if self.participation.is_drawn_once:
      # RDP stands in for a tiny delta, and cannot be asked for by name.
      names = self.accountants
    epsilons = []
    for number in rounds:
      first = dataclasses.replace(
        self, accountants=names, history=self._first_rounds(number)
      )
      epsilons.append(arithmetic.whole_epsilon(first).epsilon)
    return epsilons

  def _first_rounds(self, rounds: int) -> tuple[composition.Rounds, ...]:
    """The history of the first rounds."""
    found = []
    for each in self.history:
      if rounds > 0:
        count = min(each.count, rounds)
        found.append(dataclasses.replace(each, count=count))
      rounds -= each.count
    return tuple(found)

  def tightest_epsilon(
    self,
    trace: participation_trace.Trace | None = None,
  ) -> float:
    """Returns the epsilon of `report`, without its other figures.

    It takes about a second if PLD is among the ledger's accountants and the
    exact accountant is not.

    Args:
      trace: The record of who took part; you need not have checked it. Where
        users are not sampled, the rounds that they were in replace the bound of
        the participation. None keeps the bound.

    Returns:
      Epsilon at the ledger's delta; infinity if a round had no noise.

    Raises:
      participation_trace.TraceError: If a record of the trace is damaged.
    """
    seen = self
    if trace is not None and not self.participation.is_sampled:
      seen = self.as_seen(self._observe(trace).max_participations)
    if "gaussian" in self.accountants:
      # The exact figure is the smallest, and takes no time.
      seen = dataclasses.replace(seen, accountants=("gaussian",))
    return arithmetic.whole_epsilon(seen).epsilon

  def _observe(
    self,
    trace: participation_trace.Trace,
  ) -> participation_check.ObservedParticipation:
    """The finding in a trace of the ledger's rounds."""
    return participation_check.observe(trace.num_users, trace.read(self.rounds))

  def as_seen(self, max_participations: int) -> "Ledger":
    """Returns the ledger with what a trace shows of users who are not sampled.

    Args:
      max_participations: The most rounds of one user in the trace; you need not
        have checked it.

    Returns:
      The ledger whose participation has that number as its bound; this ledger
      if sampling amplifies its rounds, or if it has none.
    """
    if self.participation.is_sampled or not self.rounds:
      return self
    # A schedule is drawn from no data, so epsilon may rest on it.
    known = self.participation.with_known_schedule(max(max_participations, 1))
    return dataclasses.replace(self, participation=known)

  def report(
    self,
    trace: participation_trace.Trace | None = None,
  ) -> report_lib.PrivacyReport:
    """Returns the whole account of the rounds so far.

    Args:
      trace: The record of who took part. The report says that it was checked;
        None for a report that says it was not.

    Returns:
      The guarantee, in numbers and in words.

    Raises:
      participation.ClaimError: If the trace contradicts the participation that
        the ledger accounts for.
      participation_trace.TraceError: If a record of the trace is damaged.
    """
    seen = self
    observed = None
    if trace is not None:
      observed = self._observe(trace)
      self.participation.check_trace(observed, rounds=self.rounds)
      seen = self.as_seen(observed.max_participations)
    return report_lib.create_report(seen, observed=observed)

  def to_json(self) -> dict[str, Any]:
    """Returns the ledger as JSON values by name.

    The neighbouring relation is added in words, for the reader of the file.
    """
    return super().to_json() | {
      "neighboring_relation": self.participation.neighboring_relation_in_words,
      "history": [each.to_json() for each in self.history],
    }

  @classmethod
  def from_json(cls, values: Mapping[str, Any]) -> "Ledger":
    """Inverse of `to_json`.

    Args:
      values: As `to_json` returns them.

    Returns:
      The ledger. The relation in words is not read: the participation has it.

    Raises:
      ValueError: If a value is out of its range.
      KeyError: If a value is missing.
      TypeError: If a value is of another type.
    """
    fields = dict(values)
    del fields["neighboring_relation"]  # The participation says it.
    history = tuple(map(composition.Rounds.from_json, fields.pop("history")))
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

  Plans, runs, tunings, extrapolations and budgets all call this function, so
  that the same rounds cost the same in each of them.

  Privacy:
    As `Ledger`.

  Args:
    participation: Who takes part, for a known number of users.
    noise: Noise that every round adds to its sum.
    rounds: Number of rounds, at least 0.
    delta: At which epsilon is stated, in (0, 1).
    accountants: Names of the accountants to ask
      [`epsilon.default_accountants`].
    round_sum: The sum of every round; without it the noise is taken for an
      exact Gaussian.

  Returns:
    A ledger of one entry; without entries for 0 rounds.

  Raises:
    ValueError: As `composition.Account`; noise that cannot be accounted for is
      refused even without rounds.
  """
  composition.check_noise([composition.Rounds(noise=noise)], participation)
  if accountants is None:
    accountants = epsilon_lib.default_accountants(
      participation, noise.multiplier
    )
  ledger = Ledger(
    participation,
    delta=delta,
    accountants=participation.select_accountants(accountants),
    round_sum=round_sum,
  )
  return ledger.with_rounds(noise, rounds) if rounds else ledger
