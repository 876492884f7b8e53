"""Counts all pairs of embeddings by similarity, exactly, in little memory.

Similarities are cosines in double precision, rounded to a grid of 2^-40. A
first pass over blocks of pairs counts them in a histogram. A second pass looks
only inside those bins of the histogram that hold a wanted threshold, and counts
every grid value there. Memory does not grow with the number of pairs.
"""

from collections.abc import Iterator, Sequence
import dataclasses

import numpy as np

from tff_fedemb import progress as progress_lib

# Rounding error of a double precision dot product is near 1e-16: on a grid of
# 2^-40 (1e-12) pairs that tie in exact arithmetic tie here as well, whatever
# order a matrix product sums in.
GRID_STEP = 2.0**-40

# Rows and columns of a block: memory grows with the square of this.
_BLOCK_ROWS = 512
_COLUMNS_PER_ROW = 4
_NUM_BINS = 2**18
_RANGE_SAMPLE = 1024
# Bins with both kinds of pairs are counted exactly up to this many pairs.
_MAX_REFINED_PAIRS = 2**23
# See `Images.blocks`.
_Block = tuple[slice, slice, np.ndarray, np.ndarray | None, np.ndarray | None]


def normalize(embeddings: np.ndarray) -> np.ndarray:
  """Scales vectors to length 1.

  Args:
    embeddings: `[..., dim]` finite numbers, of any length.

  Returns:
    A new array of the same shape in float64; vectors of zeros stay zeros.
  """
  embeddings = embeddings.astype(np.float64)
  # The squares of large components would overflow, those of tiny ones vanish.
  sizes = np.abs(embeddings)
  largest = np.max(sizes, axis=-1, keepdims=True, initial=0.0)
  embeddings /= np.where(largest > 0, largest, 1.0)
  norms = np.linalg.norm(embeddings, axis=-1, keepdims=True)
  embeddings /= np.where(norms > 0, norms, 1.0)
  return embeddings


