"""Users who are drawn anew in every round: what a secret draw is worth.

And what can refute that the users of a trace were drawn at random. Honest
sampling is refused with a chance of `FALSE_ALARM_RATE` for each check.
"""

import dataclasses
import math

from scipy import special
from scipy import stats

from tff_fedemb import config
from tff_fedemb import errors
from tff_fedemb.data import participation_check
from tff_fedemb.data.participation import participation

# Chance that one of the checks refuses honest sampling. Far below any delta
# that is in use.
FALSE_ALARM_RATE = 1e-12

# Accountants of rounds that nothing amplifies.
OF_KNOWN_SCHEDULE = ("rdp", "gaussian")


@dataclasses.dataclass(frozen=True)
class Sampled(participation.Participation):
  """Users are drawn anew in every round.

  Privacy:
    Unit, sensitivity: those of the participation.
    Neighbouring relation: the participation's; under a known schedule a user
      who is added or removed leaves everybody else's rounds as they are.
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


def check_frequency(
  claim: participation.Participation,
  observed: participation_check.ObservedParticipation,
) -> None:
  """Nobody takes part far more often than sampling would have them.

  Args:
    claim: What is assumed.
    observed: What the trace shows.

  Raises:
    participation.ClaimError: If somebody does.
  """
  probability = claim.sampling_probability
  rounds, most = observed.num_rounds, observed.max_participations
  tail = special.bdtrc(most - 1, rounds, probability)
  if tail * claim.num_users < FALSE_ALARM_RATE:
    raise participation.ClaimError(
      f"{claim.name} participation was assumed, in which a user is in a round"
      f" with probability {probability:.4g}; in the trace user"
      f" {observed.most_frequent_user:,} is in {most:,} of {rounds:,} rounds."
    )


def check_overlap(
  claim: participation.Participation,
  observed: participation_check.ObservedParticipation,
  common: stats.rv_discrete,
  *,
  independent: int,
) -> None:
  """Consecutive rounds have as many users in common as sampling makes them.

  Passes over the users, in which nobody comes back for a while, have none; the
  same cohort again and again has all.

  Args:
    claim: What is assumed.
    observed: What the trace shows.
    common: Distribution of the users that two consecutive rounds share.
    independent: How many pairs of rounds are independent of each other.

  Raises:
    participation.ClaimError: If they have far more or far fewer.
  """
  if observed.common_users is None:
    return
  low, high = observed.common_users
  # Smallest and largest over all pairs: one exceeds a bound with at most
  # `pairs` times the chance of a single one, all do with the power of it.
  pairs = observed.num_rounds - 1
  of_one = pairs * min(common.cdf(low), common.sf(high - 1))
  of_all = independent * min(common.logcdf(high), common.logsf(low - 1))
  if of_one < FALSE_ALARM_RATE or of_all < math.log(FALSE_ALARM_RATE):
    raise participation.ClaimError(
      f"{claim.name} participation was assumed, in which two consecutive rounds"
      f" have {common.mean():.4g} users in common on average; in the trace of"
      f" {observed.num_rounds:,} rounds they have {low:,} to {high:,}: its"
      " users were not drawn independently for every round."
    )
