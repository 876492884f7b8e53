"""Images that look alike to a model: neighbours, and the hardest pairs.

They illustrate a sample; `verification` has the figures over all pairs.
"""

import dataclasses

import numpy as np

from tff_fedemb.evaluation import pairs

# Thresholds lie 2^-40 above a pair of two classes. An export and another batch
# size move its cosine by more, up to this share of its distance from 1.
_PRECISION = 1e-3
_LARGEST_MARGIN = 1e-5


@dataclasses.dataclass(frozen=True)
class Pair:
  """Two images, and how similar their embeddings are.

  Attributes:
    first: Row of an image.
    second: Row of the other image.
    similarity: Cosine of their embeddings, in [-1, 1].
  """

  first: int
  second: int
  similarity: float

  def is_accepted(self, threshold: float) -> bool:
    """Whether it is accepted; the pair that a threshold lies above is not."""
    margin = min(_PRECISION * (1.0 - threshold), _LARGEST_MARGIN)
    return self.similarity >= threshold + margin


class Similarities:
  """Cosine similarities of all pairs of some images, held in memory.

  Use a sample of some thousand images: time and memory grow with the square of
  their number.

  Examples:
    >>> embeddings = np.array([[1.0, 0.0], [1.0, 0.1], [0.0, 1.0]])
    >>> found = similarities.Similarities(embeddings, np.array([0, 0, 1]))
    >>> found.nearest(row=0, count=1)[0].second
    1
  """

  def __init__(self, embeddings: np.ndarray, labels: np.ndarray):
    """Computes all similarities.

    Args:
      embeddings: `[n, dim]` finite numbers, of any length; n at least 2. The
        memory is some 10 n^2 bytes.
      labels: `[n]` class of each image.
    """
    self._unit = pairs.normalize(embeddings)
    self._labels = labels
    unit = self._unit.astype(np.float32)
    self._cosines = np.clip(unit @ unit.T, -1.0, 1.0)
    # An image is not its own neighbour.
    np.fill_diagonal(self._cosines, -np.inf)
    every = np.ones(self._cosines.shape, bool)
    upper = np.triu(every, k=1)
    self._same = upper & (labels[:, None] == labels[None])
    self._different = upper & ~self._same

  @property
  def same(self) -> np.ndarray:
    """Similarities of the pairs i < j of one class, float32 `[p]`."""
    return self._cosines[self._same]

  @property
  def different(self) -> np.ndarray:
    """Similarities of the pairs i < j of two classes, float32 `[m]`."""
    return self._cosines[self._different]

  def nearest(self, row: int, count: int) -> list[Pair]:
    """Returns the images most similar to one, the nearest first.

    Args:
      row: Row of the image, which is left out.
      count: Largest number of images.

    Returns:
      Pairs whose first image is `row`.
    """
    cosines = self._cosines[row]
    order = np.argsort(-cosines, kind="stable")
    nearest = order[: min(count, len(cosines) - 1)]
    return [self._pair(row, other) for other in nearest.tolist()]

  def _pair(self, first: int, second: int) -> Pair:
    """A pair with its cosine in double precision."""
    cosine = float(self._unit[first] @ self._unit[second])
    return Pair(first, second, min(max(cosine, -1.0), 1.0))

  def is_nearest_right(self) -> np.ndarray:
    """Whether the nearest image is of the same class.

    Returns:
      bool `[m]`, in order, for the m images whose class has at least one more.
    """
    _, inverse, counts = np.unique(
      self._labels, return_inverse=True, return_counts=True
    )
    nearest = self._labels[np.argmax(self._cosines, axis=1)]
    return (nearest == self._labels)[counts[inverse] > 1]

  def hardest_false_accepts(self, count: int) -> list[Pair]:
    """Returns the most similar pairs of two classes.

    Args:
      count: Largest number of pairs; each image is in at most one.

    Returns:
      Pairs, the most similar first; taken greedily.
    """
    return self._greedy(self._different, self._cosines, count)

  def hardest_false_rejects(self, count: int) -> list[Pair]:
    """Returns the least similar pairs of one class.

    Args:
      count: Largest number of pairs; each image is in at most one.

    Returns:
      Pairs, the least similar first; taken greedily.
    """
    return self._greedy(self._same, -self._cosines, count)

  def _greedy(
    self,
    wanted: np.ndarray,
    scores: np.ndarray,
    count: int,
  ) -> list[Pair]:
    """Takes pairs by their scores, the highest first, each image once.

    `wanted` is a mask `[n, n]` of the pairs to choose from, `scores` is `[n,
    n]`.
    """
    scores = np.where(wanted, scores, -np.inf)
    pairs: list[Pair] = []
    while len(pairs) < count:
      first, second = divmod(int(scores.argmax()), len(scores))
      if scores[first, second] == -np.inf:
        break
      pairs.append(self._pair(first, second))
      scores[[first, second], :] = -np.inf
      scores[:, [first, second]] = -np.inf
    return pairs
