"""The searches behind `calibration`: the smallest value for a target.

Each is over a quantity of which more costs less privacy. It works on upper
bounds of epsilon that are quick to compute (few orders of RDP, a coarse grid of
PLD) until it is close, then on orders near the best one, or on PLD itself. An
upper bound that meets the target leaves no doubt that epsilon does.
"""

from collections.abc import Callable
from collections.abc import Iterator
from collections.abc import Sequence
import dataclasses
import functools
import math
from typing import Any

import dp_accounting
import numpy as np
from scipy import optimize

from tff_fedemb import checks
from tff_fedemb import errors
from tff_fedemb.privacy import epsilon as epsilon_lib
from tff_fedemb.privacy import planning

# To which the noise multiplier is rounded up.
DIGITS = 5

_NOISE_MULTIPLIERS = (1e-3, checks.MAX_NOISE_MULTIPLIER)
_MAX_NUM_USERS = 10**12

_ALL_ORDERS = tuple(dp_accounting.rdp.rdp_privacy_accountant.DEFAULT_RDP_ORDERS)
# Integers: the divergence of sampling costs several times more in between, and
# more still at high orders.
_LOW_ORDERS = (2, 3, 4, 6, 8, 11, 16, 24, 32, 48, 63)
_HIGH_ORDERS = (128, 256, 512, 1024)
# The best order moves by less than this many while a value changes by _NEAR.
_REACH = 3
_NEAR = 1e-2
_COARSE_PLD_INTERVAL = 1e-3
# Relative, of what is searched for.
_TOLERANCE = 1e-9
PLD_TOLERANCE = 1e-3


def with_value(
  plan: planning.Plan, solve_for: str, value: float
) -> planning.Plan:
  """Returns a plan with another value of one of `SOLVE_FOR`.

  Args:
    plan: The plan.
    solve_for: As in `calibrate`.
    value: Of that quantity; the noise goes with the cohort, the separation
      with the number of users and the cohort.
  """
  if solve_for == "noise_multiplier":
    return dataclasses.replace(plan, noise_multiplier=float(value))
  claim = plan.participation
  sizes: dict[str, Any] = {
    "num_users": claim.num_users,
    "users_per_round": claim.users_per_round,
    solve_for: value,
  }
  growth = sizes["users_per_round"] / claim.users_per_round
  return dataclasses.replace(
    plan,
    noise_multiplier=plan.noise_multiplier * growth,
    participation=claim.resized(**sizes),
  )


