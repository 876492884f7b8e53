"""How much noise, how many users, or how large a cohort for a target epsilon.

The target holds for the result: it is the epsilon of the whole account, with
the cost of the noise's arithmetic where that is known.

A larger value of the quantity that is solved for costs less privacy. Every
search is over integers, by `scipy.optimize.brentq`, in a bracket around the
result of a quicker accountant.
"""

import bisect
from collections.abc import Callable, Iterator, Mapping
import dataclasses
import functools
import math
from typing import Any

from scipy import optimize

from tff_fedemb import checks
from tff_fedemb import errors
from tff_fedemb.accounting import arithmetic
from tff_fedemb.accounting import epsilon as epsilon_lib
from tff_fedemb.accounting import report as report_lib
from tff_fedemb.mechanisms import toeplitz
from tff_fedemb.participation import participation as participation_lib
from tff_fedemb.planning import planning

SOLVE_FOR = ("noise_multiplier", "num_users", "users_per_round")

# A larger epsilon protects nobody.
MAX_TARGET_EPSILON = 100.0

# The noise multiplier is rounded up to so many digits.
DIGITS = 5

_NOISE_UNITS = 10**8
_SMALLEST_NOISE = 1e-3

# Least and largest factors from one value to the next in search of a bracket.
# PLD takes minutes with far less noise.
_LEAST_STEP = 1.003
_LARGEST_STEP = 8.0
_LARGEST_SLOW_STEP = 2.0
_OF_DRAWS = ("monte_carlo", "allocation")
_SLOW = ("pld",) + _OF_DRAWS
# Slow accountants may find a value that is too large by this share. For the
# others, an interval of a few `_TOLERANCE` is searched integer by integer.
_SLOW_TOLERANCE = 1e-3
_TOLERANCE = 1e-5
# Integers: between them, the divergence of sampling takes several times longer.
_FEW_ORDERS = (2, 3, 4, 6, 8, 11, 16, 24, 32, 48, 63, 128, 256, 512)
# PLD's grid for a search, as a share of epsilon, and its limits: the grid of an
# account, and the coarsest one. A solution on a coarser grid holds on a finer
# one, and is at most a hundredth too large.
_SHARE_OF_EPSILON = 1e-3
_GRIDS = (1e-4, 1e-3)

_ASSUMED = {
  "noise_multiplier": f"Rounded up to {DIGITS} digits.",
  "num_users": (
    "The users of a round and the noise stay the same; delta too, which is to"
    " be below 1 / num_users."
  ),
  "users_per_round": (
    "The noise multiplier grows with the users of a round, so that the noise on"
    " the mean stays the same; the cohort is one of whole virtual clients."
  ),
}


def assumptions(plan: planning.Plan, solve_for: str) -> Iterator[str]:
  """Yields what a search held fixed, and how exact its result is.

  Args:
    plan: The plan with the value that was found.
    solve_for: As in `calibrate`.

  Yields:
    Sentences for the reader of the result, each with its full stop.
  """
  yield _ASSUMED[solve_for]
  claim = plan.participation
  if solve_for != "noise_multiplier" and not claim.is_sampled:
    if "min_separation" in claim.set_by_users:
      yield (
        "Users take part in whole passes: min_separation is num_users / "
        "users_per_round, rounded up."
      )
    else:
      yield (
        "The server enforces the same min_separation, or num_users /"
        " users_per_round, rounded up, if that is less."
      )
    if isinstance(plan.strategy, toeplitz.ToeplitzStrategy):
      yield (
        "The strategy is optimised anew for every schedule; a smaller value "
        "may do in between, as the cost of such strategies is not monotone."
      )
  if plan.accountants[0] in _SLOW:
    name = report_lib.ACCOUNTANT_NAMES[plan.accountants[0]]
    yield (
      f"The smallest value to {_SLOW_TOLERANCE:.1%}, as {name} takes seconds."
    )
  if plan.accountants == ("monte_carlo",):
    yield (
      "Its estimates hold for all noise multipliers that could have been found"
      " together, so that the choice costs nothing more."
    )


