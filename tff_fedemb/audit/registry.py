"""Methods that bound epsilon from below, by name."""

from typing import Any

from tff_fedemb import checks
from tff_fedemb.accounting import gaussian_accountant
from tff_fedemb.audit import clopper_pearson
from tff_fedemb.audit import one_run
from tff_fedemb.audit import scores as scores_lib
from tff_fedemb.audit import trade_off

_GAUSSIAN_CLAIM = (
  "the claim is that of a Gaussian mechanism as a whole, not of a sampled one"
)


# A method is one module, whose `bound` maps scores and keyword arguments,
# `significance` and `delta`, to a bound, and what it was found with. A new one
# is one line here.
METHODS: dict[str, Any] = {
  "clopper_pearson": clopper_pearson,
  "fdp_one_run": one_run,
  "gdp_clopper_pearson": clopper_pearson,
  "one_run": one_run,
  "area": trade_off,
}
# These bound the mu of Gaussian differential privacy, at a `delta` of None: the
# curve of a Gaussian mechanism as a whole.
OF_MU = ("fdp_one_run", "gdp_clopper_pearson")


def epsilon_of_mu(mu: float, delta: float) -> float:
  """Epsilon of mu-Gaussian differential privacy at a delta above 0."""
  return gaussian_accountant.epsilon_of(1.0 / mu, delta) if mu else 0.0


def bound_epsilon(
  name: str,
  scores: scores_lib.Scores,
  *,
  delta: float,
  significance: float,
  **options: Any,
) -> dict[str, Any]:
  """Bounds epsilon from below by the method of this name.

  Args:
    name: A key of `METHODS`.
    scores: Scores of canaries.
    delta: At which epsilon is bounded, in [0, 1); above 0 by way of mu.
    significance: Probability that the bound is wrong, at most; in (0, 1).
    **options: Options of the method.

  Returns:
    Values that JSON can hold: `epsilon_lower`, 0 if nothing is known, which
    holds with probability 1 - `significance`; the number of canaries that were
    included and of those that were not; what has to be true for the bound; and
    details that the method has found.

  Raises:
    errors.FieldError: If delta is out of its range, or as that method says.
  """
  module = METHODS[name]
  is_of_mu = name in OF_MU
  minimum = {"above": 0} if is_of_mu else {"minimum": 0}
  checks.check_number("delta", delta, below=1, **minimum)
  bound, details = module.bound(
    scores,
    significance=significance,
    delta=None if is_of_mu else delta,
    **options,
  )
  assumes = module.ASSUMES
  if is_of_mu:
    bound, details = epsilon_of_mu(bound, delta), {**details, "mu_lower": bound}
    assumes = f"{assumes}; {_GAUSSIAN_CLAIM}"
  return {
    "epsilon_lower": bound,
    "method": name,
    "delta": delta,
    "significance": significance,
    "num_in": len(scores.in_scores),
    "num_out": len(scores.out_scores),
    "assumes": assumes,
    "details": details,
  }
