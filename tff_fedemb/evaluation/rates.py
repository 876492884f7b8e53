"""Rates with intervals, and the thresholds at which a rate is kept.

The bound is that of Clopper and Pearson 1934, "The Use of Confidence or
Fiducial Limits Illustrated in the Case of the Binomial".
"""

import dataclasses
from typing import Literal

import numpy as np
from scipy import stats

CONFIDENCE = 0.95


@dataclasses.dataclass(frozen=True)
class Rate:
  """A rate, and the ends of its interval; all in [0, 1].

  Attributes:
    value: The estimate.
    low: Lower end of the interval, of confidence `CONFIDENCE`.
    high: Upper end of the interval.
  """

  value: float
  low: float
  high: float

  def complement(self) -> "Rate":
    """Returns the rate of the opposite outcome, 1 - rate, with its interval."""
    return Rate(1 - self.value, 1 - self.high, 1 - self.low)


def bound_rate(rate: float, probes: float, level: float) -> float:
  """Returns Clopper and Pearson's upper bound of a rate.

  Args:
    rate: Share of probes, in [0, 1).
    probes: Number of independent probes that would have its variance; it need
      not be whole.
    level: Probability that the true rate is at most the bound, in (0, 1).

  Returns:
    The one-sided bound, in (0, 1].
  """
  hits = rate * probes
  return float(stats.beta.ppf(level, hits + 1, probes - hits))


def find_threshold(
  values: np.ndarray, rates: np.ndarray, rate: float
) -> float | None:
  """Finds the smallest value from which on a rate is not exceeded.

  Args:
    values: Similarities or scores, from the highest down, `[n]`.
    rates: Share that is accepted from each value on, ascending, `[n]`.
    rate: Largest share to accept.

  Returns:
    One of the values; `None` if accepting even the highest one is too much.

  Examples:
    Two values are equal; both together would exceed the rate.

    >>> values = np.array([0.9, 0.8, 0.8, 0.5])
    >>> shares = np.array([0.1, 0.2, 0.3, 0.4])
    >>> rates.find_threshold(values, shares, 0.25)
    0.9
  """
  count = int(np.searchsorted(rates, rate, side="right"))
  # A value that equals a rejected one is rejected too.
  if count < len(values):
    count = len(values) - count_below(values, values[count], side="right")
  return float(values[count - 1]) if count else None


def count_below(
  values: np.ndarray, threshold: float, *, side: Literal["left", "right"]
) -> int:
  """Counts values below a threshold.

  Args:
    values: Values in descending order, `[n]`.
    threshold: The threshold.
    side: "left" to leave out values at the threshold, "right" to count them.

  Returns:
    The number of values, in [0, n].
  """
  return int(np.searchsorted(values[::-1], threshold, side=side))