def by_tightest(plan: planning.Plan, target_epsilon: float) -> planning.Plan:
  """Returns the plan with one accountant, usually the one that leads.

  A target has to hold by one accountant. The last of a plan's accountants is
  the most expensive one and as a rule the tightest.

  Args:
    plan: The plan.
    target_epsilon: As in `calibrate`; above `epsilon.PLD_EPSILON_LIMIT` PLD is
      not chosen.

  Returns:
    The plan with this accountant alone.

  Raises:
    errors.FieldError: If PLD is the plan's only accountant and is not chosen.
  """
  names = plan.accountants
  if "pld" in names and target_epsilon > epsilon_lib.PLD_EPSILON_LIMIT:
    names = tuple(name for name in names if name != "pld")
  return dataclasses.replace(plan, accountants=names[-1:])


def calibrate(
  plan: planning.Plan,
  solve_for: str,
  target_epsilon: float,
  *,
  is_quick: bool = False,
) -> float:
  """Returns the smallest value of a quantity for which a target holds.

  Privacy:
    As `planning.Plan`, with that value.

  Args:
    plan: The plan, with one accountant; its value of the quantity is the first
      guess. Without sampling, users take part in whole passes if the number of
      users or the cohort is solved for.
    solve_for: 'noise_multiplier'; 'num_users' at the plan's cohort and noise;
      or 'users_per_round', in whole virtual clients, at the plan's ratio of
      noise to cohort, so that the noise on the mean stays what it is.
    target_epsilon: In (0, `MAX_TARGET_EPSILON`]; by PLD at most
      `epsilon.PLD_EPSILON_LIMIT`.
    is_quick: Whether PLD's coarse grid is enough, on which the value is at most
      a hundredth larger.

  Returns:
    An integer, or a noise multiplier of `DIGITS` digits. By PLD, Monte Carlo
    and the bracket of random allocation it may be larger than the smallest
    value by about a thousandth.

  Raises:
    errors.FieldError: If a value is out of its range, the plan has several
      accountants or no noise to scale, the participation does not allow to
      solve for the quantity, or the target is out of reach.
  """
  is_noise = solve_for == "noise_multiplier"
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
  if plan.accountants == ("monte_carlo",) and not is_noise:
    raise errors.FieldError(
      "solve_for",
      f"be noise_multiplier with participation {plan.participation.name}, whose"
      " rounds of a user change with the users",
      solve_for,
    )
  if not plan.noise_multiplier and not is_noise:
    raise errors.FieldError(
      "noise_multiplier", f"be positive to solve for {solve_for}", 0
    )
  (accountant,) = plan.accountants
  *quicker, (_, last_options) = _list_stages(plan, target_epsilon, is_quick)
  guess = None
  for each, options in quicker:
    search = _Search(each, solve_for, target_epsilon, options)
    guess = search.find(guess, is_exact=False)
  search = _Search(plan, solve_for, target_epsilon, last_options)
  found = search.find(guess, is_exact=accountant not in _SLOW)
  _, last = search.limits
  if found > last:
    largest = search.value(last)
    raise errors.FieldError(
      "target_epsilon",
      f"be at least {search.epsilon(largest):.4g}, what {accountant} gives at"
      f" {solve_for} = {largest:,g}, the largest that is tried",
      f"{target_epsilon:g}",
    )
  return search.value(found)


def _list_stages(
  plan: planning.Plan,
  target_epsilon: float,
  is_quick: bool,
) -> list[tuple[planning.Plan, dict[str, Any]]]:
  """Plans to search one after another, the quickest first.

  Each has options of its accountant; the last one is the plan itself. The
  result of each is the first guess of the next, so that a slow accountant is
  asked only a few times.
  """
  if plan.accountants[0] in _OF_DRAWS:
    # Noise that is enough if everybody knows who takes part when.
    known = dataclasses.replace(
      plan,
      participation=plan.participation.with_known_schedule(),
      accountants=("gaussian",),
    )
    return [(known, {}), (plan, {})]
  if plan.accountants == ("rdp",):
    return [(plan, {"orders": _FEW_ORDERS}), (plan, {})]
  if plan.accountants == ("pld",):
    low, high = _GRIDS
    interval = min(max(_SHARE_OF_EPSILON * target_epsilon, low), high)
    by_rdp = dataclasses.replace(plan, accountants=("rdp",))
    stages: list[tuple[planning.Plan, dict[str, Any]]] = [
      (by_rdp, {"orders": _FEW_ORDERS}),
      (plan, {"value_discretization_interval": interval}),
    ]
    if not is_quick:
      stages.append((plan, {}))
    return stages
  return [(plan, {})]


