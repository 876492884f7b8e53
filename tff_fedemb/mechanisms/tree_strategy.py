"""Binary tree aggregation (DP-FTRL), with the efficient estimator.

Kairouz et al. 2021, "Practical and Private (Deep) Learning without Sampling or
Shuffling", appendix D; Honaker 2015, "Efficient Use of Differentially Private
Binary Trees". The rounds are the leaves of binary trees, every complete node is
released with noise of its own, and a prefix sum is the sum of the nodes that
make it up, each estimated from all nodes below it.
"""

from collections.abc import Iterator
import dataclasses
import math
from typing import ClassVar

import numpy as np
from scipy import linalg

from tff_fedemb import config
from tff_fedemb.mechanisms import strategy
from tff_fedemb.mechanisms import tree_sensitivity


@dataclasses.dataclass(frozen=True)
class TreeStrategy(strategy.Strategy):
  """One tree over all rounds, or several trees, one after another.

  The matrix C has a row for each complete node. A number of rounds that is not
  a power of two is cut into complete trees, the largest first. After a restart
  the noise of the last prefix sum stays, and the noise of a new tree adds to
  it.

  Attributes:
    restart_every: Rounds of a tree; None never restarts.

  Raises:
    ValueError: If it is out of its range.
  """

  name: ClassVar[str] = "tree"

  restart_every: int | None = config.field(None, minimum=1)

  def sensitivity(self, schedule: strategy.Schedule) -> float:
    """Exact, as `Strategy.sensitivity`, over the restarts too.

    Args:
      schedule: The rounds, and which of them a user may be in.

    Returns:
      The root of `tree_sensitivity.max_squared_sensitivity` for the complete
      trees that the rounds are cut into.
    """
    squared = tree_sensitivity.max_squared_sensitivity(
      self._heights(schedule.rounds),
      min_separation=min(schedule.min_separation, schedule.rounds),
      max_participations=schedule.participations,
    )
    return math.sqrt(squared)

  def model_stddevs(
    self,
    rounds: int,
    workload: strategy.Workload = strategy.PREFIX_SUMS,
  ) -> np.ndarray:
    """As in the base class, from the second moments of one tree after another.

    No matrix is made: the time is linear in the number of rounds.
    """
    momentum = workload.momentum
    heights = self._heights(rounds)
    trees = _complete_trees(max(heights), momentum)
    variances = []
    before = np.zeros(3)
    for height in heights:
      in_tree, at_end = trees[height]
      carried = _carried(before, in_tree.size, momentum)
      variances.append(carried[0] + in_tree)
      before = carried[:, -1] + at_end
    return np.sqrt(np.concatenate(variances))

  def round_stddevs(self, rounds: int) -> np.ndarray:
    """As in the base class; depends on the largest node a round completes."""
    # Rounds of a tree so far, this one included.
    ages = np.arange(rounds) % (self.restart_every or rounds) + 1
    heights = np.arange(int(ages.max()).bit_length())
    variances = _node_variances(heights)
    # A round completes a node of height h. In its place, the prefix sum before
    # had the left halves in that node, one of each height g < h. The estimate
    # of the whole node weighs a half of height g 2^(h - g) times less, so the
    # covariance with that half's own estimate is variances[h] / 2^(h - g).
    below = np.cumsum(variances) - variances
    changes = variances + below - 2 * variances * (1.0 - 0.5**heights)
    completed = np.log2(ages & -ages).astype(np.int64)
    return np.sqrt(changes[completed])

  def round_noise_matrix(self, rounds: int) -> np.ndarray:
    """As in the base class; m is the number of complete nodes of all trees."""
    blocks = []
    for size in self._tree_sizes(rounds):
      prefixes = _prefix_noise_matrix(size)
      blocks.append(np.diff(prefixes, axis=0, prepend=0.0))
    return linalg.block_diag(*blocks)

  def model_copies(self, rounds: int) -> int:
    """Returns the number of levels of the largest tree."""
    return max(self._tree_sizes(rounds)).bit_length()

  def _tree_sizes(self, rounds: int) -> Iterator[int]:
    """Yields the rounds of each tree, the last one's only up to `rounds`."""
    size = self.restart_every or rounds
    for start in range(0, rounds, size):
      yield min(size, rounds - start)

  def _heights(self, rounds: int) -> list[int]:
    """Heights of the complete trees that the rounds are cut into, in order."""
    heights = []
    for size in self._tree_sizes(rounds):
      for height in reversed(range(size.bit_length())):
        if size >> height & 1:
          heights.append(height)
    return heights


