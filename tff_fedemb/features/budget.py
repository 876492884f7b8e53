"""How much noise each release of a fit needs for its epsilon and delta.

A fit makes releases of several kinds: sums of outer products once, gradients in
every step. All are Gaussian mechanisms, and their composition is what the fit
costs. Their noise is in proportion to one scale, which is searched for with
accountants of `dp_accounting`: one that is exact where nothing is sampled, PLD
elsewhere.
"""

from collections.abc import Callable, Mapping, Sequence
import dataclasses
import functools
import math
import types

import dp_accounting

from tff_fedemb import checks
from tff_fedemb import config
from tff_fedemb import errors
from tff_fedemb.privacy import calibration
from tff_fedemb.privacy import epsilon as epsilon_lib
from tff_fedemb.privacy import gaussian_accountant

# An exponential of more is infinite.
_LARGEST_EXPONENT = 300.0
# The scale is rounded up to so many digits, the search's last ones being noise.
_DIGITS = 5
# The search begins here: the epsilon of so little noise is above any target.
_SMALLEST_SCALE = 1e-3
# The search by PLD looks so far around a first guess, in logarithms.
_PLD_REACH = 0.2
_MAX_PLD_STEPS = 10
# PLD takes seconds each time where noise multiplier times interval is below.
_SLOW_PLD = 1e-4
# PLD rounds losses to a grid: that of the search, and those of the result, the
# first that is fine enough.
_COARSE_PLD_INTERVAL = 1e-3
_PLD_INTERVALS = (1e-4, 1e-5, 1e-6, 1e-7, 1e-8)
# An epsilon of fewer intervals is mostly rounding.
_INTERVALS_OF_EPSILON = 100


@dataclasses.dataclass(frozen=True)
class PlannedRelease(config.Config):
  """One kind of noised sum that a fit is going to publish.

  Attributes:
    name: What is released, for example 'covariance'.
    share: Of the fit's budget, positive; relative to the other releases'. In
      terms of zero-concentrated DP, where the costs of Gaussian mechanisms add
      up.
    count: How often a fit releases it, at least 1.
    sampling_probability: With which each example takes part, in (0, 1];
      independently, and drawn anew each time.
  """

  name: str
  share: float = config.field(1.0, above=0)
  count: int = config.field(1, minimum=1)
  sampling_probability: float = config.field(1.0, above=0, maximum=1)

  @property
  def is_sampled(self) -> bool:
    """Whether it is of some examples only."""
    return self.sampling_probability < 1

  def event(self, noise_multiplier: float) -> dp_accounting.DpEvent:
    """Returns what releasing it once at this noise multiplier costs."""
    if noise_multiplier == 0:
      return dp_accounting.NonPrivateDpEvent()
    event = dp_accounting.GaussianDpEvent(noise_multiplier)
    if not self.is_sampled:
      return event
    return dp_accounting.PoissonSampledDpEvent(self.sampling_probability, event)

  def limit(self, noise_multiplier: float) -> dp_accounting.DpEvent:
    """Returns what many of it come close to: unsampled ones of more noise.

    Dong et al. 2022, "Gaussian Differential Privacy", corollary 5.4. No bound:
    it says where to look for one.
    """
    if not self.is_sampled:
      return self.event(noise_multiplier)
    growth = math.expm1(min(noise_multiplier**-2, _LARGEST_EXPONENT))
    return dp_accounting.GaussianDpEvent(
      1 / (self.sampling_probability * math.sqrt(growth))
    )


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
    return self.compose(PlannedRelease.event)

  def compose(
    self, event_of: Callable[[PlannedRelease, float], dp_accounting.DpEvent]
  ) -> dp_accounting.DpEvent:
    """Returns one event for all releases, each of the event given for it."""
    events = [
      event_of(release, self.noise_multipliers[release.name])
      for release in self.releases
    ]
    return dp_accounting.ComposedDpEvent(
      [
        dp_accounting.SelfComposedDpEvent(event, release.count)
        if release.count > 1
        else event
        for event, release in zip(events, self.releases, strict=True)
      ]
    )

  @property
  def accountant(self) -> str:
    """Name of the accountant that the epsilon is of."""
    is_sampled = any(release.is_sampled for release in self.releases)
    return "pld" if is_sampled else "gaussian"


def check_target(epsilon: float, delta: float | None) -> None:
  """Raises `errors.FieldError` of what `calibrate` refuses as a target."""
  if epsilon != math.inf:
    checks.check_number(
      "epsilon", epsilon, above=0, maximum=calibration.MAX_TARGET_EPSILON
    )
    if delta is None:
      raise errors.FieldError(
        "delta", "be given where epsilon is finite", "nothing"
      )
  if delta is not None:
    checks.check_delta(delta)


def epsilon_of(
  event: dp_accounting.DpEvent, delta: float, *, accountant: str
) -> float:
  """Returns the epsilon of composed Gaussian mechanisms at `delta`.

  The accountant is 'gaussian', exact, where nothing is sampled, or 'pld', of a
  grid of 1e-4 or finer: of at most a hundredth of the epsilon.
  """
  if accountant == "gaussian":
    exact = gaussian_accountant.GaussianAccountant()
    return epsilon_lib.current_epsilon(exact.compose(event), delta)
  for interval in _PLD_INTERVALS:
    composed = _create_pld(interval).compose(event)
    epsilon = epsilon_lib.current_epsilon(composed, delta)
    is_rough = epsilon < _INTERVALS_OF_EPSILON * interval * (1 - 1e-9)
    if epsilon == 0 or not is_rough:
      break
  return epsilon


