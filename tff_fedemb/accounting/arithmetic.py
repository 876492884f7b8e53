"""Privacy cost of the noise's arithmetic, beyond that of a true Gaussian.

A computed normal number is within 2^-49 standard deviations of the exact one,
so the probability of each grid point is right to a factor 1 +- a with a = 1.25
z sqrt(d) 2^-37. Over T d numbers the log-likelihood ratio between computed and
exact noise exceeds B = T d a^2 + a sqrt(2 T d log(1/p)) with probability at
most p (Hoeffding 1963, "Probability Inequalities for Sums of Bounded Random
Variables"; Azuma 1967). Going from computed to exact noise and back gives
epsilon + 2 B at delta exp(B) delta + p (1 + exp(epsilon + B)), with p so small
that the last term is a millionth of delta.

Beyond 6 standard deviations, where 2 of a billion numbers lie, a number is
within 2^-48: its ratio is off by 2 a. That adds less than 1e-8 of itself to the
mean of the ratio and to its variance, which the quarter in `a` covers.
"""

from collections.abc import Callable, Iterator
import dataclasses
import math

from tff_fedemb.accounting import composition
from tff_fedemb.accounting import epsilon as epsilon_lib

# Error of a number of noise, in standard deviations, at both ends of a step of
# the grid (`mechanisms.secret_noise`), plus a quarter for effects of second
# order. A step is at least 2^-11 clip norms over the square root of the size.
_ERROR_PER_STEP = 1.25 * 2.0 * 2.0**-49 / 2.0**-11
# With less noise than this many steps, the grid is too coarse for the bound.
_SMALLEST_NOISE = 2.0**-8
# Logarithm of the share of delta that a deviation beyond the bound may have.
# Epsilon may grow by the first of the margins that is enough.
_LOG_SHARE = -22.0 * math.log(2.0)
_DELTA_LEFT = 1.0 - 2.0**-20
_MARGINS = (1.0, 10.0, 100.0)
# The largest number of noise in standard deviations: of 74 bits.
NOISE_REACH = math.sqrt(2.0 * 74.0 * math.log(2.0))
# Share of delta that the tail of the noise may take without a warning.
_TAIL_SHARE = 1e-3


def most_moved(account: composition.Account) -> float:
  """Returns by how many standard deviations a user may move a draw of noise.

  The user is taken to move a single number of a round by all that they may. If
  they move many by a little instead, the tail tells them with a probability
  that may be larger, but is below 1e-18 for one standard deviation spread over
  25 million numbers. With correlated noise, they may move one draw by all that
  they change over the whole run; where sampling amplifies, by what they change
  in one round that they are in, because the draw is noise of that round alone.

  Args:
    account: Account of at least one round, all with noise.

  Returns:
    The sensitivity in clip norms, times that of the strategy for correlated
    noise, over the least noise multiplier of a single run of a round; positive.

  Raises:
    ValueError: As `composition.strategy_sensitivity`.
  """
  sensitivity = account.participation.sensitivity_in_clip_norms
  sensitivity *= account.strategy_sensitivity or 1.0
  # Every run of a round had noise of its own.
  return sensitivity / min(each.noise.multiplier for each in account.history)


def tail_probability(
  moved: float,
  count: int,
  *,
  reach: float = NOISE_REACH,
) -> float:
  """Bounds the probability that computed noise cannot hide a user in a run.

  A true Gaussian has no end, but computed noise never goes beyond `reach`. A
  release that needs more noise than that without the user tells that the user
  was there. The bound counts as if the user were in all releases, each with the
  least noise of any.

  Args:
    moved: Standard deviations by which a user may move a draw of noise, as
      `most_moved` returns them.
    count: Number of releases, at least 0.
    reach: Standard deviations at which noise ends.

  Returns:
    A probability in [0, 1], by a union bound over the releases.
  """
  # The probability that noise with the user cannot reach a draw without them.
  tail = 0.5 * math.erfc((reach - moved) / math.sqrt(2.0))
  return min(1.0, count * tail)


def warnings_of_end(
  moved: float,
  count: int,
  delta: float,
  *,
  reach: float = NOISE_REACH,
) -> Iterator[str]:
  """Yields a warning if computed noise may fail to hide a user.

  Args:
    moved: Standard deviations by which a user may move a draw of noise.
    count: Number of releases.
    delta: Delta of the guarantee, in (0, 1).
    reach: Standard deviations at which noise ends.

  Yields:
    At most one sentence, for a report: nothing if `tail_probability` is at most
    a thousandth of delta.
  """
  tail = tail_probability(moved, count, reach=reach)
  if tail > _TAIL_SHARE * delta:
    yield (
      f"computed noise ends at {reach:.1f} standard deviations, and what is"
      f" protected may move a number by {moved:.3g}: the noise cannot hide it"
      f" with a probability of up to {tail:.2g}, which epsilon at delta"
      f" {delta:.2g}, of exact Gaussian noise, does not cover"
    )


