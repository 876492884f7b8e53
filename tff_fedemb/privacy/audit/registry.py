"""Methods that bound epsilon from below, by name."""

from tff_fedemb import checks
from tff_fedemb.privacy.audit import clopper_pearson
from tff_fedemb.privacy.audit import fdp_one_run
from tff_fedemb.privacy.audit import gdp_clopper_pearson
from tff_fedemb.privacy.audit import one_run
from tff_fedemb.privacy.audit import scores as scores_lib

# A new method is one file and one line here.
METHODS = {
  module.NAME: module.bound_epsilon
  for module in (
    clopper_pearson,
    fdp_one_run,
    gdp_clopper_pearson,
    one_run,
  )
}

# Those that are about the curve of a Gaussian mechanism as a whole.
OF_GAUSSIAN_CLAIMS = (fdp_one_run.NAME, gdp_clopper_pearson.NAME)


def bound_epsilon(
  method: str,
  scores: scores_lib.Scores,
  *,
  delta: float,
  significance: float,
) -> scores_lib.LowerBound:
  """Bounds epsilon from below by the method of this name.

  Args:
    method: A key of `METHODS`.
    scores: Of canaries.
    delta: At which epsilon is bounded.
    significance: Probability that the bound is wrong, at most.

  Raises:
    errors.FieldError: If the method is unknown, or as that method says.
  """
  checks.check_choice("method", method, METHODS)
  return METHODS[method](scores, delta=delta, significance=significance)
