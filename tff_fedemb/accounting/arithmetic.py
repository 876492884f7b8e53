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
mean of the ratio and to its variance, which the quarter in `a` covers. Beyond
9.7, the numbers that bits make have gaps of more than 2^-51, and nothing is
known of the ratio: epsilon does not cover that a pair of a run lies there, and
a report warns if `tail_probability` is not small beside delta.
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
# Standard deviations up to which noise has no gaps (`normal_numbers`).
NOISE_REACH = 9.7
# Share of delta that the tail of the noise may take without a warning.
_TAIL_SHARE = 1e-3


def most_moved(account: composition.Account) -> float:
  """Returns by how many standard deviations a user may move a draw of noise.

  With correlated noise, they may move one draw by all that they change over the
  whole run; where sampling amplifies, by what they change in one round that
  they are in, because the draw is noise of that round alone.

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
  size: int = 1,
  reach: float = NOISE_REACH,
) -> float:
  """Bounds the probability that computed noise cannot hide a user in a run.

  A true Gaussian has no end, but computed noise has gaps beyond `reach`. A
  release that falls into a gap without the user tells that the user was there.
  The bound counts as if the user were in all releases, each with the least
  noise of any.

  Numbers are drawn in pairs, which a user may move by m_1, m_2, ..., whose
  squares add up to M^2. The release may be in a gap if the noise of a pair is
  beyond R - m_i, which has probability exp(-(R - m_i)^2 / 2). For m_i below 1 /
  R, this is at most e exp(-R^2 / 2). There are at most (M R)^2 other pairs. The
  bound over m_i^2 is largest at one of the ends 1 / R and M if M is at most R -
  1, so together they have at most the sum of both.

  Args:
    moved: Standard deviations by which a user may move the noise of a release,
      as `most_moved` returns them: M.
    count: Number of releases, at least 0.
    size: How many numbers a release has.
    reach: Standard deviations up to which noise has no gaps: R.

  Returns:
    A probability in [0, 1], by a union bound over releases and pairs.
  """
  if moved > reach - 1.0:
    return min(1.0, float(count))
  few = math.e * (math.ceil(size / 2) + (moved * reach) ** 2)
  tail = few * math.exp(-(reach**2) / 2.0)
  tail += math.exp(-((reach - moved) ** 2) / 2.0)
  return min(1.0, count * tail)


def warnings_of_end(
  moved: float,
  count: int,
  delta: float,
  *,
  size: int = 1,
  reach: float = NOISE_REACH,
) -> Iterator[str]:
  """Yields a warning if computed noise may fail to hide a user.

  Args:
    moved: Standard deviations by which a user may move a draw of noise.
    count: Number of releases.
    delta: Delta of the guarantee, in (0, 1).
    size: How many numbers a release has.
    reach: Standard deviations up to which noise has no gaps.

  Yields:
    At most one sentence, for a report: nothing if `tail_probability` is at most
    a thousandth of delta.
  """
  tail = tail_probability(moved, count, size=size, reach=reach)
  if tail > _TAIL_SHARE * delta:
    yield (
      f"computed noise has gaps beyond {reach:.1f} standard deviations, and"
      f" what is protected may move it by {moved:.3g}: it cannot hide that"
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
