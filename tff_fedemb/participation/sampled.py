"""Users who are drawn anew in every round: what a secret draw is worth.

And what can refute that the users of a trace were drawn at random. All checks
together refuse a run that drew them honestly with a chance of at most
`FALSE_ALARM_RATE`; a trace that passes is not refuted, which is no proof.
"""

import dataclasses
import math
from typing import ClassVar

import numpy as np
from scipy import special
from scipy import stats

from tff_fedemb import checks
from tff_fedemb import config
from tff_fedemb import errors
from tff_fedemb.data import participation_check
from tff_fedemb.participation import participation

FALSE_ALARM_RATE = 1e-6
# Each of at most so many checks gets the same share of it: sizes of rounds, of
# all together, all of one size, most and fewest rounds of a user, users in
# common, groups, bins.
_NUM_CHECKS = 8
FALSE_ALARM_RATE_OF_CHECK = FALSE_ALARM_RATE / _NUM_CHECKS

# Accountants of rounds that nothing amplifies.
OF_KNOWN_SCHEDULE = ("rdp", "gaussian")


@dataclasses.dataclass(frozen=True)
class Sampled(participation.Participation):
  """Users are drawn anew in every round.

  Privacy:
    Unit, sensitivity: those of the participation.
    Neighbouring relation: the participation's; under a known schedule nobody
      else's rounds change either.
    DpEvent: that of the participation while nobody knows the draw. Under a
      known schedule a user's rounds are what they are, and the mechanism's
      event is composed for each: no amplification may be claimed.

  Attributes:
    known_schedule: Whether anyone may know who is drawn when, as from a seed
      that was chosen: nothing is amplified then.
    max_participations: Rounds of a user at most [as many as may be]; where
      users are sampled, for a known schedule alone.
  """

  _: dataclasses.KW_ONLY
  known_schedule: bool = False
  max_participations: int | None = config.field(None, minimum=1)

  def __post_init__(self):
    super().__post_init__()
    if self.max_participations is not None and not self.known_schedule:
      raise errors.FieldError(
        "max_participations",
        f"not be given with participation {self.name} unless its schedule is"
        " known: anyone may be drawn every time",
        self.max_participations,
      )

  # Accountants of a draw that nobody knows.
  secret_accountants: ClassVar[tuple[str, ...]]

  @property
  def accountants(self) -> tuple[str, ...]:
    if self.known_schedule:
      return OF_KNOWN_SCHEDULE
    return self.secret_accountants

  @property
  def is_sampled(self) -> bool:
    return not self.known_schedule

  @property
  def amplification(self) -> str:
    if self.known_schedule:
      return (
        "none: who is drawn when is taken to be known, as from a given seed"
      )
    return "by sampling, from a secret key: nobody may know who is drawn when"

  @property
  def sampling(self) -> str:
    return f"{super().sampling}; amplification {self.amplification}"

  def with_known_schedule(
    self, max_participations: int | None = None
  ) -> "Sampled":
    return dataclasses.replace(
      self, known_schedule=True, max_participations=max_participations
    )

  def with_secret_schedule(self) -> "Sampled":
    return dataclasses.replace(
      self, known_schedule=False, max_participations=None
    )


def check_sizes(
  claim: participation.Participation,
  observed: participation_check.ObservedParticipation,
  probability: float,
  *,
  of_total: float,
  alike: float,
) -> None:
  """Rounds have as many users as sampling gives them, and not all the same.

  Args:
    claim: What is assumed.
    observed: What the trace shows.
    probability: That a given user is in a given round.
    of_total: The smaller chance of as many users in all rounds together or
      more, and of as many or fewer.
    alike: Logarithm of the chance that all rounds are as the first one,
      whatever its size.

  Raises:
    participation.ClaimError: If that is next to impossible.
  """
  n, rounds = claim.num_users, observed.num_rounds
  low, high = observed.min_users_per_round, observed.max_users_per_round
  unlikely = FALSE_ALARM_RATE_OF_CHECK / 2
  if (
    special.bdtr(low, n, probability) < unlikely / rounds
    or special.bdtrc(high - 1, n, probability) < unlikely / rounds
    or of_total < unlikely
  ):
    raise participation.ClaimError(
      f"{claim.name} participation was assumed, in which a round has "
      f"{checks.count_in_words(claim.users_per_round)} users on average; the "
      f"trace has rounds of {low:,} to {high:,}, "
      f"{observed.num_participations / rounds:,.4g} on average, too far from "
      "that to be chance."
    )
  if low == high and alike < math.log(FALSE_ALARM_RATE_OF_CHECK):
    raise participation.ClaimError(
      f"{claim.name} participation was assumed, in which the number of users "
      f"varies; every one of {rounds:,} rounds in the trace has exactly "
      f"{low:,}: that is fixed_size."
    )


def independent_pairs(rounds: int, period: int) -> int:
  """How many pairs of rounds, a period apart, are independent of each other.

  Every second one of consecutive rounds. Of a pair for each round of a period,
  users are in one at most: negatively associated (Joag-Dev and Proschan 1983),
  which serves as well.

  Args:
    rounds: Rounds of a run.
    period: Rounds from one of a user's to the next, at least.
  """
  return rounds // 2 if period == 1 else min(period, rounds - period)


