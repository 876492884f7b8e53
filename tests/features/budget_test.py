"""Tests of the noise that a target epsilon takes."""

import math

import pytest

from tests.accounting import gaussian
from tff_fedemb.features import budget as budget_lib

_DELTA = 1e-5


def _calibrate(*releases, epsilon=1.0, delta=_DELTA):
  return budget_lib.calibrate(releases, epsilon=epsilon, delta=delta)


def test_split_by_hand():
  # Shares 1 and 3, the latter in 4 equal pieces: of the zCDP 1 / (2 z^2) the
  # first has 1 / (8 z^2) = 1 / (2 (2 z)^2), each of the pieces 3 / (32 z^2).
  budget = _calibrate(
    budget_lib.PlannedRelease("once"),
    budget_lib.PlannedRelease("steps", 3.0, 4),
  )
  once = budget.noise_multipliers["once"]
  steps = budget.noise_multipliers["steps"]
  assert steps / once == pytest.approx(math.sqrt(16 / 3) / 2, rel=1e-12)
  scale = once / 2
  together = 1 / (2 * once**2) + 4 / (2 * steps**2)
  assert 1 / (2 * scale**2) == pytest.approx(together, rel=1e-12)
  exact = gaussian.exact_epsilon([scale], _DELTA)
  assert budget.epsilon == pytest.approx(exact, rel=1e-9)


@pytest.mark.parametrize(
  ("epsilon", "delta"),
  [(0.01, 1e-5), (0.3, 1e-9), (100, 1e-5)],
)
def test_target_is_met_from_below(epsilon, delta):
  budget = _calibrate(
    budget_lib.PlannedRelease("a", 0.3),
    budget_lib.PlannedRelease("b", 0.7, 20),
    epsilon=epsilon,
    delta=delta,
  )
  of_a, of_b = budget.noise_multipliers.values()
  exact = gaussian.exact_epsilon([of_a] + [of_b] * 20, delta)
  assert epsilon * (1 - 1e-3) < exact <= epsilon * (1 + 1e-9)
  assert budget.epsilon == pytest.approx(exact, rel=1e-6)
  assert budget.epsilon <= epsilon
