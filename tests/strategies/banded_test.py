"""Tests of banded Toeplitz strategies and their optimisation."""

import numpy as np
import pytest
from scipy import optimize

from tff_fedemb.strategies import banded
from tff_fedemb.strategies import strategy as strategy_lib


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(
  ("numbers", "num_bands"),
  [
    ((2, 2), None),
    ((40, 4, 3), None),
    ((30, 50), 4),
    ((800, 77, 11), 2),
  ],
)
def test_optimum_is_that_of_a_search_without_gradients(numbers, num_bands):
  schedule = strategy_lib.Schedule(*numbers)
  strategy = banded.optimize_banded(schedule, num_bands=num_bands)
  expected = optimize.minimize(
    lambda free: banded.BandedToeplitzStrategy((1.0, *free)).prefix_sum_rmse(
      schedule
    ),
    np.full(len(strategy.coefficients) - 1, 0.4),
    method="Nelder-Mead",
    bounds=[(-0.9, 0.9)] * (len(strategy.coefficients) - 1),
    options={"xatol": 1e-8, "fatol": 1e-10, "maxiter": 5_000},
  )
  assert strategy.prefix_sum_rmse(schedule) == pytest.approx(
    expected.fun, rel=1e-8
  )


def test_columns():
  strategy = banded.BandedToeplitzStrategy([1, 0.5])
  assert strategy == banded.BandedToeplitzStrategy((1.0, 0.5))
  np.testing.assert_array_equal(strategy.first_column(3), [1.0, 0.5, 0.0])
  np.testing.assert_array_equal(strategy.first_column(1), [1.0])
  np.testing.assert_array_equal(
    strategy.inverse_first_column(3), [1.0, -0.5, 0.25]
  )


def test_one_band_is_independent_noise():
  schedule = strategy_lib.Schedule(9, 3)
  strategy = banded.optimize_banded(schedule, num_bands=1)
  assert strategy.coefficients == (1.0,)
  np.testing.assert_array_equal(strategy.round_stddevs(9), np.ones(9))
  # Three participations; prefix sums of 1 ... 9 rounds.
  assert strategy.prefix_sum_rmse(schedule) == pytest.approx(np.sqrt(5.0 * 3.0))
