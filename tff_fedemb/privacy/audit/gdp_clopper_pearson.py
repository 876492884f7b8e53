"""As `clopper_pearson`, for mechanisms that lose as a Gaussian: far tighter.

Nasr et al. 2023, "Tight Auditing of Differentially Private Machine Learning",
section 4; Dong, Roth and Su 2022, "Gaussian Differential Privacy".
"""

from scipy import special

from tff_fedemb import checks
from tff_fedemb.privacy.audit import clopper_pearson
from tff_fedemb.privacy.audit import fdp_one_run
from tff_fedemb.privacy.audit import scores as scores_lib

NAME = "gdp_clopper_pearson"
ASSUMES = f"{clopper_pearson.ASSUMES}; {fdp_one_run.GAUSSIAN_CLAIM}"


def bound_epsilon(
  scores: scores_lib.Scores, *, delta: float, significance: float
) -> scores_lib.Found:
  """Bounds epsilon from below, by way of mu.

  With mu-Gaussian differential privacy no test has a power above
  Phi(Phi^-1(its false alarm rate) + mu), so that rates that are easy to measure
  bound mu, and with it epsilon at any delta.

  Args:
    scores: Of canaries.
    delta: In (0, 1).
    significance: Probability that the bound is wrong, at most.

  Returns:
    Epsilon, and what it was found with.

  Raises:
    errors.FieldError: If there are too few scores.
  """
  checks.check_delta(delta)
  mu, details = clopper_pearson.bound_loss(
    scores,
    significance,
    # The inverse of a power of 0 is minus infinity, which bounds nothing; as
    # does a false alarm rate of 1.
    lambda power, size: special.ndtri(power) - special.ndtri(size),
  )
  mu = max(0.0, mu)
  return fdp_one_run.epsilon_of_mu(mu, delta), details | {"mu_lower": mu}
