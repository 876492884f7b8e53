"""Which mechanism, for whom, makes the least noise at a target epsilon.

A model is made of all rounds' noised means so far, by the server's optimizer,
and plans are compared by the noise that is left in it. Amplified banded noise
(Choquette-Choo et al. 2023, "(Amplified) Banded Matrix Factorization: A unified
approach to private training", arXiv 2306.08153) lies between independent noise,
which sampling amplifies most, and noise that cancels most: more bands cancel
more of it, and leave the sampling fewer users to hide among. Where the least is
depends on the population, on the rounds and on epsilon.
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

# Noise this low takes PLD minutes, for an epsilon that protects nobody.
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
  """Returns all that the participations allow, of unit noise multiplier.

  Args:
    participations: Ways to take part that are possible. Those with a period
      have users as far apart as there are bands.
    rounds: Number of rounds, in [1, `MAX_ROUNDS`].
    delta: In (0, 1).
    mechanisms: Names of those to try; all that there are if None.
    workload: How all of them make models of the rounds' sums.

  Raises:
    errors.FieldError: If a value is out of its range, or there is none.
  """
  checks.check_integer("rounds", rounds, minimum=1, maximum=MAX_ROUNDS)
  known = {name: aggregators.AGGREGATORS[name] for name in mechanisms or ()}
  if mechanisms is None:
    registered = aggregators.AGGREGATORS.items()
    known = {name: each for name, each in registered if each.is_compared}
  found = []
  for participation in participations:
    for name, mechanism in known.items():
      for size in _sizes(mechanism, participation, rounds):
        plan = _create_plan(name, size, participation, rounds, delta)
        found.append(dataclasses.replace(plan, workload=workload))
  if not found:
    raise errors.FieldError(
      "mechanism",
      "be one that participation"
      f" {' or '.join(claim.name for claim in participations)} allows here",
      ", ".join(known),
    )
  return found


def _sizes(
  mechanism: type[mechanism_lib.MechanismConfig],
  participation: participation_lib.Participation,
  rounds: int,
) -> Sequence[int | None]:
  """Sizes of a mechanism to try, ascending; none if it may not be used."""
  strategy = mechanism.strategy_class
  claim = participation
  most = min(participation.min_separation or 1, rounds)
  if participation.field_of_bands:
    most = min(math.floor(claim.num_users / claim.users_per_round), rounds)
    claim = claim.for_bands(most)
  sizes = mechanism.sizes_to_try(claim)
  if strategy is None:
    # Users whose rounds are drawn apart are so for the sake of other noise.
    is_apart = participation.is_for_bands or participation.is_drawn_once
    return () if is_apart or not mechanism.adds_noise else sizes
  if not composition.is_known(strategy, participation):
    return ()
  if not strategy.is_banded:
    return sizes
  most = min(most, sizes[-1])
  smaller = [size for size in sizes if 1 < size < most]
  # A single band would be independent noise.
  return smaller + [most] if most > 1 else smaller


def _create_plan(
  name: str,
  size: int | None,
  participation: participation_lib.Participation,
  rounds: int,
  delta: float,
) -> planning.Plan:
  mechanism: Any = aggregators.AGGREGATORS[name]
  options: dict[str, Any] = {} if size is None else {mechanism.size_field: size}
  if options and mechanism.strategy_class.is_banded:
    participation = participation.for_bands(size)
  # The tightest one.
  known = ("gaussian", "monte_carlo", "allocation", "pld")
  tightest = tuple(x for x in known if x in participation.accountants)[:1]
  if not tightest:
    raise errors.FieldError(
      "participation",
      "be one with an accountant besides rdp, such as poisson, which costs"
      " less",
      participation.name,
    )
  return planning.create_plan(
    name, participation, rounds, 1.0, delta, accountants=tightest, **options
  )


def for_epsilon(plan: planning.Plan, target_epsilon: float) -> planning.Plan:
  """Returns the same with the least noise for which a target holds.

  Privacy:
    As `planning.Plan`.

  Args:
    plan: One that `list_plans` makes.
    target_epsilon: In (0, `MAX_TARGET_EPSILON`]; at most this is spent.

  Raises:
    errors.FieldError: If the target is out of its range.
  """
  checks.check_number(
    "target_epsilon", target_epsilon, above=0, maximum=MAX_TARGET_EPSILON
  )
  noise = "noise_multiplier"
  return plan.with_value(
    noise, calibration.calibrate(plan, noise, target_epsilon, is_quick=True)
  )


def rank(
  plans: Sequence[planning.Plan],
  target_epsilon: float,
) -> list[planning.Plan]:
  """Returns plans with the noise that a target asks for, best first.

  Privacy:
    As `planning.Plan`, for each of them.

  Args:
    plans: As `list_plans` makes them.
    target_epsilon: As in `for_epsilon`.

  Raises:
    errors.FieldError: If the target is out of its range.
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

  Sizes are tried upwards from the best one of the smaller epsilon, until two
  in turn are no better: less noise leaves less for sampling to amplify.

  Privacy:
    As `rank`.

  Args:
    plans: As `list_plans` makes them.
    families: The `planning.Plan.family` of those to try.
    target_epsilons: `[n]` ascending targets, as in `rank`.

  Returns:
    `[n]` plans of each family, with their noise.
  """
  found = []
  for family in progress_lib.create_bar(
    "Calibrating", unit="curves", items=families
  ):
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