@dataclasses.dataclass(frozen=True)
class _Search:
  """The search for one plan and target, by one accountant.

  Attributes:
    plan: The plan, with one accountant.
    solve_for: The quantity, as in `calibrate`.
    target: The largest epsilon allowed.
    options: Options of the accountant; with any, the cost of the noise's
      arithmetic is left out.
  """

  plan: planning.Plan
  solve_for: str
  target: float
  options: Mapping[str, Any]

  @functools.cached_property
  def limits(self) -> tuple[int, int]:
    """First and last of the integers that are searched; see `value`.

    They keep the noise multiplier in the range that can be accounted for, and
    the cohort within the population.
    """
    low = checks.MIN_NOISE_MULTIPLIER
    high = checks.MAX_NOISE_MULTIPLIER
    if self.solve_for == "noise_multiplier":
      return int(_SMALLEST_NOISE * _NOISE_UNITS), int(high * _NOISE_UNITS)
    claim = self.plan.participation
    users = claim.users_per_round
    # Each round draws from one of so many blocks of users. Bins are none: they
    # follow from the cohort.
    blocks = (claim.min_separation or 1) if claim.field_of_bands else 1
    # Banded noise needs passes of at least as many rounds as it has bands.
    shorter = self._bands_of_passes - 1
    if self.solve_for == "num_users":
      first = max(math.ceil(users) * blocks, math.floor(users * shorter) + 1)
      if claim.is_sampled:
        return first, participation_lib.MAX_NUM_USERS
      # With so many, nobody takes part twice: a longer pass changes nothing.
      enough = math.floor((self.plan.rounds - 1) * users) + 1
      return first, max(enough, first)
    # The noise is in proportion to the virtual clients.
    users_per_client = claim.users_per_client
    per_noise = claim.clients_per_round / self.plan.noise_multiplier
    first = max(math.ceil(low * per_noise), 1)
    most = claim.num_slots // (users_per_client * blocks)
    if shorter:
      too_many = math.ceil(claim.num_slots / (users_per_client * shorter))
      most = min(most, too_many - 1)
    return first, min(math.floor(high * per_noise), most)

  @property
  def _bands_of_passes(self) -> int:
    """Least rounds of a pass: the bands of the noise; 1 for other noise."""
    strategy = self.plan.mechanism.strategy_class
    is_banded = strategy is not None and strategy.is_banded
    if not is_banded or self.plan.participation.is_sampled:
      return 1
    return self.plan.size or 1

  def value(self, number: int) -> float:
    """Returns the value that an integer stands for.

    Noise: so many units of 1e-8, rounded up to `DIGITS` digits. Cohort: so many
    virtual clients. Users: their number.
    """
    if self.solve_for == "noise_multiplier":
      last = 10 ** (len(str(number)) - DIGITS)
      return math.ceil(number / last) * last / _NOISE_UNITS
    if self.solve_for == "users_per_round":
      return number * self.plan.participation.users_per_client
    return number

  def epsilon(self, value: float) -> float:
    """Returns epsilon at a value of the quantity, by the plan's accountant."""
    account = self.plan.with_value(self.solve_for, value).account
    if not self.options:
      return arithmetic.whole_epsilon(account).epsilon
    epsilons = epsilon_lib.epsilon_by_accountant(account, **self.options)
    (epsilon,) = epsilons.values()
    return epsilon

  def find(self, guess: int | None, *, is_exact: bool) -> int:
    """Returns the smallest integer at which the target holds; last + 1 if none.

    Args:
      guess: Where to start; None for the plan's own value.
      is_exact: Whether it must be the smallest; else it may be a little larger.
    """
    first, most = self.limits
    claim = self.plan.participation
    is_anew = claim.is_sampled and not claim.is_drawn_once
    if self.solve_for != "users_per_round" or is_anew:
      own = {
        "noise_multiplier": round(self.plan.noise_multiplier * _NOISE_UNITS),
        "num_users": claim.num_slots,
        "users_per_round": claim.clients_per_round,
      }
      guess = guess or own[self.solve_for]
      return self._find_between(first, most, guess, is_exact)

    # In passes, more users per round cost less only if a user's participations
    # remain as many.
    while first <= most:
      end = bisect.bisect_right(
        range(most + 1),
        self._participations(first),
        lo=first,
        key=self._participations,
      )
      found = self._find_between(first, end - 1, end - 1, is_exact)
      if found < end:
        return found
      first = end
    return first

  def _find_between(
    self,
    low: int,
    high: int,
    guess: int,
    is_exact: bool,
  ) -> int:
    """As `find`, in a range where all integers above the smallest hold too."""
    # Several integers stand for one value, which is accounted for once.
    excess_of_value = functools.cache(self._excess_of_value)

    def excess(number: int) -> float:
      return excess_of_value(self.value(number))

    is_slow = self.plan.accountants[0] in _SLOW
    largest_step = _LARGEST_SLOW_STEP if is_slow else _LARGEST_STEP
    guess = min(max(guess, low), high)
    lower, upper = _bracket(excess, guess, (low, high), largest_step)
    if excess(upper) > 0:
      return high + 1
    if excess(lower) <= 0:
      return lower
    return _find_in_bracket(excess, lower, upper, is_exact)

  def _participations(self, clients: int) -> int:
    """Largest number of rounds of a user, with so many clients in each."""
    plan = self.plan.with_value(self.solve_for, self.value(clients))
    return plan.participation.participations(plan.rounds)

  def _excess_of_value(self, value: float) -> float:
    """Logarithm of epsilon over the target: a nearly straight line.

    It is cut to that of ratios in [1e-6, 1e6], so that an infinite epsilon is a
    number for the search.
    """
    ratio = self.epsilon(value) / self.target
    return math.log(min(max(ratio, 1e-6), 1e6))


