"""Tests of Toeplitz strategies against explicit matrices and brute force."""

import dataclasses
from typing import Any

import numpy as np
import pytest
from scipy import linalg

from tests.mechanisms import noise_theory
from tff_fedemb.mechanisms import banded_strategy
from tff_fedemb.mechanisms import blt_strategy
from tff_fedemb.mechanisms import strategy as strategy_lib
from tff_fedemb.mechanisms import toeplitz

_STRATEGIES = [
  blt_strategy.BltStrategy(decays=(0.9,), weights=(0.4,)),
  blt_strategy.BltStrategy(decays=(0.99, 0.3), weights=(0.3, 0.7)),
  blt_strategy.BltStrategy(decays=(0.5, 0.5, 0.999, 0.1), weights=(0.1,) * 4),
  banded_strategy.BandedToeplitzStrategy((1.0,)),
  banded_strategy.BandedToeplitzStrategy((1.0, 0.5, 0.3)),
  banded_strategy.BandedToeplitzStrategy((1.0, -0.7, 0.4)),
]


@dataclasses.dataclass(frozen=True)
class _Column(toeplitz.ToeplitzStrategy):
  """A strategy with any first column."""

  column: Any

  def first_column(self, rounds):
    return self.column[:rounds]


def _brute_force(matrix, participations):
  return max(
    np.linalg.norm(matrix[:, rounds].sum(axis=1)) for rounds in participations
  )


@pytest.mark.parametrize("rounds", [1, 2, 40])
@pytest.mark.parametrize("strategy", _STRATEGIES)
def test_noise_is_that_of_explicit_matrices(strategy, rounds):
  inverse = noise_theory.noise_matrix(strategy, rounds)
  prefix = np.cumsum(inverse, axis=0)
  np.testing.assert_allclose(
    strategy.inverse_first_column(rounds), inverse[:, 0], atol=1e-12
  )
  np.testing.assert_allclose(
    strategy.round_noise_matrix(rounds), inverse, atol=1e-12
  )
  np.testing.assert_allclose(
    strategy.round_stddevs(rounds), np.linalg.norm(inverse, axis=1)
  )
  np.testing.assert_allclose(
    strategy.model_stddevs(rounds), np.linalg.norm(prefix, axis=1)
  )
  workload = strategy_lib.Workload(0.9)
  weights = linalg.toeplitz(workload.first_column(rounds), np.zeros(rounds))
  np.testing.assert_allclose(
    strategy.model_stddevs(rounds, workload),
    np.linalg.norm(weights @ inverse, axis=1),
  )


@pytest.mark.parametrize(
  ("rounds", "separation"), [(1, 1), (9, 1), (9, 2), (12, 3), (12, 5), (4, 20)]
)
def test_sensitivity_is_that_of_all_participations(rounds, separation):
  rng = np.random.default_rng(rounds * separation)
  columns = [
    # Never increasing; or of any signs, but not overlapping.
    *(np.append(1.0, np.sort(rng.random(rounds - 1))[::-1]) for _ in range(3)),
    np.append(1.0, rng.normal(size=separation - 1)),
    np.append(1.0, rng.normal(size=(separation - 1) // 2)),
  ]
  for column in columns:
    strategy = _Column(column)
    matrix = noise_theory.toeplitz_matrix(column, rounds)
    for participations in (1, 2, 3, rounds):
      actual = strategy.sensitivity(
        strategy_lib.Schedule(rounds, separation, participations)
      )
      expected = _brute_force(
        matrix,
        noise_theory.all_participations(rounds, separation, participations),
      )
      assert actual == pytest.approx(expected, rel=1e-12)
    unlimited = strategy.sensitivity(strategy_lib.Schedule(rounds, separation))
    assert unlimited == pytest.approx(actual, rel=1e-12)


@pytest.mark.parametrize("column", [[1.0, -0.5, 0.1], [1.0, 0.2, 0.5]])
def test_sensitivity_that_is_not_known_is_refused(column):
  strategy = _Column(np.array(column))
  with pytest.raises(ValueError, match="min_separation must be at least 3"):
    strategy.sensitivity(strategy_lib.Schedule(5, 2))
  # One participation, or too few rounds to overlap.
  strategy.sensitivity(strategy_lib.Schedule(5, 2, 1))
  strategy.sensitivity(strategy_lib.Schedule(2, 2))
