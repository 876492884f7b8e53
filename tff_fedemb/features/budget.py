"""How much noise each release of a fit needs for its epsilon and delta.

A fit makes releases of several kinds: sums of outer products once, gradients in
every step. All are Gaussian mechanisms, and their composition is what the fit
costs.
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
from tff_fedemb import config
from tff_fedemb import errors
from tff_fedemb.features import noise_search
from tff_fedemb.privacy import calibration

# An exponential of more is infinite.
_LARGEST_EXPONENT = 300.0
# The scale is rounded up to so many digits, the search's last ones being noise.
_DIGITS = 5


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
    """What releasing it once costs.

    Args:
      noise_multiplier: Standard deviation of the noise over the sensitivity.
    """
    if noise_multiplier == 0:
      return dp_accounting.NonPrivateDpEvent()
    event = dp_accounting.GaussianDpEvent(noise_multiplier)
    if not self.is_sampled:
      return event
    return dp_accounting.PoissonSampledDpEvent(self.sampling_probability, event)

  def limit(self, noise_multiplier: float) -> dp_accounting.DpEvent:
    """What many of it come close to: unsampled ones of more noise.

    Dong et al. 2022, "Gaussian Differential Privacy", corollary 5.4. No bound:
    it says where to look for one.

    Args:
      noise_multiplier: Standard deviation of the noise over the sensitivity.
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
    return self._compose(PlannedRelease.event)

  @property
  def limit(self) -> dp_accounting.DpEvent:
    """What it is about, without sampling; see `PlannedRelease.limit`."""
    return self._compose(PlannedRelease.limit)

  def _compose(
    self, event_of: Callable[[PlannedRelease, float], dp_accounting.DpEvent]
  ) -> dp_accounting.DpEvent:
    multipliers = self.noise_multipliers
    return compose(
      [(event_of(r, multipliers[r.name]), r.count) for r in self.releases]
    )

  @property
  def least_sampled_noise(self) -> float:
    """The smallest noise multiplier of a sampled release; infinity of none."""
    return min(
      (
        self.noise_multipliers[release.name]
        for release in self.releases
        if release.is_sampled
      ),
      default=math.inf,
    )

  @property
  def accountant(self) -> str:
    """Name of the accountant that the epsilon is of."""
    is_sampled = any(release.is_sampled for release in self.releases)
    return "pld" if is_sampled else "gaussian"


def check_target(epsilon: float, delta: float | None) -> None:
  """Checks what a fit is to stay within.

  Args:
    epsilon: In (0, 100]; infinity for no noise.
    delta: In (0, 1); may be `None` where epsilon is infinite.

  Raises:
    errors.FieldError: If one is out of its range.
  """
  limit = calibration.MAX_TARGET_EPSILON
  is_number = checks.is_number(epsilon) and 0 < epsilon <= limit
  if epsilon != math.inf and not is_number:
    raise errors.FieldError(
      "epsilon", f"be in (0, {limit:g}], or inf for no noise", repr(epsilon)
    )
  if delta is not None:
    checks.check_delta(delta)
  elif epsilon != math.inf:
    raise errors.FieldError(
      "delta", "be given where epsilon is finite", "nothing"
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
    errors.FieldError: If a value is out of its range, or the target out of
      reach; or if an example is so rarely in any sum that delta covers it
      without noise.
  """
  check_target(epsilon, delta)
  if delta is not None:
    delta = float(delta)
  releases = _with_shares(releases, {} if split is None else split)
  if epsilon == math.inf:
    zeros = {release.name: 0.0 for release in releases}
    return Budget(releases, types.MappingProxyType(zeros), math.inf, delta)
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

  def get_event(scale: float) -> dp_accounting.DpEvent:
    return with_scale(scale).event

  _check_chance(releases, delta)
  if any(release.is_sampled for release in releases):
    scale = noise_search.find_sampled(
      get_event,
      epsilon,
      delta,
      get_limit=lambda scale: with_scale(scale).limit,
      get_least_noise=lambda scale: with_scale(scale).least_sampled_noise,
    )
  else:
    scale = noise_search.find_unsampled(get_event, epsilon, delta)
  # What was found may be too little by rounding, or where delta is large.
  growth = 10.0**-_DIGITS
  while True:
    # Upwards: more noise, never less than was found.
    digits = _DIGITS - 1 - math.floor(math.log10(scale))
    scale = math.ceil(scale * 10.0**digits) / 10.0**digits
    budget = with_scale(scale)
    found = noise_search.epsilon_of(
      budget.event, delta, accountant=budget.accountant
    )
    if found <= epsilon:
      return dataclasses.replace(budget, epsilon=found)
    scale *= 1 + growth
    growth *= 2


def _check_chance(releases: Sequence[PlannedRelease], delta: float) -> None:
  """Refuses a delta for which no noise is needed, and there is none to find."""
  if not all(release.is_sampled for release in releases):
    return
  chance = -math.expm1(
    sum(
      release.count * math.log1p(-release.sampling_probability)
      for release in releases
    )
  )
  if delta >= chance:
    raise errors.FieldError(
      "delta",
      f"be below {chance:.4g}, the chance that an example is drawn at all",
      delta,
    )


def _with_shares(
  releases: Sequence[PlannedRelease], split: Mapping[str, float]
) -> tuple[PlannedRelease, ...]:
  if not isinstance(split, Mapping):
    raise errors.FieldError(
      "split", "map names of releases to positive numbers", repr(split)
    )
  names = [release.name for release in releases]
  for name in split:
    if name not in names:
      raise errors.FieldError(
        "split", f"name releases of the method, {', '.join(names)}", repr(name)
      )
  return tuple(
    dataclasses.replace(release, share=split.get(release.name, release.share))
    for release in releases
  )
