"""Methods that bound epsilon from below, by name."""

import dataclasses
from typing import Any

from tff_fedemb import checks
from tff_fedemb.privacy import gaussian_accountant
from tff_fedemb.privacy.audit import clopper_pearson
from tff_fedemb.privacy.audit import one_run
from tff_fedemb.privacy.audit import scores as scores_lib
from tff_fedemb.privacy.audit import trade_off

_GAUSSIAN_CLAIM = (
  "the claim is that of a Gaussian mechanism as a whole, not of a sampled one"
)


@dataclasses.dataclass(frozen=True)
class Method:
  """A way to bound epsilon from below.

  Attributes:
    module: Module whose `bound` maps scores and keyword arguments,
      `significance` and `delta`, to a bound, and what it was found with.
    is_of_mu: Whether it bounds the mu of Gaussian differential privacy, at a
      `delta` of None: the curve of a Gaussian mechanism as a whole.
  """

  module: Any
  is_of_mu: bool = False


# A new method is one module and one line here.
METHODS = {
  "clopper_pearson": Method(clopper_pearson),
  "fdp_one_run": Method(one_run, is_of_mu=True),
  "gdp_clopper_pearson": Method(clopper_pearson, is_of_mu=True),
  "one_run": Method(one_run),
  "area": Method(trade_off),
}


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
) -> scores_lib.LowerBound:
  """Bounds epsilon from below by the method of this name.

  Args:
    name: A key of `METHODS`.
    scores: Scores of canaries.
    delta: At which epsilon is bounded, in [0, 1); above 0 by way of mu.
    significance: Probability that the bound is wrong, at most; in (0, 1).
    **options: Options of the method.

  Raises:
    errors.FieldError: If delta is out of its range, or as that method says.
  """
  method = METHODS[name]
  minimum = {"above": 0} if method.is_of_mu else {"minimum": 0}
  checks.check_number("delta", delta, below=1, **minimum)
  bound, details = method.module.bound(
    scores,
    significance=significance,
    delta=None if method.is_of_mu else delta,
    **options,
  )
  assumes = method.module.ASSUMES
  if method.is_of_mu:
    bound, details = epsilon_of_mu(bound, delta), {**details, "mu_lower": bound}
    assumes = f"{assumes}; {_GAUSSIAN_CLAIM}"
  return scores_lib.LowerBound(
    epsilon_lower=bound,
    method=name,
    delta=delta,
    significance=significance,
    num_in=len(scores.in_scores),
    num_out=len(scores.out_scores),
    assumes=assumes,
    details=details,
  )
