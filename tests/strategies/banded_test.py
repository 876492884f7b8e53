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
