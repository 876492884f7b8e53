"""How much noise, how many users, or how large a cohort for a target epsilon.

Both readings of the sensitivity are solved for; the user-level one leads. The
target holds for what is found: it is the whole account's epsilon.

More of what is searched for costs less privacy. Every search is one over
integers, by bisection, on upper bounds that are quick to compute (few orders of
RDP, a coarse grid of PLD) until it is close.
"""

import bisect
from collections.abc import Callable, Sequence
import dataclasses
import functools
import math
from typing import Any

import dp_accounting

from tff_fedemb import checks
from tff_fedemb import errors
from tff_fedemb.privacy import epsilon as epsilon_lib
from tff_fedemb.privacy import planning
from tff_fedemb.privacy import report as report_lib
from tff_fedemb.strategies import toeplitz

SOLVE_FOR = ("noise_multiplier", "num_users", "users_per_round")

# Above this epsilon nothing is protected.
MAX_TARGET_EPSILON = 100.0

# To which the noise multiplier is rounded up.
DIGITS = 5

_NOISE_UNITS = 10**8
_SMALLEST_NOISE = 1e-3
_MAX_NUM_USERS = 10**12

# Integers: the divergence of sampling costs several times more in between, and
# more still at high orders.
_LOW_ORDERS = (2, 3, 4, 6, 8, 11, 16, 24, 32, 48, 63)
_HIGH_ORDERS = (128, 256, 512, 1024)
# Orders at each side of the best one.
_REACH = 3
# Grids, and the factors by which to look around.
_PLD_INTERVALS = ((1e-3, 1.1), (1e-4, 1.005))
PLD_TOLERANCE = 1e-3


@dataclasses.dataclass(frozen=True)
class Solution:
  """The answer under one assumption about the sensitivity.

  Privacy:
    Unit: `protects`.
    Neighbouring relation, DpEvent: those of `plan`.
    Sensitivity: `sensitivity_in_clip_norms` clip norms.

  Attributes:
    name: 'user-level' or 'authors'.
    protects: The protected unit, in words.
    sensitivity_in_clip_norms: Assumed change of a round's sum.
    value: The smallest value of what was solved for.
    epsilon: What it costs; at most the target.
    plan: The run with that value.
  """

  name: str
  protects: str
  sensitivity_in_clip_norms: float
  value: float
  epsilon: float
  plan: planning.Plan


@dataclasses.dataclass(frozen=True)
class Calibration:
  """The smallest value for which a target epsilon holds.

  Privacy:
    As `Solution`, for each reading.

  Attributes:
    solve_for: What was searched for; one of `SOLVE_FOR`.
    target_epsilon: At most this is spent.
    user_level: The reading that the participation supports; it leads.
    authors: The reading in which a user moves a sum by one clip norm.
    report: The whole account of the user-level solution.
    assumptions: What was held fixed, and how exact the search is.
  """

  solve_for: str
  target_epsilon: float
  user_level: Solution
  authors: Solution
  report: report_lib.PrivacyReport
  assumptions: tuple[str, ...]

  def to_json(self) -> dict[str, Any]:
    """Returns a dictionary that JSON can hold."""
    values = {**vars(self), "report": self.report.to_json()}
    for name in ("user_level", "authors"):
      solution = values[name]
      values[name] = {**vars(solution), "plan": solution.plan.to_json()}
    return report_lib.json_safe(values)


def calibrate(
  plan: planning.Plan, *, target_epsilon: float, solve_for: str
) -> Calibration:
  """Returns the smallest value of a quantity for which a target holds.

  Privacy:
    As `Solution`, for each reading.

  Args:
    plan: All but the quantity that is solved for, of which it has a first
      guess; asks one accountant. Without sampling, users take part in whole
      passes where the number of users or the cohort changes.
    target_epsilon: In (0, `MAX_TARGET_EPSILON`]; by PLD at most
      `epsilon.PLD_EPSILON_LIMIT`.
    solve_for: 'noise_multiplier'; 'num_users' at the plan's cohort and noise;
      or 'users_per_round', in whole virtual clients, at the plan's ratio of
      noise to cohort, so that the noise on the mean stays what it is.

  Raises:
    errors.FieldError: If a value is out of its range, or the target out of
      reach.
  """
  checks.check_choice("solve_for", solve_for, SOLVE_FOR)
  if len(plan.accountants) != 1:
    raise errors.FieldError(
      "accountants", "be one for a target to hold by", plan.accountants
    )
  limit = MAX_TARGET_EPSILON
  if plan.accountants == ("pld",):
    limit = epsilon_lib.PLD_EPSILON_LIMIT
  target_epsilon = checks.check_number(
    "target_epsilon", target_epsilon, above=0, maximum=limit
  )
  if solve_for != "noise_multiplier" and plan.participation.is_mixture:
    raise errors.FieldError(
      "solve_for",
      f"be noise_multiplier with participation {plan.participation.name}, whose"
      " rounds of a user change with the users",
      solve_for,
    )
  if solve_for != "noise_multiplier" and not plan.noise_multiplier:
    raise errors.FieldError(
      "noise_multiplier", f"be positive to solve for {solve_for}", 0
    )

  def solve(name: str, protects: str, sensitivity: float) -> Solution:
    value = _Search(plan, solve_for, target_epsilon, sensitivity).solve()
    solved = plan.with_value(solve_for, value)
    (epsilon,) = solved.epsilons(sensitivity).values()
    return Solution(name, protects, sensitivity, value, epsilon, solved)

  user_level, authors = epsilon_lib.in_both_readings(plan.participation, solve)
  solved = user_level.plan
  report = report_lib.create_report(
    [(solved.event, solved.rounds)],
    solved.participation,
    solved.delta,
    accountants=solved.accountants,
  )
  return Calibration(
    solve_for=solve_for,
    target_epsilon=target_epsilon,
    user_level=user_level,
    authors=authors,
    report=report,
    assumptions=_assumptions(solved, solve_for),
  )


