"""From what a mechanism releases to the events that an accountant is given.

Two families. Where the users of a round are drawn anew, each round is an event
of its own, amplified by the sampling. Where they are not, a user is in a
bounded number of rounds: independent noise costs as many Gaussian mechanisms;
correlated noise makes the whole run one Gaussian mechanism, whose sensitivity
is that of its strategy matrix (`strategies.strategy`).
"""

import collections
from collections.abc import Sequence

import dp_accounting

from tff_fedemb import checks
from tff_fedemb import errors
from tff_fedemb.data.participation import participation as participation_lib
from tff_fedemb.strategies import strategy as strategy_lib

# A mechanism's event of one round, and the number of such rounds.
RoundCounts = Sequence[tuple[dp_accounting.DpEvent, int]]


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
    raise ValueError(
      "participation must be sampled anew in every round, found "
      f"{participation.name}."
    )
  check_mechanism_event(mechanism_event, participation)
  if is_noiseless(mechanism_event):
    return dp_accounting.NonPrivateDpEvent()
  return participation.sampled_event(
    dp_accounting.GaussianDpEvent(
      mechanism_event.noise_multiplier
      / check_sensitivity(participation, sensitivity_in_clip_norms)
    ),
  )


def check_mechanism_event(
  mechanism_event: dp_accounting.DpEvent,
  participation: participation_lib.Participation,
) -> None:
  """Refuses an event that cannot be accounted for.

  Args:
    mechanism_event: What a mechanism releases in one round.
    participation: Who takes part in the round.

  Raises:
    ValueError: If it is of an unknown class, its noise multiplier out of
      range, or its noise correlated over rounds while users are sampled.
  """
  if isinstance(mechanism_event, dp_accounting.NonPrivateDpEvent):
    return
  if isinstance(mechanism_event, strategy_lib.CorrelatedGaussianDpEvent):
    if participation.is_sampled:
      raise errors.FieldError(
        "participation",
        "be min_separation for the noise of strategy"
        f" {mechanism_event.strategy.name}, which is correlated over rounds:"
        " amplification by sampling assumes fresh noise in every round",
        participation.name,
      )
  elif not isinstance(mechanism_event, dp_accounting.GaussianDpEvent):
    raise ValueError(
      "mechanism_event must be a GaussianDpEvent, a "
      "CorrelatedGaussianDpEvent or a NonPrivateDpEvent, found "
      f"{mechanism_event!r}."
    )
  checks.check_noise_multiplier(mechanism_event.noise_multiplier)


def noise_multiplier_of(mechanism_event: dp_accounting.DpEvent) -> float:
  """Returns the noise multiplier of a round with this event; 0 without noise.

  Args:
    mechanism_event: As in `check_mechanism_event`.
  """
  if isinstance(mechanism_event, dp_accounting.NonPrivateDpEvent):
    return 0.0
  return float(mechanism_event.noise_multiplier)


def is_noiseless(mechanism_event: dp_accounting.DpEvent) -> bool:
  """Whether a round with this event protects nobody."""
  return noise_multiplier_of(mechanism_event) == 0


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
  if not checks.is_number(sensitivity_in_clip_norms) or (
    sensitivity_in_clip_norms <= 0
  ):
    raise ValueError(
      "sensitivity_in_clip_norms must be a positive finite number, found "
      f"{sensitivity_in_clip_norms!r}."
    )
  return sensitivity_in_clip_norms


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
  for event, _ in counts:
    check_mechanism_event(event, participation)
  if any(count and is_noiseless(event) for event, count in counts):
    # One round without noise decides, whatever the others cost.
    return [(dp_accounting.NonPrivateDpEvent(), 1)]
  counts = [(event, count) for event, count in counts if count]
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
    ]
  sensitivity = check_sensitivity(participation, sensitivity_in_clip_norms)
  if any(
    isinstance(event, strategy_lib.CorrelatedGaussianDpEvent)
    for event, _ in counts
  ):
    return _correlated(counts, participation, sensitivity)
  left = participation.participations(sum(count for _, count in counts))
  events = []
  for event, count in sorted(counts, key=lambda c: c[0].noise_multiplier):
    used = min(count, left)
    left -= used
    if used:
      events.append(
        (
          dp_accounting.GaussianDpEvent(event.noise_multiplier / sensitivity),
          used,
        )
      )
  return events


def _correlated(
  counts: RoundCounts,
  participation: participation_lib.Participation,
  sensitivity: float,
) -> list[tuple[dp_accounting.DpEvent, int]]:
  if len({event for event, _ in counts}) > 1:
    raise ValueError(
      "mechanism_event must be the same in all rounds where noise is "
      f"correlated over rounds, found {[event for event, _ in counts]}."
    )
  event = counts[0][0]
  of_strategy = strategy_sensitivity(counts, participation)
  return [
    (
      dp_accounting.GaussianDpEvent(
        event.noise_multiplier / (sensitivity * of_strategy)
      ),
      1,
    )
  ]


def strategy_sensitivity(
  mechanism_counts: RoundCounts, participation: participation_lib.Participation
) -> float | None:
  """Sensitivity of the strategy over the run; None without correlated noise.

  Args:
    mechanism_counts: As in `composed_events`.
    participation: Who takes part.
  """
  for event, _ in mechanism_counts:
    if isinstance(event, strategy_lib.CorrelatedGaussianDpEvent):
      return event.strategy.sensitivity(
        sum(count for _, count in mechanism_counts),
        min_separation=participation.min_separation,
        max_participations=participation.max_participations,
      )
  return None
