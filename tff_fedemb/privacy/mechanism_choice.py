"""Which mechanism, for whom, makes the least noise at a target epsilon.

A model is made of the sum of all rounds' noised means, so that candidates are
compared by the noise of these prefix sums. Amplified banded noise
(Choquette-Choo et al. 2023, "(Amplified) Banded Matrix Factorization: A unified
approach to private training", arXiv 2306.08153) lies between independent noise,
which sampling amplifies most, and noise that cancels most: more bands cancel
more of it, and leave the sampling fewer users to hide among. Where the least is
depends on the population, on the rounds and on epsilon.
"""

from collections.abc import Callable, Collection, Sequence
import dataclasses
import functools
import math
from typing import Any

import dp_accounting
import numpy as np

from tff_fedemb import checks
from tff_fedemb import errors
from tff_fedemb.aggregators import mechanism as mechanism_lib
from tff_fedemb.aggregators import registry as aggregators
from tff_fedemb.participation import participation as participation_lib
from tff_fedemb.privacy import calibration
from tff_fedemb.privacy import composition
from tff_fedemb.privacy import gaussian_accountant
from tff_fedemb.privacy import monte_carlo
from tff_fedemb.privacy import planning

# Noise this low takes PLD minutes, for an epsilon that protects nobody.
MAX_TARGET_EPSILON = 20.0
MAX_ROUNDS = 100_000
# PLD's grid as a share of epsilon, no finer than that of a run's account: what
# is found holds there too, and is at most a hundredth too large.
_SHARE_OF_EPSILON = 1e-3
_GRIDS = (1e-4, 1e-3)
# To which noise is found, and the steps that it may take.
_TOLERANCE = 1e-3
_MAX_STEPS = 30
# What PLD's grid may ask for beside that, as a logarithm.
_GRID_MARGIN = 0.2


@dataclasses.dataclass(frozen=True)
class Candidate:
  """A mechanism for a participation, with the noise that a target asks for.

  Privacy:
    As `planning.Plan`.

  Attributes:
    plan: The run, at this noise.
    size: The value of the mechanism's `size_field`; None without one.
  """

  plan: planning.Plan
  size: int | None = None

  @property
  def family(self) -> tuple[str, str]:
    """Mechanism and participation: candidates that differ in size alone."""
    return self.plan.name, self.plan.participation.name

  @property
  def model_copies(self) -> int:
    """Arrays of the model's size that the noise needs beside it, at most."""
    strategy = self.plan.strategy
    return strategy.model_copies(self.plan.rounds) if strategy else 0

  @functools.cached_property
  def prefix_sum_stddevs(self) -> np.ndarray:
    """Noise of the sum of all means up to each round, in clip norms.

    Float64 `[rounds]`: that of the rounds' sums, divided by the (expected)
    virtual clients of a round.
    """
    plan, rounds = self.plan, self.plan.rounds
    scale = plan.noise_multiplier / plan.participation.clients_per_round
    if plan.strategy is None:
      return scale * np.sqrt(np.arange(1.0, rounds + 1.0))
    return scale * plan.strategy.prefix_sum_stddevs(rounds)

  @property
  def rmse(self) -> float:
    """Root mean square of `prefix_sum_stddevs`, which is to be small."""
    return math.sqrt(np.mean(np.square(self.prefix_sum_stddevs)))

  @property
  def max_error(self) -> float:
    """Largest of `prefix_sum_stddevs`."""
    return float(np.max(self.prefix_sum_stddevs))

  def for_epsilon(self, target_epsilon: float) -> "Candidate":
    """Returns the same with the least noise for which a target holds."""
    multiplier = _noise_multiplier(self.plan, target_epsilon)
    # Rounded up, as it is to be typed.
    digits = calibration.DIGITS - 1 - math.floor(math.log10(multiplier))
    multiplier = round(math.ceil(multiplier * 10**digits) / 10**digits, digits)
    return dataclasses.replace(
      self, plan=self.plan.with_value("noise_multiplier", multiplier)
    )

  def to_json(self) -> dict[str, Any]:
    """Returns what it is and how much noise it has, as JSON values."""
    return {
      "size": self.size,
      "model_copies": self.model_copies,
      "rmse": self.rmse,
      "max_error": self.max_error,
      **self.plan.to_json(),
    }


