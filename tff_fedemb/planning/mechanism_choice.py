"""Finds the mechanism and participation with the least noise at an epsilon.

The server's optimizer makes a model of all rounds' noised means so far, and
plans are compared by the noise in the models. Amplified banded noise
(Choquette-Choo et al. 2023, "(Amplified) Banded Matrix Factorization: A unified
approach to private training", arXiv 2306.08153) lies between independent noise,
which sampling amplifies most, and noise that cancels most. More bands cancel
more noise, but leave fewer users for the sampling to choose from. The best
number of bands depends on the population, on the rounds and on epsilon.
"""

from collections.abc import Collection, Sequence
import dataclasses
import math
from typing import Any

from tff_fedemb import checks
from tff_fedemb import errors
from tff_fedemb import progress as progress_lib
from tff_fedemb.accounting import composition
from tff_fedemb.mechanisms import mechanism as mechanism_lib
from tff_fedemb.mechanisms import registry as aggregators
from tff_fedemb.mechanisms import strategy as strategy_lib
from tff_fedemb.participation import participation as participation_lib
from tff_fedemb.planning import calibration
from tff_fedemb.planning import planning

# For larger targets, PLD takes minutes, and epsilon protects nobody.
MAX_TARGET_EPSILON = 20.0
MAX_ROUNDS = 100_000


def list_plans(
  participations: Sequence[participation_lib.Participation],
  *,
  rounds: int,
  delta: float,
  mechanisms: Collection[str] | None = None,
  workload: strategy_lib.Workload = strategy_lib.PREFIX_SUMS,
) -> list[planning.Plan]:
  """Returns plans of all that the participations allow, at noise multiplier 1.

  Each is to be calibrated to one target (`for_epsilon`), and then compared by
  its `planning.Plan.error`.

  Args:
    participations: The possible participations, for known users. Those with a
      period have a user's rounds as far apart as there are bands.
    rounds: Number of rounds, in [1, `MAX_ROUNDS`].
    delta: Delta of the guarantee, in (0, 1).
    mechanisms: Names of the mechanisms to try; None for all with `is_compared`.
    workload: How the runs make models of the rounds' sums.

  Returns:
    Plans of one accountant each, by participation, by mechanism, and by
    ascending size of the mechanism.

  Raises:
    errors.FieldError: If a value is out of its range, a participation has no
      accountant besides RDP, or there is no plan.
  """
  checks.check_integer("rounds", rounds, minimum=1, maximum=MAX_ROUNDS)
  if mechanisms is None:
    registered = aggregators.AGGREGATORS.items()
    mechanisms = [name for name, each in registered if each.is_compared]
  for name in mechanisms:
    checks.check_choice("mechanisms", name, aggregators.AGGREGATORS)
  found = []
  for participation in participations:
    for name in mechanisms:
      mechanism = aggregators.AGGREGATORS[name]
      for size in _sizes(mechanism, participation, rounds):
        plan = _create_plan(name, size, participation, rounds, delta)
        found.append(dataclasses.replace(plan, workload=workload))
  if not found:
    raise errors.FieldError(
      "mechanism",
      "be one that participation"
      f" {' or '.join(claim.name for claim in participations)} allows here",
      ", ".join(mechanisms),
    )
  return found


def _sizes(
  mechanism: type[mechanism_lib.MechanismConfig],
  participation: participation_lib.Participation,
  rounds: int,
) -> Sequence[int | None]:
  """Sizes of a mechanism to try, ascending; none if it may not be used.

  Args:
    mechanism: The class of the mechanism.
    participation: Who takes part. If its period sets how far apart a user's
      rounds are, there are at most as many bands as blocks of enough users.
    rounds: Number of rounds, which no banded matrix exceeds.

  Returns:
    Values of the mechanism's size field, or a single None without such a field.
  """
  strategy = mechanism.strategy_class
  claim = participation
  most = min(claim.min_separation or 1, rounds)
  if claim.field_of_bands:
    most = min(math.floor(claim.num_slots / claim.users_per_round), rounds)
    claim = claim.for_bands(most)
  sizes = mechanism.sizes_to_try(claim)
  if strategy is None:
    # A user's rounds are drawn apart only for the sake of correlated noise.
    is_apart = participation.is_for_bands or participation.is_drawn_once
    return () if is_apart or not mechanism.adds_noise else sizes
  if not composition.is_known(strategy, participation):
    return ()
  if not strategy.is_banded:
    return sizes
  bands = [size for size in sizes if size is not None]
  most = min(most, bands[-1])
  smaller = [size for size in bands if 1 < size < most]
  # A single band would be independent noise.
  return smaller + [most] if most > 1 else smaller