def _assumptions(plan: planning.Plan, solve_for: str) -> tuple[str, ...]:
  words = {
    "noise_multiplier": f"Rounded up to {DIGITS} digits.",
    "num_users": (
      "The users of a round and the noise stay the same; delta too, which "
      "is to be below 1 / num_users."
    ),
    "users_per_round": (
      "The noise multiplier grows with the users of a round, so that the "
      "noise on the mean stays the same; the cohort is one of whole "
      "virtual clients."
    ),
  }
  assumptions = [words[solve_for]]
  claim = plan.participation
  if solve_for != "noise_multiplier" and not claim.is_sampled:
    assumptions.append(
      "Users take part in whole passes: min_separation is num_users / "
      "users_per_round, rounded up."
    )
    if isinstance(plan.strategy, toeplitz.ToeplitzStrategy):
      assumptions.append(
        "The strategy is optimised anew for every schedule; a smaller value "
        "may do in between, as the cost of such strategies is not monotone."
      )
  if (
    solve_for == "users_per_round"
    and claim.neighboring_relation
    is dp_accounting.NeighboringRelation.REPLACE_ONE
    and claim.users_per_round == claim.num_users
  ):
    assumptions.append(
      "All users are in every round: the bound for drawing nearly all of "
      "them exceeds the cost of all, so a smaller cohort might do that "
      "cannot be shown to."
    )
  if plan.accountants in (("pld",), ("monte_carlo",)):
    name = report_lib.ACCOUNTANT_NAMES[plan.accountants[0]]
    assumptions.append(
      f"The smallest value to {PLD_TOLERANCE:.1%}, as {name} takes seconds."
    )
  if plan.accountants == ("monte_carlo",):
    assumptions.append(
      "Its estimates hold for all noise multipliers that could have been found"
      " together, so that the choice costs nothing more."
    )
  return tuple(assumptions)


