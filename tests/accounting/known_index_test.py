"""What the best of a random number of trials tells, by integration alone.

A trial is one number: a normal score, whose mean a user moves by 1 / z. K
trials, K geometric, release the best score, or with it which trial it was. No
code of the project or of `dp_accounting` has part in the figures to compare
with.
"""

import math

import numpy as np
import pytest
from scipy import optimize
from scipy import special

from tff_fedemb.accounting import composition
from tff_fedemb.accounting import ledger as ledger_lib
from tff_fedemb.accounting import tuning
from tff_fedemb.participation import min_separation

_DELTA = 1e-5
_SCORES = np.linspace(-9.0, 10.0, 1_001)
_STEP = _SCORES[1] - _SCORES[0]


def _of_score(mean, shift):
  """Chances of the best score in cells, for K of this mean.

  The best of K scores of distribution F and density f has density
  E[K F^(K - 1)] f = g f / (1 - (1 - g) F)^2 with g = 1 / mean.
  """
  density, below = _score(shift)
  share = 1 - 1 / mean
  return density / mean / (1 - share * below) ** 2 * _STEP


def _of_index_and_score(mean, shift):
  """Chances that trial i (rows) is the best, with a score in a cell (columns).

  It is if K >= i, the score is s and all others are below: E[F^(K - 1); K >= i]
  f = g ((1 - g) F)^(i - 1) f / (1 - (1 - g) F).
  """
  density, below = _score(shift)
  share = 1 - 1 / mean
  index = np.arange(1, round(20 * mean) + 1)[:, np.newaxis]
  chances = np.exp((index - 1) * np.log(share * below))
  return density / mean / (1 - share * below) * chances * _STEP


def _score(shift):
  density = np.exp(-((_SCORES - shift) ** 2) / 2) / math.sqrt(2 * math.pi)
  # Never 0, of which there is no logarithm.
  return density, special.ndtr(_SCORES - shift)


def _epsilon(first, second):
  """The larger epsilon of both directions, at which delta is theirs."""

  def excess(epsilon, p, q):
    return np.sum(np.maximum(p - math.exp(epsilon) * q, 0.0)) - _DELTA

  return max(
    optimize.brentq(excess, 0.0, 40.0, args=pair)
    for pair in ((first, second), (second, first))
  )


def _claim(noise_multiplier, mean):
  # Everybody in the one round; one of two users may be left out.
  participation = min_separation.MinSeparation(10, 10, min_separation=1)
  noise = composition.Noise(noise_multiplier)
  trial = ledger_lib.create_ledger(participation, noise, 1, delta=_DELTA)
  return tuning.RepeatAndSelect(mean, 1).epsilon(trial)


# The claim; what is so if nobody knows the index; and if somebody does.
@pytest.mark.parametrize(
  ("noise_multiplier", "mean", "claimed", "known"),
  [(4.0, 10, 2.15, 2.748), (2.0, 10, 4.32, 6.742), (4.0, 50, 2.56, 4.323)],
)
def test_the_claim_holds_while_nobody_knows_which_trial_won(
  noise_multiplier, mean, claimed, known
):
  claim = _claim(noise_multiplier, mean)
  assert claim == pytest.approx(claimed, abs=0.01)
  unknown = 0.0
  for sign in (1, -1):
    shifts = (0.0, sign / noise_multiplier)
    unknown = max(unknown, _epsilon(*(_of_score(mean, x) for x in shifts)))
    both = _epsilon(*(_of_index_and_score(mean, x) for x in shifts))
    assert both > unknown
    if sign == 1:
      assert both == pytest.approx(known, abs=2e-3)
      # So the index must not be told: the claim would be false.
      assert both > claim
  # No more than the claim, which has room for all other selections too.
  assert claim / 3 < unknown < claim


@pytest.mark.parametrize("chances", [_of_score, _of_index_and_score])
def test_chances_are_those_of_draws(chances):
  """The formulas against a million trials."""
  generator = np.random.default_rng(0)
  mean, draws = 3.0, 200_000
  numbers = generator.geometric(1 / mean, draws)
  scores = generator.normal(size=(draws, numbers.max()))
  scores[np.arange(numbers.max()) >= numbers[:, np.newaxis]] = -np.inf
  found = np.mean(scores.max(axis=1) > 1.0)
  cells = chances(mean, 0.0)[..., _SCORES > 1.0]
  assert cells.sum() == pytest.approx(found, abs=5e-3)
  if cells.ndim == 2:
    is_first = (scores.argmax(axis=1) == 0) & (scores.max(axis=1) > 1.0)
    assert cells[0].sum() == pytest.approx(is_first.mean(), abs=5e-3)