@dataclasses.dataclass(frozen=True)
class Images:
  """Embeddings sorted by class, and how their pairs fall into blocks.

  Attributes:
    embeddings: `[n, dim]` float64 vectors of length 1, or 0.
    classes: `[n]` ascending class indices, each of 0 .. num_classes - 1.
    sizes: `[num_classes]` images of each class.
  """

  embeddings: np.ndarray
  classes: np.ndarray
  sizes: np.ndarray

  @property
  def num_classes_with_pairs(self) -> int:
    """Number of classes of at least two images."""
    return int(np.sum(self.sizes > 1))

  @property
  def num_positives(self) -> int:
    """Number of pairs i < j of two images of one class."""
    return int(np.sum(self.sizes * (self.sizes - 1) // 2))

  @property
  def num_negatives(self) -> int:
    """Number of pairs i < j of two images of two classes."""
    num_images = len(self.classes)
    return num_images * (num_images - 1) // 2 - self.num_positives

  def blocks(self) -> Iterator[_Block]:
    """Computes the similarities of all pairs, block by block.

    All pairs i < j occur exactly once, in the same blocks on every call.

    Yields:
      Rows and columns, as slices of the images; similarities `[rows, columns]`
      in steps of the grid, whose memory the next block overwrites; and boolean
      masks of the negative and of the positive pairs, or None and None if all
      pairs of the block are negative.
    """
    num_pairs = self.num_positives + self.num_negatives
    with progress_lib.create_bar(
      "Comparing", unit="pairs", total=num_pairs, unit_scale=True
    ) as progress:
      for block in self._blocks():
        yield block
        # Blocks on the diagonal hold some pairs twice.
        progress.update(min(block[2].size, num_pairs - progress.n))

  def _blocks(self) -> Iterator[_Block]:
    """Yields what `blocks` does, without a progress bar."""
    num_images = len(self.classes)
    class_ends = np.cumsum(self.sizes)[self.classes]
    index = np.arange(num_images)
    width = _COLUMNS_PER_ROW * _BLOCK_ROWS
    scaled = self.embeddings / GRID_STEP
    # Allocating memory for every block would take as long as the products.
    memory = np.empty(_BLOCK_ROWS * width)
    for start in range(0, num_images, _BLOCK_ROWS):
      rows = slice(start, min(start + _BLOCK_ROWS, num_images))
      # Sorted by class, all columns from here on are of later classes.
      edge = class_ends[rows.stop - 1]
      for first, last in ((start, edge), (edge, num_images)):
        for left in range(first, last, width):
          columns = slice(left, min(left + width, last))
          shape = (rows.stop - start, columns.stop - left)
          levels = memory[: shape[0] * shape[1]].reshape(shape)
          np.matmul(scaled[rows], self.embeddings[columns].T, out=levels)
          np.rint(levels, out=levels)
          if first == edge:
            yield rows, columns, levels, None, None
            continue
          row_classes = self.classes[rows, None]
          column_classes = self.classes[None, columns]
          positive = row_classes == column_classes
          positive &= index[rows, None] < index[None, columns]
          yield rows, columns, levels, row_classes < column_classes, positive


@dataclasses.dataclass(frozen=True)
class Steps:
  """Accepted pairs as the threshold falls from one step to the next.

  All figures below are exact if each different similarity is a step.

  Attributes:
    levels: Similarity of each step in steps of the grid, descending, `[n]`.
    accepted_negatives: Negative pairs at or above the step, `[n]`.
    accepted_positives: Positive pairs at or above the step, `[n]`.

  Examples:
    Ten negative and ten positive pairs at three levels.

    >>> steps = pairs.Steps.from_counts(
    ...   levels=np.array([9.0, 5.0, 1.0]),
    ...   negatives=np.array([0, 1, 9]),
    ...   positives=np.array([6, 2, 2]),
    ... )
    >>> steps.recall(0.1)
    0.8
  """

  levels: np.ndarray
  accepted_negatives: np.ndarray
  accepted_positives: np.ndarray

  @classmethod
  def from_counts(
    cls, levels: np.ndarray, negatives: np.ndarray, positives: np.ndarray
  ) -> "Steps":
    """Returns the steps of pairs that are counted by level.

    Args:
      levels: Similarities in steps of the grid, in any order, `[n]`.
      negatives: Number of negative pairs at each level, `[n]`.
      positives: Number of positive pairs at each level, `[n]`.

    Returns:
      The same pairs, summed up from the highest level down.
    """
    order = np.argsort(-levels)
    accepted_negatives = np.cumsum(negatives[order])
    accepted_positives = np.cumsum(positives[order])
    return cls(levels[order], accepted_negatives, accepted_positives)

  def num_within(self, false_accept_rate: float | np.ndarray) -> np.ndarray:
    """Returns how many steps stay within a rate.

    Args:
      false_accept_rate: The rate or rates; negative ones allow no pair.

    Returns:
      Number of steps from the highest down, in [0, n], of the shape of the
      rates.
    """
    rates = self.accepted_negatives / self.accepted_negatives[-1]
    return np.searchsorted(rates, false_accept_rate, side="right")

  def num_accepted_positives(self, false_accept_rate: float) -> int:
    """Returns how many positive pairs are accepted within the rate.

    Args:
      false_accept_rate: Largest share of negative pairs to accept.
    """
    steps = int(self.num_within(false_accept_rate))
    return int(self.accepted_positives[steps - 1]) if steps else 0

  def recall(self, false_accept_rate: float) -> float:
    """Returns the share of positive pairs accepted within the rate, in [0, 1].

    Args:
      false_accept_rate: Largest share of negative pairs to accept.
    """
    accepted = self.num_accepted_positives(false_accept_rate)
    return float(accepted / self.accepted_positives[-1])

  def threshold(self, false_accept_rate: float) -> float:
    """Returns the smallest threshold: just above the next negative pair.

    Args:
      false_accept_rate: Largest share of negative pairs to accept.

    Returns:
      A cosine similarity on the grid; -1 if all pairs are accepted, and above 1
      if even identical embeddings may not be.
    """
    step = int(self.num_within(false_accept_rate))
    if step == len(self.levels):
      return -1.0
    return float((self.levels[step] + 1) * GRID_STEP)

  def crossing(self) -> int:
    """Returns the first step with no fewer false accepts than false rejects.

    Both are shares: of the negative and of the positive pairs.
    """
    return int(np.argmax(self._excess() >= 0))

  def _excess(self) -> np.ndarray:
    """False accept rate less false reject rate, of each step."""
    negatives = self.accepted_negatives
    positives = self.accepted_positives
    return negatives / negatives[-1] + positives / positives[-1] - 1

  def equal_error_rate(self) -> float:
    """Returns where both error rates are equal, on the line between steps.

    The result is in [0, 1]; 0 means that a threshold separates all pairs.
    """
    step = self.crossing()
    # Before the first step, nothing is accepted.
    excess = np.append(-1.0, self._excess())
    rates = self.accepted_negatives / self.accepted_negatives[-1]
    rates = np.append(0.0, rates)
    below, above = excess[step : step + 2]
    low, high = rates[step : step + 2]
    return float(low + (high - low) * below / (below - above))

  def auc(self) -> float:
    """Returns the area under the ROC curve, in [0, 1]; a tie counts half.

    It is the probability that a random positive pair is more similar than a
    random negative one.
    """
    negatives = np.diff(self.accepted_negatives, prepend=0)
    positives = np.diff(self.accepted_positives, prepend=0)
    below = self.accepted_negatives[-1] - self.accepted_negatives
    wins = np.dot(positives.astype(float), below + 0.5 * negatives)
    total = float(self.accepted_positives[-1]) * self.accepted_negatives[-1]
    return float(wins / total)


@dataclasses.dataclass(frozen=True)
class PairCounts:
  """The result of `count_pairs`.

  Attributes:
    steps: Accepted pairs by threshold; exact at each of its steps.
    auc_error_bound: Largest possible error of `steps.auc()`.
    false_accepts: `[rates, n]` negative pairs accepted that involve the image,
      at about the rate's threshold.
    true_accepts: `[rates, n]` positive pairs accepted that involve the image,
      at the same thresholds.
  """

  steps: Steps
  auc_error_bound: float
  false_accepts: np.ndarray
  true_accepts: np.ndarray


def count_pairs(
  images: Images,
  false_accept_rates: Sequence[float],
  *,
  image_rates: Sequence[float] = (),
  with_crossing: bool = False,
) -> PairCounts:
  """Counts negative and positive pairs by similarity.

  Args:
    images: At least one positive and one negative pair.
    false_accept_rates: Rates at which recall and threshold must be exact. A
      negative rate means that no negative pair is accepted.
    image_rates: Rates at which accepts are counted for each image, at the first
      bin edge of the histogram above the threshold.
    with_crossing: Whether the equal error rate must be exact.

  Returns:
    The counts. Where nothing was asked for, the pairs of a bin count as ties,
    if bins with both kinds hold more than 2^23 pairs.
  """
  bins = _Bins.spanning(images.embeddings)
  counts = _first_pass(images, bins)
  edges = bins.lowest + bins.width * np.arange(_NUM_BINS)
  filled = np.any(counts, axis=0)
  found = counts[:, filled]
  coarse = Steps.from_counts(edges[filled], found[0], found[1])

  refined = np.zeros(_NUM_BINS, bool)
  for rate in false_accept_rates:
    threshold = _threshold_bin(coarse, bins, rate)
    if threshold >= 0:
      refined[threshold] = True
  if with_crossing:
    crossing = coarse.levels[[coarse.crossing()]]
    refined[bins.index(crossing)] = True
  mixed = np.all(counts, axis=0)
  if np.sum(counts[:, mixed]) <= _MAX_REFINED_PAIRS:
    refined |= mixed

  cuts = [_threshold_bin(coarse, bins, rate) for rate in image_rates]
  levels, fine, accepts = _second_pass(images, bins, refined, cuts)
  rest = filled & ~refined
  negatives, positives = np.append(counts[:, rest], fine, axis=1)
  steps = Steps.from_counts(
    np.append(edges[rest], levels), negatives, positives
  )
  # AUC treats all pairs of a bin that was not refined as ties.
  tied = np.where(refined, 0.0, counts)
  unknown = np.dot(tied[0], tied[1])
  total = float(images.num_positives) * images.num_negatives
  bound = float(0.5 * unknown / total)
  return PairCounts(steps, bound, accepts[:, 0], accepts[:, 1])


@dataclasses.dataclass(frozen=True)
class _Bins:
  """Equal bins for the grid similarities; the outermost two are open.

  Attributes:
    lowest: Lower edge of the first bin, in steps of the grid.
    width: Width of a bin in steps of the grid, a power of two.
  """

  lowest: float
  width: float

  @classmethod
  def spanning(cls, embeddings: np.ndarray) -> "_Bins":
    """Returns bins over the range of a sample's similarities.

    Untrained or collapsed embeddings lie in a narrow cone, for which bins over
    [-1, 1] would be too wide.
    """
    stride = -(-len(embeddings) // _RANGE_SAMPLE)
    sample = embeddings[::stride]
    levels = np.rint((sample / GRID_STEP) @ sample.T)
    span = float(np.max(levels) - np.min(levels)) + 1.0
    # A power of two keeps the arithmetic exact.
    width = 2.0 ** max(np.ceil(np.log2(span / _NUM_BINS)), 0.0)
    return cls(float(np.min(levels)), width)

  def index(
    self,
    levels: np.ndarray,
    out: np.ndarray | None = None,
  ) -> np.ndarray:
    """Returns the bin of each level, int64, in the memory of `out` if given."""
    position = np.multiply(levels, 1.0 / self.width, out=out)
    position -= self.lowest / self.width
    np.clip(position, 0, _NUM_BINS - 1, out=position)
    index = position.view(np.int64)
    # NumPy would copy arrays of two dimensions that share memory.
    np.copyto(index.ravel(), position.ravel(), casting="unsafe")
    return index


def _threshold_bin(coarse: Steps, bins: _Bins, rate: float) -> int:
  """Returns the bin with the highest negative pair rejected; -1 if none is."""
  step = int(coarse.num_within(rate))
  if step == len(coarse.levels):
    return -1
  return int(bins.index(coarse.levels[[step]])[0])


def _first_pass(images: Images, bins: _Bins) -> np.ndarray:
  """Counts negatives and positives in each bin, `[2, bins]`."""
  counts = np.zeros((2, _NUM_BINS), np.int64)
  for _, _, levels, is_negative, is_positive in images.blocks():
    # Reuses the memory of the block, which is faster than new memory.
    index = bins.index(levels, out=levels)
    for kind, mask in enumerate((is_negative, is_positive)):
      if mask is not None or kind == 0:
        chosen = index.ravel() if mask is None else index[mask]
        counts[kind] += np.bincount(chosen, minlength=_NUM_BINS)
  return counts


def _second_pass(
  images: Images, bins: _Bins, refined: np.ndarray, cuts: Sequence[int]
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
  """Counts single similarities in some bins, and accepts for each image.

  The counts `[2, levels]` are of negatives and positives. The accepts `[cuts,
  2, n]` are, for each image, its false and true accepts in bins above the cut.
  """
  values: tuple[list[np.ndarray], ...] = ([], [])
  repeats: tuple[list[np.ndarray], ...] = ([], [])
  accepts = np.zeros((len(cuts), 2, len(images.classes)), np.int64)
  # Skips most pairs, which lie below every bin that is asked for.
  asked = np.flatnonzero(refined)[:1].tolist()
  for cut in cuts:
    asked.append(cut + 1)
  lowest = min(asked, default=_NUM_BINS)
  floor = bins.lowest + bins.width * lowest if lowest else -np.inf
  for rows, columns, levels, is_negative, is_positive in images.blocks():
    high = levels >= floor
    for kind, mask in enumerate((is_negative, is_positive)):
      if mask is None and kind == 1:
        continue
      wanted = np.flatnonzero(high if mask is None else high & mask)
      chosen = levels.ravel()[wanted]
      index = bins.index(chosen)
      inside = chosen[refined[index]]
      different, times = np.unique(inside, return_counts=True)
      values[kind].append(different)
      repeats[kind].append(times)
      for cut, accept in zip(cuts, accepts, strict=True):
        accepted = wanted[index > cut]
        row, column = np.divmod(accepted, levels.shape[1])
        np.add.at(accept[kind, rows], row, 1)
        np.add.at(accept[kind, columns], column, 1)

  of_negatives, of_positives = map(np.concatenate, values)
  levels, places = np.unique(
    np.append(of_negatives, of_positives), return_inverse=True
  )
  counts = []
  sides = np.split(places, [len(of_negatives)])
  for side, times in zip(sides, map(np.concatenate, repeats), strict=True):
    summed = np.bincount(side, weights=times, minlength=len(levels))
    counts.append(summed.astype(np.int64))
  return levels, np.stack(counts), accepts
