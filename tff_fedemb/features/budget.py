"""How much noise each release of a fit needs for its epsilon and delta.

A fit makes releases of several kinds: sums of outer products once, gradients in
every step. All are Gaussian mechanisms, and their composition is what the fit
costs. `dp_accounting` computes it, and searches for the noise.
"""

from collections.abc import Callable
from collections.abc import Mapping
from collections.abc import Sequence
import dataclasses
import functools
import math
import types

import dp_accounting

from tff_fedemb import checks
from tff_fedemb.privacy import calibration
from tff_fedemb.privacy import epsilon as epsilon_lib
from tff_fedemb.privacy import gaussian_accountant

# Where the search begins: its epsilon is above any target.
_SMALLEST_SCALE = 1e-3
# Of the logarithm of the scale, around a first guess.
_PLD_REACH = 0.2
_LARGEST_EXPONENT = 300.0
_MAX_PLD_STEPS = 10
# Noise multiplier times interval, below which PLD takes seconds each time.
_SLOW_PLD = 1e-4
# Of the losses that PLD rounds to a grid: the search's, and the final one.
_COARSE_PLD_INTERVAL, _PLD_INTERVAL = 1e-3, 1e-4
# More is rounding: of an epsilon that is not so many times the interval.
_INTERVALS_OF_EPSILON = 100
_SMALLEST_PLD_INTERVAL = 1e-8
# The scale is rounded up to so many digits, the search's last ones being noise.
_DIGITS = 5
_RELATION = dp_accounting.NeighboringRelation.ADD_OR_REMOVE_ONE


@dataclasses.dataclass(frozen=True)
class PlannedRelease:
  """One kind of noised sum that a fit is going to publish.

  Attributes:
    name: What is released, for example 'covariance'.
    share: Of the fit's budget, positive; relative to the other releases'. In
      terms of zero-concentrated DP, where the costs of Gaussian mechanisms add
      up.
    count: How often a fit releases it, at least 1.
    sampling_probability: With which each example takes part, in (0, 1];
      independently, and drawn anew each time.

  Raises:
    ValueError: If a value is out of its range.
  """

  name: str
  share: float = 1.0
  count: int = 1
  sampling_probability: float = 1.0

  def __post_init__(self):
    if not checks.is_number(self.share) or self.share <= 0:
      raise ValueError(
        f"share of {self.name} must be positive, found {self.share!r}."
      )
    checks.check_integer("count", self.count, minimum=1)
    if not 0 < self.sampling_probability <= 1:
      raise ValueError(
        "sampling_probability must be in (0, 1], found"
        f" {self.sampling_probability!r}."
      )

  def event(self, noise_multiplier: float) -> dp_accounting.DpEvent:
    """What releasing it once costs.

    Args:
      noise_multiplier: Standard deviation of the noise over the sensitivity.
    """
    if noise_multiplier == 0:
      return dp_accounting.NonPrivateDpEvent()
    event = dp_accounting.GaussianDpEvent(noise_multiplier)
    if self.sampling_probability < 1:
      return dp_accounting.PoissonSampledDpEvent(
        self.sampling_probability, event
      )
    return event


@dataclasses.dataclass(frozen=True)
class Budget:
  """The noise of each release, and what they cost together.

  Privacy:
    Unit: what contributes to a sum with the stated sensitivity: an example,
      or in federated fits a user.
    Neighbouring relation: add or remove one of them.
    Sensitivity: 1; whoever adds the noise multiplies by the sensitivity.
    DpEvent: `event`, the composition of `GaussianDpEvent`, Poisson-sampled
      where examples are.

  Attributes:
    releases: All kinds of release.
    noise_multipliers: By name: standard deviation over sensitivity, 0 for none.
    epsilon: What the releases cost; infinity without noise.
    delta: At which epsilon holds.
  """

  releases: tuple[PlannedRelease, ...]
  noise_multipliers: Mapping[str, float]
  epsilon: float
  delta: float | None

  @property
  def event(self) -> dp_accounting.DpEvent:
    """The whole fit's."""
    return compose(
      [
        (release.event(self.noise_multipliers[release.name]), release.count)
        for release in self.releases
      ]
    )

  @property
  def accountant(self) -> str:
    """Name of the accountant that the epsilon is of."""
    return "pld" if _is_sampled(self.releases) else "gaussian"


def check_epsilon(epsilon: float) -> None:
  """Raises ValueError unless it is a target that protects, or infinity."""
  limit = calibration.MAX_TARGET_EPSILON
  if epsilon != math.inf and not (
    checks.is_number(epsilon) and 0 < epsilon <= limit
  ):
    raise ValueError(
      f"epsilon must be in (0, {limit:g}], or inf for no noise, found"
      f" {epsilon!r}."
    )


