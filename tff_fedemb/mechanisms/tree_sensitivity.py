"""The worst participation in a row of complete binary trees.

The squared sensitivity of tree aggregation is the sum, over the nodes, of the
squared number of a user's participations below the node (Kairouz et al. 2021,
"Practical and Private (Deep) Learning without Sampling or Shuffling", appendix
D.2, which searches the same space, one number of rounds to wait at a time).
"""

from collections.abc import Sequence

import numpy as np

# How many pairs of left and right halves are compared at a time.
_MAX_PAIRS = 1 << 20

# Ways to take part in a tree are an int64 array with a row (count, value, end,
# start) for each way; ways that are never better than another one are left out.
# A way has `count` participations, and the squared counts of the nodes add up
# to `value`. Suppose a user may not take part before the tree's leaf s. The way
# is open if s is at most `start` < separation. After it, the user may take part
# again from leaf max(s + count x separation - size, end) of what follows the
# tree of `size` leaves. Ways through one tree after another have this form too.


def max_squared_sensitivity(
  heights: Sequence[int], *, min_separation: int, max_participations: int
) -> int:
  """Largest sum, over all nodes, of squared participations below a node.

  The result is exact: it is the maximum over all possible participations.

  Args:
    heights: Heights of the complete trees, first to last; 0 is a single leaf.
    min_separation: Fewest leaves from one participation to the next, at least
      1.
    max_participations: Most participations over all trees, at least 1.

  Returns:
    The squared sensitivity, an integer, for a change of 1 in each
    participation.
  """
  leaves = sum(1 << height for height in heights)
  bounded = max_participations < -(-leaves // min_separation)
  ways = _ways_by_height(
    max(heights), min_separation, max_participations, bounded
  )
  # best[n, e]: largest value so far with at most n participations if the user
  # may take part again from leaf e of what follows. It never falls in n or e.
  best = np.zeros((max_participations + 1, min_separation))
  for height in heights:
    best = _append(best, ways[height], 1 << height)
  return int(best[-1, -1])


def _append(best: np.ndarray, ways: np.ndarray, size: int) -> np.ndarray:
  """Returns the table `best` after one more tree.

  Args:
    best: As in `max_squared_sensitivity`, float64
      `[max_participations + 1, separation]`.
    ways: Ways through the tree, int64 `[n, 4]`.
    size: Leaves of the tree.
  """
  separation = best.shape[1]
  result = np.full_like(best, -np.inf)
  for count, value, end, start in ways.tolist():
    shift = count * separation - size
    before = best[: len(best) - count, : start + 1] + value
    after = result[count:]
    # A wait that ends before this leaf does not delay the next participation.
    free = min(end - shift, start)
    np.maximum(after[:, end], before[:, free], out=after[:, end])
    delayed = after[:, end + 1 : max(start + shift, end) + 1]
    np.maximum(delayed, before[:, end + 1 - shift :], out=delayed)
  return np.maximum.accumulate(np.maximum.accumulate(result, 1), 0)


def _ways_by_height(
  max_height: int, separation: int, max_count: int, bounded: bool
) -> list[np.ndarray]:
  """Returns the ways to take part in trees of heights 0 ... max_height.

  A tree of no more leaves than the separation has a user once or not at all.
  Larger trees are joined of two halves.

  Args:
    max_height: Height of the largest tree.
    separation: Fewest leaves from one participation to the next.
    max_count: Most participations.
    bounded: Whether a participation here may cost one elsewhere.

  Returns:
    An int64 array `[n, 4]` for each height.
  """
  ways = []
  for height in range(max_height + 1):
    size = 1 << height
    if size <= separation:
      once = (1, height + 1, separation - size, size - 1)
      ways.append(np.array([(0, 0, 0, separation - 1), once]))
      continue
    halves = ways[-1]
    step = max(_MAX_PAIRS // len(halves), 1)
    parts = []
    for first in range(0, len(halves), step):
      left = halves[first : first + step]
      joined = _join(left, halves, size, separation, max_count)
      parts.append(_needed(joined, size, separation, bounded))
    joined = np.concatenate(parts)
    if len(parts) > 1:
      joined = _needed(joined, size, separation, bounded)
    ways.append(joined)
  return ways


def _join(
  left: np.ndarray,
  right: np.ndarray,
  size: int,
  separation: int,
  max_count: int,
) -> np.ndarray:
  """Returns the ways through a tree of `size` leaves, made of two halves.

  Each pair of ways is possible if the right one is still open when the wait
  after the left one ends. The root adds its own squared count.

  Args:
    left: Ways through the left half, `[n, 4]`.
    right: Ways through the right half, `[m, 4]`.
    size: Leaves of the whole tree.
    separation: Fewest leaves from one participation to the next.
    max_count: Most participations; pairs with more are left out.
  """
  first, second = np.indices((len(left), len(right))).reshape(2, -1)
  first_counts, first_values, first_ends, first_starts = left[first].T
  second_counts, second_values, second_ends, second_starts = right[second].T
  half = size // 2
  counts = first_counts + second_counts
  values = first_values + second_values + counts**2
  ends = np.maximum(first_ends + second_counts * separation - half, second_ends)
  # No wait ends before leaf 0.
  ends = np.maximum(ends, counts * separation - size)
  starts = np.minimum(
    first_starts, second_starts + half - first_counts * separation
  )
  possible = (
    (first_ends <= second_starts) & (starts >= 0) & (counts <= max_count)
  )
  return np.stack([counts, values, ends, starts], axis=1)[possible]


def _needed(
  ways: np.ndarray, size: int, separation: int, bounded: bool
) -> np.ndarray:
  """Leaves out ways that are never better than another one.

  Args:
    ways: Ways through a tree, `[n, 4]`.
    size: Leaves of the tree.
    separation: Fewest leaves from one participation to the next.
    bounded: Whether a participation here may cost one elsewhere. If it does, a
      way with fewer participations is kept even if one with more is worth as
      much.
  """
  counts, values, ends, starts = ways.T
  ways = ways[np.lexsort((-starts, ends, -values, -counts))]
  kept = []
  firsts = np.flatnonzero(np.diff(ways[:, 0], prepend=-1))
  for rest in np.split(ways, firsts[1:]):
    shift = int(rest[0, 0]) * separation - size
    if kept and not bounded:
      for count, value, end, start in kept:
        # A way with more participations that is worth no less and ends no
        # later, whenever the wait ends, is at least as good: parent nodes only
        # reward more of them.
        _, values, ends, starts = rest.T
        latest = np.maximum(end, starts + count * separation - size)
        rest = rest[(values > value) | (ends < latest) | (starts > start)]
    while len(rest):
      count, value, end, start = rest[0].tolist()
      _, values, ends, starts = rest.T
      # Ways of the same value that are open where this one is closed.
      while True:
        follows = (values == value) & (ends <= start + 1 + shift)
        longer = int(starts[follows].max(initial=start))
        if longer == start:
          break
        start = longer
      kept.append((count, value, end, start))
      rest = rest[(ends < end) | (starts > start)]
  return np.array(kept, dtype=np.int64)
