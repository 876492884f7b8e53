"""Turns what a mechanism releases into the events that an accountant is given.

Two families. Where the users of a round are drawn anew, each round that may
draw a user is an event of its own, amplified by the sampling; so it is under
correlated noise if the matrix has no more bands than there are rounds from one
of these to the next. Where they are not, a user is in a bounded number of
rounds: independent noise costs as many Gaussian mechanisms; correlated noise
makes the whole run one Gaussian mechanism, whose sensitivity is that of its
strategy matrix (`strategies.strategy`). Between the two are rounds of a user
that were drawn in secret and hang together: the whole run is one event
(`monte_carlo`).
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
from tff_fedemb.participation import b_min_sep as b_min_sep_lib
from tff_fedemb.participation import participation as participation_lib
from tff_fedemb.participation import registry as participations
from tff_fedemb.privacy import b_min_sep
from tff_fedemb.privacy import balls_in_bins
from tff_fedemb.strategies import registry as strategies
from tff_fedemb.strategies import strategy as strategy_lib
from tff_fedemb.strategies import toeplitz

# A mechanism's event of one round, and the number of such rounds.
RoundCounts = Sequence[tuple[dp_accounting.DpEvent, int]]


@dataclasses.dataclass(frozen=True)
class Noise(config.Config):
  """What a mechanism adds to the sum of a round.

  Attributes:
    multiplier: Standard deviation over the clip norm, 0 for none.
    strategy: Ties the noise of the rounds together; None for independent noise.
  """

  multiplier: float
  strategy: strategy_lib.Strategy | None = config.part(
    None, registry=strategies.STRATEGIES
  )


@dataclasses.dataclass(frozen=True)
class RoundSum(config.Config):
  """What is clipped, summed up and noised in every round.

  Attributes:
    clip_norm: L2 norm to which an update is clipped; of an adaptive one, in the
      first round.
    noise_multiplier: Standard deviation of the noise on the sum over the clip
      norm; more than what is accounted for where a part is on a count.
    num_parameters: Numbers of the sum.
  """

  clip_norm: float = config.field(above=0)
  noise_multiplier: float = config.field(minimum=0)
  num_parameters: int = config.field(minimum=1)


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
    accountants: Names of the accountants, cheapest first; all that the
      participation supports if None.
    history: Pairs of a mechanism's event, at a sensitivity of one clip norm
      and as in `composed_events`, and how many rounds in a row it ran.
    round_sum: What is clipped and summed up in every round; None if that is not
      known, and the noise taken for a Gaussian.

  Raises:
    ValueError: If delta is out of range, an accountant or an event not
      supported, or correlated noise not the same in all rounds.
  """

  participation: participation_lib.Participation = config.part(
    registry=participations.PARTICIPATIONS
  )
  _: dataclasses.KW_ONLY
  delta: float = config.field(**checks.DELTA_RANGE)
  accountants: tuple[str, ...] | None = None
  history: tuple[tuple[dp_accounting.DpEvent, int], ...] = ()
  round_sum: RoundSum | None = None

  def __post_init__(self):
    super().__post_init__()
    accountants = self.participation.select_accountants(self.accountants)
    object.__setattr__(self, "accountants", accountants)
    # Refused now rather than hours later, when an epsilon is wanted.
    check_noise(*self.run)

  @property
  def rounds(self) -> int:
    """Number of rounds."""
    return sum(count for _, count in self.history)

  @property
  def num_runs(self) -> int:
    """How often rounds ran, all of which is accounted for."""
    return sum(runs_of(event)[1] * count for event, count in self.history)

  @property
  def run(self) -> tuple[RoundCounts, participation_lib.Participation]:
    """Each event with all its rounds, and who takes part in them."""
    return merge_rounds(self.history), self.participation

  @property
  def noises(self) -> list[Noise]:
    """What rounds of each event added, each time that they ran together."""
    return [noise_of(event) for event, _ in self.run[0]]


def run_again(
  mechanism_event: dp_accounting.DpEvent, times: int
) -> dp_accounting.DpEvent:
  """Returns what a round releases that ran several times, on the same users.

  Privacy:
    As the event, composed with itself. The users were drawn once: where
    sampling amplifies, it amplifies the composition, which costs more than as
    many rounds with users of their own. Rounds in between change nothing: each
    round's draw is independent of the others, so that the privacy loss of its
    runs is that of one Gaussian mechanism of `noise multiplier / sqrt(times)`.

  Args:
    mechanism_event: What one run releases, with noise of its own.
    times: Runs, at least 1.
  """
  if times == 1 or not noise_of(mechanism_event).multiplier:
    return mechanism_event
  return dp_accounting.SelfComposedDpEvent(mechanism_event, times)


