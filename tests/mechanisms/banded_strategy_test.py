"""Tests of banded Toeplitz strategies and their optimisation."""

import math

import numpy as np
import pytest
from scipy import linalg
from scipy import optimize

from tff_fedemb.mechanisms import banded_strategy
from tff_fedemb.mechanisms import strategy as strategy_lib


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(
  ("numbers", "num_bands", "workload"),
  [
    ((2, 2), None, strategy_lib.PREFIX_SUMS),
    ((40, 4, 3), None, strategy_lib.PREFIX_SUMS),
    ((30, 50), 4, strategy_lib.PREFIX_SUMS),
    ((800, 77, 11), 2, strategy_lib.PREFIX_SUMS),
    ((40, 4, 3), None, strategy_lib.Workload(0.5)),
    ((30, 50), 3, strategy_lib.Workload(0.5, "last")),
  ],
)
def test_optimum_is_that_of_a_search_without_gradients(
  numbers, num_bands, workload
):
  schedule = strategy_lib.Schedule(*numbers)
  strategy = banded_strategy.optimize_banded(
    schedule, workload, num_bands=num_bands
  )
  expected = optimize.minimize(
    lambda free: banded_strategy.BandedToeplitzStrategy(
      (1.0, *free)
    ).model_error(schedule, workload),
    np.full(len(strategy.coefficients) - 1, 0.4),
    method="Nelder-Mead",
    bounds=[(-0.9, 0.9)] * (len(strategy.coefficients) - 1),
    options={"xatol": 1e-8, "fatol": 1e-10, "maxiter": 5_000},
  )
  assert strategy.model_error(schedule, workload) == pytest.approx(
    expected.fun, rel=1e-8
  )


@pytest.mark.parametrize(
  ("num_bands", "noise_objective", "least_gain"),
  [(16, "rmse", 0.09), (16, "last", 0.11), (4, "rmse", 0.025)],
)
def test_bands_made_for_momentum_leave_less_noise_in_models(
  num_bands, noise_objective, least_gain
):
  """By brute force: SGD with momentum runs on each unit of noise in turn."""
  rounds, momentum = 100, 0.9
  schedule = strategy_lib.Schedule(rounds, num_bands, 1)
  workload = strategy_lib.Workload(momentum, noise_objective)
  errors = []
  for made_for in (strategy_lib.PREFIX_SUMS, workload):
    strategy = banded_strategy.optimize_banded(
      schedule, made_for, num_bands=num_bands
    )
    encoder = linalg.toeplitz(strategy.first_column(rounds), np.zeros(rounds))
    model = velocity = np.zeros(rounds)
    variances = []
    for noise in np.linalg.inv(encoder):
      velocity = momentum * velocity + noise
      model = model + velocity
      variances.append(np.sum(model**2))
    stddev = math.sqrt(
      variances[-1] if noise_objective == "last" else np.mean(variances)
    )
    # A user is in one round: the largest norm of a column.
    errors.append(stddev * np.linalg.norm(encoder, axis=0).max())
    assert strategy.model_error(schedule, workload) == pytest.approx(errors[-1])
  assert errors[1] < (1.0 - least_gain) * errors[0]


def test_columns():
  strategy = banded_strategy.BandedToeplitzStrategy([1, 0.5])
  assert strategy == banded_strategy.BandedToeplitzStrategy((1.0, 0.5))
  np.testing.assert_array_equal(strategy.first_column(3), [1.0, 0.5, 0.0])
  np.testing.assert_array_equal(strategy.first_column(1), [1.0])
  np.testing.assert_array_equal(
    strategy.inverse_first_column(3), [1.0, -0.5, 0.25]
  )


def test_one_band_is_independent_noise():
  schedule = strategy_lib.Schedule(9, 3)
  strategy = banded_strategy.optimize_banded(schedule, num_bands=1)
  assert strategy.coefficients == (1.0,)
  np.testing.assert_array_equal(strategy.round_stddevs(9), np.ones(9))
  # Three participations; prefix sums of 1 ... 9 rounds.
  assert strategy.model_error(schedule) == pytest.approx(np.sqrt(5.0 * 3.0))
