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


# A method is one module. Its `bound` maps scores and the keyword arguments
# `significance` and `delta` to a bound and the numbers that it was found with.
# A new method is one line here.
METHODS: dict[str, Any] = {
  "clopper_pearson": clopper_pearson,
  "fdp_one_run": one_run,
  "gdp_clopper_pearson": clopper_pearson,
  "one_run": one_run,
  "area": trade_off,
}
# With a `delta` of None, these bound the mu of Gaussian differential privacy:
# the curve of a Gaussian mechanism as a whole.
OF_MU = ("fdp_one_run", "gdp_clopper_pearson")


def epsilon_of_mu(mu: float, delta: float) -> float:
  """Returns the epsilon of mu-Gaussian differential privacy.

  It is that of one Gaussian mechanism of noise multiplier 1 / mu.

  Args:
    mu: At least 0.
    delta: In (0, 1).

  Returns:
    Epsilon at delta; 0 for a mu of 0.
  """
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
    delta: At which epsilon is bounded, in [0, 1); above 0 for a method that
      bounds mu.
    significance: Probability that the bound is wrong, at most; in (0, 1).
    **options: Options of the method: `curve` for 'area'.

  Returns:
    Values that JSON can hold. `epsilon_lower` holds with probability 1 -
    `significance`; 0 says nothing. `num_in` and `num_out` are the numbers of
    canaries that were included and left out, `assumes` is what has to be true
    for the bound, and `details` what the method has found.

  Raises:
    KeyError: If there is no such method.
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
    details = details | {"mu_lower": bound}
    bound = epsilon_of_mu(bound, delta)
  if is_of_mu or (module is trade_off and "curve" not in options):
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
