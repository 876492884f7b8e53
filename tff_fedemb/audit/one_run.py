"""Lower bounds from many canaries in one computation.

Steinke, Nasr and Jagielski 2023, "Privacy Auditing with One (1) Training Run",
theorem 5.2; Mahloujifar, Melis and Chaudhuri 2024, "Auditing f-Differential
Privacy in One Run", for mechanisms that lose as a Gaussian (Dong, Roth and Su
2022, "Gaussian Differential Privacy").

The latter argues as follows. Let i of r guesses about m canaries be right with
probability p_i, and let f be a symmetric trade-off function. Flipping one
canary's coin turns a right guess among i right ones into a wrong one among
i - 1, and f-differential privacy bounds the probability of the first event by
1 - f of that of the second one. Averaged over the canaries (1 - f is concave),

  sum_{i >= c} i / m p_i  <=  1 - f(sum_{i >= c - 1} (r - i) / m p_i)

for every c. Starting from P[at least c right] = tau and going down from c, both
sums have to grow at least that fast, each in proportion to p_i. As all p_i sum
to one, both sums together are at most r / m. If they exceed that, then c right
guesses have a probability below tau.
"""

from collections.abc import Callable, Mapping

import numpy as np
from scipy import optimize
from scipy import special
from scipy import stats

from tff_fedemb import errors
from tff_fedemb.audit import scores as scores_lib

# A fair coin for each canary puts so many in with a larger probability.
_LEAST_PROBABILITY = 1e-6
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
  """Returns the largest chance to guess so well, for any such mechanism.

  With delta 0, v right guesses are at most as likely as with independent
  coins that are right with probability p = e^epsilon / (1 + e^epsilon): f(v) =
  P[Binomial(r, p) >= v]. Delta adds 2 m delta max_i (f(v - i) - f(v)) / i for
  the m canaries.

  Args:
    correct: Number v of right guesses, in [0, r].
    guesses: Number r of all guesses; the attacker abstains from other canaries.
    num_canaries: Number m of all canaries.
    epsilon: Epsilon of the mechanism, at least 0.
    delta: Delta of the mechanism, in [0, 1).

  Returns:
    The probability, in [0, 1]; a small one refutes the pair of epsilon and
    delta.
  """
  coins = stats.binom(guesses, 1.0 / (1.0 + np.exp(-epsilon)))
  chance = coins.sf(correct - 1)
  if delta and correct:
    fewer = np.cumsum(coins.pmf(np.arange(correct - 1, -1, -1)))
    most = np.max(fewer / np.arange(1, correct + 1))
    chance += 2 * num_canaries * delta * most
  return float(min(chance, 1.0))


def is_refuted(
  *,
  correct: int,
  guesses: int,
  num_canaries: int,
  mu: float,
  level: float,
) -> bool:
  """Returns whether so many right guesses are too unlikely with mu-GDP.

  This is the recursion of the module, for the trade-off function of a Gaussian.

  Args:
    correct: Number of right guesses.
    guesses: Number of all guesses, fixed before anything was published.
    num_canaries: Number of all canaries, each included by a fair coin.
    mu: Parameter of Gaussian differential privacy, at least 0: f is the
      trade-off between two normal distributions of unit variance mu apart.
    level: Largest chance that is too unlikely, in (0, 1).

  Returns:
    True if the chance is below `level`; False where the recursion cannot tell.
  """
  right = level * correct / num_canaries
  wrong = level * (guesses - correct) / num_canaries
  limit = guesses / num_canaries
  for i in range(correct - 1, -1, -1):
    # The inverse of 1 - f: what wrong guesses have at least.
    needed = float(special.ndtr(special.ndtri(right) - mu))
    if needed <= wrong:
      return False  # Nothing grows any more.
    right += i / (guesses - i) * (needed - wrong)
    wrong = needed
    if right + wrong > limit:
      return True
  return False


def _largest_refuted(is_refuted: Callable[[float], bool]) -> float:
  """The largest value that is refuted, or up to 1e-4 less; 0 if none is.

  All values below a refuted one are refuted as well.

  Args:
    is_refuted: Whether a value of epsilon, or of mu, is refuted.
  """
  if not is_refuted(0.0):
    return 0.0
  high = 1.0
  while is_refuted(high):
    high *= 2.0
  root = optimize.bisect(
    lambda value: 0.5 - is_refuted(value), 0.0, high, xtol=1e-4
  )
  while not is_refuted(root):
    root = max(root - 1e-4, 0.0)
  return float(root)


def _guesses_to_try(num_scores: int) -> list[tuple[int, int]]:
  """Ways to guess: how many canaries to call included, and how many left out.

  They are fixed before you look at scores. Half of the guesses go to either
  end, or all to the high scores: with sampling, most canaries that were
  included look like those that were not.

  Args:
    num_scores: Number of all canaries.

  Returns:
    Pairs of both numbers: all, a quarter and a sixteenth of the canaries at
    both ends; an eighth to a 512th of them at the high end.
  """
  both_ends = np.unique(-(-num_scores // np.array([1, 4, 16])))
  one_end = np.unique(-(-num_scores // np.array([8, 32, 128, 512])))
  ways = [(size - size // 2, size // 2) for size in both_ends.tolist()]
  return ways + [(size, 0) for size in one_end.tolist()]


def bound(
  scores: scores_lib.Scores,
  *,
  significance: float,
  delta: float | None,
) -> scores_lib.Found:
  """Bounds epsilon, or mu, from below; canaries may depend on each other.

  The attacker calls the canaries of the highest scores included and those of
  the lowest scores left out, in numbers that are fixed beforehand, and abstains
  from the rest. If several numbers are tried, the largest bound counts, each at
  an equal share of the significance (Bonferroni).

  Args:
    scores: Scores of canaries.
    significance: Probability that the bound is wrong, at most; in (0, 1).
    delta: At which epsilon is bounded, in [0, 1); None for the mu of Gaussian
      differential privacy. A curve says more than a single point of it, so the
      epsilon of this mu is larger.

  Returns:
    The bound, at least 0 and up to 1e-4 below the best, and the numbers of
    guesses that it was found with.

  Raises:
    errors.FieldError: If fair coins hardly ever put so many canaries in.
  """
  num_in = len(scores.in_scores)
  if stats.binomtest(num_in, len(scores)).pvalue < _LEAST_PROBABILITY:
    raise errors.FieldError(
      "in_scores",
      f"be about half of the {len(scores)} canaries, each of which a fair coin"
      " puts in or leaves out; clopper_pearson takes other numbers",
      num_in,
    )
  tried = _guesses_to_try(len(scores))
  level = significance / len(tried)
  ranked = scores.ranked()
  best = (-1.0, {})
  for num_in, num_out in tried:
    right_in = ranked[:num_in]
    right_out = ~ranked[len(ranked) - num_out :]
    correct = int(right_in.sum() + right_out.sum())
    numbers = {"correct": correct, "guesses": num_in + num_out}
    numbers["num_canaries"] = len(scores)

    def refutes(value: float, numbers: Mapping[str, int] = numbers) -> bool:
      if delta is None:
        return is_refuted(mu=value, level=level, **numbers)
      return p_value(epsilon=value, delta=delta, **numbers) < level

    found = _largest_refuted(refutes)
    if found > best[0]:
      details = {"guessed_in": num_in, "guessed_out": num_out}
      best = (found, details | {"correct": correct, "tried": len(tried)})
  return best
