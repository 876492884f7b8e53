"""Tests of tree aggregation that draws once in a round."""

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_privacy as tfp

from tests.mechanisms import cases
from tests.mechanisms import noise_theory
from tff_fedemb.mechanisms import correlated_query
from tff_fedemb.mechanisms import normal_numbers
from tff_fedemb.mechanisms import secret_noise
from tff_fedemb.mechanisms import tree_strategy

_ROUNDS = 20

CASES = cases.Cases(
  options={"restart_every": 4, "noise_seed": 0},
  strategy=tree_strategy.TreeStrategy(4),
  # One tree; several, the last of them incomplete; one for each round.
  noisy=[
    {},
    cases.Slow(restart_every=4),
    cases.Slow(restart_every=5),
    cases.Slow(restart_every=1),
  ],
  once=[{"restart_every": 5}, {}],
)


def _covariance(query, size, restart_every):
  """Covariance of the rounds' noise of a query with a number for each draw."""
  if restart_every:
    query = tfp.RestartQuery(
      query, tfp.restart_query.PeriodicRoundRestartIndicator(restart_every)
    )
  state = query.initial_global_state()
  noise = []
  for _ in range(_ROUNDS):
    (noised,), state, _ = query.get_noised_result((tf.zeros([size]),), state)
    noise.append(noised.numpy().astype(np.float64))
  noise = np.array(noise)
  return noise @ noise.T


class _OneHot(tfp.tree_aggregation.ValueGenerator):
  """Gives every draw of tensorflow-privacy's tree a number of its own."""

  def __init__(self, size):
    self._size = size

  def initialize(self):
    return tf.constant(0)

  def next(self, state):
    return (tf.one_hot(state, self._size),), state + 1


@pytest.mark.parametrize("restart_every", [None, 1, 6])
def test_law_is_that_of_the_tree_with_a_draw_for_each_node(
  restart_every, monkeypatch
):
  """In single precision, and with noise so large that the grid is fine.

  The law of fewer rounds is a corner of the same matrix. All are Gaussian with
  mean zero, so the covariance says all.
  """
  size = 4 * _ROUNDS
  theirs = tfp.TreeResidualSumQuery(
    (tf.TensorSpec([size]),), _OneHot(size), lambda x, norm: x, 1.0
  )
  monkeypatch.setattr(
    normal_numbers,
    "draw_normal",
    lambda seeds, chunk, size, stddev: (
      tf.one_hot(seeds[0], size, dtype=tf.float64) * stddev
    ),
  )
  query = correlated_query.TreeSumQuery(
    (tf.TensorSpec([size]),), clip_norm=1.0, stddev=1e4, noise_seed=0
  )
  found = _covariance(query, size, restart_every)
  raised = (1e4 * (1.0 + secret_noise.ROUNDING)) ** 2
  by_node = tree_strategy.TreeStrategy(restart_every).round_noise_matrix(
    _ROUNDS
  )
  # Found without any recursion, as the best unbiased estimate.
  best = noise_theory.tree_noise_matrix(_ROUNDS, restart_every)
  for expected in (
    _covariance(theirs, size, restart_every),
    by_node @ by_node.T,
    best @ best.T,
  ):
    np.testing.assert_allclose(found / raised, expected, atol=1e-5)