def list_candidates(
  participations: Sequence[participation_lib.Participation],
  *,
  rounds: int,
  delta: float,
  mechanisms: Collection[str] | None = None,
) -> list[Candidate]:
  """Returns all that the participations allow, of unit noise multiplier.

  Args:
    participations: Ways to take part that are possible. Of cyclic Poisson
      and of b-min-sep sampling, users are as far apart as there are bands.
    rounds: Number of rounds, in [1, `MAX_ROUNDS`].
    delta: In (0, 1).
    mechanisms: Names of those to try; all that there are if None.

  Raises:
    errors.FieldError: If a value is out of its range, or there is none.
  """
  checks.check_integer("rounds", rounds, minimum=1, maximum=MAX_ROUNDS)
  known = {name: aggregators.AGGREGATORS[name] for name in mechanisms or ()}
  if mechanisms is None:
    registered = aggregators.AGGREGATORS.items()
    known = {name: each for name, each in registered if each.is_compared}
  found = [
    _create_candidate(mechanism, size, participation, rounds, delta)
    for participation in participations
    for mechanism in known.values()
    for size in _sizes(mechanism, participation, rounds)
  ]
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
  strategy, claim = mechanism.strategy_class, participation
  most = min(participation.min_separation or 1, rounds)
  if participation.field_of_bands:
    most = min(math.floor(claim.num_users / claim.users_per_round), rounds)
    claim = claim.for_bands(most)
  sizes = mechanism.sizes_to_try(claim)
  if strategy is None:
    # Users whose rounds are drawn apart are so for the sake of other noise.
    is_apart = participation.field_of_bands or participation.is_drawn_once
    return () if is_apart or not mechanism.adds_noise else sizes
  if not composition.is_known(strategy, participation):
    return ()
  if not strategy.is_banded:
    return sizes
  most = min(most, sizes[-1])
  # A single band would be independent noise.
  return sorted({*(size for size in sizes if size < most), most} - {1})


def _create_candidate(
  mechanism: Any,
  size: int | None,
  participation: participation_lib.Participation,
  rounds: int,
  delta: float,
) -> Candidate:
  options = {} if size is None else {mechanism.size_field: size}
  if options and mechanism.strategy_class.is_banded:
    participation = participation.for_bands(size)
  config = mechanism(
    clients_per_round=participation.clients_per_round,
    noise_multiplier=1.0,
    **options,
  )
  accountants = (_accountant(participation),)
  return Candidate(
    planning.Plan(
      config, participation, rounds, delta, accountants=accountants
    ),
    size,
  )


def _accountant(participation: participation_lib.Participation) -> str:
  """The tightest one."""
  for name in ("gaussian", "monte_carlo", "pld"):
    if name in participation.accountants:
      return name
  raise errors.FieldError(
    "participation",
    "be one with an accountant besides rdp, such as poisson, which costs less",
    participation.name,
  )


def _noise_multiplier(plan: planning.Plan, target_epsilon: float) -> float:
  """The least noise for which the target holds, to `_TOLERANCE`.

  The noise of all events grows with the plan's, which is 1.
  """
  plan = plan.with_value("noise_multiplier", 1.0)
  events = plan.composed_events()
  if plan.accountants == ("gaussian",):
    precision = sum(n / event.noise_multiplier**2 for event, n in events)
    return math.sqrt(precision) * _of_one_gaussian(target_epsilon, plan.delta)
  ((event, count),) = events
  if isinstance(event, monte_carlo.MixtureDpEvent):
    needed = _of_mixture(event, target_epsilon, plan.delta)
    return needed / event.noise_multiplier
  needed = _of_sampled_gaussians(
    event.sampling_probability, count, target_epsilon, plan.delta
  )
  return needed / event.event.noise_multiplier


@functools.cache
def _of_one_gaussian(target_epsilon: float, delta: float) -> float:
  """Noise multiplier of a Gaussian mechanism for a target."""
  return dp_accounting.calibrate_dp_mechanism(
    gaussian_accountant.GaussianAccountant,
    dp_accounting.GaussianDpEvent,
    target_epsilon,
    delta,
    dp_accounting.LowerEndpointAndGuess(1e-3, 1.0),
    tol=1e-5,
  )


@functools.cache
def _of_sampled_gaussians(
  probability: float, count: int, target_epsilon: float, delta: float
) -> float:
  """Noise multiplier of so many Poisson-sampled Gaussians for a target."""
  low, high = _GRIDS
  interval = min(max(_SHARE_OF_EPSILON * target_epsilon, low), high)

  def epsilon_of(noise_multiplier: float) -> float:
    accountant = dp_accounting.pld.PLDAccountant(
      value_discretization_interval=interval
    )
    event = dp_accounting.PoissonSampledDpEvent(
      probability, dp_accounting.GaussianDpEvent(noise_multiplier)
    )
    return accountant.compose(event, count).get_epsilon(delta)

  # PLD takes the more time the less noise there is. Where many rounds make one
  # Gaussian mechanism in the limit (Bu et al. 2020, "Deep learning with
  # Gaussian differential privacy") is close by; without sampling more noise
  # would do in any case, but for PLD's grid.
  mu = 1.0 / _of_one_gaussian(target_epsilon, delta)
  limit = 1.0 / math.sqrt(math.log1p((mu / probability) ** 2 / count))
  highest = math.log(math.sqrt(count) / mu) + _GRID_MARGIN
  return _solve(epsilon_of, target_epsilon, math.log(limit), highest)


