"""What Gaussian releases cost, by another way than the library's.

Balle and Wang 2018, "Improving the Gaussian Mechanism for Differential
Privacy", theorem 8.
"""

import math

from scipy import optimize
from scipy import stats


def exact_delta(epsilon, mu):
  """Delta of a release whose sensitivity is mu times the noise's deviation."""
  below = stats.norm.cdf(mu / 2 - epsilon / mu)
  above = stats.norm.logcdf(-mu / 2 - epsilon / mu)
  return below - math.exp(epsilon + above)


def exact_epsilon(noise_multipliers, delta):
  """Epsilon of all unsampled releases together."""
  mu = math.sqrt(sum(z**-2 for z in noise_multipliers))
  return optimize.brentq(
    lambda e: exact_delta(e, mu) - delta, 0, 1e5, xtol=1e-14
  )
