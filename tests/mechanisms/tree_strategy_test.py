"""Tests of tree aggregation against TensorFlow Privacy and brute force."""

import numpy as np
import pytest
from tensorflow_privacy.privacy.analysis import tree_aggregation_accountant

from tests.mechanisms import noise_theory
from tff_fedemb.mechanisms import strategy as strategy_lib
from tff_fedemb.mechanisms import tree_sensitivity
from tff_fedemb.mechanisms import tree_strategy


def _squared_sensitivity(*schedule, restart_every=None):
  strategy = tree_strategy.TreeStrategy(restart_every)
  return round(strategy.sensitivity(strategy_lib.Schedule(*schedule)) ** 2, 9)


@pytest.mark.parametrize(
  ("schedule", "expected"),
  [
    # A path of 10 nodes up a tree of 512.
    ((800, 1_000_000_000), 10),
    ((800, 77, 11), 177),
  ],
)
def test_sensitivity_by_hand(schedule, expected):
  assert _squared_sensitivity(*schedule) == expected


@pytest.mark.parametrize(
  ("max_participation", "min_separation", "steps"),
  [
    (16, 0, 16),
    (4, 1, 21),
    (30, 2, 100),
    (6, 9, 200),
  ],
)
def test_sensitivity_is_that_of_tensorflow_privacy(
  max_participation, min_separation, steps
):
  expected = tree_aggregation_accountant._max_tree_sensitivity_square_sum(
    max_participation, min_separation, steps
  )
  assert (
    _squared_sensitivity(steps, min_separation + 1, max_participation)
    == expected
  )


@pytest.mark.parametrize("restart_every", [None, 1, 4])
@pytest.mark.parametrize(
  ("rounds", "min_separation"), [(1, 1), (8, 1), (13, 2), (16, 3), (16, 5)]
)
def test_sensitivity_is_that_of_all_participations(
  rounds, min_separation, restart_every
):
  nodes = noise_theory.node_matrix(rounds, restart_every)
  best = np.zeros(rounds + 1, dtype=np.int64)
  for chosen in noise_theory.all_participations(rounds, min_separation, rounds):
    squares = np.sum(np.square(nodes[:, chosen].sum(axis=1)))
    best[len(chosen)] = max(best[len(chosen)], squares)
  best = np.maximum.accumulate(best)
  for max_participations in range(1, rounds + 1):
    assert (
      _squared_sensitivity(
        rounds, min_separation, max_participations, restart_every=restart_every
      )
      == best[max_participations]
    )


def test_sensitivity_does_not_depend_on_how_pairs_are_grouped(monkeypatch):
  expected = _squared_sensitivity(300, 7, 20)
  monkeypatch.setattr(tree_sensitivity, "_MAX_PAIRS", 1)
  assert _squared_sensitivity(300, 7, 20) == expected


@pytest.mark.parametrize(
  ("rounds", "restart_every"),
  [(1, None), (8, None), (45, None), (13, 1), (31, 8)],
)
def test_noise_is_that_of_the_matrix(rounds, restart_every):
  strategy = tree_strategy.TreeStrategy(restart_every)
  matrix = noise_theory.noise_matrix(strategy, rounds)
  own = strategy.round_noise_matrix(rounds)
  np.testing.assert_allclose(own @ own.T, matrix @ matrix.T, atol=1e-12)
  np.testing.assert_allclose(
    strategy.round_stddevs(rounds), np.linalg.norm(matrix, axis=1)
  )
  np.testing.assert_allclose(
    strategy.model_stddevs(rounds),
    np.linalg.norm(np.cumsum(matrix, axis=0), axis=1),
  )
  # SGD with momentum, whose model is momentum x the one before + a prefix sum.
  momentum, model, models = 0.9, np.zeros(matrix.shape[1]), []
  for prefix_sum in np.cumsum(matrix, axis=0):
    model = momentum * model + prefix_sum
    models.append(np.linalg.norm(model))
  workload = strategy_lib.Workload(momentum)
  np.testing.assert_allclose(strategy.model_stddevs(rounds, workload), models)
