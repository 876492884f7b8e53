"""Tests of adaptive clipping: how the noise is split, how the norm moves."""

import numpy as np
import pytest
from scipy import stats

from tests.mechanisms import cases
from tests.mechanisms import noise_theory
from tests.mechanisms import released
from tff_fedemb.mechanisms import adaptive_gaussian

# The count's noise has s = 0.05 x 100 = 5, and 6^-2 = 7.5^-2 + (2 x 5)^-2.
_NOISE_MULTIPLIER = 6.0
_OF_SUM = 7.5
_COUNT_STDDEV = 5.0
# Trees, and rounds of each, where noise is told from few numbers.
_NUM_TREES, _TREE = 150, 6

# For the cases of the mechanisms: every option, and others than by default.
OPTIONS = {"target_unclipped_quantile": 0.4, "clip_learning_rate": 0.1}
OTHER = {"target_unclipped_quantile": 0.8, "clip_learning_rate": 0.7}


def too_noisy(**options):
  """More noise than can be split between the sum and the count."""
  return (
    {"noise_multiplier": 10.0, **options},
    "noise_multiplier must be less than a tenth .*, 10, .* found 10",
  )


CASES = cases.Cases(
  options=OPTIONS,
  searchable=frozenset(OPTIONS),
  clipping=[OTHER],
  # Constant as good as, and following its own noise.
  noisy=[cases.Slow(clip_learning_rate=1e-9), {}],
  mistakes=[
    (
      {"target_unclipped_quantile": 1.0},
      r"target_unclipped_quantile must be in \(0, 1\), found 1",
    ),
    too_noisy(),
  ],
)


def test_split_of_the_noise_by_hand():
  config = adaptive_gaussian.AdaptiveGaussianConfig(
    noise_multiplier=_NOISE_MULTIPLIER
  )
  assert config.noise_multiplier_of_sum(100) == pytest.approx(_OF_SUM)
  assert config.count_stddev(100) == pytest.approx(_COUNT_STDDEV)


def _count_noise(clip_norms):
  """Noise of the counts that moved the clip norm at learning rate 0.2."""
  moves = -np.diff(np.log(clip_norms)) / 0.2
  # One client, below the clip norm, counts for 1/2 above the half.
  return (moves * released.CLIENTS_PER_ROUND - 0.5) / _COUNT_STDDEV


@pytest.mark.slow
def test_noise_of_the_count(create_aggregation):
  """The clip norm's logarithm moves as the noised count says.

  False alarms: once in 10^6 runs at most, see `noise_theory.alarms`, and the
  same for the two correlations with the released sum.

  Power: the variance of 800 numbers has a standard error of 7 %, and 38 % too
  much make an alarm. A standard deviation that is 30 % too large is missed once
  in 100 runs, one that is 50 % too large, as tried here, once in 10^7.
  """
  rounds = create_aggregation(
    "adaptive_gaussian", noise_multiplier=_NOISE_MULTIPLIER, **released.CONFIG
  ).run_on_zeros(801)
  count_noise = _count_noise(rounds.column("clip_norm"))
  noise = count_noise.reshape(1, 1, -1)
  assert not noise_theory.alarms(noise, np.eye(1))
  assert noise_theory.alarms(1.5 * noise, np.eye(1))
  # The two releases of a round share no noise.
  for numbers in (rounds.means[:-1, 0], rounds.means[:-1, 4]):
    scaled = numbers / rounds.column("noise_stddev_of_mean")[:-1]
    assert stats.pearsonr(scaled, count_noise)[1] > 1e-6 / 2


@pytest.mark.slow
def test_noise_of_the_count_in_trees(create_aggregation):
  """As above, tree by tree; sum, count and tensors share no noise.

  False alarms: once in 10^6 runs at most for the counts, and once for them and
  a number of each tensor together.

  Power: as above, of 900 numbers: a standard deviation that is 50 % too large
  is missed once in 10^7 runs.
  """
  aggregation = create_aggregation(
    "adaptive_tree",
    rounds=_TREE,
    restart_every=_TREE,
    noise_multiplier=_NOISE_MULTIPLIER,
    **released.CONFIG,
  )
  first, second = aggregation.seeds(aggregation.first_state)
  assert np.all(first != second)
  rounds = aggregation.run_on_zeros(_NUM_TREES * _TREE)
  estimates = np.array(
    [released.CLIP_NORM]
    + [
      float(report["dp_query_metrics"]["estimate_clip"])
      for report in rounds.reports
    ]
  )
  scale = _OF_SUM * rounds.column("clip_norm") / released.CLIENTS_PER_ROUND
  noise = np.stack(
    [
      _count_noise(estimates),
      rounds.means[:, 0] / scale,
      rounds.means[:, 2] / scale,
    ]
  )
  by_round = noise.reshape(3, _NUM_TREES, _TREE).transpose(2, 0, 1)
  matrix = noise_theory.tree_noise_matrix(_TREE)
  counts = by_round[:, :1]
  assert not noise_theory.alarms(counts, matrix)
  assert not noise_theory.alarms(by_round, matrix)
  # Noise that is not a tree's, or not at this level, raises an alarm.
  assert noise_theory.alarms(counts, np.eye(_TREE))
  assert noise_theory.alarms(1.5 * counts, matrix)
  # Each tree ends with the clip norm of the next.
  np.testing.assert_allclose(
    rounds.column("clip_norm").reshape(_NUM_TREES, -1),
    np.repeat(estimates[:-1:_TREE, np.newaxis], _TREE, axis=1),
    rtol=1e-6,
  )