def _bracket(
  excess: Callable[[int], float],
  guess: int,
  limits: tuple[int, int],
  largest_step: float,
) -> tuple[int, int]:
  """Returns integers below and above the one at which the excess becomes 0.

  Steps grow with the excess: if epsilon is twice the target, the next number is
  about twice as large, but never more than `largest_step` times as large. If
  the excess has one sign within all limits, both integers are on one side of
  it.
  """

  def step(number: int) -> float:
    """The factor to the next integer to try."""
    factor = math.exp(abs(excess(number)))
    return min(max(factor, _LEAST_STEP), largest_step)

  low, high = limits
  lower = guess
  upper = guess
  while excess(upper) > 0 and upper < high:
    lower = upper
    upper = min(math.ceil(upper * step(upper)), high)
  while excess(lower) <= 0 and lower > low:
    upper = lower
    lower = max(math.floor(lower / step(lower)), low)
  return lower, upper


def _find_in_bracket(
  excess: Callable[[int], float],
  lower: int,
  upper: int,
  is_exact: bool,
) -> int:
  """Smallest integer at which the target holds, between two integers.

  Args:
    excess: See `_Search`; positive where the target does not hold.
    lower: An integer at which it does not hold.
    upper: An integer at which it holds.
    is_exact: As in `_Search.find`.
  """
  tolerance = _TOLERANCE if is_exact else _SLOW_TOLERANCE
  log_found = optimize.brentq(
    lambda log_number: excess(round(math.exp(log_number))),
    math.log(lower),
    math.log(upper),
    xtol=tolerance,
  )
  while excess(round(math.exp(log_found))) > 0:
    log_found += tolerance
  if not is_exact:
    return round(math.exp(log_found))  # The integer that was accounted for.
  first = math.exp(log_found - 2 * tolerance)
  last = math.exp(log_found + 2 * tolerance)
  return bisect.bisect_left(
    range(min(math.ceil(last), upper)),
    True,
    lo=max(math.floor(first), lower),
    key=lambda number: excess(number) <= 0,
  )
