"""Binary tree aggregation (DP-FTRL), with the efficient estimator.

Kairouz et al. 2021, "Practical and Private (Deep) Learning without Sampling or
Shuffling", appendix D; Honaker 2015, "Efficient Use of Differentially Private
Binary Trees". The rounds are the leaves of binary trees, every complete node is
released with noise of its own, and a prefix sum is that of the nodes that make
it up, each estimated from all nodes below it.
"""

from collections.abc import Iterator
import dataclasses
import math
from typing import Any, ClassVar

import numpy as np
from scipy import linalg

from tff_fedemb import config
from tff_fedemb.mechanisms import strategy
from tff_fedemb.mechanisms import tree_sensitivity


@dataclasses.dataclass(frozen=True)
class TreeStrategy(strategy.Strategy):
  """One tree over all rounds, or one after another.

  The matrix C has a row for each complete node. A number of rounds that is no
  power of two is cut into complete trees, the largest first. After a restart
  the noise of the last prefix sum stays, and a new tree's adds to it.

  Attributes:
    restart_every: Rounds of a tree; None never restarts.

  Raises:
    ValueError: If it is out of its range.
  """

  name: ClassVar[str] = "tree"

  restart_every: int | None = config.field(None, minimum=1)

  def sensitivity(self, schedule: strategy.Schedule) -> float:
    """Exact, as `Strategy.sensitivity`, over the restarts too."""
    heights = []
    for size in self._tree_sizes(schedule.rounds):
      for height in reversed(range(size.bit_length())):
        if size >> height & 1:
          heights.append(height)
    return math.sqrt(
      tree_sensitivity.max_squared_sensitivity(
        heights,
        min_separation=min(schedule.min_separation, schedule.rounds),
        max_participations=schedule.participations,
      )
    )

  def model_stddevs(
    self,
    rounds: int,
    workload: strategy.Workload = strategy.PREFIX_SUMS,
  ) -> np.ndarray:
    momentum = workload.momentum
    trees = _complete_trees(max(self._tree_sizes(rounds)), momentum)
    variances, before = [], _Moments(0.0, 0.0, 0.0)
    for size in self._tree_sizes(rounds):
      for height in reversed(range(size.bit_length())):
        if size >> height & 1:
          in_tree, at_end = trees[height]
          carried = before.carried(in_tree.size, momentum)
          variances.append(carried.model + in_tree)
          before = carried.at(-1).plus(at_end)
    return np.sqrt(np.concatenate(variances))

  def round_stddevs(self, rounds: int) -> np.ndarray:
    ages = np.concatenate(
      [np.arange(1, size + 1) for size in self._tree_sizes(rounds)]
    )
    heights = np.arange(int(ages.max()).bit_length())
    variances = _node_variances(heights)
    # A round completes a node of height h, and the prefix sum before it had the
    # left halves in that node in its place, one of each height g < h. The
    # node's estimate weighs a node 2^(h - g) times less, so the covariance with
    # that node's own estimate is variances[h] / 2^(h - g).
    below = np.cumsum(variances) - variances
    changes = variances + below - 2 * variances * (1.0 - 0.5**heights)
    completed = np.log2(ages & -ages).astype(np.int64)
    return np.sqrt(changes[completed])

  def round_noise_matrix(self, rounds: int) -> np.ndarray:
    return linalg.block_diag(
      *(
        np.diff(_prefix_noise_matrix(size), axis=0, prepend=0.0)
        for size in self._tree_sizes(rounds)
      )
    )

  def model_copies(self, rounds: int) -> int:
    return max(self._tree_sizes(rounds)).bit_length()

  def _tree_sizes(self, rounds: int) -> Iterator[int]:
    """Yields the rounds of each tree, the last one's only up to `rounds`."""
    size = self.restart_every or rounds
    for start in range(0, rounds, size):
      yield min(size, rounds - start)


@dataclasses.dataclass(frozen=True)
class _Moments:
  """Second moments of the noise of a model and of the prefix sum in it.

  A model is momentum times the one before plus the prefix sum.

  Attributes:
    model: Variance of the model's noise, of one round or of several.
    both: Covariance of it and of the prefix sum's.
    prefix: Variance of the prefix sum's noise.
  """

  model: Any
  both: Any
  prefix: Any

  def carried(self, rounds: int, momentum: float) -> "_Moments":
    """Their remaining share in each of the next rounds, [rounds]."""
    kept = momentum ** np.arange(1, rounds + 1)
    added = strategy.Workload(momentum).first_column(rounds)
    return self.mixed(kept, added)

  def mixed(self, kept: Any, added: Any) -> "_Moments":
    """Moments of kept x model + added x prefix sum, and of the prefix sum."""
    return _Moments(
      kept**2 * self.model
      + 2 * kept * added * self.both
      + added**2 * self.prefix,
      kept * self.both + added * self.prefix,
      self.prefix + 0.0 * kept,
    )

  def at(self, index: int) -> "_Moments":
    """Moments of one of several rounds."""
    return _Moments(self.model[index], self.both[index], self.prefix[index])

  def plus(self, other: "_Moments") -> "_Moments":
    """Moments after independent noise is added."""
    return _Moments(
      self.model + other.model,
      self.both + other.both,
      self.prefix + other.prefix,
    )


def _complete_trees(
  max_size: int, momentum: float
) -> list[tuple[np.ndarray, _Moments]]:
  """Noise of the models within a complete tree of each height, from 0 on.

  Args:
    max_size: Number of leaves up to which there are to be trees.
    momentum: See `Workload`.

  Returns:
    By height h the variance after each leaf, [2^h], and the moments after the
    last one, where the tree's own estimate takes the place of its halves'.
  """
  trees = [(np.ones(1), _Moments(1.0, 1.0, 1.0))]
  for height in range(1, max_size.bit_length()):
    in_half, half = trees[-1]
    before, own = _node_variances(np.array([height - 1, height]))
    in_right = half.carried(in_half.size, momentum)
    # The estimate is own x (fresh noise) + share x (that of each half).
    share = own / (2.0 * before)
    kept = momentum**in_half.size
    added = strategy.Workload(momentum).first_column(in_half.size)[-1]
    left = half.mixed(kept, added + share - 1.0)
    right = half.mixed(1.0, share - 1.0)
    at_end = _Moments(
      left.model + right.model + own**2,
      share * (left.both + right.both) + own**2,
      own,
    )
    variances = np.concatenate([in_half, in_right.model + in_half])
    variances[-1] = at_end.model
    trees.append((variances, at_end))
  return trees


def _node_variances(heights: np.ndarray) -> np.ndarray:
  """Variance of the efficient estimate of a node with complete nodes below."""
  return 1.0 / (2.0 - 0.5**heights)


def _prefix_noise_matrix(size: int) -> np.ndarray:
  """Noise of a tree's prefix sums by node, [size, number of nodes]."""
  counts = [size >> height for height in range(size.bit_length())]
  own_noise = np.split(np.eye(sum(counts)), np.cumsum(counts)[:-1])
  ages = np.arange(1, size + 1)
  prefixes = np.zeros((size, sum(counts)))
  halves = np.zeros((0, sum(counts)))
  for height, nodes in enumerate(own_noise):
    if height:
      pairs = halves[: 2 * len(nodes)]
      nodes = nodes + (pairs[::2] + pairs[1::2]) / 2.0
    # The last node of this height that a prefix holds, if its length has it.
    used = np.flatnonzero(ages >> height & 1)
    weight = _node_variances(np.array(height))
    prefixes[used] += weight * nodes[(ages[used] >> height) - 1]
    halves = nodes
  return prefixes
