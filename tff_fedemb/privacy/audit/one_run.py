"""A lower bound from many canaries in one computation.

Steinke, Nasr and Jagielski 2023, "Privacy Auditing with One (1) Training Run",
theorem 5.2.
"""

import numpy as np
from scipy import stats

from tff_fedemb.privacy.audit import scores as scores_lib

NAME = "one_run"
ASSUMES = (
  "each canary was included or not by a fair coin of its own, and scores are"
  " made from what was published, without the coins"
)


def p_value(
  *,
  correct: int,
  guesses: int,
  num_canaries: int,
  epsilon: float,
  delta: float,
) -> float:
  """Largest chance to guess so well, whatever the (epsilon, delta) mechanism.

  With delta 0, so many right guesses are as unlikely as with independent coins
  that show what was guessed with probability e^epsilon / (1 + e^epsilon): at
  most f(v) = P[Binomial(r, that) >= v]. With delta comes, for the m canaries,
  2 m delta max_i (f(v - i) - f(v)) / i.

  Args:
    correct: Right guesses v.
    guesses: All guesses r; about other canaries nothing is said.
    num_canaries: All canaries m.
    epsilon: Of the mechanism.
    delta: Of the mechanism.
  """
  coins = stats.binom(guesses, 1.0 / (1.0 + np.exp(-epsilon)))
  chance = coins.sf(correct - 1)
  if delta and correct:
    fewer = np.cumsum(coins.pmf(np.arange(correct - 1, -1, -1)))
    chance += (
      2 * num_canaries * delta * np.max(fewer / np.arange(1, correct + 1))
    )
  return float(min(chance, 1.0))


def bound_epsilon(
  scores: scores_lib.Scores,
  *,
  delta: float,
  significance: float,
  num_guesses: int | None = None,
) -> scores_lib.Found:
  """Bounds epsilon from below; canaries may depend on each other.

  The highest scores are guessed to be of canaries that were included, the
  lowest ones of others, in numbers that are fixed beforehand; the attacker
  abstains from the rest.

  Args:
    scores: Of canaries.
    delta: In [0, 1).
    significance: Probability that the bound is wrong, at most.
    num_guesses: As in `scores.best_guess`.

  Returns:
    Epsilon, and what it was found with.

  Raises:
    errors.FieldError: If there are more guesses than canaries.
  """

  def bound(guesses, correct, level):
    return scores_lib.largest_refuted(
      lambda epsilon: (
        p_value(
          correct=correct,
          guesses=guesses,
          num_canaries=len(scores),
          epsilon=epsilon,
          delta=delta,
        )
        < level
      )
    )

  return scores_lib.best_guess(scores, num_guesses, significance, bound)