def log_ratio_bound(
  num_numbers: float,
  relative_error: float,
  log_failure: float,
) -> float:
  """Bounds how much likelier computed noise makes a run's releases.

  This is B of the module: the mean of the logarithm's martingale, and its
  deviation by Azuma's inequality.

  Args:
    num_numbers: How many numbers of noise the run has: T d.
    relative_error: Largest relative error of a number's probability, below
      1 / 2: a.
    log_failure: Logarithm of the probability that the ratio is larger, below 0:
      log(p).

  Returns:
    The logarithm of the ratio of computed to exact noise, at least 0; under
    exact noise it bounds the inverse ratio as well.
  """
  deviation = math.sqrt(-2.0 * num_numbers * log_failure)
  return num_numbers * relative_error**2 + relative_error * deviation


def known_sum(account: composition.Account) -> composition.RoundSum | None:
  """Returns the sum of a round if a bound on what arithmetic adds is known.

  Args:
    account: The rounds.

  Returns:
    None without a round, without noise in one of them, for correlated noise,
    and where the size of a round's sum is not known.
  """
  noises = account.noises
  is_bounded = all(each.multiplier and not each.strategy for each in noises)
  return account.round_sum if noises and is_bounded else None


@dataclasses.dataclass(frozen=True)
class WholeEpsilon:
  """Cost of rounds by the tightest valid accountant, with arithmetic.

  Attributes:
    epsilon: The whole cost; infinity if a round is not private, or if the grid
      of the noise is too coarse for the bound on its arithmetic.
    accountant: Name of the tightest accountant.
    by_accountant: Epsilon of exactly Gaussian noise, by accountant.
    added: Part of `epsilon` that `add_to_epsilon` added; None where no bound is
      known, for example for correlated noise, which is composed in single
      precision.
  """

  epsilon: float
  accountant: str
  by_accountant: dict[str, float]
  added: float | None


def whole_epsilon(account: composition.Account) -> WholeEpsilon:
  """Returns the cost that a run, its report and its metrics tell.

  Privacy:
    As `composition.composed_events` and `add_to_epsilon`.

  Args:
    account: The rounds, the accountants to ask, and the sum of a round, whose
      size decides what the arithmetic costs.

  Returns:
    Epsilon at the delta of the account, and what it consists of.

  Raises:
    ValueError: As `epsilon.epsilon_by_accountant`.
  """
  by_accountant = epsilon_lib.epsilon_by_accountant(account)
  name, epsilon = epsilon_lib.leading(by_accountant)
  round_sum = known_sum(account)
  if round_sum is None:
    return WholeEpsilon(epsilon, name, by_accountant, None)
  names = (name,) if name in account.accountants else account.accountants

  def epsilon_at(delta: float) -> float:
    """Returns epsilon at a delta, by the accountant that leads."""
    if delta == account.delta:
      return epsilon
    other = dataclasses.replace(account, delta=delta, accountants=names)
    return epsilon_lib.leading(epsilon_lib.epsilon_by_accountant(other))[1]

  whole = add_to_epsilon(
    epsilon_at, account.delta, round_sum=round_sum, runs=account.num_runs
  )
  return WholeEpsilon(whole, name, by_accountant, whole - epsilon)


def add_to_epsilon(
  epsilon_at: Callable[[float], float],
  delta: float,
  *,
  round_sum: composition.RoundSum,
  runs: int,
) -> float:
  """Returns epsilon of the noise as it is computed.

  Privacy:
    Exact noise is replaced by computed noise, and for the neighbour the other
    way around, each at the cost of `log_ratio_bound`. This holds whatever the
    sampling, the participation and the releases of earlier rounds.

  Args:
    epsilon_at: Maps delta to the epsilon of exact noise, and does not grow with
      delta. It is asked at delta and at most once for each of three margins.
    delta: At which epsilon is wanted, in (0, 1).
    round_sum: The sum that had independent noise in every round.
    runs: How often rounds ran in total, at least 1.

  Returns:
    Epsilon, at least that of exact noise; infinity where no bound is known.
  """
  exact = epsilon_at(delta)
  size = round_sum.num_parameters
  steps = round_sum.noise_multiplier * math.sqrt(size)
  relative_error = _ERROR_PER_STEP * steps
  # A count is one number more, with the grid of a sum of one number.
  of_count = _ERROR_PER_STEP * (round_sum.count_noise or 0.0)
  largest = max(relative_error, of_count)
  if steps < _SMALLEST_NOISE or largest > 0.5 or exact == math.inf:
    return math.inf
  relative_error = math.hypot(relative_error, of_count / math.sqrt(size))
  for margin in _MARGINS:
    log_failure = math.log(delta) + _LOG_SHARE - exact - margin
    bound = log_ratio_bound(float(runs) * size, relative_error, log_failure)
    epsilon = epsilon_at(delta * _DELTA_LEFT * math.exp(-bound))
    # The rest of delta has to cover both deviations.
    if epsilon - exact + bound <= margin:
      return epsilon + 2.0 * bound
  return math.inf
