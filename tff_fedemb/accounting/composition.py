"""Turns what a mechanism releases into the events that an accountant is given.

There are three cases:

* Each round draws its users anew. Each round that may draw a user is an event
  of its own, amplified by the sampling. This also holds for correlated noise
  if its matrix has at most as many bands as a user's rounds are apart.
* Nobody is sampled, and a user is in a bounded number of rounds. Independent
  noise costs as many Gaussian mechanisms. Correlated noise makes the whole run
  one Gaussian mechanism, whose sensitivity is that of its strategy matrix
  (`mechanisms.strategy`).
* A user's rounds were drawn once, in secret. The whole run is one event
  (`balls_in_bins`).
"""

import collections
from collections.abc import Sequence
import dataclasses
import functools
import math
from typing import Any

import dp_accounting

from tff_fedemb import checks
from tff_fedemb import config
from tff_fedemb import errors
from tff_fedemb.accounting import balls_in_bins
from tff_fedemb.mechanisms import mechanism as mechanism_lib
from tff_fedemb.mechanisms import strategies
from tff_fedemb.mechanisms import strategy as strategy_lib
from tff_fedemb.mechanisms import toeplitz
from tff_fedemb.participation import participation as participation_lib
from tff_fedemb.participation import registry as participations


@dataclasses.dataclass(frozen=True)
class Noise(config.Config):
  """The noise that a mechanism adds to the sum of a round.

  Attributes:
    multiplier: Standard deviation over the clip norm, 0 for none.
    strategy: Ties the noise of the rounds together; None for independent noise.
  """

  multiplier: float
  strategy: strategy_lib.Strategy | None = config.part(
    None, registry=strategies.STRATEGIES
  )


def noise_of(mechanism: mechanism_lib.Mechanism) -> Noise:
  """Returns the noise by which a mechanism protects the sum of every round.

  Args:
    mechanism: Any mechanism; without noise, or if its seed is known, the
      multiplier is 0.
  """
  return Noise(mechanism.config.secret_noise_multiplier, mechanism.strategy)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Rounds(config.Config):
  """Rounds that are alike.

  Attributes:
    count: Number of rounds.
    times: How often each round ran, on the same users and with noise of its
      own.
    noise: Noise that each run added [none].
  """

  count: int = config.field(1, minimum=1)
  times: int = config.field(1, minimum=1)
  noise: Noise = config.part(Noise(0.0))

  def __post_init__(self):
    super().__post_init__()
    if not self.noise.multiplier:
      # Adding no noise several times is still no noise.
      object.__setattr__(self, "noise", Noise(0.0))
      object.__setattr__(self, "times", 1)
    if self.noise.strategy is not None and self.times > 1:
      raise errors.FieldError(
        "times", "be 1 for noise that is correlated over rounds", self.times
      )

  @property
  def whole_noise(self) -> Noise:
    """Noise of all runs of a round together.

    Privacy:
      The users were drawn once. Where sampling amplifies, it amplifies the
      composition of the runs, which costs more than as many rounds with users
      of their own. The draw of each round is independent of all others, so
      rounds in between change nothing: the privacy loss of the runs is that of
      one Gaussian mechanism of `noise multiplier / sqrt(times)`.
    """
    multiplier = self.noise.multiplier / math.sqrt(self.times)
    return Noise(multiplier, self.noise.strategy)

  def to_json(self) -> dict[str, Any]:
    """Returns the fields as JSON values by name, without `noise` if none."""
    values = super().to_json()
    if not self.noise.multiplier:
      del values["noise"]
    return values


