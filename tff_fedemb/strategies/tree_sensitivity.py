"""The worst participation in a row of complete binary trees.

The squared sensitivity of tree aggregation is the sum over the nodes of the
squared number of a user's participations below (Kairouz et al. 2021, "Practical
and Private (Deep) Learning without Sampling or Shuffling", appendix D.2, which
searches the same space, one number of rounds to wait at a time).
"""

from collections.abc import Sequence
import dataclasses

import numpy as np

# Pairs of left and right halves that are compared at a time.
_MAX_PAIRS = 1 << 20


@dataclasses.dataclass(frozen=True)
class _Ways:
  """Ways to take part in a tree, of which none makes another needless.

  If a user who takes part n times may not before the tree's leaf s, then the
  user may again from leaf max(s + n b - S, c) of what follows the tree of S
  leaves, and the way is open for s up to m. This form is closed under taking
  one tree after another. All attributes are int64 arrays of one size.

  Attributes:
    counts: Numbers n of participations.
    values: Sums of the nodes' squared counts.
    ends: Least leaves c at which the user may take part again.
    starts: Last leaves m at which the user's wait may end; less than b.
  """

  counts: np.ndarray
  values: np.ndarray
  ends: np.ndarray
  starts: np.ndarray

  def __getitem__(self, index: slice | np.ndarray) -> "_Ways":
    return _Ways(
      self.counts[index],
      self.values[index],
      self.ends[index],
      self.starts[index],
    )

  def __len__(self) -> int:
    return len(self.counts)


def max_squared_sensitivity(
  heights: Sequence[int], *, min_separation: int, max_participations: int
) -> int:
  """Largest sum of squared participations below a node, over all nodes.

  Exact: takes every participation into account.

  Args:
    heights: Heights of the complete trees, first to last; 0 is a single leaf.
    min_separation: Leaves from one participation to the next at least.
    max_participations: Participations at most, over all trees; at least 1.
  """
  leaves = sum(1 << height for height in heights)
  bounded = max_participations < -(-leaves // min_separation)
  ways = _ways_by_height(
    max(heights), min_separation, max_participations, bounded
  )
  # best[n, e]: largest value so far with at most n participations, if the user
  # may take part again from leaf e of what follows; never falls in n and e.
  best = np.zeros((max_participations + 1, min_separation))
  for height in heights:
    best = _append(best, ways[height], 1 << height)
  return int(best[-1, -1])


def _append(best: np.ndarray, ways: _Ways, size: int) -> np.ndarray:
  """Returns the table `best` after one more tree."""
  separation = best.shape[1]
  result = np.full_like(best, -np.inf)
  for i in range(len(ways)):
    count, value = int(ways.counts[i]), int(ways.values[i])
    end, start = int(ways.ends[i]), int(ways.starts[i])
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
) -> list[_Ways]:
  """Returns the ways to take part in trees of heights 0 ... max_height."""
  ways = []
  for height in range(max_height + 1):
    size = 1 << height
    if size <= separation:
      ways.append(
        _Ways(
          counts=np.array([0, 1]),
          values=np.array([0, height + 1]),
          ends=np.array([0, separation - size]),
          starts=np.array([separation - 1, size - 1]),
        )
      )
      continue
    halves = ways[-1]
    step = max(_MAX_PAIRS // len(halves), 1)
    parts = [
      _needed(
        _join(halves[i : i + step], halves, size, separation, max_count),
        size,
        separation,
        bounded,
      )
      for i in range(0, len(halves), step)
    ]
    joined = parts[0]
    if len(parts) > 1:
      joined = _needed(_concatenate(parts), size, separation, bounded)
    ways.append(joined)
  return ways


def _join(
  left: _Ways, right: _Ways, size: int, separation: int, max_count: int
) -> _Ways:
  """Returns the ways through a tree of `size` leaves, made of two halves."""
  first, second = np.indices((len(left), len(right))).reshape(2, -1)
  first, second = left[first], right[second]
  half = size // 2
  counts = first.counts + second.counts
  starts = np.minimum(
    first.starts, second.starts + half - first.counts * separation
  )
  ends = np.maximum(first.ends + second.counts * separation - half, second.ends)
  # No wait ends before leaf 0.
  ends = np.maximum(ends, counts * separation - size)
  possible = np.flatnonzero(
    (first.ends <= second.starts) & (starts >= 0) & (counts <= max_count)
  )
  return _Ways(counts, first.values + second.values + counts**2, ends, starts)[
    possible
  ]


def _needed(ways: _Ways, size: int, separation: int, bounded: bool) -> _Ways:
  """Leaves out ways that are never better than another one.

  Args:
    ways: Ways to take part in a tree of `size` leaves.
    size: Leaves of the tree.
    separation: Leaves from one participation to the next at least.
    bounded: Whether a participation here may cost one elsewhere.
  """
  ways = ways[np.lexsort((-ways.starts, ways.ends, -ways.values, -ways.counts))]
  kept = []
  firsts = np.flatnonzero(np.diff(ways.counts, prepend=-1))
  for group in np.split(np.arange(len(ways)), firsts[1:]):
    rest = ways[group]
    if kept and not bounded:
      for way in kept:
        # More participations, worth no less and over no later, whenever the
        # wait ends: parents only reward them.
        shift = way[0] * separation - size
        rest = rest[
          (rest.values > way[1])
          | (rest.ends < np.maximum(way[2], rest.starts + shift))
          | (rest.starts > way[3])
        ]
    shift = int(ways.counts[group[0]]) * separation - size
    while len(rest):
      count, value, end, start = (
        int(rest.counts[0]),
        int(rest.values[0]),
        int(rest.ends[0]),
        int(rest.starts[0]),
      )
      # Ways of the same value that take over where this one closes.
      while True:
        longer = int(
          rest.starts[
            (rest.values == value) & (rest.ends <= start + 1 + shift)
          ].max(initial=start)
        )
        if longer == start:
          break
        start = longer
      kept.append((count, value, end, start))
      rest = rest[(rest.ends < end) | (rest.starts > start)]
  return _Ways(*np.array(kept, dtype=np.int64).T)


def _concatenate(parts: Sequence[_Ways]) -> _Ways:
  return _Ways(
    *(
      np.concatenate([getattr(part, field.name) for part in parts])
      for field in dataclasses.fields(_Ways)
    )
  )
