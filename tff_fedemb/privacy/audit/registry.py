"""Methods that bound epsilon from below, by name."""

from collections.abc import Callable
import dataclasses
from typing import Any

import dp_accounting

from tff_fedemb import checks
from tff_fedemb.privacy import gaussian_accountant
from tff_fedemb.privacy.audit import clopper_pearson
from tff_fedemb.privacy.audit import one_run
from tff_fedemb.privacy.audit import scores as scores_lib

_GAUSSIAN_CLAIM = (
  "the claim is that of a Gaussian mechanism as a whole, not of a sampled one"
)


@dataclasses.dataclass(frozen=True)
class Method:
  """A way to bound epsilon from below.

  Attributes:
    bound: From scores and keyword arguments, `delta` and `significance`, to a
      bound, and what it was found with.
    assumes: What has to be true for the bound.
    is_of_mu: Whether it bounds the mu of Gaussian differential privacy, at no
      `delta`: the curve of a Gaussian mechanism as a whole.
  """

  bound: Callable[..., scores_lib.Found]
  assumes: str
  is_of_mu: bool = False


# A new method is one function and one line here.
METHODS = {
  "clopper_pearson": Method(
    clopper_pearson.bound_epsilon, clopper_pearson.ASSUMES
  ),
  "fdp_one_run": Method(
    one_run.bound_mu, f"{one_run.ASSUMES}; {_GAUSSIAN_CLAIM}", is_of_mu=True
  ),
  "gdp_clopper_pearson": Method(
    clopper_pearson.bound_mu,
    f"{clopper_pearson.ASSUMES}; {_GAUSSIAN_CLAIM}",
    is_of_mu=True,
  ),
  "one_run": Method(one_run.bound_epsilon, one_run.ASSUMES),
}


def epsilon_of_mu(mu: float, delta: float) -> float:
  """Epsilon of mu-Gaussian differential privacy at a delta above 0."""
  if not mu:
    return 0.0
  accountant = gaussian_accountant.GaussianAccountant()
  accountant.compose(dp_accounting.GaussianDpEvent(1.0 / mu))
  return accountant.get_epsilon(delta)


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
    scores: Of canaries.
    delta: At which epsilon is bounded, in [0, 1); above 0 by way of mu.
    significance: Probability that the bound is wrong, at most; in (0, 1).
    **options: Of the method.

  Raises:
    errors.FieldError: If the method is unknown, a level out of its range, or
      as that method says.
  """
  checks.check_choice("method", name, METHODS)
  method = METHODS[name]
  checks.check_number("delta", delta, minimum=0, below=1)
  checks.check_number("significance", significance, above=0, below=1)
  if method.is_of_mu:
    checks.check_delta(delta)
    mu, details = method.bound(scores, significance=significance, **options)
    epsilon, details = epsilon_of_mu(mu, delta), details | {"mu_lower": mu}
  else:
    epsilon, details = method.bound(
      scores, delta=delta, significance=significance, **options
    )
  return scores_lib.LowerBound(
    epsilon_lower=epsilon,
    method=name,
    delta=delta,
    significance=significance,
    num_in=len(scores.in_scores),
    num_out=len(scores.out_scores),
    assumes=method.assumes,
    details=details,
  )