def runs_of(
  mechanism_event: dp_accounting.DpEvent,
) -> tuple[dp_accounting.DpEvent, int]:
  """Inverse of `run_again`: what one run of a round releases, and how many.

  Args:
    mechanism_event: What a round releases.
  """
  if isinstance(mechanism_event, dp_accounting.SelfComposedDpEvent):
    return mechanism_event.event, mechanism_event.count
  return mechanism_event, 1


def rounds_by_runs(mechanism_counts: RoundCounts) -> dict[int, int]:
  """Returns the number of rounds by how often they ran, in that order.

  Args:
    mechanism_counts: As in `composed_events`.
  """
  counts: collections.Counter[int] = collections.Counter()
  for event, count in mechanism_counts:
    counts[runs_of(event)[1]] += count
  return dict(sorted(counts.items()))


def noise_of(mechanism_event: dp_accounting.DpEvent) -> Noise:
  """Returns the noise of what a mechanism releases in one round.

  Args:
    mechanism_event: At a sensitivity of one clip norm; as `run_again` for a
      round that ran several times, whose noise is that of all runs together.

  Raises:
    ValueError: If it is of an unknown class.
  """
  event, times = runs_of(mechanism_event)
  match event:
    case dp_accounting.NonPrivateDpEvent():
      return Noise(0.0)
    case dp_accounting.GaussianDpEvent():
      return Noise(event.noise_multiplier / math.sqrt(times))
    case strategy_lib.CorrelatedGaussianDpEvent() if times == 1:
      return Noise(event.noise_multiplier, event.strategy)
  raise ValueError(
    "mechanism_event must be a GaussianDpEvent, a CorrelatedGaussianDpEvent or"
    f" a NonPrivateDpEvent, found {mechanism_event!r}."
  )


def event_of(noise: Noise) -> dp_accounting.DpEvent:
  """Inverse of `noise_of` for a round that ran once.

  Args:
    noise: What the mechanism adds to the sum.
  """
  if not noise.multiplier:
    return dp_accounting.NonPrivateDpEvent()
  return strategy_lib.round_event(noise.multiplier, noise.strategy)


def merge_rounds(
  history: RoundCounts,
) -> list[tuple[dp_accounting.DpEvent, int]]:
  """Returns each event once, with all its rounds: composition has no order."""
  counts = collections.Counter()
  for event, count in history:
    counts[event] += count
  return list(counts.items())


def check_noise(
  mechanism_counts: RoundCounts,
  participation: participation_lib.Participation,
) -> list[tuple[Noise, int]]:
  """Returns the noise of rounds that can be accounted for.

  Args:
    mechanism_counts: As in `composed_events`.
    participation: Who takes part.

  Raises:
    ValueError: If an event is of an unknown class, its noise multiplier out of
      range, its noise correlated over rounds while users are sampled, or
      rounds of correlated noise are mixed with others.
  """
  noises = []
  for event, count in mechanism_counts:
    noise = noise_of(event)
    checks.check_noise_multiplier(noise.multiplier)
    if noise.strategy is not None:
      check_correlated(type(noise.strategy), participation)
      num_bands, period = noise.strategy.num_bands, participation.min_separation
      is_anew = participation.is_sampled and not participation.is_drawn_once
      # Others would mix the rounds of a user whose sampling amplifies.
      if is_anew and (num_bands or math.inf) > period:
        raise errors.FieldError(
          "num_bands",
          f"be at most {period:,}, the rounds from one of a user's to the next,"
          " for sampling to amplify",
          num_bands,
        )
    noises.append((noise, count))
  different = {noise for noise, _ in noises}
  if len(different) > 1 and any(noise.strategy for noise in different):
    raise ValueError(
      "mechanism_event must be the same in all rounds where noise is "
      f"correlated over rounds, found {sorted(map(str, different))}."
    )
  return noises


def check_correlated(
  strategy: type[strategy_lib.Strategy],
  participation: participation_lib.Participation,
) -> None:
  """Refuses correlated noise that cannot be accounted for.

  Args:
    strategy: The class of its matrix.
    participation: Who takes part.

  Raises:
    errors.FieldError: If a user may come back in the next round, or be drawn
      anew after as many rounds as the matrix has no bands; or, where all of a
      user's rounds were drawn once, if the matrix is not Toeplitz.
  """
  if participation.min_separation is None:
    raise errors.FieldError(
      "participation",
      f"be min_separation with mechanism {strategy.name}, or another in which a"
      " user's rounds are apart: its noise is correlated over rounds, and"
      " amplification by sampling assumes fresh noise in every round",
      participation.name,
    )
  if not is_known(strategy, participation):
    known = sorted(
      name
      for name, other in strategies.STRATEGIES.items()
      if is_known(other, participation)
    )
    raise errors.FieldError(
      "mechanism",
      f"be {', '.join(known)} or one of independent noise with participation"
      f" {participation.name}, whose sampling amplifies no other noise:"
      " min_separation claims as much for it",
      strategy.name,
    )


