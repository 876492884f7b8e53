"""The least noise with which Gaussian releases meet a target epsilon.

All noise is in proportion to one scale, which is searched for with accountants
of `dp_accounting`: one that is exact where nothing is sampled, PLD elsewhere.
"""

from collections.abc import Callable
import functools
import math

import dp_accounting

from tff_fedemb.privacy import epsilon as epsilon_lib
from tff_fedemb.privacy import gaussian_accountant

# The search begins here: the epsilon of so little noise is above any target.
_SMALLEST_SCALE = 1e-3
# The search by PLD looks so far around a first guess, in logarithms.
_PLD_REACH = 0.2
_MAX_PLD_STEPS = 10
# PLD takes seconds each time where noise multiplier times interval is below.
_SLOW_PLD = 1e-4
# PLD rounds losses to a grid: that of the search, and that of the result.
_COARSE_PLD_INTERVAL, _PLD_INTERVAL = 1e-3, 1e-4
# An epsilon of fewer intervals is mostly rounding.
_INTERVALS_OF_EPSILON = 100
_SMALLEST_PLD_INTERVAL = 1e-8
_RELATION = dp_accounting.NeighboringRelation.ADD_OR_REMOVE_ONE

# From a scale to what the releases cost.
GetEvent = Callable[[float], dp_accounting.DpEvent]


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
  if accountant == "gaussian":
    return epsilon_lib.current_epsilon(_create_exact().compose(event), delta)
  interval = _PLD_INTERVAL
  while True:
    composed = _create_pld(interval).compose(event)
    epsilon = epsilon_lib.current_epsilon(composed, delta)
    is_rough = epsilon < _INTERVALS_OF_EPSILON * interval * (1 - 1e-9)
    if epsilon == 0 or not is_rough or interval <= _SMALLEST_PLD_INTERVAL:
      return epsilon
    interval /= 10


def find_unsampled(get_event: GetEvent, epsilon: float, delta: float) -> float:
  """Returns the least scale where all releases are of all examples.

  Args:
    get_event: What the releases cost at a scale.
    epsilon: Target, positive and finite.
    delta: In (0, 1).
  """
  return _search(_create_exact, get_event, epsilon, delta, tolerance=1e-9)


def find_sampled(
  get_event: GetEvent,
  epsilon: float,
  delta: float,
  *,
  get_limit: GetEvent,
  get_least_noise: Callable[[float], float],
) -> float:
  """Returns about the least scale where some releases are of sampled examples.

  PLD takes the longer the less noise there is, and the finer its grid: the
  search stays near a guess. On a coarse grid it errs on the private side, by
  little if the grid is fine in comparison with epsilon.

  Args:
    get_event: What the releases cost at a scale.
    epsilon: Target, positive and finite.
    delta: In (0, 1), below the chance that an example is drawn at all.
    get_limit: An event without sampling of about the same cost.
    get_least_noise: The smallest noise multiplier of a sampled release.

  Returns:
    The scale. If delta is close to that chance it may not be enough.
  """
  finest = min(_COARSE_PLD_INTERVAL, epsilon / _INTERVALS_OF_EPSILON)
  interval = max(finest, _SMALLEST_PLD_INTERVAL)
  guess = math.log(
    _search(_create_exact, get_limit, epsilon, delta, tolerance=1e-3)
  )
  for _ in range(_MAX_PLD_STEPS):
    lower = guess - _PLD_REACH
    if get_least_noise(math.exp(lower)) * interval < _SLOW_PLD:
      break
    accountant = _create_pld(interval).compose(get_event(math.exp(lower)))
    if accountant.get_epsilon(delta) > epsilon:
      return _search(
        functools.partial(_create_pld, interval),
        get_event,
        epsilon,
        delta,
        tolerance=1e-3,
        lower=lower,
        guess=guess,
      )
    guess = lower
  return math.exp(guess)


def _search(
  create_accountant: Callable[[], dp_accounting.PrivacyAccountant],
  get_event: GetEvent,
  epsilon: float,
  delta: float,
  *,
  tolerance: float,
  lower: float = math.log(_SMALLEST_SCALE),
  guess: float = 0.0,
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


def _create_exact() -> dp_accounting.PrivacyAccountant:
  # A Gaussian mechanism has the same loss in both directions, whatever the
  # relation.
  return gaussian_accountant.GaussianAccountant(_RELATION)


def _create_pld(interval: float) -> dp_accounting.PrivacyAccountant:
  return dp_accounting.pld.PLDAccountant(_RELATION, interval)