class Search:
  """Finds the smallest value for one plan, target and sensitivity."""

  def __init__(
    self,
    plan: planning.Plan,
    solve_for: str,
    target: float,
    sensitivity: float,
  ):
    self._plan = plan
    self._solve_for = solve_for
    self._target = target
    self._sensitivity = sensitivity
    (self._accountant,) = plan.accountants
    # Without any divergence, order a has an epsilon of log(1 / delta) / (a - 1)
    # or somewhat less.
    floor = -math.log(plan.delta) / (_LOW_ORDERS[-1] - 1)
    self._few_orders: tuple[int, ...] = _LOW_ORDERS
    if target < 3 * floor:
      self._few_orders += _HIGH_ORDERS
    claim = plan.participation
    # What is searched for is a multiple of the unit, within limits.
    self._unit = 1
    # Of noise they are any numbers, of users and clients integers.
    self._limits: tuple[Any, Any] = _NOISE_MULTIPLIERS
    if solve_for == "num_users":
      self._limits = (math.ceil(claim.users_per_round), _MAX_NUM_USERS)
    elif solve_for == "users_per_round":
      self._unit = claim.users_per_client
      # The noise multiplier is in proportion to the cohort.
      per_noise = (
        claim.users_per_round / claim.users_per_client / plan.noise_multiplier
      )
      self._limits = (
        max(math.ceil(checks.MIN_NOISE_MULTIPLIER * per_noise), 1),
        min(
          math.floor(checks.MAX_NOISE_MULTIPLIER * per_noise),
          claim.num_users // claim.users_per_client,
        ),
      )

  def solve(self) -> float:
    """Returns the smallest value, an integer except for the noise."""
    if self._solve_for == "noise_multiplier":
      found = self._continuous(1.0)
    elif self._plan.participation.is_sampled:
      found = self._sampled()
    elif self._solve_for == "num_users":
      found = self._users_in_passes()
    else:
      found = self._cohort_in_passes()
    if found is None:
      largest = self._limits[1]
      raise errors.FieldError(
        "target_epsilon",
        f"be at least {self._epsilon(self._at(largest)):.4g}, what"
        f" {self._accountant} gives at {self._solve_for} ="
        f" {self._unit * largest:,g}, the largest that is tried",
        f"{self._target:g}",
      )
    if self._solve_for == "noise_multiplier":
      return _round_up(found)
    return self._unit * int(found)

  def _at(self, number: float) -> planning.Plan:
    """The plan at so many units."""
    if self._solve_for != "noise_multiplier":
      # A fixed size has whole users; what lies between is of no use.
      number = self._unit * round(number)
    return with_value(self._plan, self._solve_for, number)

  def _epsilon(self, plan: planning.Plan) -> float:
    return epsilon_lib.epsilon_of(
      plan.composed_events(self._sensitivity),
      plan.delta,
      accountant=self._accountant,
      neighboring_relation=plan.participation.neighboring_relation,
    )

  def _holds(self, number: int) -> bool:
    return self._epsilon(self._at(number)) <= self._target

  def _sampled(self) -> int | None:
    claim = self._plan.participation
    start = getattr(claim, self._solve_for) / self._unit
    found = self._continuous(start)
    if found is None:
      return None
    low, high = self._limits
    if self._accountant == "pld":
      return min(math.ceil(found), high)
    holds = self._holds
    if self._accountant == "rdp":
      near = self._orders_near(self._at(found))

      def holds(number: int) -> bool:
        return self._rdp(self._at(number), near)[0] <= self._target

    slack = 1 + 10 * _TOLERANCE
    return _smallest_integer(
      holds,
      max(math.floor(found / slack) - 2, low - 1),
      min(math.ceil(found * slack) + 2, high),
    )

  def _users_in_passes(self) -> int | None:
    users = self._plan.participation.users_per_round

    def fewest(separation: int) -> int:
      return max(math.floor((separation - 1) * users) + 1, math.ceil(users))

    # Nobody takes part twice: a longer pass changes nothing.
    rounds = self._plan.rounds
    self._limits = (fewest(1), fewest(rounds))
    if not self._holds(fewest(rounds)):
      return None
    return fewest(
      _smallest_integer(lambda passes: self._holds(fewest(passes)), 0, rounds)
    )

  def _cohort_in_passes(self) -> int | None:
    for first, last in self._equal_participations():
      # With equally many participations more users a round cost less.
      if self._holds(last):
        return _smallest_integer(self._holds, first - 1, last)
    return None

  def _equal_participations(self) -> Iterator[tuple[int, int]]:
    """Yields ranges of virtual clients, smallest first."""
    first, most = self._limits

    def participations(clients: int) -> int:
      return self._at(clients).participation.participations(self._plan.rounds)

    while first <= most:
      now = participations(first)
      last = most
      if participations(most) != now:

        def is_past(clients: int, now: int = now) -> bool:
          return participations(clients) > now

        last = -1 + _smallest_integer(is_past, first, most)
      yield first, last
      first = last + 1

  def _continuous(self, start: float) -> float | None:
    """The smallest number within limits for which the target holds."""

    def smallest(epsilon, start, *, step, tolerance):
      return _smallest(
        lambda number: epsilon(self._at(number)),
        self._target,
        start,
        limits=self._limits,
        step=step,
        tolerance=tolerance,
      )

    if self._accountant == "gaussian":
      return smallest(self._epsilon, start, step=2.0, tolerance=_TOLERANCE)
    found = smallest(
      lambda plan: self._rdp(plan, self._few_orders)[0],
      start,
      step=2.0,
      tolerance=_NEAR,
    )
    # Only the largest value can be within reach of more orders alone.
    found = self._limits[1] if found is None else found
    if self._accountant == "pld":
      found = smallest(
        self._coarse_pld, found, step=1.1, tolerance=PLD_TOLERANCE
      )
      found = self._limits[1] if found is None else found
      return smallest(self._epsilon, found, step=1.005, tolerance=PLD_TOLERANCE)
    while True:
      near = self._orders_near(self._at(found))
      better = smallest(
        lambda plan, near=near: self._rdp(plan, near)[0],
        found,
        step=1.05,
        tolerance=_TOLERANCE,
      )
      # Within this the best order stays among those near.
      if better is None or better > found * (1 - _NEAR):
        return better
      found = better

  def _orders_near(self, plan: planning.Plan) -> Sequence[float]:
    """The orders around the best one for a plan."""
    few = self._few_orders
    i = few.index(self._rdp(plan, few)[1])
    low = few[i - 1] if i else 0.0
    high = few[i + 1] if i + 1 < len(few) else math.inf
    between = [order for order in _ALL_ORDERS if low <= order <= high]
    best = _ALL_ORDERS.index(self._rdp(plan, between)[1])
    return _ALL_ORDERS[max(best - _REACH, 0) : best + _REACH + 1]

  def _rdp(
    self, plan: planning.Plan, orders: Sequence[float]
  ) -> tuple[float, float]:
    """An upper bound of RDP's epsilon, and the best of the orders."""
    accountant = dp_accounting.rdp.RdpAccountant(
      orders, plan.participation.neighboring_relation
    )
    for event, count in plan.composed_events(self._sensitivity):
      accountant.compose(event, count)
    # Rounding makes tiny divergences negative on the way to the value; whether
    # that one can be trusted is for the whole account to say.
    return dp_accounting.rdp.compute_epsilon(
      orders, np.maximum(accountant.rdp, 0.0), plan.delta
    )

  def _coarse_pld(self, plan: planning.Plan) -> float:
    accountant = dp_accounting.pld.PLDAccountant(
      plan.participation.neighboring_relation, _COARSE_PLD_INTERVAL
    )
    for event, count in plan.composed_events(self._sensitivity):
      accountant.compose(event, count)
    return accountant.get_epsilon(plan.delta)