def is_known(
  strategy: type[strategy_lib.Strategy],
  participation: participation_lib.Participation,
) -> bool:
  """Whether it is known what noise of a matrix costs for a participation.

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
  mechanism_counts: RoundCounts,
  participation: participation_lib.Participation,
  *,
  sensitivity_in_clip_norms: float | None = None,
) -> list[tuple[dp_accounting.DpEvent, int]]:
  """Returns the events whose composition is the cost of all rounds.

  Privacy:
    Unit: user.
    Neighbouring relation: `participation.neighboring_relation`.
    Sensitivity: `participation.sensitivity_in_clip_norms` clip norms in each
      round that a user is in, by which the noise multiplier is divided here,
      once; with correlated noise times that of the strategy over the run, or,
      where users are sampled anew, for one participation.
    DpEvent: where a user's rounds hang together, `MixtureDpEvent` or, of
      independent noise in bins, `RandomAllocationDpEvent` for the whole run,
      with the least noise of a round; where they are sampled anew,
      `PoissonSampledDpEvent`, `SampledWithoutReplacementDpEvent` or
      `RandomAllocationDpEvent` of a `GaussianDpEvent` for each round, or pass,
      that may draw a user; `GaussianDpEvent` once for each round that a user
      may be in where they are not; of both those with the least noise if it
      differs; a single `GaussianDpEvent` for correlated noise;
      `NonPrivateDpEvent` if a round has no noise.

  Args:
    mechanism_counts: Pairs of a mechanism's event, at a sensitivity of one clip
      norm, and the number of rounds; each event once.
    participation: Who takes part.
    sensitivity_in_clip_norms: Replaces the sensitivity that the participation
      supports; for comparisons that are named as such.

  Raises:
    ValueError: As `check_noise`; or if the strategy's sensitivity is not known.
  """
  noises = check_noise(mechanism_counts, participation)
  if any(not noise.multiplier for noise, _ in noises):
    # One round without noise decides, whatever the others cost.
    return [(dp_accounting.NonPrivateDpEvent(), 1)]
  sensitivity = participation.sensitivity_in_clip_norms
  if sensitivity_in_clip_norms is not None:
    sensitivity = checks.check_number(
      "sensitivity_in_clip_norms", sensitivity_in_clip_norms, above=0
    )
  rounds = sum(count for _, count in noises)
  if participation.is_mixture and rounds:
    noise = min((noise for noise, _ in noises), key=lambda n: n.multiplier)
    of_all: tuple[float, Any] = (noise.multiplier / sensitivity, noise.strategy)
    separation = participation.min_separation
    if isinstance(participation, b_min_sep_lib.BMinSep):
      chance = participation.sampling_probability
      return [
        (b_min_sep.BMinSepDpEvent(*of_all, rounds, separation, chance), 1)
      ]
    return [(balls_in_bins.create_event(*of_all, separation, rounds), 1)]
  of_strategy = strategy_sensitivity(mechanism_counts, participation)
  is_sampled = participation.is_sampled
  left = participation.participations(rounds)
  if left < rounds:
    # Those that cost most are the ones that a user may be in.
    noises.sort(key=lambda noise_count: noise_count[0].multiplier)
  events = []
  for noise, count in noises:
    used = min(count, left)
    left -= used
    if of_strategy is not None:
      sensitivity *= of_strategy
      used = used if is_sampled else 1  # For the whole run.
    event = dp_accounting.GaussianDpEvent(noise.multiplier / sensitivity)
    if used and is_sampled:
      events += participation.sampled_events(event, used, rounds=rounds)
    elif used:
      events.append((event, used))
  return events


def schedule_of(
  participation: participation_lib.Participation, rounds: int
) -> strategy_lib.Schedule:
  """Returns which of some rounds, at least one, a user may be in."""
  return strategy_lib.Schedule(
    rounds,
    # Whoever is drawn anew may be drawn in the next round.
    participation.min_separation or 1,
    participation.max_participations,
  )


def strategy_sensitivity(
  mechanism_counts: RoundCounts,
  participation: participation_lib.Participation,
) -> float | None:
  """Sensitivity of the strategy over the run; None without correlated noise.

  Where users are sampled anew, it is that of one participation, as they are
  accounted for one by one: the norm of the largest column.

  Args:
    mechanism_counts: As in `composed_events`.
    participation: Who takes part.
  """
  rounds = sum(count for _, count in mechanism_counts)
  for event, _ in mechanism_counts:
    strategy = noise_of(event).strategy
    if strategy is not None:
      schedule = schedule_of(participation, rounds)
      if participation.is_sampled and not participation.is_mixture:
        schedule = dataclasses.replace(schedule, max_participations=1)
      return _sensitivity(strategy, schedule)
  return None


# A search asks again for every noise multiplier.
@functools.lru_cache(maxsize=256)
def _sensitivity(
  strategy: strategy_lib.Strategy, schedule: strategy_lib.Schedule
) -> float:
  return strategy.sensitivity(schedule)
