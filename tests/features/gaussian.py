"""What Gaussian releases cost together, by another way than the library's."""

import math

from scipy import optimize
from scipy import stats


def exact_epsilon(noise_multipliers, delta):
  """Theorem 8 of Balle and Wang 2018, for all unsampled releases together."""
  sigma = 1 / math.sqrt(sum(z**-2 for z in noise_multipliers))

  def gap(epsilon):
    below = stats.norm.cdf(-epsilon * sigma + 0.5 / sigma)
    above = stats.norm.cdf(-epsilon * sigma - 0.5 / sigma)
    return below - math.exp(epsilon) * above - delta

  return optimize.brentq(gap, 0, 200)