def compose(
  event_counts: Sequence[tuple[dp_accounting.DpEvent, int]],
) -> dp_accounting.DpEvent:
  """Returns one event for all of them.

  Args:
    event_counts: Events, and how often each of them happens.
  """
  return dp_accounting.ComposedDpEvent(
    [
      event if count == 1 else dp_accounting.SelfComposedDpEvent(event, count)
      for event, count in event_counts
    ]
  )


def epsilon_of(
  event: dp_accounting.DpEvent, delta: float, *, accountant: str
) -> float:
  """Returns the epsilon of an event at `delta`.

  Args:
    event: Composed of Gaussian mechanisms, sampled or not.
    delta: In (0, 1).
    accountant: 'gaussian', exact, where nothing is sampled, or 'pld', of a grid
      of 1e-4 or finer: of at most a hundredth of the epsilon.
  """
  return _answer(_Question(repr(event), event), float(delta), accountant)


@dataclasses.dataclass(frozen=True)
class _Question:
  """An event, whose lists no cache takes for a key, and what equals it."""

  key: str
  event: dp_accounting.DpEvent = dataclasses.field(compare=False)


# A fit asks for its budget's epsilon, and once more for its report.
@functools.lru_cache(maxsize=1024)
def _answer(question: _Question, delta: float, accountant: str) -> float:
  interval = _PLD_INTERVAL
  while True:
    ledger = _create_accountant(accountant, interval)
    ledger.compose(question.event)
    epsilon = epsilon_lib.current_epsilon(ledger, delta)
    if (
      accountant != "pld"
      or epsilon == 0
      or epsilon >= _INTERVALS_OF_EPSILON * interval * (1 - 1e-9)
      or interval <= _SMALLEST_PLD_INTERVAL
    ):
      return epsilon
    interval /= 10


def calibrate(
  releases: Sequence[PlannedRelease],
  *,
  epsilon: float,
  delta: float | None,
  split: Mapping[str, float] | None = None,
) -> Budget:
  """Returns the least noise for which a fit meets its target.

  With z the scale that is searched for, a release of share w that happens m
  times with sampling probability q has the noise multiplier z q sqrt(m / w):
  without sampling all m together cost the share w of the fit's
  zero-concentrated DP.

  Privacy:
    As `Budget`.

  Args:
    releases: All kinds of release of the fit, each of another name.
    epsilon: Target, positive; infinity for no noise.
    delta: In (0, 1); may be `None` without noise.
    split: Replaces the shares of the named releases.

  Raises:
    ValueError: If a value is out of its range, or the target out of reach; or
      if an example is so rarely in any sum that delta covers it without noise.
  """
  check_epsilon(epsilon)
  if delta is not None:
    checks.check_delta(delta)
    delta = float(delta)
  releases = _with_shares(releases, {} if split is None else split)
  if epsilon == math.inf:
    zeros = {release.name: 0.0 for release in releases}
    return Budget(releases, types.MappingProxyType(zeros), math.inf, delta)
  if delta is None:
    raise ValueError("delta must be given where epsilon is finite, found None.")
  return _meet(releases, epsilon, delta)


# Fits that differ in nothing but their seed are calibrated once.
@functools.lru_cache(maxsize=1024)
def _meet(
  releases: tuple[PlannedRelease, ...], epsilon: float, delta: float
) -> Budget:
  """The budget of least noise that meets a target."""
  total = sum(release.share for release in releases)
  factors = {
    release.name: release.sampling_probability
    * math.sqrt(release.count * total / release.share)
    for release in releases
  }

  def with_scale(scale: float) -> Budget:
    multipliers = {name: float(scale * factors[name]) for name in factors}
    return Budget(releases, types.MappingProxyType(multipliers), epsilon, delta)

  is_sampled = _is_sampled(releases)
  _check_chance(releases, delta)
  scale = (_find_sampled if is_sampled else _find_unsampled)(
    with_scale, epsilon, delta
  )
  growth = 10.0**-_DIGITS
  while True:
    # Upwards: more noise, never less than was found.
    digits = _DIGITS - 1 - math.floor(math.log10(scale))
    scale = math.ceil(scale * 10.0**digits) / 10.0**digits
    budget = with_scale(scale)
    found = epsilon_of(budget.event, delta, accountant=budget.accountant)
    if found <= epsilon:
      return dataclasses.replace(budget, epsilon=found)
    scale *= 1 + growth
    growth *= 2


def _check_chance(releases: Sequence[PlannedRelease], delta: float) -> None:
  """Refuses a delta for which no noise is needed, and there is none to find."""
  probabilities = [release.sampling_probability for release in releases]
  if max(probabilities) == 1:
    return
  chance = -math.expm1(
    sum(
      release.count * math.log1p(-release.sampling_probability)
      for release in releases
    )
  )
  if delta >= chance:
    raise ValueError(
      f"delta must be below {chance:.4g}, the chance that an example is drawn"
      f" at all, found {delta!r}."
    )


