"""The noise that each release of a fit needs for its epsilon and delta.

A fit makes releases of several kinds: sums of outer products once, gradients in
every step. All are Gaussian mechanisms, and so is their composition. An
exact accountant finds the least noise for which it meets the target.
"""

from collections.abc import Mapping, Sequence
import dataclasses
import functools
import math

import dp_accounting

from tff_fedemb import checks
from tff_fedemb import config
from tff_fedemb import errors
from tff_fedemb.accounting import gaussian_accountant
from tff_fedemb.planning import calibration

ACCOUNTANT = "gaussian"

# The search begins here: with so little noise, epsilon exceeds any target.
_SMALLEST_SCALE = 1e-3
_TOLERANCE = 1e-9


@dataclasses.dataclass(frozen=True)
class PlannedRelease(config.Config):
  """One kind of noised sum that a fit is going to publish.

  Attributes:
    name: Name of the sum, for example 'covariance'.
    share: Share of the fit's budget, positive; relative to the other releases'.
      Shares are of zero-concentrated DP, in which the costs of Gaussian
      mechanisms add up.
    count: Number of times that a fit releases it, at least 1.
  """

  name: str
  share: float = config.field(1.0, above=0)
  count: int = config.field(1, minimum=1)


@dataclasses.dataclass(frozen=True)
class Budget:
  """The noise of each release, and what they cost together.

  Privacy:
    Unit: an example, or a user in federated fits; each contributes at most
      the stated sensitivity to a sum.
    Neighbouring relation: the slot of one of them stays empty.
    Sensitivity: 1; whoever adds the noise multiplies by the sensitivity.
    DpEvent: the composition of `event_of` every release.

  Attributes:
    releases: All kinds of release.
    noise_multipliers: Standard deviation over sensitivity by name, 0 for none.
    epsilon: Epsilon of all releases together; infinity without noise.
    delta: Delta of the guarantee.
  """

  releases: tuple[PlannedRelease, ...]
  noise_multipliers: Mapping[str, float]
  epsilon: float
  delta: float | None


def event_of(noise_multiplier: float) -> dp_accounting.DpEvent:
  """Returns what one release at this noise multiplier costs."""
  if noise_multiplier == 0:
    return dp_accounting.NonPrivateDpEvent()
  return dp_accounting.GaussianDpEvent(noise_multiplier)


def check_target(epsilon: float, delta: float | None) -> None:
  """Raises `errors.FieldError` of what `calibrate` refuses as a target."""
  if epsilon != math.inf:
    checks.check_number(
      "epsilon", epsilon, above=0, maximum=calibration.MAX_TARGET_EPSILON
    )
    if delta is None:
      must = "be given where epsilon is finite"
      raise errors.FieldError("delta", must, "nothing")
  if delta is not None:
    checks.check_delta(delta)


def calibrate(
  releases: Sequence[PlannedRelease],
  *,
  epsilon: float,
  delta: float | None,
) -> Budget:
  """Returns the least noise for which a fit meets its target.

  With z the scale that is searched for, a release of share w that happens m
  times has the noise multiplier z sqrt(m / w): all m together cost the share w
  of the fit's zero-concentrated DP.

  Privacy:
    As `Budget`.

  Args:
    releases: All kinds of release of the fit, with different names.
    epsilon: Target, in (0, 100]; infinity for no noise.
    delta: In (0, 1); may be `None` without noise.

  Raises:
    errors.FieldError: If a value is out of its range.
  """
  check_target(epsilon, delta)
  delta = None if delta is None else float(delta)
  total = sum(release.share for release in releases)
  scale = _find_scale(epsilon, delta)
  multipliers = {
    release.name: scale * math.sqrt(release.count * total / release.share)
    for release in releases
  }
  accountant = gaussian_accountant.GaussianAccountant()
  for release in releases:
    accountant.compose(event_of(multipliers[release.name]), release.count)
  if scale:
    epsilon = float(accountant.get_epsilon(delta))
  return Budget(tuple(releases), multipliers, epsilon, delta)


# Fits that differ in nothing but their seed are calibrated once.
@functools.lru_cache(maxsize=1024)
def _find_scale(epsilon: float, delta: float | None) -> float:
  """Noise multiplier with which one Gaussian mechanism meets a target."""
  if epsilon == math.inf:
    return 0.0
  log_scale = dp_accounting.calibrate_dp_mechanism(
    gaussian_accountant.GaussianAccountant,
    lambda log_scale: dp_accounting.GaussianDpEvent(math.exp(log_scale)),
    epsilon,
    delta,
    dp_accounting.LowerEndpointAndGuess(math.log(_SMALLEST_SCALE), 0.0),
    tol=_TOLERANCE,
  )
  # Rounds up to five digits: the search is no more exact than that.
  scale = math.exp(log_scale)
  digits = 10.0 ** (4 - math.floor(math.log10(scale)))
  return math.ceil(scale * digits) / digits
