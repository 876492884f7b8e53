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

import dp_accounting
import numpy as np
from scipy import optimize

from tff_fedemb import checks
from tff_fedemb import errors
from tff_fedemb.privacy import epsilon as epsilon_lib
from tff_fedemb.privacy import planning

MAX_NUM_USERS = 10**12
_NOISE_MULTIPLIERS = (1e-3, checks.MAX_NOISE_MULTIPLIER)
DIGITS = 5

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
  num_users = plan.participation.num_users
  users = plan.participation.users_per_round
  noise_multiplier = plan.noise_multiplier
  if solve_for == "users_per_round":
    noise_multiplier *= value / users
  return dataclasses.replace(
    plan,
    noise_multiplier=noise_multiplier,
    participation=plan.participation.resized(
      num_users=int(value) if solve_for == "num_users" else num_users,
      users_per_round=value if solve_for == "users_per_round" else users,
    ),
  )


class Search:
  """Finds the smallest value for one plan, target and sensitivity."""

  def __init__(self, plan: planning.Plan, target: float, sensitivity: float):
    self._plan = plan
    self._target = target
    self._sensitivity = sensitivity
    # Without any divergence, order a has an epsilon of log(1 / delta) / (a - 1)
    # or somewhat less.
    floor = -math.log(plan.delta) / (_LOW_ORDERS[-1] - 1)
    self._few_orders: tuple[int, ...] = _LOW_ORDERS
    if target < 3 * floor:
      self._few_orders += _HIGH_ORDERS

  def solve(self, solve_for: str) -> float:
    """Returns the smallest value, an integer except for the noise."""
    if solve_for == "noise_multiplier":
      found = self._continuous(
        lambda value: with_value(self._plan, solve_for, value),
        start=1.0,
        limits=_NOISE_MULTIPLIERS,
      )
      if found is None:
        raise self._unreachable("noise_multiplier", _NOISE_MULTIPLIERS[1])
      return _round_up(found)
    if self._plan.participation.is_sampled:
      return self._sampled(solve_for)
    if solve_for == "num_users":
      return self._users_in_passes()
    return self._cohort_in_passes()

  def _unreachable(self, solve_for: str, limit: float) -> errors.FieldError:
    largest = with_value(self._plan, solve_for, limit)
    (name,) = self._plan.accountants
    return errors.FieldError(
      "target_epsilon",
      f"be at least {self._epsilon(largest):.4g}, what {name} gives at"
      f" {solve_for} = {limit:,g}, the largest that is tried",
      f"{self._target:g}",
    )

  def _epsilon(self, plan: planning.Plan) -> float:
    (name,) = plan.accountants
    return epsilon_lib.epsilon_of(
      plan.composed_events(self._sensitivity),
      plan.delta,
      accountant=name,
      neighboring_relation=plan.participation.neighboring_relation,
    )

  def _sampled(self, solve_for: str) -> int:
    participation = self._plan.participation
    # Number of users, or of virtual clients in a round.
    unit = 1
    low = math.ceil(participation.users_per_round)
    high = MAX_NUM_USERS
    start: float = participation.num_users
    if solve_for == "users_per_round":
      unit = participation.users_per_client
      low, high = self._cohorts()
      start = participation.users_per_round / unit

    def change(value: float) -> planning.Plan:
      # A fixed size has whole users; what lies between is of no use.
      return with_value(self._plan, solve_for, unit * round(value))

    found = self._continuous(change, start=start, limits=(low, high))
    if found is None:
      raise self._unreachable(solve_for, unit * high)
    if self._plan.accountants == ("pld",):
      return unit * min(math.ceil(found), high)
    holds = self._holds_near(change(found))
    slack = 1 + 10 * _TOLERANCE
    return unit * _smallest_integer(
      lambda number: holds(change(number)),
      max(math.floor(found / slack) - 2, low - 1),
      min(math.ceil(found * slack) + 2, high),
    )

  def _users_in_passes(self) -> int:
    users = self._plan.participation.users_per_round

    def change(separation: int) -> planning.Plan:
      number = max(math.floor((separation - 1) * users) + 1, math.ceil(users))
      return with_value(self._plan, "num_users", number)

    holds = functools.cache(
      lambda separation: self._holds_near()(change(separation))
    )
    # Nobody takes part twice: a longer pass changes nothing.
    rounds = self._plan.rounds
    if not holds(rounds):
      raise self._unreachable(
        "num_users", change(rounds).participation.num_users
      )
    separation = _smallest_integer(holds, 0, rounds)
    return change(separation).participation.num_users

  def _cohort_in_passes(self) -> int:
    unit = self._plan.participation.users_per_client

    def change(clients: int) -> planning.Plan:
      return with_value(self._plan, "users_per_round", unit * clients)

    holds = self._holds_near()
    for first, last in self._equal_participations():
      # With equally many participations more users a round cost less.
      if holds(change(last)):
        return unit * _smallest_integer(
          lambda clients: holds(change(clients)), first - 1, last
        )
    raise self._unreachable("users_per_round", unit * self._cohorts()[1])

  def _cohorts(self) -> tuple[int, int]:
    """The fewest and most virtual clients whose noise can be accounted for."""
    participation = self._plan.participation
    unit = participation.users_per_client
    # The noise multiplier is in proportion to the cohort.
    clients_per_noise = (
      participation.users_per_round / unit / self._plan.noise_multiplier
    )
    low = checks.MIN_NOISE_MULTIPLIER * clients_per_noise
    high = checks.MAX_NOISE_MULTIPLIER * clients_per_noise
    return (
      max(math.ceil(low), 1),
      min(math.floor(high), participation.num_users // unit),
    )

  def _equal_participations(self) -> Iterator[tuple[int, int]]:
    """Yields ranges of virtual clients, smallest first."""
    participation = self._plan.participation
    unit = participation.users_per_client
    first, most = self._cohorts()

    def participations(clients: int) -> int:
      changed = with_value(self._plan, "users_per_round", unit * clients)
      return changed.participation.participations(self._plan.rounds)

    while first <= most:
      now = participations(first)
      last = most
      if participations(most) != now:

        def is_past(clients: int, now: int = now) -> bool:
          return participations(clients) > now

        last = -1 + _smallest_integer(is_past, first, most)
      yield first, last
      first = last + 1

  def _holds_near(
    self, plan: planning.Plan | None = None
  ) -> Callable[[planning.Plan], bool]:
    """Whether the target holds for a plan, told quickly near another one."""
    (name,) = self._plan.accountants
    if plan is None or name != "rdp":
      return lambda changed: self._epsilon(changed) <= self._target
    near = self._orders_near(plan)
    return lambda changed: self._rdp(changed, near)[0] <= self._target

  def _continuous(
    self,
    change: Callable[[float], planning.Plan],
    *,
    start: float,
    limits: tuple[float, float],
  ) -> float | None:
    """The smallest value within limits for which the target holds."""
    (name,) = self._plan.accountants

    def smallest(epsilon, start, *, step, tolerance):
      return _smallest(
        lambda value: epsilon(change(value)),
        self._target,
        start,
        limits=limits,
        step=step,
        tolerance=tolerance,
      )

    if name == "gaussian":
      return smallest(self._epsilon, start, step=2.0, tolerance=_TOLERANCE)
    found = smallest(
      lambda plan: self._rdp(plan, self._few_orders)[0],
      start,
      step=2.0,
      tolerance=_NEAR,
    )
    # Only the largest value can be within reach of more orders alone.
    found = limits[1] if found is None else found
    if name == "pld":
      found = smallest(
        lambda plan: self._pld(plan, _COARSE_PLD_INTERVAL),
        found,
        step=1.1,
        tolerance=PLD_TOLERANCE,
      )
      found = limits[1] if found is None else found
      return smallest(self._epsilon, found, step=1.005, tolerance=PLD_TOLERANCE)
    while True:
      near = self._orders_near(change(found))
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

  def _pld(self, plan: planning.Plan, interval: float) -> float:
    accountant = dp_accounting.pld.PLDAccountant(
      plan.participation.neighboring_relation, interval
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
