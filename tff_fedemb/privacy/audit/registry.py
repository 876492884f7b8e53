"""Methods that bound epsilon from below, by name."""

from typing import Any

from tff_fedemb import checks
from tff_fedemb.privacy.audit import clopper_pearson
from tff_fedemb.privacy.audit import fdp_one_run
from tff_fedemb.privacy.audit import gdp_clopper_pearson
from tff_fedemb.privacy.audit import one_run
from tff_fedemb.privacy.audit import scores as scores_lib

# A new method is one file and one line here.
METHODS = {
  module.NAME: module
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
  **options: Any,
) -> scores_lib.LowerBound:
  """Bounds epsilon from below by the method of this name.

  Args:
    method: A key of `METHODS`.
    scores: Of canaries.
    delta: At which epsilon is bounded, in [0, 1).
    significance: Probability that the bound is wrong, at most; in (0, 1).
    **options: Of the method.

  Raises:
    errors.FieldError: If the method is unknown, a level out of its range, or
      as that method says.
  """
  checks.check_choice("method", method, METHODS)
  checks.check_number("delta", delta, minimum=0, below=1)
  checks.check_number("significance", significance, above=0, below=1)
  epsilon, details = METHODS[method].bound_epsilon(
    scores, delta=delta, significance=significance, **options
  )
  return scores_lib.LowerBound(
    epsilon_lower=epsilon,
    method=method,
    delta=delta,
    significance=significance,
    num_in=len(scores.in_scores),
    num_out=len(scores.out_scores),
    assumes=METHODS[method].ASSUMES,
    details=details,
  )
