"""From what a mechanism releases to the events that an accountant is given.

Two families. Where the users of a round are drawn anew, each round is an event
of its own, amplified by the sampling. Where they are not, a user is in a
bounded number of rounds: independent noise costs as many Gaussian mechanisms;
correlated noise makes the whole run one Gaussian mechanism, whose sensitivity
is that of its strategy matrix (`strategies.strategy`).
"""

import collections
from collections.abc import Sequence
import dataclasses

import dp_accounting

from tff_fedemb import checks
from tff_fedemb import errors
from tff_fedemb.data.participation import participation as participation_lib
from tff_fedemb.strategies import strategy as strategy_lib

# A mechanism's event of one round, and the number of such rounds.
RoundCounts = Sequence[tuple[dp_accounting.DpEvent, int]]


@dataclasses.dataclass(frozen=True)
class Noise:
  """What a mechanism adds to the sum of a round.

  Attributes:
    mechanism: Name of the mechanism; None for one that adds nothing.
    multiplier: Standard deviation over the clip norm, 0 for none.
    strategy: Ties the noise of the rounds together; None for independent noise.
  """

  mechanism: str | None
  multiplier: float
  strategy: strategy_lib.Strategy | None = None


def noise_of(mechanism_event: dp_accounting.DpEvent) -> Noise:
  """Returns the noise of what a mechanism releases in one round.

  Args:
    mechanism_event: At a sensitivity of one clip norm.

  Raises:
    ValueError: If it is of an unknown class.
  """
  match mechanism_event:
    case dp_accounting.NonPrivateDpEvent():
      return Noise(None, 0.0)
    case dp_accounting.GaussianDpEvent():
      return Noise("gaussian", mechanism_event.noise_multiplier)
    case strategy_lib.CorrelatedGaussianDpEvent():
      strategy = mechanism_event.strategy
      return Noise(strategy.name, mechanism_event.noise_multiplier, strategy)
  raise ValueError(
    "mechanism_event must be a GaussianDpEvent, a CorrelatedGaussianDpEvent or"
    f" a NonPrivateDpEvent, found {mechanism_event!r}."
  )


def mechanism_event(
  noise_multiplier: float, strategy: strategy_lib.Strategy | None
) -> dp_accounting.DpEvent:
  """Returns what one round releases, at a sensitivity of one clip norm.

  Args:
    noise_multiplier: Standard deviation of the noise over the clip norm.
    strategy: Of correlated noise; None for independent noise.
  """
  if strategy is None:
    return dp_accounting.GaussianDpEvent(noise_multiplier)
  return strategy_lib.CorrelatedGaussianDpEvent(noise_multiplier, strategy)


def merge_rounds(
  history: RoundCounts,
) -> list[tuple[dp_accounting.DpEvent, int]]:
  """Returns each event once, with all its rounds: composition has no order."""
  counts = collections.Counter()
  for event, count in history:
    counts[event] += count
  return list(counts.items())


def round_event(
  mechanism_event: dp_accounting.DpEvent,
  participation: participation_lib.Participation,
  *,
  sensitivity_in_clip_norms: float | None = None,
) -> dp_accounting.DpEvent:
  """Returns the event of one round, ready for an accountant.

  Privacy:
    Unit: user.
    Neighbouring relation: `participation.neighboring_relation`.
    Sensitivity: `participation.sensitivity_in_clip_norms` clip norms; the
      noise multiplier is divided by it here, once.
    DpEvent: `PoissonSampledDpEvent` or `SampledWithoutReplacementDpEvent` of
      a `GaussianDpEvent`; `NonPrivateDpEvent` without noise.

  Args:
    mechanism_event: `GaussianDpEvent(noise_multiplier)`, where the multiplier
      is the standard deviation of the noise on the sum over the clip norm, or
      `NonPrivateDpEvent()`.
    participation: Who takes part in the round; sampled.
    sensitivity_in_clip_norms: Replaces the sensitivity that the participation
      supports; for comparisons that are named as such.

  Raises:
    ValueError: If the mechanism is of another class or the participation not
      sampled, or a number is out of its range.
  """
  if not participation.is_sampled:
    raise errors.FieldError(
      "participation", "be sampled anew in every round", participation.name
    )
  noise = check_mechanism_event(mechanism_event, participation)
  if not noise.multiplier:
    return dp_accounting.NonPrivateDpEvent()
  return participation.sampled_event(
    dp_accounting.GaussianDpEvent(
      noise.multiplier
      / check_sensitivity(participation, sensitivity_in_clip_norms)
    ),
  )


