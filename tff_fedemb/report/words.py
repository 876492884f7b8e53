"""A report's figures in words, and how strong its guarantee is.

The strengths are those of Ponomareva et al., "How to DP-fy ML", 2023: epsilon
up to 1 is strong, up to 10 reasonable, above 10 weak to none.
"""

import math
import sys
from typing import Any

from tff_fedemb.audit import trade_off
from tff_fedemb.report import account as account_run

_STRENGTHS = (
  (1.0, "strong", "a strong guarantee"),
  (10.0, "reasonable", "a reasonable guarantee"),
  (sys.float_info.max, "weak", "a weak guarantee, or none in practice"),
  (math.inf, "none", "no guarantee"),
)
# Above it the share has no more digits to show.
_CERTAIN = 0.9995


def format_epsilon(epsilon: float) -> str:
  """An epsilon in four digits, without an exponent where it can be."""
  if epsilon == math.inf:
    return "∞"
  if epsilon >= 1e7 or 0 < epsilon < 1e-4:
    return f"{epsilon:.3e}"
  return f"{float(f'{epsilon:.4g}'):,.10g}"


def count(number: float, one: str) -> str:
  """A number and what is counted, for example '1,000 users'."""
  return f"{number:,.6g} {one if number == 1 else one + 's'}"


def guess_share(epsilon: float, delta: float) -> float:
  """Bounds how often a guess between two neighbouring training sets is right.

  Privacy:
    The release is (epsilon, delta)-differentially private, and both training
    sets are equally likely: (e^epsilon + delta) / (e^epsilon + 1).
  """
  if epsilon > 700:
    return 1.0
  return (math.exp(epsilon) + delta) / (math.exp(epsilon) + 1)


def rate_guarantee(account: account_run.Recomputed) -> dict[str, Any]:
  """Rates what the account of a run guarantees.

  Privacy:
    As `account_run.recompute`, whose report this puts in figures for laymen.

  Returns:
    Values by name; percentages are rounded up, as they are bounds:

    strength: "strong", "reasonable", "weak" or "none".
    verdict: The strength in a few words.
    guess: Percentage of right guesses between two neighbouring training sets;
      `None` if it may be all.
    found: Pairs of a percentage of false alarms, and the largest percentage of
      members that an attack finds at it; none if it may be all.
  """
  epsilon = account.report.epsilon
  delta = account.report.delta
  share = guess_share(epsilon, delta)
  rates = trade_off.FALSE_POSITIVE_RATES
  allowed = trade_off.allowed_rates(account.ledger, epsilon, rates)
  found = []
  if min(allowed) <= _CERTAIN:
    found = [
      (100 * rate, _percent_up(most))
      for rate, most in zip(rates, allowed, strict=True)
    ]
  strength, verdict = next(
    (name, text) for limit, name, text in _STRENGTHS if epsilon <= limit
  )
  return {
    "strength": strength,
    "verdict": verdict,
    "guess": _percent_up(share) if share <= _CERTAIN else None,
    "found": found,
  }


def _percent_up(share: float) -> float:
  return math.ceil(1000 * share) / 10