@dataclasses.dataclass(frozen=True)
class RoundSum(config.Config):
  """The sum that is clipped and noised in every round.

  Attributes:
    clip_norm: L2 norm to which an update is clipped; the first round's if it
      adapts.
    noise_multiplier: Standard deviation of the noise on the sum over the clip
      norm; above the accounted one if a count has a part of the noise.
    num_parameters: How many numbers the sum has.
    count_noise: Standard deviation of the noise on the count of unclipped
      updates, over the 1/2 by which a client changes it; None without a count.
  """

  clip_norm: float = config.field(above=0)
  noise_multiplier: float = config.field(minimum=0)
  num_parameters: int = config.field(minimum=1)
  count_noise: float | None = config.field(None, minimum=0)

  def with_noise_times(self, factor: float) -> "RoundSum":
    """Returns the same sum and count with more noise.

    Args:
      factor: Factor of all noise, above 0.
    """
    count_noise = self.count_noise
    if count_noise is not None:
      count_noise *= factor
    return dataclasses.replace(
      self,
      noise_multiplier=factor * self.noise_multiplier,
      count_noise=count_noise,
    )


@dataclasses.dataclass(frozen=True)
class Account(config.Config):
  """Rounds to account for, and who takes part in them.

  Privacy:
    Unit: user.
    Neighbouring relation: the participation's.
    Sensitivity: the participation's, in clip norms.
    DpEvent: `composed_events` of the rounds.

  Attributes:
    participation: Who takes part in every round.
    delta: At which epsilon is stated, in (0, 1).
    accountants: Names of the accountants, cheapest first [all that the
      participation supports].
    history: The rounds, in their order.
    round_sum: The sum of every round; None if it is not known, and the noise is
      taken for an exact Gaussian.

  Raises:
    ValueError: If delta is out of range, an accountant not supported, or
      correlated noise not the same in all rounds.
  """

  participation: participation_lib.Participation = config.part(
    registry=participations.PARTICIPATIONS
  )
  _: dataclasses.KW_ONLY
  delta: float = config.field(**checks.DELTA_RANGE)
  accountants: tuple[str, ...] = ()
  history: tuple[Rounds, ...] = ()
  round_sum: RoundSum | None = None

  def __post_init__(self):
    super().__post_init__()
    accountants = self.participation.select_accountants(
      self.accountants or None
    )
    object.__setattr__(self, "accountants", accountants)
    # Refused now rather than hours later, when an epsilon is wanted.
    check_noise(self.merged_rounds, self.participation)

  @property
  def rounds(self) -> int:
    """Number of rounds."""
    return sum(each.count for each in self.history)

  @property
  def num_runs(self) -> int:
    """Number of runs of all rounds, each of which is accounted for."""
    return sum(each.times * each.count for each in self.history)

  @property
  def rounds_by_runs(self) -> dict[int, int]:
    """Number of rounds by how often they ran, in that order."""
    counts: collections.Counter[int] = collections.Counter()
    for each in self.history:
      counts[each.times] += each.count
    return dict(sorted(counts.items()))

  @property
  def merged_rounds(self) -> list[Rounds]:
    """The rounds, those that are alike merged: composition has no order."""
    counts: collections.Counter[tuple[Noise, int]] = collections.Counter()
    for each in self.history:
      counts[each.noise, each.times] += each.count
    merged = []
    for (noise, times), count in counts.items():
      merged.append(Rounds(count=count, times=times, noise=noise))
    return merged

  @property
  def noises(self) -> list[Noise]:
    """Noise of all runs of a round together, for rounds that are alike."""
    return [each.whole_noise for each in self.merged_rounds]

  @property
  def strategy(self) -> strategy_lib.Strategy | None:
    """The matrix of correlated noise; None without it, or without rounds."""
    # Noise is correlated in all rounds or in none (`check_noise`).
    return self.history[0].noise.strategy if self.history else None

  @property
  def strategy_sensitivity(self) -> float | None:
    """Sensitivity of the strategy; None without correlated noise."""
    return strategy_sensitivity(self.merged_rounds, self.participation)

  def composed_events(
    self, *, sensitivity_in_clip_norms: float | None = None
  ) -> list[tuple[dp_accounting.DpEvent, int]]:
    """Returns `composed_events` of all rounds and who takes part in them.

    Privacy:
      As `composed_events`.

    Args:
      sensitivity_in_clip_norms: As there; so are the errors.
    """
    return composed_events(
      self.merged_rounds,
      self.participation,
      sensitivity_in_clip_norms=sensitivity_in_clip_norms,
    )


