"""The cost of a simulated run with more users and a larger cohort.

Simulations use few users and little noise. If both the users of a round and the
noise multiplier are multiplied by `cohort_factor`, the noise on the mean update
stays the same. So the accuracy is assumed to carry over, while the cost is
computed for the larger population (Xu et al. 2023, "Learning to Generate Image
Embeddings with User-level Differential Privacy", the DigiFace results).

Published figures of this kind differ in the sensitivity that they assume. Two
readings are computed side by side: the user-level one, which the participation
supports, and the authors', in which one user moves the sum by one clip norm.
"""

from collections.abc import Sequence
import dataclasses
from typing import Any

from tff_fedemb import checks
from tff_fedemb import errors
from tff_fedemb.accounting import arithmetic
from tff_fedemb.accounting import composition
from tff_fedemb.accounting import epsilon as epsilon_lib
from tff_fedemb.accounting import ledger as ledger_lib
from tff_fedemb.accounting import report
from tff_fedemb.participation import participation as participation_lib
from tff_fedemb.participation import registry as participations


@dataclasses.dataclass(frozen=True)
class Reading:
  """Epsilon under one assumption about the sensitivity.

  Privacy:
    Unit: `protects`.
    Neighbouring relation: that of the extrapolation.
    Sensitivity: `sensitivity_in_clip_norms` clip norms.
    DpEvent: `composition.composed_events` at that sensitivity, composed.

  Attributes:
    name: 'user-level' or 'authors'.
    protects: The protected unit, in words.
    sensitivity_in_clip_norms: Assumed change of a round's sum.
    epsilon: The smallest epsilon of the valid accountants. In the user-level
      reading it includes the cost of the noise's arithmetic, if that is known.
    accountant: Name of the accountant with this epsilon.
    epsilon_by_accountant: Epsilon of each accountant that was run.
  """

  name: str
  protects: str
  sensitivity_in_clip_norms: float
  epsilon: float
  accountant: str
  epsilon_by_accountant: dict[str, float]


@dataclasses.dataclass(frozen=True)
class Extrapolation:
  """The cost of a larger run, which never is a guarantee of the simulation.

  Privacy:
    Unit: user in `user_level`; whole virtual client in `authors`.
    Neighbouring relation: that of `participation`.
    Sensitivity: each reading's own.
    DpEvent: as `composition.composed_events`, composed over `rounds`.

  Attributes:
    user_level: The reading that the participation supports; it leads.
    authors: The reading of the published table: Delta = C, undoubled.
    rounds: Number of rounds.
    delta: Delta of all epsilons.
    cohort_factor: Ratio of the extrapolated to the simulated cohort.
    simulated_noise_multiplier: Noise multiplier of the simulation.
    simulated_participation: Who took part in the simulation.
    noise_multiplier: Extrapolated noise multiplier.
    participation: Who would take part.
    zcdp: Rho of the user-level reading; None where sampling amplifies.
  """

  user_level: Reading
  authors: Reading
  rounds: int
  delta: float
  cohort_factor: float
  simulated_noise_multiplier: float
  simulated_participation: participation_lib.Participation
  noise_multiplier: float
  participation: participation_lib.Participation
  zcdp: float | None = None

  @property
  def assumptions(self) -> tuple[str, ...]:
    """The assumptions behind the figures, sentences for the reader.

    They name the simulated and the larger cohort, and end with the warnings
    that apply to any guarantee (`report.warnings_of_all`).
    """
    simulated = self.simulated_participation
    larger = self.participation
    noise_factor = larger.clients_per_round / simulated.clients_per_round
    assumed = [
      "The simulation had"
      f" {checks.count_in_words(simulated.users_per_round)} of"
      f" {simulated.num_users:,} users a round at noise multiplier"
      f" {self.simulated_noise_multiplier:g}; the cost is that of"
      f" {checks.count_in_words(larger.users_per_round)} of"
      f" {larger.num_users:,} at {noise_factor:g} times the noise.",
      "The noise on the mean update is the same in both; the accuracy is "
      "assumed, not measured, to carry over to the larger cohort.",
      "The larger population exists, its users resemble the simulated ones, "
      f"and they take part as stated: {larger.sampling}.",
    ]
    if larger.sensitivity_in_clip_norms != 1:
      assumed.append(
        "The authors' reading is for comparison: it counts a change of one clip"
        f" norm where one user can cause {larger.sensitivity_in_clip_norms:g},"
        f" and {epsilon_lib.VIRTUAL_CLIENT_UNIT}."
      )
    assumed += report.warnings_of_all(
      larger, self.delta, self.user_level.epsilon
    )
    return tuple(assumed)

  def to_json(self) -> dict[str, Any]:
    """Returns a dictionary that JSON can hold, infinity as "inf".

    Beside the fields it has `neighboring_relation` in words, `assumptions`, and
    `is_extrapolation`, which is always true.
    """
    values = dataclasses.asdict(self)
    for name in ("simulated_participation", "participation"):
      claim = getattr(self, name)
      values[name] = participations.PARTICIPATIONS.to_json(claim)
    relation = self.participation.neighboring_relation_in_words
    values["neighboring_relation"] = relation
    values["assumptions"] = self.assumptions
    values["is_extrapolation"] = True
    return report.json_safe(values)


