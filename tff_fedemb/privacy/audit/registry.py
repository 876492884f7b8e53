"""Methods that bound epsilon from below, by name."""

from collections.abc import Callable
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
    bound: Maps scores and keyword arguments, `significance` and `delta`, to a
      bound, and what it was found with.
    assumes: What has to be true for the bound.
    is_of_mu: Whether it bounds the mu of Gaussian differential privacy, at a
      `delta` of None: the curve of a Gaussian mechanism as a whole.
  """

  bound: Callable[..., scores_lib.Found]
  assumes: str
  is_of_mu: bool = False


def _bound_area(
  scores: scores_lib.Scores,
  *,
  significance: float,
  delta: float,
  curve: trade_off.Curve = trade_off.GAUSSIAN,
) -> scores_lib.Found:
  area = trade_off.lower_area(scores, significance)
  return curve.epsilon_of_area(area, delta), {"area_lower": area}


# A new method is one function and one line here.
METHODS = {
  f"{prefix}{name}": Method(
    module.bound,
    f"{module.ASSUMES}; {_GAUSSIAN_CLAIM}" if prefix else module.ASSUMES,
    bool(prefix),
  )
  for prefix, name, module in (
    ("", "clopper_pearson", clopper_pearson),
    ("fdp_", "one_run", one_run),
    ("gdp_", "clopper_pearson", clopper_pearson),
    ("", "one_run", one_run),
  )
} | {"area": Method(_bound_area, trade_off.ASSUMES)}


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
    errors.FieldError: If the method is unknown, a level out of its range, or
      as that method says.
  """
  checks.check_choice("method", name, METHODS)
  method = METHODS[name]
  checks.check_number("delta", delta, minimum=0, below=1)
  checks.check_number("significance", significance, above=0, below=1)
  at_delta: float | None = delta
  if method.is_of_mu:
    checks.check_delta(delta)
    at_delta = None
  bound, details = method.bound(
    scores, significance=significance, delta=at_delta, **options
  )
  if method.is_of_mu:
    bound, details = epsilon_of_mu(bound, delta), {**details, "mu_lower": bound}
  return scores_lib.LowerBound(
    epsilon_lower=bound,
    method=name,
    delta=delta,
    significance=significance,
    num_in=len(scores.in_scores),
    num_out=len(scores.out_scores),
    assumes=method.assumes,
    details=details,
  )