def check_noise(
  rounds: Sequence[Rounds], participation: participation_lib.Participation
) -> list[tuple[Noise, int]]:
  """Checks that rounds can be accounted for, and returns their noise.

  Args:
    rounds: As in `composed_events`.
    participation: Who takes part.

  Returns:
    Pairs of the noise of all runs of a round and the number of such rounds.

  Raises:
    ValueError: If a noise multiplier is out of range, sampling cannot amplify
      the noise's correlation over rounds, or rounds of correlated noise are
      mixed with others.
  """
  noises = []
  for each in rounds:
    noise = each.whole_noise
    checks.check_noise_multiplier(noise.multiplier)
    if noise.strategy is not None:
      period = check_correlated(type(noise.strategy), participation)
      num_bands = noise.strategy.num_bands
      is_anew = participation.is_sampled and not participation.is_drawn_once
      # With more bands, noise mixes the rounds that sampling should amplify.
      if is_anew and (num_bands or math.inf) > period:
        raise errors.FieldError(
          "num_bands",
          f"be at most {period:,}, the rounds from one of a user's to the next,"
          " for sampling to amplify",
          num_bands,
        )
    noises.append((noise, each.count))
  different = {noise for noise, _ in noises}
  if len(different) > 1 and any(noise.strategy for noise in different):
    raise ValueError(
      "noise must be the same in all rounds where it is correlated over"
      f" rounds, found {sorted(map(str, different))}."
    )
  return noises


def check_correlated(
  strategy: type[strategy_lib.Strategy],
  participation: participation_lib.Participation,
) -> int:
  """Refuses correlated noise that cannot be accounted for.

  Args:
    strategy: The class of its matrix.
    participation: Who takes part.

  Returns:
    Rounds from one of a user's to the next.

  Raises:
    errors.FieldError: If a user may come back in the next round, if users are
      drawn anew and the matrix is not banded, or if all of a user's rounds were
      drawn once and the matrix is not Toeplitz.
  """
  separation = participation.min_separation
  if separation is None:
    raise errors.FieldError(
      "participation",
      f"be min_separation with mechanism {strategy.name}, or another in which a"
      " user's rounds are apart: its noise is correlated over rounds, and"
      " amplification by sampling assumes fresh noise in every round",
      participation.name,
    )
  if not is_known(strategy, participation):
    known = []
    for name, other in sorted(strategies.STRATEGIES.items()):
      if is_known(other, participation):
        known.append(name)
    raise errors.FieldError(
      "mechanism",
      f"be {', '.join(known)} or one of independent noise with participation"
      f" {participation.name}, whose sampling amplifies no other noise:"
      " min_separation claims as much for it",
      strategy.name,
    )
  return separation


def is_known(
  strategy: type[strategy_lib.Strategy],
  participation: participation_lib.Participation,
) -> bool:
  """Returns whether the cost of a matrix's noise is known.

  Args:
    strategy: The class of the matrix.
    participation: Who takes part.
  """
  if participation.min_separation is None:
    return False
  if participation.is_drawn_once:
    return issubclass(strategy, toeplitz.ToeplitzStrategy)
  return strategy.is_banded or not participation.is_sampled