def _search(
  create_accountant: Callable[[], dp_accounting.PrivacyAccountant],
  get_event: Callable[[float], dp_accounting.DpEvent],
  epsilon: float,
  delta: float,
  *,
  lower: float,
  guess: float,
  tolerance: float,
) -> float:
  """The least scale that meets a target; what is given is its logarithm."""
  return math.exp(
    dp_accounting.calibrate_dp_mechanism(
      create_accountant,
      lambda logarithm: get_event(math.exp(logarithm)),
      epsilon,
      delta,
      dp_accounting.LowerEndpointAndGuess(lower, guess),
      tol=tolerance,
    )
  )


def _find_unsampled(
  with_scale: Callable[[float], Budget], epsilon: float, delta: float
) -> float:
  return _search(
    lambda: _create_accountant("gaussian"),
    lambda scale: with_scale(scale).event,
    epsilon,
    delta,
    lower=math.log(_SMALLEST_SCALE),
    guess=0.0,
    tolerance=1e-9,
  )


def _find_sampled(
  with_scale: Callable[[float], Budget], epsilon: float, delta: float
) -> float:
  # PLD takes the longer the less noise there is, and the finer its grid: the
  # search stays near a guess. On a coarse grid it errs on the private side, by
  # little if the grid is fine in comparison with epsilon.
  interval = max(
    min(_COARSE_PLD_INTERVAL, epsilon / _INTERVALS_OF_EPSILON),
    _SMALLEST_PLD_INTERVAL,
  )
  guess = math.log(
    _search(
      lambda: _create_accountant("gaussian"),
      lambda scale: _gaussian_limit(with_scale(scale)),
      epsilon,
      delta,
      lower=math.log(_SMALLEST_SCALE),
      guess=0.0,
      tolerance=1e-3,
    )
  )

  def create_coarse() -> dp_accounting.PrivacyAccountant:
    return _create_accountant("pld", interval)

  def is_met(logarithm: float) -> bool:
    accountant = create_coarse()
    accountant.compose(with_scale(math.exp(logarithm)).event)
    return accountant.get_epsilon(delta) <= epsilon

  def takes_long(logarithm: float) -> bool:
    budget = with_scale(math.exp(logarithm))
    least = min(
      budget.noise_multipliers[release.name]
      for release in budget.releases
      if release.sampling_probability < 1
    )
    return least * interval < _SLOW_PLD

  for _ in range(_MAX_PLD_STEPS):
    if takes_long(guess - _PLD_REACH):
      break
    if not is_met(guess - _PLD_REACH):
      return _search(
        create_coarse,
        lambda scale: with_scale(scale).event,
        epsilon,
        delta,
        lower=guess - _PLD_REACH,
        guess=guess,
        tolerance=1e-3,
      )
    guess -= _PLD_REACH
  # Delta is about the chance to be drawn. More noise than needed, most likely;
  # where it is not enough the caller adds some.
  return math.exp(guess)


def _gaussian_limit(budget: Budget) -> dp_accounting.DpEvent:
  """What many sampled releases come close to: unsampled ones of more noise.

  Dong et al. 2022, "Gaussian Differential Privacy", corollary 5.4. No bound: it
  says where to look for one.
  """
  event_counts = []
  for release in budget.releases:
    noise_multiplier = budget.noise_multipliers[release.name]
    if release.sampling_probability < 1:
      growth = math.expm1(min(noise_multiplier**-2, _LARGEST_EXPONENT))
      noise_multiplier = 1 / (release.sampling_probability * math.sqrt(growth))
    event_counts.append(
      (dp_accounting.GaussianDpEvent(noise_multiplier), release.count)
    )
  return compose(event_counts)


def _with_shares(
  releases: Sequence[PlannedRelease], split: Mapping[str, float]
) -> tuple[PlannedRelease, ...]:
  if not isinstance(split, Mapping):
    raise ValueError(
      f"split must map names of releases to positive numbers, found {split!r}."
    )
  names = [release.name for release in releases]
  for name in split:
    if name not in names:
      raise ValueError(
        f"split must name releases of the method, {names}, found {name!r}."
      )
  return tuple(
    dataclasses.replace(release, share=split.get(release.name, release.share))
    for release in releases
  )


def _create_accountant(
  name: str, interval: float = _PLD_INTERVAL
) -> dp_accounting.PrivacyAccountant:
  if name == "gaussian":
    # Of the same loss in both directions, whatever the relation.
    return gaussian_accountant.GaussianAccountant(_RELATION)
  if name == "pld":
    return dp_accounting.pld.PLDAccountant(_RELATION, interval)
  return epsilon_lib.create_accountant(name, _RELATION)


def _is_sampled(releases: Sequence[PlannedRelease]) -> bool:
  return any(release.sampling_probability < 1 for release in releases)