def _smallest(
  epsilon: Callable[[float], float],
  target: float,
  start: float,
  *,
  limits: tuple[float, float],
  step: float,
  tolerance: float,
) -> float | None:
  """Smallest value at which a falling epsilon is at most the target.

  Args:
    epsilon: Of a value.
    target: Positive.
    start: Where to look first.
    limits: Smallest and largest value.
    step: First factor by which to look further.
    tolerance: Relative, of the value.

  Returns:
    The value; None if the target does not hold within the limits.
  """
  # On logarithmic scales epsilon is close to a straight line.
  low, high = (math.log(limit) for limit in limits)

  @functools.cache
  def gap(log_value: float) -> float:
    found = epsilon(math.exp(log_value))
    return math.log(min(max(found, 1e-300), 1e300) / target)

  here = min(max(math.log(start), low), high)
  reach = math.log(step)
  inside = gap(here) <= 0
  while True:
    there = max(here - reach, low) if inside else min(here + reach, high)
    if there == here:
      return math.exp(here) if inside else None
    if (gap(there) <= 0) != inside:
      break
    here, reach = there, 2 * reach
  below, above = sorted((here, there))
  root = optimize.brentq(gap, below, above, xtol=tolerance, rtol=1e-12)
  while gap(root) > 0:
    root = min(root + tolerance, above)
  return math.exp(root)


def _smallest_integer(holds: Callable[[int], bool], low: int, high: int) -> int:
  """Smallest integer above `low` that holds, if `high` does and all above."""
  while high - low > 1:
    middle = (low + high) // 2
    if holds(middle):
      high = middle
    else:
      low = middle
  return high


def _round_up(value: float) -> float:
  """Rounds a positive number up to a few digits."""
  scale = 10.0 ** (DIGITS - 1 - math.floor(math.log10(value)))
  return max(math.ceil(value * scale) / scale, value)
