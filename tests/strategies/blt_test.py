"""Tests of buffered linear Toeplitz strategies and their optimisation."""

import dataclasses

import numpy as np
import pytest

from tff_fedemb.strategies import banded
from tff_fedemb.strategies import blt


def test_column_by_hand():
  strategy = blt.BltStrategy(decays=(0.5, 0.25), weights=(0.5, 0.25))
  np.testing.assert_allclose(
    strategy.first_column(4),
    [1.0, 0.75, 0.25 + 0.0625, 0.125 + 0.015625],
  )
  np.testing.assert_array_equal(strategy.first_column(1), [1.0])


@pytest.mark.parametrize(
  ("rounds", "min_separation", "max_participations"),
  [(800, 77, 11), (300, 20, 4), (100, 100, None), (200, 5, None)],
)
def test_optimum_is_one_and_nears_that_of_bands(
  rounds, min_separation, max_participations
):
  schedule = {
    "min_separation": min_separation,
    "max_participations": max_participations,
  }
  strategy = blt.optimize_blt(rounds=rounds, **schedule)
  least = strategy.prefix_sum_rmse(rounds, **schedule)
  decays, weights = np.array(strategy.decays), np.array(strategy.weights)
  for factors in ((0.99, 1.0), (1.01, 1.0), (1.0, 0.99), (1.0, 1.01)):
    for near in (
      dataclasses.replace(strategy, decays=1 - (1 - decays) * factors),
      dataclasses.replace(strategy, weights=weights * factors),
    ):
      assert near.prefix_sum_rmse(rounds, **schedule) > least * (1 - 1e-7)
  bands = banded.optimize_banded(rounds=rounds, **schedule)
  ratio = least / bands.prefix_sum_rmse(rounds, **schedule)
  assert ratio < 1.1


def test_more_buffers_are_no_worse():
  schedule = {"min_separation": 400}
  noise = [
    blt.optimize_blt(
      rounds=1_600, num_buffers=num_buffers, **schedule
    ).prefix_sum_rmse(1_600, **schedule)
    for num_buffers in (1, 2, 3, 4)
  ]
  assert noise[0] > noise[1] * 1.01
  assert noise[1] > noise[2] > noise[3] * (1 - 1e-6)


def test_optimisation_is_deterministic():
  schedule = {"rounds": 50, "min_separation": 10}
  again = blt.optimize_blt.__wrapped__(**schedule)
  assert again == blt.optimize_blt(**schedule)


def test_single_round():
  strategy = blt.optimize_blt(rounds=1, min_separation=1)
  assert strategy.prefix_sum_rmse(1, min_separation=1) == 1.0