@dataclasses.dataclass(frozen=True)
class _Search:
  """The search for one plan, target and sensitivity, by one accountant."""

  plan: planning.Plan
  solve_for: str
  target: float
  sensitivity: float

  @functools.cached_property
  def limits(self) -> tuple[int, int]:
    """Of the integers that are searched; see `_value`."""
    claim = self.plan.participation
    # Of so many blocks of users one is drawn from.
    blocks = (claim.min_separation or 1) if claim.is_sampled else 1
    if self.solve_for == "num_users":
      if claim.is_sampled:
        return math.ceil(claim.users_per_round) * blocks, _MAX_NUM_USERS
      # Nobody takes part twice: a longer pass changes nothing.
      return 1, self.plan.rounds
    low, high = checks.MIN_NOISE_MULTIPLIER, checks.MAX_NOISE_MULTIPLIER
    if self.solve_for == "noise_multiplier":
      return int(_SMALLEST_NOISE * _NOISE_UNITS), int(high * _NOISE_UNITS)
    # Noise is in proportion to the virtual clients.
    clients = claim.users_per_round / claim.users_per_client
    per_noise = clients / self.plan.noise_multiplier
    return (
      max(math.ceil(low * per_noise), 1),
      min(
        math.floor(high * per_noise),
        claim.num_users // (claim.users_per_client * blocks),
      ),
    )

  def _value(self, number: int) -> float:
    """What an integer stands for.

    Units of noise, virtual clients, users if they are sampled, and otherwise
    rounds of a pass over the fewest users for which it takes so many.
    """
    claim = self.plan.participation
    if self.solve_for == "noise_multiplier":
      return number / _NOISE_UNITS
    if self.solve_for == "users_per_round":
      return number * claim.users_per_client
    if claim.is_sampled:
      return number
    users = claim.users_per_round
    return max(math.floor((number - 1) * users) + 1, math.ceil(users))

  def solve(self) -> float:
    """Returns the smallest value, an integer except for the noise."""
    low, high = self.limits
    (accountant,) = self.plan.accountants
    is_noise = self.solve_for == "noise_multiplier"
    claim = self.plan.participation
    if self.solve_for == "users_per_round" and not claim.is_sampled:
      found = self._solve_cohort_in_passes()
    elif accountant == "monte_carlo":
      found = self._solve_by_monte_carlo()
    elif accountant == "pld":
      found = self._solve_by_pld()
    elif accountant == "rdp" and (is_noise or claim.is_sampled):
      found = self._solve_by_rdp()
    else:
      found = self._smallest(self._epsilon, low, high)
    if found > high:
      raise errors.FieldError(
        "target_epsilon",
        f"be at least {self._epsilon(high):.4g}, what {accountant} gives"
        f" at {self.solve_for} = {self._value(high):,g}, the largest that is"
        " tried",
        f"{self.target:g}",
      )
    if is_noise:
      last = 10 ** (len(str(found)) - DIGITS)
      found = math.ceil(found / last) * last
    return self._value(found)

  def _smallest(
    self,
    epsilon: Callable[[int], float],
    low: int,
    high: int,
    tolerance: float = 0.0,
  ) -> int:
    """Smallest integer of a range that holds, if all above do; else the next.

    Args:
      epsilon: Of an integer.
      low: First of the range.
      high: Last of the range.
      tolerance: Relative, by which the result may be too large.
    """
    low, high = low - 1, high + 1
    while high - low > max(tolerance * high, 1):
      middle = max(math.isqrt(low * high), low + 1)
      if epsilon(middle) <= self.target:
        high = middle
      else:
        low = middle
    return high

  def _solve_cohort_in_passes(self) -> int:
    def participations(clients: int) -> int:
      return self._at(clients).participation.participations(self.plan.rounds)

    first, most = self.limits
    while first <= most:
      # With equally many participations more users a round cost less.
      end = bisect.bisect_right(
        range(most + 1), participations(first), lo=first, key=participations
      )
      if self._epsilon(end - 1) <= self.target:
        return self._smallest(self._epsilon, first, end - 1)
      first = end
    return first

  def _solve_by_rdp(self) -> int:
    """By a few orders at a time, until the others say no less would do."""
    low, high = self.limits
    orders: tuple[float, ...] = _LOW_ORDERS
    # Without any divergence, order a has an epsilon of log(1 / delta) / (a - 1)
    # or somewhat less.
    if self.target < -3 * math.log(self.plan.delta) / (orders[-1] - 1):
      orders += _HIGH_ORDERS
    while True:

      def bound(number: int, orders: Sequence[float] = orders) -> float:
        return self._rdp(orders, number)[0]

      found = self._smallest(bound, low, high)
      if found == low:
        return found
      high = found - 1
      epsilon, best = self._rdp(epsilon_lib.RDP_ORDERS, high)
      if epsilon > self.target:
        return found
      position = epsilon_lib.RDP_ORDERS.index(best)
      orders = epsilon_lib.RDP_ORDERS[
        max(position - _REACH, 0) : position + _REACH + 1
      ]

  def _rdp(self, orders: Sequence[float], number: int) -> tuple[float, float]:
    """An upper bound of RDP's epsilon, and the best of the orders."""
    create = functools.partial(dp_accounting.rdp.RdpAccountant, orders)
    accountant = self._composed(number, create)
    events = self._at(number).composed_events(self.sensitivity)
    return epsilon_lib.rdp_epsilon(
      accountant.rdp,
      orders,
      self.plan.delta,
      sampled_rounds=epsilon_lib.sampled_rounds(events),
    )

  def _solve_by_pld(self) -> int:
    """On a coarse grid first, around what RDP has found."""
    low, high = self.limits
    found = min(self._solve_by_rdp(), high)
    for interval, step in _PLD_INTERVALS:
      create = functools.partial(
        dp_accounting.pld.PLDAccountant, value_discretization_interval=interval
      )

      def pld(number: int, create: Any = create) -> float:
        return self._composed(number, create).get_epsilon(self.plan.delta)

      lower = upper = found
      while pld(upper) > self.target:
        if upper == high:
          return high + 1
        upper = min(math.ceil(upper * step), high)
      while lower > low and (lower == upper or pld(lower) <= self.target):
        lower = max(math.floor(lower / step), low)
      found = min(self._smallest(pld, lower, upper, PLD_TOLERANCE), upper)
    return found

  def _solve_by_monte_carlo(self) -> int:
    """Below the noise that does if everybody knows who takes part when."""
    plan = dataclasses.replace(
      self.plan,
      participation=self.plan.participation.with_known_schedule(),
      accountants=("gaussian",),
    )
    known = dataclasses.replace(self, plan=plan).solve()
    high = math.ceil(known * _NOISE_UNITS)
    return self._smallest(self._epsilon, self.limits[0], high, PLD_TOLERANCE)

  def _composed(self, number: int, create: Callable[..., Any]) -> Any:
    plan = self._at(number)
    accountant = create(
      neighboring_relation=plan.participation.neighboring_relation
    )
    for event, count in plan.composed_events(self.sensitivity):
      accountant.compose(event, count)
    return accountant

  def _epsilon(self, number: int) -> float:
    (epsilon,) = self._at(number).epsilons(self.sensitivity).values()
    return epsilon

  def _at(self, number: int) -> planning.Plan:
    return self.plan.with_value(self.solve_for, self._value(number))
