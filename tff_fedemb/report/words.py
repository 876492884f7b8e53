"""The figures of a report in words, and the strength of its guarantee.

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
# Shares above this one would be displayed as 100 %.
_CERTAIN = 0.9995


def format_epsilon(epsilon: float) -> str:
  """Writes an epsilon in four digits, if possible without an exponent.

  Args:
    epsilon: The epsilon; infinity is the sign for it.

  Returns:
    For example "3.902", "1,760,000" or "1.000e-05"; "∞" for infinity.
  """
  if epsilon == math.inf:
    return "∞"
  if epsilon >= 1e7 or 0 < epsilon < 1e-4:
    return f"{epsilon:.3e}"
  return f"{float(f'{epsilon:.4g}'):,.10g}"


def count(number: float, one: str) -> str:
  """Writes a number and what it counts, for example '1,000 users'.

  Args:
    number: The number, shown in six digits.
    one: The word for one of them.

  Returns:
    The number with thousands separated, and the word, with an s unless the
    number is 1.
  """
  noun = one if number == 1 else f"{one}s"
  return f"{number:,.6g} {noun}"


def guess_share(epsilon: float, delta: float) -> float:
  """Bounds how often a guess between two neighbouring training sets is right.

  Privacy:
    For an (epsilon, delta)-differentially private release, if both training
    sets are equally likely: (e^epsilon + delta) / (e^epsilon + 1).

  Args:
    epsilon: Epsilon of the release, infinity included.
    delta: Delta of the release, in [0, 1).

  Returns:
    The largest share of right guesses, in [1 / 2, 1].
  """
  # exp would overflow a little above.
  if epsilon > 700:
    return 1.0
  return (math.exp(epsilon) + delta) / (math.exp(epsilon) + 1)


def rate_guarantee(account: account_run.Recomputed) -> dict[str, Any]:
  """Expresses the guarantee of a run in figures for laymen.

  Privacy:
    As `account_run.recompute`.

  Args:
    account: Account of the run.

  Returns:
    Values by name; percentages are bounds, so they are rounded up:

    strength: "strong", "reasonable", "weak" or "none".
    verdict: The strength in a few words.
    guess: Percentage of right guesses between two neighbouring training sets;
      `None` if it may be practically 100.
    found: Pairs of a percentage of false alarms, and the largest percentage of
      members that an attack finds at it; empty if it may be practically 100.
  """
  epsilon = account.report.epsilon
  delta = account.report.delta
  share = guess_share(epsilon, delta)
  rates = trade_off.FALSE_POSITIVE_RATES
  allowed = trade_off.allowed_rates(account.ledger, epsilon, rates)
  found = []
  if min(allowed) <= _CERTAIN:
    for rate, most in zip(rates, allowed, strict=True):
      found.append((100 * rate, _percent_up(most)))
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
  """Returns a percentage, rounded up to one decimal."""
  return math.ceil(1000 * share) / 10
