"""The field's metrics beside recall at a false accept rate, exact.

Each image asks for the others of its class, nearest first by the cosine of the
embeddings, as in Musgrave et al., "A Metric Learning Reality Check", ECCV 2020.
All figures but that of k-means come from cosines in double precision on the
grid of `pairs`; an image of another class that ties with one of the right class
comes before it.
"""

from collections.abc import Iterator

from etils import epy
import numpy as np

from tff_fedemb import progress as progress_lib
from tff_fedemb.evaluation import pairs

with epy.lazy_imports():
  import faiss
  from sklearn import metrics as sklearn_metrics

# By name in results: what tables call them.
TITLES = {
  "equal_error_rate": "EER",
  "d_prime": "d'",
  "precision_at_1": "precision at 1",
  "r_precision": "R-precision",
  "map_at_r": "MAP@R",
  "mean_reciprocal_rank": "MRR",
  "nmi": "NMI",
}

_KMEANS_ITERATIONS = 10
# Neighbours looked at beyond those that count: single precision may have the
# last of them in another order.
_SPARE = 8
_BLOCK_NUMBERS = 2**23
# Variance of similarities that are all the same, but for rounding.
_SMALLEST_VARIANCE = 1e-12


def best_levels(images: pairs.Images) -> np.ndarray:
  """The nearest image of the same class.

  Returns:
    Similarities in steps of the grid, `[n]`; infinite for an image that is
    alone in its class.
  """
  best = np.full(len(images.classes), np.inf)
  for rows, embeddings in _by_class(images):
    for start in range(0, len(embeddings) if len(embeddings) > 1 else 0, 512):
      some = embeddings[start : start + 512]
      levels = np.rint((some / pairs.GRID_STEP) @ embeddings.T)
      np.fill_diagonal(levels[:, start:], -np.inf)
      best[rows][start : start + 512] = levels.max(axis=1)
  return best


def evaluate(
  images: pairs.Images, counts: pairs.PairCounts
) -> dict[str, float | None]:
  """Computes the metrics.

  Args:
    images: With a class of two images, and two classes.
    counts: Counts of their pairs, with negatives counted above `best_levels`.

  Returns:
    By the names of `TITLES`:

    equal_error_rate: Error rate of pairs where false accepts and false rejects
      are as frequent, on the straight line between two steps of the ROC curve.
    d_prime: Difference of the mean similarities of the pairs of one class and
      of two, by the root of the mean of their variances; None without variance.
    precision_at_1: Share of images whose nearest is of their class.
    r_precision: Mean share of their class among the R nearest, for a class with
      R others.
    map_at_r: Mean over the R nearest of the precision up to each that is right.
    mean_reciprocal_rank: Mean of one by the rank of the first that is right.
    nmi: Normalised mutual information of classes and as many k-means clusters.

    Those of images are means over all that are not alone in their class.
  """
  several = images.sizes[images.classes] > 1
  ranks = 1 + counts.negatives_above[several]
  r_precision, map_at_r = _rank(images, np.flatnonzero(several))
  return {
    "equal_error_rate": counts.steps.equal_error_rate(),
    "d_prime": _d_prime(images),
    "precision_at_1": float(np.mean(ranks == 1)),
    "r_precision": r_precision,
    "map_at_r": map_at_r,
    "mean_reciprocal_rank": float(np.mean(1 / ranks)),
    "nmi": nmi(images.classes, _cluster(images)),
  }


def format_metric(value: float | None) -> str:
  """Returns a metric as text; "none" for one that the images do not have."""
  return "none" if value is None else f"{value:.4f}"


def nmi(classes: np.ndarray, clusters: np.ndarray) -> float:
  """Normalised mutual information, by the arithmetic mean of the entropies."""
  return float(sklearn_metrics.normalized_mutual_info_score(classes, clusters))


def _by_class(images: pairs.Images) -> Iterator[tuple[slice, np.ndarray]]:
  for end, size in zip(np.cumsum(images.sizes), images.sizes, strict=True):
    rows = slice(end - size, end)
    yield rows, images.embeddings[rows]


def _d_prime(images: pairs.Images) -> float | None:
  """See `evaluate`; sums over pairs follow from sums over images."""
  everything = _sum_pairs(images.embeddings)
  positives = np.zeros(2)
  for _, some in _by_class(images):
    positives += _sum_pairs(some)
  means, variances = [], []
  for sums, count in (
    (positives, images.num_positives),
    (everything - positives, images.num_negatives),
  ):
    mean, square = sums / count
    means.append(mean)
    variances.append(max(square - mean**2, 0.0))
  if sum(variances) < _SMALLEST_VARIANCE:
    return None
  return float((means[0] - means[1]) / np.sqrt(np.mean(variances)))