def composed_events(
  rounds: Sequence[Rounds],
  participation: participation_lib.Participation,
  *,
  sensitivity_in_clip_norms: float | None = None,
) -> list[tuple[dp_accounting.DpEvent, int]]:
  """Returns the events whose composition is the cost of all rounds.

  Privacy:
    Unit: user.
    Neighbouring relation: `participation.neighboring_relation`.
    Sensitivity: `participation.sensitivity_in_clip_norms` clip norms in each
      round that a user is in. This function divides the noise multiplier by it,
      once. With correlated noise it is multiplied by that of the strategy over
      the run, or, where users are sampled anew, for one participation.
    DpEvent: `NonPrivateDpEvent` if a round has no noise; else
      * where a user's rounds were drawn once, `BallsInBinsDpEvent`, or
        `RandomAllocationDpEvent` with independent noise, once for the run and
        with the least noise of a round;
      * where users are sampled anew, `PoissonSampledDpEvent`,
        `SampledWithoutReplacementDpEvent` or `RandomAllocationDpEvent` of a
        `GaussianDpEvent`, for each round or pass that may draw a user;
      * where they are not, `GaussianDpEvent` for each round that a user may be
        in, with correlated noise once for the run.
      If rounds differ in noise, a user is in those with the least.

  Args:
    rounds: All rounds; merge those that are alike.
    participation: Who takes part.
    sensitivity_in_clip_norms: Replaces the participation's sensitivity, in
      comparisons alone.

  Raises:
    ValueError: As `check_noise`; or if the strategy's sensitivity is not known.
  """
  noises = check_noise(rounds, participation)
  if any(not noise.multiplier for noise, _ in noises):
    # One round without noise decides, whatever the others cost.
    return [(dp_accounting.NonPrivateDpEvent(), 1)]
  sensitivity = participation.sensitivity_in_clip_norms
  if sensitivity_in_clip_norms is not None:
    sensitivity = checks.check_number(
      "sensitivity_in_clip_norms", sensitivity_in_clip_norms, above=0
    )
  num_rounds = sum(count for _, count in noises)
  if participation.is_drawn_once and num_rounds:
    noise, _ = min(noises, key=_multiplier)
    strategy: Any = noise.strategy
    num_bins: Any = participation.min_separation
    multiplier = noise.multiplier / sensitivity
    event = balls_in_bins.create_event(
      multiplier, strategy, num_bins, num_rounds
    )
    return [(event, 1)]
  of_strategy = strategy_sensitivity(rounds, participation)
  if of_strategy is not None:
    sensitivity *= of_strategy
  left = participation.participations(num_rounds)
  if left < num_rounds:
    # Assume that a user is in the rounds that cost most.
    noises.sort(key=_multiplier)
  events = []
  for noise, count in noises:
    used = min(count, left)
    left -= used
    gaussian = dp_accounting.GaussianDpEvent(noise.multiplier / sensitivity)
    if used and participation.is_sampled:
      events += participation.sampled_events(gaussian, used, rounds=num_rounds)
    elif of_strategy is not None:
      events.append((gaussian, 1))  # For the whole run.
    elif used:
      events.append((gaussian, used))
  return events


def _multiplier(noise_and_count: tuple[Noise, int]) -> float:
  """The key by which noises are compared."""
  noise, _ = noise_and_count
  return noise.multiplier


def schedule_of(
  participation: participation_lib.Participation, rounds: int
) -> strategy_lib.Schedule:
  """Returns which rounds of a run a user may be in.

  Args:
    participation: Who takes part.
    rounds: Number of rounds, at least 1.
  """
  return strategy_lib.Schedule(
    rounds,
    # A user who is drawn anew in each round may be in the next one.
    participation.min_separation or 1,
    participation.max_participations,
  )


def strategy_sensitivity(
  rounds: Sequence[Rounds],
  participation: participation_lib.Participation,
) -> float | None:
  """Returns the sensitivity of the strategy; None without correlated noise.

  It is that of the whole run. Where users are sampled anew, participations are
  accounted for one by one, and it is that of one participation: the norm of the
  largest column.

  Args:
    rounds: As in `composed_events`.
    participation: Who takes part.
  """
  if not rounds or rounds[0].noise.strategy is None:
    # Noise is correlated in all rounds or in none (`check_noise`).
    return None
  num_rounds = sum(each.count for each in rounds)
  schedule = schedule_of(participation, num_rounds)
  if participation.is_sampled and not participation.is_drawn_once:
    schedule = dataclasses.replace(schedule, max_participations=1)
  return _sensitivity(rounds[0].noise.strategy, schedule)


# A search asks again for every noise multiplier.
@functools.lru_cache(maxsize=256)
def _sensitivity(
  strategy: strategy_lib.Strategy, schedule: strategy_lib.Schedule
) -> float:
  """The sensitivity of a strategy, kept for the next question."""
  return strategy.sensitivity(schedule)
