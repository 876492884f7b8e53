"""Tests of tree aggregation against TensorFlow Privacy and brute force."""

import numpy as np
import pytest
import tensorflow as tf
from tensorflow_privacy.privacy.analysis import tree_aggregation_accountant
from tensorflow_privacy.privacy.dp_query import restart_query
from tensorflow_privacy.privacy.dp_query import tree_aggregation
from tensorflow_privacy.privacy.dp_query import tree_aggregation_query

from tests.aggregators import noise_theory
from tff_fedemb.strategies import strategy as strategy_lib
from tff_fedemb.strategies import tree
from tff_fedemb.strategies import tree_sensitivity


def _squared_sensitivity(*schedule, **restarts):
  strategy = tree.TreeStrategy(**restarts)
  return round(strategy.sensitivity(strategy_lib.Schedule(*schedule)) ** 2, 9)


@pytest.mark.parametrize(
  ("schedule", "expected"),
  [
    # A leaf alone; a leaf and its root; both leaves and the root.
    ((1, 1), 1),
    ((2, 2), 2),
    ((2, 1), 2 + 4),
    # A path of 10 nodes up a tree of 512.
    ((800, 800), 10),
    ((800, 1_000_000_000), 10),
    ((800, 77, 11), 177),
  ],
)
def test_sensitivity_by_hand(schedule, expected):
  assert _squared_sensitivity(*schedule) == expected


@pytest.mark.parametrize(
  ("max_participation", "min_separation", "steps"),
  [
    (1, 0, 13),
    (3, 0, 16),
    (16, 0, 16),
    (4, 1, 21),
    (30, 2, 100),
    (12, 4, 64),
    (6, 9, 200),
    (9, 12, 127),
    (3, 36, 150),
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


@pytest.mark.parametrize(
  "restarts",
  [
    {},
    {"restart_every": 1},
    {"restart_every": 4},
    {"restart_every": 7, "first_restart_after": 2},
  ],
)
@pytest.mark.parametrize("rounds", [1, 5, 8, 13, 16])
@pytest.mark.parametrize("min_separation", [1, 2, 3, 5])
def test_sensitivity_is_that_of_all_participations(
  rounds, min_separation, restarts, all_participations
):
  nodes = noise_theory.node_matrix(rounds, **restarts)
  best = np.zeros(rounds + 1, dtype=np.int64)
  for chosen in all_participations(rounds, min_separation, rounds):
    squares = np.sum(np.square(nodes[:, chosen].sum(axis=1)))
    best[len(chosen)] = max(best[len(chosen)], squares)
  best = np.maximum.accumulate(best)
  for max_participations in range(1, rounds + 1):
    assert (
      _squared_sensitivity(
        rounds, min_separation, max_participations, **restarts
      )
      == best[max_participations]
    )
  assert _squared_sensitivity(rounds, min_separation, **restarts) == best[-1]


def test_sensitivity_does_not_depend_on_how_pairs_are_grouped(monkeypatch):
  expected = _squared_sensitivity(300, 7, 20), _squared_sensitivity(300, 7)
  monkeypatch.setattr(tree_sensitivity, "_MAX_PAIRS", 1)
  assert expected == (
    _squared_sensitivity(300, 7, 20),
    _squared_sensitivity(300, 7),
  )


@pytest.mark.parametrize(
  ("rounds", "min_separation", "max_participations", "most"),
  [
    (800, 77, 11, 50),
    (2_000, 10, None, 1_500),
    (2_000, 10, 100, 200_000),
    (4_000, 400, None, 50),
    (4_000, 1, None, 50),
  ],
)
def test_sensitivity_needs_few_pairs_of_ways(
  rounds, min_separation, max_participations, most, monkeypatch
):
  # Joining ways of halves is what takes time; a second is some 10^7 pairs.
  pairs, join = [], tree_sensitivity._join

  def counted(left, right, *others):
    pairs.append(len(left) * len(right))
    return join(left, right, *others)

  monkeypatch.setattr(tree_sensitivity, "_join", counted)
  _squared_sensitivity(rounds, min_separation, max_participations)
  assert 0 < sum(pairs) < most


class _OneHotGenerator(tree_aggregation.ValueGenerator):
  """Gives every node of a tree a coordinate of its own."""

  def __init__(self, size):
    self._size = size

  def initialize(self):
    return tf.constant(0)

  def next(self, state):
    return tf.one_hot(state, self._size), state + 1


def _tensorflow_privacy_covariance(rounds, **restarts):
  """Covariance of the rounds' noise in the query that TFF uses."""
  size = 4 * rounds
  query = tree_aggregation_query.TreeResidualSumQuery(
    record_specs=tf.TensorSpec([size]),
    noise_generator=_OneHotGenerator(size),
    clip_fn=lambda record, clip_norm: record,
    clip_value=1.0,
  )
  if restarts:
    query = restart_query.RestartQuery(
      query,
      restart_query.PeriodicRoundRestartIndicator(
        restarts["restart_every"], restarts.get("first_restart_after")
      ),
    )
  state = query.initial_global_state()
  noise = []
  for _ in range(rounds):
    noised, state, _ = query.get_noised_result(tf.zeros([size]), state)
    noise.append(noised.numpy())
  noise = np.array(noise)
  return noise @ noise.T


@pytest.mark.parametrize(
  ("rounds", "restarts"),
  [
    (1, {}),
    (21, {}),
    (14, {"restart_every": 5}),
    (14, {"restart_every": 6, "first_restart_after": 2}),
  ],
)
def test_noise_is_that_of_tensorflow_privacy(rounds, restarts):
  matrix = noise_theory.tree_noise_matrix(rounds, **restarts)
  np.testing.assert_allclose(
    matrix @ matrix.T,
    _tensorflow_privacy_covariance(rounds, **restarts),
    atol=1e-5,
  )


@pytest.mark.parametrize("rounds", [1, 2, 3, 8, 13, 31, 100])
@pytest.mark.parametrize(
  "restarts",
  [
    {},
    {"restart_every": 1},
    {"restart_every": 8},
    {"restart_every": 11, "first_restart_after": 10},
  ],
)
def test_noise_is_that_of_the_matrix(rounds, restarts):
  strategy = tree.TreeStrategy(**restarts)
  matrix = noise_theory.noise_matrix(strategy, rounds)
  own = strategy.round_noise_matrix(rounds)
  np.testing.assert_allclose(own @ own.T, matrix @ matrix.T, atol=1e-12)
  np.testing.assert_allclose(
    strategy.round_stddevs(rounds), np.linalg.norm(matrix, axis=1)
  )
  np.testing.assert_allclose(
    strategy.prefix_sum_stddevs(rounds),
    np.linalg.norm(np.cumsum(matrix, axis=0), axis=1),
  )
