"""Tests of tree aggregation with adaptive clipping."""

import math

import numpy as np
import pytest

from tests.aggregators import checks
from tests.aggregators import noise_theory
from tests.aggregators import released
from tff_fedemb.aggregators import adaptive_tree

# The count's noise has s = 0.05 x 100 = 5, and 6^-2 = 7.5^-2 + (2 x 5)^-2.
_NOISE_MULTIPLIER = 6.0
_OF_SUM = 7.5
_COUNT_STDDEV = 5.0
_ROUNDS = 16
_RESTART_EVERY = 5
# Trees, and rounds of each, where noise is told from few numbers.
_NUM_TREES, _TREE = 150, 6


def _options(rounds=_ROUNDS, restart_every=_RESTART_EVERY, **options):
  return {
    "rounds": rounds,
    "restart_every": restart_every,
    **checks.CONFIG,
    **options,
  }


@pytest.fixture(name="noisy", scope="module")
def _noisy(create_aggregation):
  return create_aggregation(
    "adaptive_tree", **_options(noise_multiplier=_NOISE_MULTIPLIER)
  )


@pytest.mark.parametrize(
  "restart_every", [pytest.param(1, marks=pytest.mark.slow), 4]
)
def test_zero_noise_is_clipping_that_follows_the_median(
  create_aggregation, restart_every
):
  updates = checks.draw_updates()
  clip_norms = checks.adapted_clip_norms(updates, period=restart_every)
  assert len(set(clip_norms)) > 2
  checks.check_without_noise(
    create_aggregation(
      "adaptive_tree", **_options(restart_every=restart_every)
    ),
    clip_norms,
  )


def test_options_of_clipping(create_aggregation):
  checks.check_without_noise(
    create_aggregation(
      "adaptive_tree",
      **_options(
        restart_every=2,
        target_unclipped_quantile=0.8,
        clip_learning_rate=0.7,
      ),
    ),
    checks.adapted_clip_norms(
      checks.draw_updates(), period=2, quantile=0.8, learning_rate=0.7
    ),
  )


@pytest.mark.parametrize(
  "clip_learning_rate", [pytest.param(1e-9, marks=pytest.mark.slow), 0.2]
)
def test_noise(create_aggregation, clip_learning_rate):
  aggregation = create_aggregation(
    "adaptive_tree",
    shapes=checks.LARGE,
    **_options(
      noise_multiplier=_NOISE_MULTIPLIER,
      clip_learning_rate=clip_learning_rate,
    ),
  )
  matrix = noise_theory.tree_noise_matrix(_ROUNDS, _RESTART_EVERY)
  checks.check_noise(aggregation, matrix, _OF_SUM)
  clip_norms = aggregation.run_on_zeros(_ROUNDS).column("clip_norm")
  # Constant in every tree.
  changes = np.flatnonzero(np.diff(clip_norms)) + 1
  assert changes.tolist() == ([5, 10, 15] if clip_learning_rate == 0.2 else [])


@pytest.fixture(name="many_trees", scope="module")
def _many_trees(create_aggregation):
  """Rounds of `_NUM_TREES` trees, and the estimates before and after each."""
  rounds = create_aggregation(
    "adaptive_tree",
    **_options(_TREE, _TREE, noise_multiplier=_NOISE_MULTIPLIER),
  ).run_on_zeros(_NUM_TREES * _TREE)
  estimates = [checks.CLIP_NORM] + [
    float(report["dp_query_metrics"]["estimate_clip"])
    for report in rounds.reports
  ]
  return rounds, np.array(estimates)


def _count_noise(estimates):
  """Noise of the counts that moved the estimate at learning rate 0.2."""
  moves = -np.diff(np.log(estimates)) / 0.2
  # One client, below the estimate, counts for 1/2 above the half.
  return (moves * checks.CLIENTS_PER_ROUND - 0.5) / _COUNT_STDDEV


