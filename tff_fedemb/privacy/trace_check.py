"""Does the trace of a run show the participation that its epsilon claims?

A guarantee is worth as much as its assumptions. What can be seen in the trace
is checked exactly (population, rounds, sizes, separation, number of
participations); that users were drawn at random can only be refuted, when what
was seen had next to no chance.
"""

import math

from scipy import special
from scipy import stats

from tff_fedemb import checks
from tff_fedemb.data import participation_check
from tff_fedemb.privacy import accounting

# Chance that one of the checks refuses honest sampling. Far below any delta
# that is in use.
FALSE_ALARM_RATE = 1e-12


class ClaimError(ValueError):
  """What was run is not what the epsilon assumes."""


def check(
  participation: accounting.Participation,
  observed: participation_check.ObservedParticipation,
  *,
  rounds: int,
) -> None:
  """Refuses a claim that the trace refutes.

  Args:
    participation: What the accounting assumes.
    observed: What the trace shows of the first rounds.
    rounds: Number of rounds that are accounted for.

  Raises:
    ClaimError: Names what was assumed and what was run.
  """
  if observed.num_rounds != rounds:
    raise ClaimError(
      f"the trace must hold the {rounds:,} rounds that are accounted for, "
      f"found {observed.num_rounds:,}."
    )
  if observed.num_users != participation.num_users:
    raise ClaimError(
      f"the trace must be of {participation.num_users:,} users, as the "
      f"accounting assumes, found one of {observed.num_users:,}."
    )
  if rounds:
    _check_clients(participation, observed)
    {
      accounting.ParticipationKind.POISSON: _check_poisson,
      accounting.ParticipationKind.FIXED_SIZE: _check_fixed_size,
      accounting.ParticipationKind.MIN_SEPARATION: _check_min_separation,
    }[participation.kind](participation, observed)


def _check_clients(participation, observed):
  """Several users in a virtual client cost more than users on their own."""
  if participation.users_per_client == 1:
    if not observed.users_alone:
      raise ClaimError(
        "virtual clients of one user were assumed, whose removal changes a "
        "sum by one clip norm; the trace has virtual clients of several."
      )
    return
  clients = participation.users_per_round / participation.users_per_client
  if observed.max_clients_per_round > clients:
    raise ClaimError(
      f"virtual clients of {participation.users_per_client:,} users were "
      f"assumed, {checks.count_in_words(clients)} a round; the trace has a "
      f"round of {observed.max_clients_per_round:,}."
    )


def _check_fixed_size(participation, observed):
  sizes = (observed.min_users_per_round, observed.max_users_per_round)
  users = participation.users_per_round
  if sizes != (users, users):
    raise ClaimError(
      "fixed_size participation was assumed, in which every round has "
      f"exactly {users:,} users; the trace has rounds of {sizes[0]:,} to "
      f"{sizes[1]:,}."
    )
  _check_frequency(participation, observed)
  _check_overlap(participation, observed)


def _check_poisson(participation, observed):
  probability = participation.sampling_probability
  sizes = (observed.min_users_per_round, observed.max_users_per_round)
  n = participation.num_users
  unlikely = FALSE_ALARM_RATE / (2 * observed.num_rounds)
  if (
    special.bdtr(sizes[0], n, probability) < unlikely
    or special.bdtrc(sizes[1] - 1, n, probability) < unlikely
  ):
    raise ClaimError(
      "poisson participation was assumed, in which a round has "
      f"{checks.count_in_words(participation.users_per_round)} users on "
      f"average; the trace has rounds of {sizes[0]:,} to {sizes[1]:,}, too "
      "far from that to be chance."
    )
  if sizes[0] == sizes[1] and probability < 1:
    same = stats.binom.logpmf(sizes[0], n, probability)
    # All rounds are as the first one, whatever its size.
    if (observed.num_rounds - 1) * same < math.log(FALSE_ALARM_RATE):
      raise ClaimError(
        "poisson participation was assumed, in which the number of users "
        f"varies; every one of {observed.num_rounds:,} rounds in the trace "
        f"has exactly {sizes[0]:,}: that is fixed_size."
      )
  _check_frequency(participation, observed)
  _check_overlap(participation, observed)


def _check_frequency(participation, observed):
  """Nobody takes part far more often than sampling would have them."""
  tail = special.bdtrc(
    observed.max_participations - 1,
    observed.num_rounds,
    participation.sampling_probability,
  )
  if tail * participation.num_users < FALSE_ALARM_RATE:
    raise ClaimError(
      f"{participation.kind.value} participation was assumed, in which a "
      "user is in a round with probability "
      f"{participation.sampling_probability:.4g}; in the trace user "
      f"{observed.most_frequent_user:,} is in "
      f"{observed.max_participations:,} of {observed.num_rounds:,} rounds."
    )


def _check_overlap(participation, observed):
  """Consecutive rounds have as many users in common as sampling makes them.

  Passes over the users, in which nobody comes back for a while, have none; the
  same cohort again and again has all.
  """
  if observed.common_users is None:
    return
  low, high = observed.common_users
  n = participation.num_users
  pairs = observed.num_rounds - 1
  if participation.kind is accounting.ParticipationKind.POISSON:
    common = stats.binom(n, participation.sampling_probability**2)
    # Every second pair of rounds is independent of the others.
    independent = observed.num_rounds // 2
  else:
    users = participation.users_per_round
    # Given the users of a round, those of the next are drawn anew.
    common = stats.hypergeom(n, users, users)
    independent = pairs
  # Smallest and largest over all pairs: one exceeds a bound with at most
  # `pairs` times the chance of a single one, all do with the power of it.
  too_few = pairs * common.cdf(
    low
  ) < FALSE_ALARM_RATE or independent * common.logcdf(high) < math.log(
    FALSE_ALARM_RATE
  )
  too_many = pairs * common.sf(
    high - 1
  ) < FALSE_ALARM_RATE or independent * common.logsf(low - 1) < math.log(
    FALSE_ALARM_RATE
  )
  if too_few or too_many:
    raise ClaimError(
      f"{participation.kind.value} participation was assumed, in which two "
      f"consecutive rounds have {common.mean():.4g} users in common on "
      f"average; in the trace of {observed.num_rounds:,} rounds they have "
      f"{low:,} to {high:,}: its users were not drawn independently for "
      "every round."
    )


def _check_min_separation(participation, observed):
  allowed = participation.participations(observed.num_rounds)
  if observed.max_participations > allowed:
    raise ClaimError(
      f"at most {allowed:,} participations of a user in "
      f"{observed.num_rounds:,} rounds were assumed; in the trace user "
      f"{observed.most_frequent_user:,} has {observed.max_participations:,}."
    )
  if (
    observed.min_separation is not None
    and observed.min_separation < participation.min_separation
  ):
    user, first, second = observed.closest_pair
    raise ClaimError(
      f"a separation of at least {participation.min_separation:,} rounds "
      "between two participations of a user was assumed; in the trace user "
      f"{user:,} is in rounds {first:,} and {second:,}."
    )
  if observed.max_users_per_round > participation.users_per_round:
    raise ClaimError(
      "at most "
      f"{checks.count_in_words(participation.users_per_round)} users in a "
      "round were assumed; the trace has a round of "
      f"{observed.max_users_per_round:,}."
    )
