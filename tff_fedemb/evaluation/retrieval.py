"""Exact retrieval metrics beside recall at a false accept rate.

Each image is a query for the others of its class, nearest first by the cosine
of the embeddings, as in Musgrave et al., "A Metric Learning Reality Check",
ECCV 2020. All figures except that of k-means come from double-precision cosines
on the grid of `pairs`. In a tie, the image of another class comes first.
"""

from etils import epy
import numpy as np

from tff_fedemb import progress as progress_lib
from tff_fedemb.evaluation import pairs

with epy.lazy_imports():
  import faiss
  from sklearn import metrics as sklearn_metrics

# Titles in tables, by name in results.
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
# Number of similarities in memory at once.
_BLOCK_NUMBERS = 2**22
# Below this variance, similarities differ by rounding alone.
_SMALLEST_VARIANCE = 1e-12


def evaluate(
  images: pairs.Images,
  steps: pairs.Steps,
) -> dict[str, float | None]:
  """Computes the metrics.

  Args:
    images: At least two classes, one of them with two images.
    steps: Counts of their pairs, exact at the equal error rate.

  Returns:
    By the names of `TITLES`:

    equal_error_rate: Error rate at which false accepts and false rejects are
      equally frequent, interpolated between two steps of the ROC curve.
    d_prime: Difference between the mean similarities of pairs of one class and
      of two, divided by the root of their mean variance; None without variance.
    precision_at_1: Share of images whose nearest is of their class.
    r_precision: Mean share of their class among the R nearest, for a class with
      R others.
    map_at_r: Mean over the R nearest of the precision up to each that is right.
    mean_reciprocal_rank: Mean of 1 / (rank of the first that is right).
    nmi: Normalised mutual information of classes and as many k-means clusters.

    Means over images leave out those that are alone in their class.
  """
  return {
    "equal_error_rate": steps.equal_error_rate(),
    "d_prime": _d_prime(images),
    **_rank(images),
    "nmi": nmi(images.classes, _cluster(images)),
  }


def format_metric(value: float | None) -> str:
  """Returns a metric as text with four decimals.

  Args:
    value: The metric; `None` if the images have none.

  Returns:
    For example "0.1234"; "none" for `None`.
  """
  return "none" if value is None else f"{value:.4f}"


def nmi(classes: np.ndarray, clusters: np.ndarray) -> float:
  """Computes the mutual information over the mean of both entropies.

  Args:
    classes: True class of each image, `[n]`.
    clusters: Cluster of each image, `[n]`.

  Returns:
    Normalised mutual information in [0, 1]; 1 if clusters and classes agree up
    to their names.
  """
  return float(sklearn_metrics.normalized_mutual_info_score(classes, clusters))


def _d_prime(images: pairs.Images) -> float | None:
  """See `evaluate`; None if the similarities do not vary.

  Sums over pairs follow from sums over images, so no pair is visited.
  """
  everything = _sum_pairs(images.embeddings)
  ends = np.cumsum(images.sizes)[:-1]
  by_class = np.split(images.embeddings, ends)
  positives = np.sum([_sum_pairs(some) for some in by_class], axis=0)
  means = []
  variances = []
  for sums, count in (
    (positives, images.num_positives),
    (everything - positives, images.num_negatives),
  ):
    mean, square = sums / count
    means.append(mean)
    variances.append(max(square - mean**2, 0.0))
  if sum(variances) < _SMALLEST_VARIANCE:
    return None
  deviation = np.sqrt(np.mean(variances))
  return float((means[0] - means[1]) / deviation)


def _sum_pairs(some: np.ndarray) -> np.ndarray:
  """Sums of the similarities of all pairs i < j, and of their squares.

  Args:
    some: Embeddings `[n, dim]`, of length 1 or 0.

  Returns:
    Both sums, `[2]`.
  """
  lengths = np.sum(some**2, axis=1)
  # Both products have the same sum of squares.
  products = some.T @ some if len(some) > some.shape[1] else some @ some.T
  total = some.sum(axis=0)
  sums = np.array([np.sum(total**2), np.sum(products**2)])
  of_one = [np.sum(lengths), np.sum(lengths**2)]
  return (sums - of_one) / 2


def _rank(images: pairs.Images) -> dict[str, float]:
  """The metrics of the nearest images, means over those that have others.

  Compares each such image with all images, in blocks of bounded memory.
  """
  embeddings = images.embeddings
  classes = images.classes
  others = images.sizes[classes] - 1
  queries = np.flatnonzero(others)
  step = max(_BLOCK_NUMBERS // len(classes), 1)
  found = []
  with progress_lib.create_bar(
    "Ranking", unit="images", total=len(queries)
  ) as progress:
    for start in range(0, len(queries), step):
      some = queries[start : start + step]
      is_own = classes[some, np.newaxis] == classes
      # Twice the level on the grid, plus one for another class, which so comes
      # first where levels tie.
      levels = (embeddings[some] / pairs.GRID_STEP) @ embeddings.T
      keys = 2 * np.rint(levels)
      keys += ~is_own
      keys[np.arange(len(some)), some] = -np.inf
      own = np.where(is_own, keys, -np.inf)
      best = own.max(axis=1, keepdims=True)
      ranks = 1 + np.sum(keys > best, axis=1)
      wanted = others[some]
      most = wanted.max()
      nearest = np.partition(-keys, most - 1)[:, :most]
      nearest.sort()
      is_right = nearest % 2 == 0
      is_right &= np.arange(most) < wanted[:, np.newaxis]
      hits = np.cumsum(is_right, axis=1)
      precision = hits / np.arange(1, most + 1)
      found.append(
        [
          ranks == 1,
          hits[:, -1] / wanted,
          np.sum(precision * is_right, axis=1) / wanted,
          1 / ranks,
        ]
      )
      progress.update(len(some))
  names = ("precision_at_1", "r_precision", "map_at_r", "mean_reciprocal_rank")
  means = np.concatenate(found, axis=1).mean(axis=1)
  return dict(zip(names, means.tolist(), strict=True))


def _cluster(images: pairs.Images) -> np.ndarray:
  """Clusters images by k-means into as many clusters as classes.

  Returns the cluster of each image, `[n]`, the same in every call.
  """
  points = images.embeddings.astype(np.float32)
  kmeans = faiss.Kmeans(
    points.shape[1],
    len(images.sizes),
    niter=_KMEANS_ITERATIONS,
    seed=0,
    min_points_per_centroid=1,
    max_points_per_centroid=len(points),
  )
  kmeans.train(points)
  return kmeans.assign(points)[1]