def check_mechanism_event(
  mechanism_event: dp_accounting.DpEvent,
  participation: participation_lib.Participation,
) -> Noise:
  """Returns the noise of an event that can be accounted for.

  Args:
    mechanism_event: What a mechanism releases in one round.
    participation: Who takes part in the round.

  Raises:
    ValueError: If it is of an unknown class, its noise multiplier out of
      range, or its noise correlated over rounds while users are sampled.
  """
  noise = noise_of(mechanism_event)
  if noise.strategy is not None:
    check_correlated(noise.strategy.name, participation)
  checks.check_noise_multiplier(noise.multiplier)
  return noise


def check_correlated(
  mechanism: str, participation: participation_lib.Participation
) -> None:
  """Refuses noise that is correlated over rounds whose users are sampled.

  Args:
    mechanism: Its name.
    participation: Who takes part.

  Raises:
    errors.FieldError: If they are.
  """
  if participation.is_sampled:
    raise errors.FieldError(
      "participation",
      f"be min_separation with mechanism {mechanism}, whose noise is correlated"
      " over rounds: amplification by sampling assumes fresh noise in every"
      " round",
      participation.name,
    )


def check_sensitivity(
  participation: participation_lib.Participation,
  sensitivity_in_clip_norms: float | None,
) -> float:
  """Returns the sensitivity of a round's sum, the participation's if None.

  Raises:
    ValueError: If it is not positive and finite.
  """
  if sensitivity_in_clip_norms is None:
    return participation.sensitivity_in_clip_norms
  return checks.check_number(
    "sensitivity_in_clip_norms", sensitivity_in_clip_norms, above=0
  )


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
      round that a user is in; with correlated noise times that of the strategy
      over the run.
    DpEvent: as `round_event` for each round where users are sampled;
      `GaussianDpEvent` once for each round that a user may be in where they
      are not, those with the least noise if it differs; a single
      `GaussianDpEvent` for correlated noise.

  Args:
    mechanism_counts: Pairs of a mechanism's event, at a sensitivity of one clip
      norm, and the number of rounds; each event once.
    participation: Who takes part.
    sensitivity_in_clip_norms: As in `round_event`.

  Raises:
    ValueError: As `round_event`; or if rounds of correlated noise are mixed
      with others, or the strategy's sensitivity is not known.
  """
  counts = [
    (event, checks.check_integer("count", count, minimum=0))
    for event, count in mechanism_counts
  ]
  noises = [
    (check_mechanism_event(event, participation), count)
    for event, count in counts
  ]
  if any(count and not noise.multiplier for noise, count in noises):
    # One round without noise decides, whatever the others cost.
    return [(dp_accounting.NonPrivateDpEvent(), 1)]
  if participation.is_sampled:
    return [
      (
        round_event(
          event,
          participation,
          sensitivity_in_clip_norms=sensitivity_in_clip_norms,
        ),
        count,
      )
      for event, count in counts
      if count
    ]
  sensitivity = check_sensitivity(participation, sensitivity_in_clip_norms)
  noises = [(noise, count) for noise, count in noises if count]
  if any(noise.strategy is not None for noise, _ in noises):
    return _correlated(counts, noises, participation, sensitivity)
  left = participation.participations(sum(count for _, count in noises))
  events = []
  for noise, count in sorted(noises, key=lambda n: n[0].multiplier):
    used = min(count, left)
    left -= used
    if used:
      event = dp_accounting.GaussianDpEvent(noise.multiplier / sensitivity)
      events.append((event, used))
  return events


def _correlated(
  counts: RoundCounts,
  noises: Sequence[tuple[Noise, int]],
  participation: participation_lib.Participation,
  sensitivity: float,
) -> list[tuple[dp_accounting.DpEvent, int]]:
  """The whole run as one event."""
  if len(noises) > 1:
    raise ValueError(
      "mechanism_event must be the same in all rounds where noise is "
      f"correlated over rounds, found {[event for event, _ in counts]}."
    )
  noise, _ = noises[0]
  of_strategy = strategy_sensitivity(counts, participation)
  event = dp_accounting.GaussianDpEvent(
    noise.multiplier / (sensitivity * of_strategy)
  )
  return [(event, 1)]


def strategy_sensitivity(
  mechanism_counts: RoundCounts,
  participation: participation_lib.Participation,
) -> float | None:
  """Sensitivity of the strategy over the run; None without correlated noise.

  Args:
    mechanism_counts: As in `composed_events`.
    participation: Who takes part.
  """
  rounds = sum(count for _, count in mechanism_counts)
  for event, _ in mechanism_counts:
    strategy = noise_of(event).strategy
    if strategy is not None:
      return strategy.sensitivity(
        rounds,
        min_separation=participation.min_separation,
        max_participations=participation.max_participations,
      )
  return None
