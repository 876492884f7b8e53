"""Tests of buffered linear Toeplitz strategies and their optimisation."""

import dataclasses

import numpy as np
import pytest

from tff_fedemb.mechanisms import banded_strategy
from tff_fedemb.mechanisms import blt_strategy
from tff_fedemb.mechanisms import strategy as strategy_lib


@pytest.mark.parametrize("numbers", [(800, 77, 11), (100, 100), (200, 5)])
def test_optimum_is_one_and_nears_that_of_bands(numbers):
  schedule = strategy_lib.Schedule(*numbers)
  strategy = blt_strategy.optimize_blt(schedule)
  least = strategy.model_error(schedule)
  decays, weights = np.array(strategy.decays), np.array(strategy.weights)
  for factors in ((0.99, 1.0), (1.01, 1.0), (1.0, 0.99), (1.0, 1.01)):
    for near in (
      dataclasses.replace(strategy, decays=1 - (1 - decays) * factors),
      dataclasses.replace(strategy, weights=weights * factors),
    ):
      assert near.model_error(schedule) > least * (1 - 1e-7)
  bands = banded_strategy.optimize_banded(schedule)
  ratio = least / bands.model_error(schedule)
  assert ratio < 1.1


def test_more_buffers_are_no_worse():
  schedule = strategy_lib.Schedule(1_600, 400)
  noise = [
    blt_strategy.optimize_blt(schedule, num_buffers=num_buffers).model_error(
      schedule
    )
    for num_buffers in (1, 2, 3, 4)
  ]
  assert noise[0] > noise[1] * 1.01
  assert noise[1] > noise[2] > noise[3] * (1 - 1e-6)


@pytest.mark.parametrize(
  ("rounds", "most"),
  [(1_000, 3.325), pytest.param(100_000, 5.30, marks=pytest.mark.slow)],
)
def test_the_largest_error_can_be_made_small(rounds, most):
  schedule = strategy_lib.Schedule(rounds, rounds)
  last = strategy_lib.Workload(0.0, "last")
  least, other = (
    blt_strategy.optimize_blt(schedule, workload)
    for workload in (last, strategy_lib.PREFIX_SUMS)
  )
  # The last prefix sum has the largest noise.
  expected = max(least.model_stddevs(rounds)) * least.sensitivity(schedule)
  assert least.model_error(schedule, last) == expected <= most
  assert other.model_error(schedule, last) > expected
  assert other.model_error(schedule) < least.model_error(schedule)


def test_column_by_hand():
  strategy = blt_strategy.BltStrategy(decays=(0.5, 0.25), weights=(0.5, 0.25))
  np.testing.assert_allclose(
    strategy.first_column(4), [1.0, 0.75, 0.25 + 0.0625, 0.125 + 0.015625]
  )
  np.testing.assert_array_equal(strategy.first_column(1), [1.0])