def _create_plan(
  name: str,
  size: int | None,
  participation: participation_lib.Participation,
  rounds: int,
  delta: float,
) -> planning.Plan:
  """A plan at noise multiplier 1, with the tightest accountant that is valid.

  Args:
    name: Name of the mechanism.
    size: Value of the mechanism's size field, such as its number of bands; None
      without such a field.
    participation: Who takes part; its period becomes the number of bands of a
      banded matrix.
    rounds: Number of rounds.
    delta: Delta of the guarantee.

  Raises:
    errors.FieldError: If the participation has no accountant besides RDP.
  """
  mechanism: Any = aggregators.AGGREGATORS[name]
  options: dict[str, Any] = {}
  if size is not None:
    options[mechanism.size_field] = size
    if mechanism.strategy_class.is_banded:
      participation = participation.for_bands(size)
  by_tightness = ("gaussian", "monte_carlo", "allocation", "pld")
  known = (*participation.accountants, *participation.further_accountants)
  usable = [each for each in by_tightness if each in known]
  if not usable:
    raise errors.FieldError(
      "participation",
      "be one with an accountant besides rdp, such as poisson, which costs"
      " less",
      participation.name,
    )
  return planning.create_plan(
    name, participation, rounds, 1.0, delta, accountants=(usable[0],), **options
  )


def for_epsilon(plan: planning.Plan, target_epsilon: float) -> planning.Plan:
  """Returns a plan with the least noise for which a target holds.

  Privacy:
    As `planning.Plan`.

  Args:
    plan: As `list_plans` makes them.
    target_epsilon: Largest epsilon, in (0, `MAX_TARGET_EPSILON`].

  Returns:
    The plan with that noise multiplier; by PLD it may be a hundredth larger
    than needed, as the search ends on a coarse grid.

  Raises:
    errors.FieldError: If the target is out of its range or out of reach.
  """
  checks.check_number(
    "target_epsilon", target_epsilon, above=0, maximum=MAX_TARGET_EPSILON
  )
  noise_multiplier = calibration.calibrate(
    plan, "noise_multiplier", target_epsilon, is_quick=True
  )
  return plan.with_value("noise_multiplier", noise_multiplier)


def rank(
  plans: Sequence[planning.Plan],
  target_epsilon: float,
) -> list[planning.Plan]:
  """Returns plans with the noise that a target needs, best first.

  A progress bar counts the plans, because PLD takes seconds for each.

  Privacy:
    As `planning.Plan`, for each of them.

  Args:
    plans: As `list_plans` makes them.
    target_epsilon: Largest epsilon, in (0, `MAX_TARGET_EPSILON`].

  Returns:
    As many plans, by ascending `planning.Plan.error`.

  Raises:
    errors.FieldError: If the target is out of its range or out of reach.
  """
  plans = progress_lib.create_bar("Calibrating", unit="plans", items=plans)
  found = (for_epsilon(plan, target_epsilon) for plan in plans)
  return sorted(found, key=lambda plan: plan.error)


def best_by_epsilon(
  plans: Sequence[planning.Plan],
  families: Collection[tuple[str, str]],
  target_epsilons: Sequence[float],
) -> list[list[planning.Plan]]:
  """Returns the best size of each mechanism and participation, by target.

  Sizes are tried upwards from the best one of the smaller epsilon, until two in
  a row are no better. Smaller ones are not tried: with less noise, sampling
  amplifies less, and more bands pay.

  Privacy:
    As `rank`.

  Args:
    plans: As `list_plans` makes them.
    families: The `planning.Plan.family` of the plans to try; each must have a
      plan.
    target_epsilons: `[n]` ascending targets, as in `rank`.

  Returns:
    `[n]` plans for each family, with their noise, in the order of `families`.

  Raises:
    errors.FieldError: If a target is out of its range or out of reach.
  """
  found = []
  bar = progress_lib.create_bar("Calibrating", unit="curves", items=families)
  for family in bar:
    sizes = [plan for plan in plans if plan.family == family]
    bests = []
    first = 0
    for target_epsilon in target_epsilons:
      best = for_epsilon(sizes[first], target_epsilon)
      for index in range(first + 1, len(sizes)):
        other = for_epsilon(sizes[index], target_epsilon)
        if other.error < best.error:
          best = other
          first = index
        elif index > first + 1:
          break
      bests.append(best)
    found.append(bests)
  return found
