"""An estimate of epsilon from scores that look normal: it bounds nothing.

Andrew et al. 2023, "One-shot Empirical Privacy Estimation for Federated
Learning": the cosines of canaries with what was released are normally
distributed where there are many dimensions; epsilon is that of telling apart
the two distributions that fit best.
"""

import math

import numpy as np
from scipy import integrate
from scipy import optimize
from scipy import stats

from tff_fedemb import checks
from tff_fedemb import errors
from tff_fedemb.privacy.audit import scores as scores_lib

# Further out there is no mass that a delta would notice.
_REACH = 12.0
_POINTS = 40_001


def _delta(epsilon: float, of_one, of_other) -> float:
  """Largest P[S] - e^epsilon Q[S] over sets S, for normal P and Q."""
  mean, stddev = of_one
  x = mean + stddev * np.linspace(-_REACH, _REACH, _POINTS)
  ratio = stats.norm.logpdf(x, *of_other) - stats.norm.logpdf(x, *of_one)
  # exp(ratio + epsilon) beyond 1 adds nothing, and would overflow.
  missing = -np.expm1(np.minimum(ratio + epsilon, 0.0))
  return float(
    integrate.trapezoid(stats.norm.pdf(x, mean, stddev) * missing, x)
  )


def estimate_epsilon(scores: scores_lib.Scores, *, delta: float) -> float:
  """Estimates epsilon; the truth may be below or above it.

  Assumes that the scores of either kind are independent and normal, which is
  checked by nobody here, and that no attack does better than this score.

  Args:
    scores: Of canaries.
    delta: In (0, 1).

  Returns:
    The estimate; infinity if scores of one kind are all the same.

  Raises:
    errors.FieldError: If a score is infinite, or delta out of range.
  """
  checks.check_delta(delta)
  fits = []
  for name in ("in_scores", "out_scores"):
    values = getattr(scores, name)
    if not np.isfinite(values).all():
      raise errors.FieldError(name, "be finite for an estimate", "infinity")
    fits.append((float(np.mean(values)), float(np.std(values, ddof=1))))
  if not all(stddev for _, stddev in fits):
    return 0.0 if fits[0] == fits[1] else math.inf

  def excess(epsilon):
    return max(_delta(epsilon, *fits), _delta(epsilon, *fits[::-1])) - delta

  if excess(0.0) <= 0:
    return 0.0
  high = 1.0
  while excess(high) > 0:
    high *= 2.0
  return float(optimize.brentq(excess, 0.0, high))
