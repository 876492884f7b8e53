"""The noise that each release of a fit needs for its epsilon and delta.

A fit makes releases of several kinds: sums of outer products once, gradients in
every step. All are Gaussian mechanisms, and so is their composition (Dong, Roth
and Su 2022, "Gaussian Differential Privacy", corollary 3.3). An exact
accountant finds the least noise that meets the target.
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

# The search begins at this noise multiplier, whose epsilon exceeds any target.
_SMALLEST_SCALE = 1e-3
_TOLERANCE = 1e-9


@dataclasses.dataclass(frozen=True)
class PlannedRelease(config.Config):
  """One kind of noised sum that a fit is going to publish.

  Attributes:
    name: Name of the sum, for example 'covariance'.
    share: Share of the fit's budget, positive; relative to the other releases'
      shares. The budget is divided in zero-concentrated DP, where the costs of
      Gaussian mechanisms add up.
    count: Number of times that a fit releases it, at least 1.
  """

  name: str
  share: float = config.field(1.0, above=0)
  count: int = config.field(1, minimum=1)


@dataclasses.dataclass(frozen=True)
class Budget:
  """The noise of each release, and the cost of all together.

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
  """Returns the event of one release.

  Args:
    noise_multiplier: Standard deviation of the noise over the sensitivity, not
      negative; 0 for no noise.

  Returns:
    A `GaussianDpEvent`, or a `NonPrivateDpEvent` without noise.
  """
  if noise_multiplier == 0:
    return dp_accounting.NonPrivateDpEvent()
  return dp_accounting.GaussianDpEvent(noise_multiplier)


def check_target(epsilon: float, delta: float | None) -> None:
  """Checks a target, as `calibrate` does, before any data is read.

  Args:
    epsilon: In (0, 100], or infinity.
    delta: In [1e-250, 1); may be `None` if epsilon is infinite.

  Raises:
    errors.FieldError: If a value is out of its range, or delta is missing.
  """
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

  Let z be the noise multiplier with which one Gaussian mechanism meets the
  target. A release of share w that happens m times has the noise multiplier
  z sqrt(m / w), where the shares add up to 1: all m together then cost the
  share w of the fit's zero-concentrated DP.

  Privacy:
    As `Budget`.

  Args:
    releases: All kinds of release of the fit, with different names.
    epsilon: Target, in (0, 100]; infinity for no noise.
    delta: In [1e-250, 1); may be `None` without noise.

  Returns:
    The noise of each kind, and the epsilon of all, at most the target.

  Raises:
    errors.FieldError: If a value is out of its range.
  """
  check_target(epsilon, delta)
  if delta is not None:
    delta = float(delta)
  total = sum(release.share for release in releases)
  scale = _find_scale(epsilon, delta)
  accountant = gaussian_accountant.GaussianAccountant()
  multipliers = {}
  for release in releases:
    multiplier = scale * math.sqrt(release.count * total / release.share)
    multipliers[release.name] = multiplier
    accountant.compose(event_of(multiplier), release.count)
  if scale and delta is not None:
    epsilon = float(accountant.get_epsilon(delta))
  return Budget(tuple(releases), multipliers, epsilon, delta)


# A sweep repeats fits that differ in nothing but their seed.
@functools.lru_cache(maxsize=1024)
def _find_scale(epsilon: float, delta: float | None) -> float:
  """Finds the noise multiplier of one Gaussian mechanism for a target.

  Rounded up to five digits, so that epsilon stays below the target; 0 for an
  infinite epsilon.
  """
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
  # The search is exact to five digits; rounding up keeps epsilon below the
  # target.
  scale = math.exp(log_scale)
  digits = 10.0 ** (4 - math.floor(math.log10(scale)))
  return math.ceil(scale * digits) / digits
