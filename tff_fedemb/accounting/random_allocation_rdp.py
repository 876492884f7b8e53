"""Renyi divergences of random allocation, for what needs RDP: tuning.

A release y is r(y) times as likely with the user as without, where r is the
mean of t independent log-normal numbers, one for each round
(`random_allocation`). The divergences of order a are log E[r^a] / (a - 1) of a
user who is added, and log E[r^(1 - a)] / (a - 1) of one who is removed.

The first has a closed form for integers (Feldman and Shenfeld 2025, "Privacy
amplification by random allocation", arXiv 2502.08202): the power of a sum is a
sum of products of powers, and the ratio x of one round has E[x^k] = exp((k^2 -
k) / (2 z^2)). Between integers log E[r^a], convex in a, is below its chord.
The second is an integral of the Laplace transform of r, which is a product of
those of single rounds: r^-s = 1 / Gamma(s) int_0^inf u^(s - 1) exp(-u r) du.
"""

from collections.abc import Sequence
import math

import numpy as np
from scipy import linalg
from scipy import special

from tff_fedemb.participation import random_allocation

# The sums run over these Gaussian numbers and over logarithms of u. The error
# of this trapezoid rule is below rounding, as the functions are smooth.
_GAUSSIAN = np.arange(-38.0, 38.0, 0.02)
_LOG_STEP = 0.05
# Below this, exp(-u r) is 1 but for rounding.
_SMALLEST_LOG = -40.0
# Up to this power, in noise multipliers, the sums miss no Gaussian number that
# counts.
_REACH = 25.0
_SMALLEST_NOISE = 0.1


def divergences(
  event: random_allocation.RandomAllocationDpEvent,
  orders: Sequence[float] | np.ndarray,
) -> np.ndarray:
  """Returns the larger divergence of both directions, or a bound above it.

  It is never above the cost if everybody knew the user's round, a / (2 z^2) at
  order a.

  Privacy:
    As the event.

  Args:
    event: A pass, with noise in each of its rounds.
    orders: Orders of the divergence, each above 1; integers give the exact
      divergence of a user who is added.

  Returns:
    Renyi divergences, float64 `[orders]`.
  """
  powers = np.asarray(orders, float)
  below = np.floor(powers).astype(int)
  above = np.ceil(powers).astype(int)
  logs = _log_moments(event, above.max())
  share = powers - below
  with_user = (1.0 - share) * logs[below] + share * logs[above]
  without_user = _log_inverse_moments(event, powers - 1.0)
  secret = np.maximum(with_user, without_user) / (powers - 1.0)
  # A chord may be above what it would cost if all knew the user's round.
  known = powers / (2.0 * min(noise for noise, _ in event.slots) ** 2)
  return np.minimum(secret, known)


def _log_moments(
  event: random_allocation.RandomAllocationDpEvent,
  largest: int,
) -> np.ndarray:
  """Logarithms of E[r^k], k = 0 .. largest, float64 `[largest + 1]`.

  With t rounds, t^k E[r^k] / k! is coefficient k of a product of power series:
  sum_k E[x^k] y^k / k! for each round. Powers of a series are made by repeated
  squaring, all in logarithms.
  """
  powers = np.arange(largest + 1)
  factorials = special.gammaln(powers + 1)

  def multiply(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    """The product of two power series, in logarithms, up to `largest`."""
    none = np.full(largest + 1, -np.inf)
    # Entry [k, j] is number k - j of the other series.
    shifted = linalg.toeplitz(other, none)
    return special.logsumexp(one + shifted, axis=1)

  whole = np.where(powers > 0, -np.inf, 0.0)
  for noise, count in event.slots:
    series = powers * (powers - 1) / (2.0 * noise**2) - factorials
    while count:
      if count % 2:
        whole = multiply(whole, series)
      count //= 2
      if count:
        series = multiply(series, series)
  return whole + factorials - powers * math.log(event.count)


def _log_inverse_moments(
  event: random_allocation.RandomAllocationDpEvent,
  powers: np.ndarray,
) -> np.ndarray:
  """Logarithms of E[r^-s] for some s > 0, or bounds above them.

  The bounds replace r by the geometric mean of the rounds' ratios. They are
  used where noise is small or s large, and the integral would be too long.

  Args:
    event: The pass.
    powers: Float64 `[n]`, the values of s, positive.
  """
  noises, counts = np.array(event.slots).T
  # The arithmetic mean is at least the geometric one.
  each = powers[:, np.newaxis] / event.count
  bounds = ((each**2 + each) / (2.0 * noises**2)) @ counts
  noise = noises.min()
  # With less noise the sums are long, and the bounds are as good.
  reach = _REACH * noise if noise >= _SMALLEST_NOISE else 0.0
  within = np.flatnonzero(powers <= reach)
  if not within.size:
    return bounds
  largest = math.log(1e3 * event.count)
  largest += -_GAUSSIAN[0] / noise
  largest += 1 / noise**2
  logs = np.arange(_SMALLEST_LOG, largest, _LOG_STEP)
  transform = np.zeros_like(logs)
  for noise, count in event.slots:
    transform += count * _log_laplace(noise, logs - math.log(event.count))
  for place in within:
    power = powers[place]
    integral = special.logsumexp(power * logs + transform)
    integral += math.log(_LOG_STEP)
    # The first half step belongs to what is below.
    rest = power * (logs[0] - _LOG_STEP / 2) - math.log(power)
    moment = np.logaddexp(integral, rest) - special.gammaln(power)
    bounds[place] = min(bounds[place], moment)
  return bounds


def _log_laplace(noise: float, logs: np.ndarray) -> np.ndarray:
  """Logarithms of E[exp(-u x)] of a round's ratio x, by logarithms of u.

  Args:
    noise: Noise multiplier of the round; infinite for a ratio of 1.
    logs: `[n]` logarithms of u.
  """
  if noise == math.inf:
    return -np.exp(logs)
  weights = np.exp(-(_GAUSSIAN**2) / 2.0)
  weights /= weights.sum()
  of_ratio = _GAUSSIAN / noise - 0.5 / noise**2
  means = np.zeros_like(logs)
  with np.errstate(over="ignore", divide="ignore"):
    for place, log in enumerate(logs.tolist()):
      means[place] = weights @ np.exp(-np.exp(log + of_ratio))
    return np.log(means)