def with_shares(
  releases: Sequence[PlannedRelease], split: Mapping[str, float]
) -> tuple[PlannedRelease, ...]:
  """Returns a fit's releases with the shares of the budget named in `split`.

  Raises:
    errors.FieldError: If there is no such release, or a share is out of range.
  """
  names = [release.name for release in releases]
  for name, share in split.items():
    if name not in names:
      raise errors.FieldError(
        "split", f"name releases of the method, {', '.join(names)}", repr(name)
      )
    checks.check_number("split", share, above=0)
  return tuple(
    dataclasses.replace(release, share=split.get(release.name, release.share))
    for release in releases
  )


def calibrate(
  releases: Sequence[PlannedRelease], *, epsilon: float, delta: float | None
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
    epsilon: Target, in (0, 100]; infinity for no noise.
    delta: In (0, 1); may be `None` without noise.

  Raises:
    errors.FieldError: If a value is out of its range, or the target out of
      reach; or if an example is so rarely in any sum that delta covers it
      without noise.
  """
  check_target(epsilon, delta)
  if delta is not None:
    delta = float(delta)
  search = _Search(tuple(releases), epsilon, delta)
  if epsilon == math.inf:
    return search.with_scale(0.0)
  return _meet(search)


# Fits that differ in nothing but their seed are calibrated once.
@functools.lru_cache(maxsize=1024)
def _meet(search: "_Search") -> Budget:
  """The budget of least noise that meets a target."""
  epsilon, delta = search.epsilon, search.delta
  _check_chance(search.releases, delta)
  if any(release.is_sampled for release in search.releases):
    scale = math.exp(search.find_sampled())
  else:
    scale = math.exp(search.find(PlannedRelease.event, 1e-9))
  # What was found may be too little by rounding, or where delta is large.
  growth = 10.0**-_DIGITS
  while True:
    # Upwards: more noise, never less than was found.
    digits = _DIGITS - 1 - math.floor(math.log10(scale))
    scale = math.ceil(scale * 10.0**digits) / 10.0**digits
    budget = search.with_scale(scale)
    found = epsilon_of(budget.event, delta, accountant=budget.accountant)
    if found <= epsilon:
      return dataclasses.replace(budget, epsilon=found)
    scale *= 1 + growth
    growth *= 2


@dataclasses.dataclass(frozen=True)
class _Search:
  """The search for the scale of the noise; it returns logarithms."""

  releases: tuple[PlannedRelease, ...]
  epsilon: float
  delta: float | None

  def with_scale(self, scale: float) -> Budget:
    """The budget that has the target as its epsilon, whatever it costs."""
    total = sum(release.share for release in self.releases)
    multipliers = {
      release.name: scale
      * (
        release.sampling_probability
        * math.sqrt(release.count * total / release.share)
      )
      for release in self.releases
    }
    return Budget(
      self.releases,
      types.MappingProxyType(multipliers),
      self.epsilon,
      self.delta,
    )

  def find(
    self,
    event_of: Callable[[PlannedRelease, float], dp_accounting.DpEvent],
    tolerance: float,
    create_accountant: Callable[
      [], dp_accounting.PrivacyAccountant
    ] = gaussian_accountant.GaussianAccountant,
    *,
    lower: float = math.log(_SMALLEST_SCALE),
    guess: float = 0.0,
  ) -> float:
    """The least scale that meets the target, above `lower`."""
    return dp_accounting.calibrate_dp_mechanism(
      create_accountant,
      lambda scale: self.with_scale(math.exp(scale)).compose(event_of),
      self.epsilon,
      self.delta,
      dp_accounting.LowerEndpointAndGuess(lower, guess),
      tol=tolerance,
    )

  def find_sampled(self) -> float:
    """About the same by PLD; not enough if delta is close to the largest.

    PLD takes longer the less noise there is, and the finer its grid: the search
    stays near a guess. On a coarse grid it errs on the private side, by little
    if the grid is fine in comparison with epsilon.
    """
    finest = min(_COARSE_PLD_INTERVAL, self.epsilon / _INTERVALS_OF_EPSILON)
    interval = max(finest, _PLD_INTERVALS[-1])
    guess = self.find(PlannedRelease.limit, 1e-3)
    for _ in range(_MAX_PLD_STEPS):
      lower = guess - _PLD_REACH
      budget = self.with_scale(math.exp(lower))
      if min(budget.noise_multipliers.values()) * interval < _SLOW_PLD:
        break
      accountant = _create_pld(interval).compose(budget.event)
      if accountant.get_epsilon(self.delta) > self.epsilon:
        return self.find(
          PlannedRelease.event,
          1e-3,
          functools.partial(_create_pld, interval),
          lower=lower,
          guess=guess,
        )
      guess = lower
    return guess


def _check_chance(releases: Sequence[PlannedRelease], delta: float) -> None:
  """Refuses a delta for which no noise is needed, and there is none to find."""
  log_missed = sum(
    release.count * math.log1p(-release.sampling_probability)
    if release.is_sampled
    else -math.inf
    for release in releases
  )
  chance = -math.expm1(log_missed)
  if delta >= chance:
    raise errors.FieldError(
      "delta",
      f"be below {chance:.4g}, the chance that an example is drawn at all",
      delta,
    )


def _create_pld(interval: float) -> dp_accounting.PrivacyAccountant:
  return dp_accounting.pld.PLDAccountant(value_discretization_interval=interval)
