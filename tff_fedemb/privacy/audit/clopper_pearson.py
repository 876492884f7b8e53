"""Lower bounds from the error rates of one test, by exact intervals.

Jagielski, Ullman and Oprea 2020, "Auditing Differentially Private Machine
Learning: How Private is Private SGD?"; Nasr et al. 2021, "Adversary
Instantiation"; Nasr et al. 2023, "Tight Auditing of Differentially Private
Machine Learning", section 4, for mechanisms that lose as a Gaussian; Clopper
and Pearson 1934 for the intervals.
"""

from collections.abc import Callable

import numpy as np
from scipy import special
from scipy import stats

from tff_fedemb.privacy.audit import scores as scores_lib

ASSUMES = (
  "scores are independent: of canaries in computations of their own, or so many"
  " dimensions apart that they hardly meet"
)


def lower_limit(
  successes: np.ndarray | int, trials: np.ndarray | int, error: float
) -> np.ndarray:
  """What a binomial probability is above of, but for an error probability.

  Args:
    successes: Their number, any shape.
    trials: Their number.
    error: Probability of being wrong, at most.
  """
  limit = stats.beta.ppf(error, successes, np.subtract(trials, successes) + 1)
  return np.where(np.equal(successes, 0), 0.0, limit)


def upper_limit(
  successes: np.ndarray | int, trials: np.ndarray | int, error: float
) -> np.ndarray:
  """What a binomial probability is below of, as `lower_limit`."""
  return 1.0 - lower_limit(np.subtract(trials, successes), trials, error)


def _rates(
  scores: scores_lib.Scores, thresholds: np.ndarray, significance: float
) -> tuple[np.ndarray, np.ndarray]:
  """Powers and false alarm rates `[2, thresholds]`, each on the safe side.

  The first row tests for inclusion, a score of at least the threshold, the
  second one for its opposite. Half of the significance is spent on the power,
  half on the rate of false alarms.
  """
  num_in, num_out = len(scores.in_scores), len(scores.out_scores)
  low_in = np.searchsorted(np.sort(scores.in_scores), thresholds)
  low_out = np.searchsorted(np.sort(scores.out_scores), thresholds)
  error = significance / 2
  return (
    np.array(
      [
        lower_limit(num_in - low_in, num_in, error),
        lower_limit(low_out, num_out, error),
      ]
    ),
    np.array(
      [
        upper_limit(num_out - low_out, num_out, error),
        upper_limit(low_in, num_in, error),
      ]
    ),
  )


def _bound_loss(
  scores: scores_lib.Scores,
  significance: float,
  loss: Callable[[np.ndarray, np.ndarray], np.ndarray],
) -> tuple[float, dict[str, float]]:
  """Bounds what a test with its power and false alarm rate shows.

  The threshold and which of both tests are chosen on one half of the scores,
  the rates measured on the other one, so that nothing is chosen among what is
  tested. The loss rises with powers and falls with false alarm rates.
  """
  choosing, testing = scores.halves()
  thresholds = np.unique(
    np.concatenate([choosing.in_scores, choosing.out_scores])
  )
  chosen = loss(*_rates(choosing, thresholds, significance))
  direction, index = np.unravel_index(np.argmax(chosen), chosen.shape)
  threshold = thresholds[index]
  bound = loss(*_rates(testing, threshold[np.newaxis], significance))
  return float(bound[direction, 0]), {
    "threshold": float(threshold),
    "true_positive_rate": float(np.mean(testing.in_scores >= threshold)),
    "false_positive_rate": float(np.mean(testing.out_scores >= threshold)),
  }


def bound_epsilon(
  scores: scores_lib.Scores, *, delta: float, significance: float
) -> scores_lib.Found:
  """Bounds epsilon from below.

  With (epsilon, delta)-differential privacy no test for inclusion has a power
  above exp(epsilon) times its false alarm rate, plus delta, and no test for
  the opposite (Kairouz et al. 2015).

  Args:
    scores: Of canaries.
    delta: In [0, 1).
    significance: Probability that the bound is wrong, at most.

  Returns:
    Epsilon, and what it was found with.

  Raises:
    errors.FieldError: If there are too few scores.
  """
  epsilon, details = _bound_loss(
    scores,
    significance,
    # Smaller than any size, so that a power below delta bounds nothing.
    lambda power, size: np.log(np.maximum(power - delta, 1e-300) / size),
  )
  return max(0.0, epsilon), details


def bound_mu(
  scores: scores_lib.Scores, *, significance: float
) -> scores_lib.Found:
  """As `bound_epsilon`, the mu of Gaussian differential privacy: far tighter.

  No test has a power above Phi(Phi^-1(its false alarm rate) + mu), so that
  rates that are easy to measure bound mu.
  """
  mu, details = _bound_loss(
    scores,
    significance,
    # The inverse of a power of 0 is minus infinity, which bounds nothing; as
    # does a false alarm rate of 1.
    lambda power, size: special.ndtri(power) - special.ndtri(size),
  )
  return max(0.0, mu), details