def test_noise_of_the_count(many_trees):
  """The estimate's logarithm moves as the noised count says, tree by tree.

  False alarms: once in 10^6 runs at most, see `noise_theory.alarms`.

  Power: as in `adaptive_gaussian_test`, of 900 numbers: a standard deviation
  that is 50 % too large is missed once in 10^7 runs.
  """
  rounds, estimates = many_trees
  noise = _count_noise(estimates)
  by_round = noise.reshape(_NUM_TREES, _TREE).T[:, np.newaxis]
  matrix = noise_theory.tree_noise_matrix(_TREE)
  assert not noise_theory.alarms(by_round, matrix)
  # What is not noise of a tree, of this level, is told from it.
  assert noise_theory.alarms(by_round, np.eye(_TREE))
  assert noise_theory.alarms(1.5 * by_round, matrix)
  # What a tree ends with is the clip norm of the next.
  np.testing.assert_allclose(
    rounds.column("clip_norm").reshape(_NUM_TREES, -1),
    np.repeat(estimates[:-1:_TREE, np.newaxis], _TREE, axis=1),
    rtol=1e-6,
  )


def test_sum_and_count_do_not_share_their_noise(many_trees):
  """Nor do two tensors, or two rounds.

  False alarms: once in 10^6 runs at most, see `noise_theory.alarms`; for the
  three together, each number of the sum and the count over 150 trees.
  """
  rounds, estimates = many_trees
  scale = _OF_SUM * rounds.column("clip_norm") / checks.CLIENTS_PER_ROUND
  noise = np.stack(
    [
      _count_noise(estimates),
      rounds.means[:, 0] / scale,
      rounds.means[:, 2] / scale,
    ],
    axis=1,
  ).reshape(_NUM_TREES, _TREE, 3)
  assert not noise_theory.alarms(
    noise.transpose(1, 2, 0), noise_theory.tree_noise_matrix(_TREE)
  )


def test_reports(noisy):
  checks.check_reports(
    noisy,
    checks.stddevs(noise_theory.tree_noise_matrix(_ROUNDS, _RESTART_EVERY)),
    _OF_SUM,
  )


def test_clip_norm_moves_to_the_quantile(create_aggregation):
  # Norms 1, 2 ... 20: the estimate comes to rest where as many are below.
  aggregation = create_aggregation(
    "adaptive_tree",
    clients_per_round=20.0,
    clip_norm=2.0,
    rounds=64,
    restart_every=8,
    target_unclipped_quantile=0.75,
    clip_learning_rate=0.3,
  )
  updates = [np.eye(released.SIZE)[0] * norm for norm in range(1, 21)]
  clip_norms = aggregation.run([updates] * 64).column("clip_norm")
  assert np.all((clip_norms[-20:] > 14.0) & (clip_norms[-20:] < 17.0))


def test_sum_and_count_have_seeds_of_their_own(noisy):
  first, second = noisy.seeds(noisy.first_state)
  assert np.all(first != second)


def test_size_of_the_state(create_aggregation):
  aggregation = create_aggregation(
    "adaptive_tree",
    shapes=((20, 10), (100,)),
    **_options(32, 32, noise_multiplier=_NOISE_MULTIPLIER),
  )
  copies = [
    math.floor(aggregation.model_copies(state))
    for state in aggregation.run_on_zeros(32).states
  ]
  for rounds in range(3, 33):
    assert max(copies[:rounds]) <= math.ceil(math.log2(rounds)) + 1


@pytest.mark.parametrize(
  ("options", "message"),
  [
    (
      {},
      "restart_every must be given with aggregator adaptive_tree, .*"
      " found None",
    ),
    (
      {"restart_every": 4, "noise_multiplier": 10.0},
      "noise_multiplier must be less than a tenth of .* found 10",
    ),
  ],
)
def test_mistakes_are_named(options, message):
  with pytest.raises(ValueError, match=message):
    adaptive_tree.AdaptiveTreeConfig(clients_per_round=100, **options)
