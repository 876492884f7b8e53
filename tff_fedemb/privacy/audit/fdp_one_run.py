"""A lower bound from one computation, for mechanisms that lose as a Gaussian.

Mahloujifar, Melis and Chaudhuri 2024, "Auditing f-Differential Privacy in One
Run"; Dong, Roth and Su 2022, "Gaussian Differential Privacy".

What is used, for r guesses about m canaries of which i are right with
probability p_i, and a symmetric trade-off function f: flipping one canary's
coin turns a right guess among i right ones into a wrong one among i - 1, and
f-differential privacy bounds the probability of the first event by 1 - f of
that of the second one. Averaged over the canaries (1 - f is concave),

  sum_{i >= c} i / m p_i  <=  1 - f(sum_{i >= c - 1} (r - i) / m p_i)

for every c. Starting from P[at least c right] = tau and going down from c, both
sums have to grow at least so fast, each in proportion to p_i. If they exceed
together what all p_i, which sum to one, allow (r / m), then c right guesses
have a probability below tau.
"""

import dp_accounting
from scipy import special

from tff_fedemb import checks
from tff_fedemb.privacy import gaussian_accountant
from tff_fedemb.privacy.audit import one_run
from tff_fedemb.privacy.audit import scores as scores_lib

NAME = "fdp_one_run"
GAUSSIAN_CLAIM = (
  "the claim is that of a Gaussian mechanism as a whole, not of a sampled one"
)
ASSUMES = f"{one_run.ASSUMES}; {GAUSSIAN_CLAIM}"


def is_refuted(
  *, correct: int, guesses: int, num_canaries: int, mu: float, level: float
) -> bool:
  """Whether so many right guesses had a chance below `level` with mu-GDP.

  Args:
    correct: Right guesses.
    guesses: All guesses, as many whatever was published.
    num_canaries: All canaries, each included by a fair coin.
    mu: Of Gaussian differential privacy: f tells apart two normal
      distributions of unit variance mu apart.
    level: Between 0 and 1.
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


def epsilon_of_mu(mu: float, delta: float) -> float:
  """Epsilon of mu-Gaussian differential privacy at a delta above 0."""
  if not mu:
    return 0.0
  accountant = gaussian_accountant.GaussianAccountant()
  accountant.compose(dp_accounting.GaussianDpEvent(1.0 / mu))
  return accountant.get_epsilon(delta)


def bound_epsilon(
  scores: scores_lib.Scores,
  *,
  delta: float,
  significance: float,
  num_guesses: int | None = None,
) -> scores_lib.Found:
  """Bounds epsilon from below, by way of mu; canaries may depend on each other.

  A curve says more than a single point of it, so the bound is larger than that
  of `one_run`.

  Args:
    scores: Of canaries.
    delta: In (0, 1).
    significance: Probability that the bound is wrong, at most.
    num_guesses: As in `scores.best_guess`.

  Returns:
    Epsilon, and what it was found with.

  Raises:
    errors.FieldError: If there are more guesses than canaries, or delta is 0.
  """
  checks.check_delta(delta)
  mu, details = scores_lib.best_guess(
    scores,
    num_guesses,
    significance,
    lambda guesses, correct, level: scores_lib.largest_refuted(
      lambda value: is_refuted(
        correct=correct,
        guesses=guesses,
        num_canaries=len(scores),
        mu=value,
        level=level,
      )
    ),
  )
  return epsilon_of_mu(mu, delta), details | {"mu_lower": mu}