def _sum_pairs(some: np.ndarray) -> np.ndarray:
  """Sums of the similarities of all pairs i < j, and of their squares."""
  lengths = np.sum(some**2, axis=1)
  # Both products have the same sum of squares.
  products = some.T @ some if len(some) > some.shape[1] else some @ some.T
  sums = np.array([np.sum(some.sum(axis=0) ** 2), np.sum(products**2)])
  return (sums - [lengths.sum(), np.sum(lengths**2)]) / 2


def _rank(images: pairs.Images, queries: np.ndarray) -> tuple[float, float]:
  """R-precision and MAP@R, means over the queries."""
  others = images.sizes[images.classes] - 1
  # Those that ask for most neighbours come first.
  queries = queries[np.argsort(-others[queries], kind="stable")]
  neighbours = _Neighbours(images)
  sums, start = np.zeros(2), 0
  with progress_lib.create_bar(
    "Ranking", unit="images", total=len(queries)
  ) as progress:
    while start < len(queries):
      most = int(others[queries[start]])
      # Queries whose neighbours fit into the memory.
      numbers = (most + _SPARE) * images.embeddings.shape[1]
      some = queries[start : start + max(_BLOCK_NUMBERS // numbers, 1)]
      wanted = others[some]
      right = neighbours.is_right(some, most)
      right &= np.arange(most) < wanted[:, None]
      hits = np.cumsum(right, axis=1)
      precision = hits / np.arange(1, most + 1)
      found = np.stack([hits[:, -1], np.sum(precision * right, axis=1)])
      sums += np.sum(found / wanted, axis=1)
      start += len(some)
      progress.update(len(some))
  r_precision, map_at_r = sums / len(queries)
  return float(r_precision), float(map_at_r)


class _Neighbours:
  """The nearest images, exact: found in single precision, proven in double.

  An image's key is twice its level on the grid, and one more if it is of
  another class: in descending order these come first where levels tie.
  """

  def __init__(self, images: pairs.Images):
    self._images = images
    self._single = images.embeddings.astype(np.float32)
    # The rounding of a product in single precision, in steps of the grid.
    rounding = (images.embeddings.shape[1] + 4) * 2.0**-24
    self._rounding = rounding / pairs.GRID_STEP

  def is_right(self, queries: np.ndarray, most: int) -> np.ndarray:
    """Whether the nearest images are of the same class, `[q, most]`."""
    single = self._single
    count = min(most + 1 + _SPARE, len(single))
    similarities, columns = faiss.knn(
      single[queries], single, count, metric=faiss.METRIC_INNER_PRODUCT
    )
    keys = self._keys(queries, columns)
    right = keys[:, :most] % 2 == 0
    # Nothing that was not found may reach the last one that counts.
    reach = similarities[:, -1] / pairs.GRID_STEP + self._rounding
    is_open = (keys[:, most - 1] // 2 <= reach) & (count < len(single))
    every = np.arange(len(single))[None]
    for row in np.flatnonzero(is_open):
      right[row] = self._keys(queries[[row]], every)[0, :most] % 2 == 0
    return right

  def _keys(self, queries: np.ndarray, columns: np.ndarray) -> np.ndarray:
    """Keys of some images for each query, descending; its own is the last."""
    embeddings, classes = self._images.embeddings, self._images.classes
    levels = np.einsum(
      "qd,qkd->qk", embeddings[queries] / pairs.GRID_STEP, embeddings[columns]
    )
    keys = 2 * np.rint(levels) + (classes[columns] != classes[queries, None])
    keys[columns == queries[:, None]] = -np.inf
    return -np.sort(-keys, axis=1)


def _cluster(images: pairs.Images) -> np.ndarray:
  """As many clusters of k-means as there are classes; one of each image."""
  points = images.embeddings.astype(np.float32)
  num_clusters, centroids = len(images.sizes), None
  for _ in progress_lib.create_bar(
    "Clustering", unit="steps", items=range(_KMEANS_ITERATIONS)
  ):
    kmeans = faiss.Kmeans(
      points.shape[1],
      num_clusters,
      niter=1,
      seed=0,
      min_points_per_centroid=1,
      max_points_per_centroid=len(points),
    )
    kmeans.train(points, init_centroids=centroids)
    centroids = kmeans.centroids
  return kmeans.assign(points)[1]
