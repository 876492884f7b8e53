"""Lower bounds from the error rates of one test, by exact intervals.

Jagielski, Ullman and Oprea 2020, "Auditing Differentially Private Machine
Learning: How Private is Private SGD?"; Nasr et al. 2021, "Adversary
Instantiation"; Nasr et al. 2023, "Tight Auditing of Differentially Private
Machine Learning", section 4, for mechanisms that lose as a Gaussian; Clopper
and Pearson 1934 for the intervals.
"""

import numpy as np
from scipy import special
from scipy import stats

from tff_fedemb.audit import scores as scores_lib

ASSUMES = scores_lib.INDEPENDENT


def lower_limit(
  successes: np.ndarray | int,
  trials: np.ndarray | int,
  error: float,
) -> np.ndarray:
  """Returns a lower confidence bound of a binomial probability.

  Args:
    successes: Number of successes, any shape.
    trials: Number of trials, of the same shape or one number.
    error: Probability that the bound is wrong, at most; in (0, 1).

  Returns:
    The bound, in [0, 1], of the shape of `successes`; 0 without successes.
  """
  limit = stats.beta.ppf(error, successes, np.subtract(trials, successes) + 1)
  return np.where(np.equal(successes, 0), 0.0, limit)


def upper_limit(
  successes: np.ndarray | int,
  trials: np.ndarray | int,
  error: float,
) -> np.ndarray:
  """Returns an upper confidence bound of a binomial probability.

  Args:
    successes: Number of successes, any shape.
    trials: Number of trials, of the same shape or one number.
    error: Probability that the bound is wrong, at most; in (0, 1).

  Returns:
    The bound, in [0, 1], of the shape of `successes`; 1 if all are successes.
  """
  return 1.0 - lower_limit(np.subtract(trials, successes), trials, error)


def _rates(
  scores: scores_lib.Scores,
  thresholds: np.ndarray,
  significance: float,
) -> tuple[np.ndarray, np.ndarray]:
  """Powers and false alarm rates `[2, thresholds]`, each on the safe side.

  The first row is of a test for inclusion: a score of at least the threshold.
  The second row is of its opposite. The power and the rate of false alarms
  spend half of the significance each.

  Args:
    scores: Scores of canaries.
    thresholds: `[thresholds]` scores to test at, in any order.
    significance: Probability that either rate of a test is wrong, at most.
  """
  num_in = len(scores.in_scores)
  num_out = len(scores.out_scores)
  low_in = np.searchsorted(np.sort(scores.in_scores), thresholds)
  low_out = np.searchsorted(np.sort(scores.out_scores), thresholds)
  error = significance / 2
  powers = (
    lower_limit(num_in - low_in, num_in, error),
    lower_limit(low_out, num_out, error),
  )
  false_alarms = (
    upper_limit(num_out - low_out, num_out, error),
    upper_limit(low_in, num_in, error),
  )
  return np.array(powers), np.array(false_alarms)


def bound(
  scores: scores_lib.Scores,
  *,
  significance: float,
  delta: float | None,
) -> scores_lib.Found:
  """Bounds epsilon from below, or the mu of Gaussian differential privacy.

  With (epsilon, delta)-differential privacy, no test for inclusion, nor for its
  opposite, has a power above exp(epsilon) times its false alarm rate, plus
  delta (Kairouz et al. 2015). With mu-Gaussian differential privacy, none has a
  power above Phi(Phi^-1(its false alarm rate) + mu). Rates that are easy to
  measure bound mu, which is far tighter.

  One half of the scores chooses the threshold and one of both tests. The other
  half measures the rates, so that nothing is chosen among what is tested.

  Args:
    scores: Scores of canaries.
    significance: Probability that the bound is wrong, at most.
    delta: At which epsilon is bounded, in [0, 1); None for mu.

  Returns:
    The bound, and the threshold and the rates that it was found with.

  Raises:
    errors.FieldError: If there are too few scores.
  """

  def loss(some: scores_lib.Scores, thresholds: np.ndarray) -> np.ndarray:
    """Lower bounds `[2, thresholds]` of epsilon, or of mu, by either test."""
    power, size = _rates(some, thresholds, significance)
    if delta is None:
      # A power of 0 or a false alarm rate of 1 gives minus infinity, which
      # bounds nothing.
      return special.ndtri(power) - special.ndtri(size)
    # 1e-300 is below any size, so that a power below delta bounds nothing.
    return np.log(np.maximum(power - delta, 1e-300) / size)

  choosing, testing = scores.halves()
  thresholds = np.union1d(choosing.in_scores, choosing.out_scores)
  chosen = loss(choosing, thresholds)
  direction, index = np.unravel_index(np.argmax(chosen), chosen.shape)
  threshold = thresholds[index]
  found = float(loss(testing, threshold[np.newaxis])[direction, 0])
  return max(0.0, found), {
    "threshold": float(threshold),
    "true_positive_rate": float(np.mean(testing.in_scores >= threshold)),
    "false_positive_rate": float(np.mean(testing.out_scores >= threshold)),
  }