def _mixed(
  moments: np.ndarray, kept: float | np.ndarray, added: float | np.ndarray
) -> np.ndarray:
  """Moments of kept x the model + added x the prefix sum.

  Args:
    moments: `[3]`, see `_complete_trees`.
    kept: A number, or one for each of several rounds, `[rounds]`.
    added: As `kept`.

  Returns:
    Float64 `[3]`, or `[3, rounds]`.
  """
  model, both, prefix = moments
  mixed_model = kept**2 * model + 2 * kept * added * both + added**2 * prefix
  mixed_both = kept * both + added * prefix
  return np.stack(np.broadcast_arrays(mixed_model, mixed_both, prefix))


def _carried(moments: np.ndarray, rounds: int, momentum: float) -> np.ndarray:
  """What remains of moments in each of the next rounds, `[3, rounds]`.

  Args:
    moments: `[3]`, see `_complete_trees`.
    rounds: Number of the next rounds.
    momentum: See `Workload`.
  """
  kept = momentum ** np.arange(1, rounds + 1)
  added = strategy.Workload(momentum).first_column(rounds)
  return _mixed(moments, kept, added)


def _complete_trees(
  max_height: int, momentum: float
) -> list[tuple[np.ndarray, np.ndarray]]:
  """Noise of the models within a complete tree of each height, from 0 on.

  A model is momentum times the one before plus the prefix sum. Its *moments*
  after a round are a float64 array `[3]`: the variance of the model's noise,
  its covariance with the noise of the prefix sum, and the variance of that.

  Args:
    max_height: Height of the largest tree.
    momentum: See `Workload`.

  Returns:
    For each height h, the variance of the model's noise after each leaf,
    `[2^h]`, and the moments after the last leaf, where the tree's own estimate
    takes the place of its halves'.
  """
  trees = [(np.ones(1), np.ones(3))]
  for height in range(1, max_height + 1):
    in_half, half = trees[-1]
    before, own = _node_variances(np.array([height - 1, height]))
    in_right = _carried(half, in_half.size, momentum)[0]
    # The estimate is own x (fresh noise) + share x (that of each half).
    share = own / (2.0 * before)
    kept = momentum**in_half.size
    added = strategy.Workload(momentum).first_column(in_half.size)[-1]
    left = _mixed(half, kept, added + share - 1.0)
    right = _mixed(half, 1.0, share - 1.0)
    model, both, _ = left + right
    at_end = np.array([model + own**2, share * both + own**2, own])
    variances = np.concatenate([in_half, in_right + in_half])
    variances[-1] = at_end[0]
    trees.append((variances, at_end))
  return trees


def _node_variances(heights: np.ndarray) -> np.ndarray:
  """Variance of the efficient estimate of a node with complete nodes below."""
  return 1.0 / (2.0 - 0.5**heights)


def _prefix_noise_matrix(size: int) -> np.ndarray:
  """Noise of a tree's prefix sums by node, `[size, number of nodes]`.

  Entry (t, n) is the weight of the noise of node n in the prefix sum after
  round t. Nodes are in the order of their heights, and from left to right.

  Args:
    size: Rounds of the tree, at least 1.
  """
  counts = [size >> height for height in range(size.bit_length())]
  own_noise = np.split(np.eye(sum(counts)), np.cumsum(counts)[:-1])
  ages = np.arange(1, size + 1)
  prefixes = np.zeros((size, sum(counts)))
  halves = np.zeros((0, sum(counts)))
  for height, nodes in enumerate(own_noise):
    if height:
      pairs = halves[: 2 * len(nodes)]
      nodes = nodes + (pairs[::2] + pairs[1::2]) / 2.0
    # A prefix holds one node of this height, the last complete one, if this
    # bit of its length is set.
    used = np.flatnonzero(ages >> height & 1)
    weight = _node_variances(np.array(height))
    prefixes[used] += weight * nodes[(ages[used] >> height) - 1]
    halves = nodes
  return prefixes