def extrapolate_ledger(
  simulated: ledger_lib.Ledger,
  *,
  num_users: int,
  cohort_factor: float,
  delta: float,
  accountants: Sequence[str] | None = None,
) -> Extrapolation:
  """Returns the cost of a simulated run with a larger population and cohort.

  Privacy:
    Unit: user, or the whole virtual client: both are computed and named.
    Neighbouring relation: the participation's.
    Sensitivity: the participation's; one clip norm in the authors' reading.
    DpEvent: as `composition.composed_events`, composed over the rounds.

  Args:
    simulated: Ledger of the simulation, or of a plan of it: at least one round,
      all with the same noise. Without sampling, the separation becomes that of
      whole passes over the larger population, or stays as it is if a server
      enforces a smaller one.
    num_users: Population to extrapolate to.
    cohort_factor: Multiplies the users of a round, positive and finite. The
      noise multiplier grows as the virtual clients do.
    delta: Delta of all epsilons, in (0, 1).
    accountants: Names of the accountants [the participation's own, as in the
      published figures]. RDP replaces PLD if there is too much noise for PLD's
      arithmetic.

  Returns:
    Both readings of the larger run. Its `cohort_factor` is that of the users
    whom rounds get, which may be fewer than they are asked to have.

  Raises:
    errors.DataError: If not all rounds had the same noise.
    errors.FieldError: If the extrapolated cohort exceeds the population, its
      noise cannot be accounted for, PLD is the only accountant and would take
      minutes, or a fixed-size cohort would not be an integer.
  """
  noise = simulated.noise
  larger = _enlarge(simulated.participation, num_users, cohort_factor)
  # Rounds may get fewer users than they are asked to have.
  cohort_factor = (
    larger.users_per_round / simulated.participation.users_per_round
  )
  # The sum is divided by the number of whole virtual clients.
  noise_factor = (
    larger.clients_per_round / simulated.participation.clients_per_round
  )
  larger_noise_multiplier = noise_factor * noise.multiplier
  round_sum = simulated.round_sum
  if round_sum is not None:
    round_sum = round_sum.with_noise_times(noise_factor)
  account = ledger_lib.create_ledger(
    larger,
    composition.Noise(larger_noise_multiplier, noise.strategy),
    simulated.rounds,
    delta=delta,
    accountants=larger.select_accountants(accountants),
    round_sum=round_sum,
  )
  epsilon_lib.check_pld(account)

  user_level = _user_level(account)
  return Extrapolation(
    user_level=user_level,
    authors=_as_the_authors_read(account, user_level),
    rounds=simulated.rounds,
    delta=delta,
    cohort_factor=cohort_factor,
    simulated_noise_multiplier=noise.multiplier,
    simulated_participation=simulated.participation,
    noise_multiplier=larger_noise_multiplier,
    participation=larger,
    zcdp=epsilon_lib.zcdp(account),
  )


def _enlarge(
  participation: participation_lib.Participation,
  num_users: int,
  cohort_factor: float,
) -> participation_lib.Participation:
  """Returns the participation for the larger population and cohort.

  Args:
    participation: Who took part in the simulation.
    num_users: The larger population.
    cohort_factor: Factor on the users of a round.

  Raises:
    errors.FieldError: If the cohort exceeds the population, or a field of the
      participation is out of its range for it.
  """
  checks.check_number("cohort_factor", cohort_factor, above=0)
  cohort = cohort_factor * participation.users_per_round
  if cohort > num_users:
    raise errors.FieldError(
      "cohort_factor x users_per_round",
      f"be at most num_users ({num_users:,})",
      checks.count_in_words(cohort),
    )
  larger = participation.resized(num_users=num_users, users_per_round=cohort)
  # A larger population needs a new, secret draw.
  return larger.with_secret_schedule().for_rounds(None)


def _user_level(account: composition.Account) -> Reading:
  """Returns the reading at the sensitivity that the participation supports.

  It would be the guarantee of the larger run, with the cost of the noise's
  arithmetic.
  """
  claim = account.participation
  whole = arithmetic.whole_epsilon(account)
  return Reading(
    name="user-level",
    protects=f"one user: {claim.neighboring_relation_in_words}",
    sensitivity_in_clip_norms=claim.sensitivity_in_clip_norms,
    epsilon=whole.epsilon,
    accountant=whole.accountant,
    epsilon_by_accountant=whole.by_accountant,
  )


def _as_the_authors_read(
  account: composition.Account,
  user_level: Reading,
) -> Reading:
  """Returns the reading in which a user moves the sum by one clip norm.

  Args:
    account: The rounds of the larger run.
    user_level: The other reading, which is copied where both are the same.
  """
  if user_level.sensitivity_in_clip_norms == 1:
    return dataclasses.replace(user_level, name="authors")
  epsilons = epsilon_lib.epsilon_by_accountant(
    account, sensitivity_in_clip_norms=1.0
  )
  accountant, epsilon = epsilon_lib.leading(epsilons)
  return Reading(
    name="authors",
    protects=epsilon_lib.VIRTUAL_CLIENT_UNIT,
    sensitivity_in_clip_norms=1.0,
    epsilon=epsilon,
    accountant=accountant,
    epsilon_by_accountant=epsilons,
  )
