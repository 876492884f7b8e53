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
from typing import ClassVar

import numpy as np
from scipy import linalg

from tff_fedemb import config
from tff_fedemb.strategies import strategy
from tff_fedemb.strategies import tree_sensitivity


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
    heights = [
      height
      for size in self._tree_sizes(schedule.rounds)
      for height in reversed(range(size.bit_length()))
      if size >> height & 1
    ]
    return math.sqrt(
      tree_sensitivity.max_squared_sensitivity(
        heights,
        min_separation=min(schedule.min_separation, schedule.rounds),
        max_participations=schedule.participations,
      )
    )

  def prefix_sum_stddevs(self, rounds: int) -> np.ndarray:
    variances = []
    finished = 0.0
    for size in self._tree_sizes(rounds):
      heights = np.arange(size.bit_length())
      ages = np.arange(1, size + 1)[:, np.newaxis]
      # The nodes of a prefix sum have no node below them in common.
      in_tree = (ages >> heights & 1) @ _node_variances(heights)
      variances.append(finished + in_tree)
      finished += in_tree[-1]
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