def check_frequency(
  claim: participation.Participation,
  observed: participation_check.ObservedParticipation,
  *,
  of_least: float | None = None,
  of_most: float | None = None,
) -> None:
  """Nobody takes part far more, or less, often than sampling would have them.

  A user's rounds are binomial; that all N users are within their bounds is
  tested at 1 / N of the rate for each of them.

  Args:
    claim: What is assumed.
    observed: What the trace shows.
    of_least: Chance that a user is in as few rounds as some user is, or fewer
      [binomial].
    of_most: Chance that a user is in as many as some user is, or more.

  Raises:
    participation.ClaimError: If somebody does.
  """
  probability = claim.sampling_probability
  rounds, most = observed.num_rounds, observed.max_participations
  least = observed.min_participations
  unlikely = FALSE_ALARM_RATE_OF_CHECK / claim.num_users
  # Only one round in each period may draw a given user.
  period = claim.min_separation or 1
  if of_most is None:
    of_most = special.bdtrc(most - 1, -(-rounds // period), probability)
  if of_least is None:
    of_least = special.bdtr(least, rounds // period, probability)
  found = None
  if of_most < unlikely:
    found = f"user {observed.most_frequent_user:,} is in {most:,}"
  elif of_least < unlikely:
    found = f"a user is in no more than {least:,}"
  if found is not None:
    raise participation.ClaimError(
      f"{claim.name} participation was assumed, in which a user is in"
      f" {'a round' if period == 1 else f'one of {period:,} rounds'}"
      f" with probability {probability:.4g}; in the trace {found} of"
      f" {rounds:,} rounds."
    )


def check_groups(
  claim: participation.Participation,
  observed: participation_check.ObservedParticipation,
) -> None:
  """Users joined virtual clients independently of each other.

  Who shuffles the users of a round and cuts them into groups makes virtual
  clients of the same size, or one more, every time; a user who is absent then
  moves others as well. Each round multiplies the evidence by 1/2, and by 1/2 +
  1 / (2 p) if it is even, where p is the chance of that for as many users. Its
  expectation is 1 if they are independent, so that it exceeds 1 / a with a
  chance of at most a (Ville's inequality).

  Args:
    claim: What is assumed.
    observed: What the trace shows.

  Raises:
    participation.ClaimError: If they did not.
  """
  clients = claim.clients_per_round
  evidence = observed.num_rounds * math.log(0.5)
  for users, num_clients in observed.even_rounds:
    if num_clients == min(users, clients):
      log_chance = min(0.0, _log_chance_of_even(users, clients))
      evidence += np.logaddexp(0.0, -log_chance)
  if evidence > -math.log(FALSE_ALARM_RATE_OF_CHECK):
    raise participation.ClaimError(
      f"{claim.name} participation was assumed, in which every user joins a"
      f" virtual client independently of the others; in the trace"
      f" {len(observed.even_rounds):,} of {observed.num_rounds:,} rounds have"
      " virtual clients of equal size: its users were shuffled and cut into"
      " groups."
    )


def _log_chance_of_even(users: int, clients: int) -> float:
  """Log chance that independent choices make groups as equal as can be."""
  size, larger = divmod(users, clients)
  smaller = clients - larger
  return (
    special.gammaln(clients + 1)
    - special.gammaln(larger + 1)
    - special.gammaln(smaller + 1)
    + special.gammaln(users + 1)
    - larger * special.gammaln(size + 2)
    - smaller * special.gammaln(size + 1)
    - users * math.log(clients)
  )


def check_overlap(
  claim: participation.Participation,
  observed: participation_check.ObservedParticipation,
  common: stats.rv_discrete,
  *,
  independent: int,
) -> None:
  """Two rounds have as many users in common as sampling makes them.

  Consecutive ones, or the first two that may draw the same users. Passes over
  the users, in which nobody comes back for a while, have none; the same cohort
  again and again has all.

  Args:
    claim: What is assumed.
    observed: What the trace shows.
    common: Distribution of the users that two such rounds share.
    independent: How many pairs of rounds are independent of each other.

  Raises:
    participation.ClaimError: If they have far more or far fewer.
  """
  period = claim.min_separation or 1
  if observed.lag != period:
    raise ValueError(f"lag must be {period}, found {observed.lag}.")
  if observed.common_users is None:
    return
  low, high = observed.common_users
  # Smallest and largest over all pairs: one exceeds a bound with at most
  # `pairs` times the chance of a single one, all do with the power of it.
  pairs = observed.num_rounds - 1
  of_one = pairs * min(common.cdf(low), common.sf(high - 1))
  of_all = independent * min(common.logcdf(high), common.logsf(low - 1))
  # Four bounds, each of which may raise the alarm.
  unlikely = FALSE_ALARM_RATE_OF_CHECK / 4
  if of_one < unlikely or of_all < math.log(unlikely):
    raise participation.ClaimError(
      f"{claim.name} participation was assumed, in which two"
      f" {'consecutive rounds' if period == 1 else f'rounds {period:,} apart'}"
      f" have {common.mean():.4g} users in common on average; in the trace of"
      f" {observed.num_rounds:,} rounds they have {low:,} to {high:,}: its"
      " users were not drawn independently for every round."
    )