@functools.cache
def _of_mixture(
  event: monte_carlo.MixtureDpEvent, target_epsilon: float, delta: float
) -> float:
  """Noise multiplier of a run for a target, by Monte Carlo."""

  def epsilon_of(noise_multiplier: float) -> float:
    noisy = dataclasses.replace(event, noise_multiplier=noise_multiplier)
    return monte_carlo.bound_epsilon(noisy, delta)

  # As much noise as if everybody knew the rounds that cost most will do.
  highest = math.log(
    event.noise_multiplier
    * math.sqrt(event.largest_square)
    * _of_one_gaussian(target_epsilon, delta)
  )
  return _solve(epsilon_of, target_epsilon, highest - 0.3, highest + _TOLERANCE)


def _solve(
  epsilon_of: Callable[[float], float],
  target_epsilon: float,
  log_noise: float,
  highest: float,
) -> float:
  """Returns the least noise multiplier for which a target holds.

  Given are logarithms of a first guess and of one at which the target holds.
  """

  def excess(log_noise: float) -> float:
    epsilon = epsilon_of(math.exp(log_noise))
    return math.log(max(epsilon, 1e-12) / target_epsilon)

  log_noise = min(log_noise, highest)
  # In logarithms epsilon falls nearly straight.
  points = [(log_noise, excess(log_noise))]
  slope = -1.2
  for _ in range(_MAX_STEPS):
    at, above = points[-1]
    if -2 * _TOLERANCE <= above <= 0:
      break
    # Aims at the middle of what is good enough.
    step = (-_TOLERANCE - above) / slope
    log_noise = min(at + min(max(step, -1.0), 1.0), highest)
    if log_noise == at:
      break
    points.append((log_noise, excess(log_noise)))
    slope = min((points[-1][1] - above) / (log_noise - at), -0.3)
  return math.exp(min([at for at, above in points if above <= 0] or [highest]))


def rank(
  candidates: Sequence[Candidate],
  target_epsilon: float,
  *,
  tell: Callable[[], object] = lambda: None,
) -> list[Candidate]:
  """Returns candidates with the noise that a target asks for, best first.

  Privacy:
    As `planning.Plan`, for each of them.

  Args:
    candidates: As `list_candidates` makes them.
    target_epsilon: In (0, `MAX_TARGET_EPSILON`]; at most this is spent.
    tell: Called after each of them.

  Raises:
    errors.FieldError: If the target is out of its range.
  """
  checks.check_number(
    "target_epsilon", target_epsilon, above=0, maximum=MAX_TARGET_EPSILON
  )
  found = []
  for candidate in candidates:
    found.append(candidate.for_epsilon(target_epsilon))
    tell()
  return sorted(found, key=lambda candidate: candidate.rmse)


def families(
  candidates: Sequence[Candidate],
) -> dict[tuple[str, str], list[Candidate]]:
  """Returns candidates by family, in their order."""
  found: dict[tuple[str, str], list[Candidate]] = {}
  for candidate in candidates:
    found.setdefault(candidate.family, []).append(candidate)
  return found


def best_by_epsilon(
  candidates: Sequence[Candidate],
  target_epsilons: Sequence[float],
  *,
  tell: Callable[[], object] = lambda: None,
) -> dict[tuple[str, str], list[Candidate]]:
  """Returns the best size of every family for each of some targets.

  Sizes are tried upwards from the best one of the smaller epsilon, until two
  in turn are no better: less noise leaves less for sampling to amplify.

  Privacy:
    As `rank`.

  Args:
    candidates: As `list_candidates` makes them.
    target_epsilons: `[n]` ascending targets, as of `rank`.
    tell: Called n times for each family.

  Returns:
    `[n]` candidates by family, with their noise.
  """
  found = {}
  for family, members in families(candidates).items():
    bests, first = [], 0
    for target_epsilon in target_epsilons:
      best = members[first].for_epsilon(target_epsilon)
      for index in range(first + 1, len(members)):
        other = members[index].for_epsilon(target_epsilon)
        if other.rmse < best.rmse:
          best, first = other, index
        elif index > first + 1:
          break
      bests.append(best)
      tell()
    found[family] = bests
  return found
