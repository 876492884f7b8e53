"""Open-set identification in galleries of N people (1:N).

A probe is compared with a gallery of N enrolled identities. FPIR(N, T) is the
share of strangers' probes that are taken for somebody at threshold T, FNIR(N,
R, T) the share of enrolled people's probes that are not found at T among the R
most similar identities, and the cumulative match characteristic is 1 - FNIR(N,
R, -1) over R: ISO/IEC 19795-1:2021.

Every held-out class is, in turn, a stranger to the galleries of N others, and
enrolled with N - 1 others. No gallery is drawn at random: a probe that c of M
identities reach is accepted by a share 1 - C(M - c, N) / C(M, N) of all
galleries of N, so that rates are exact means over all possible galleries. Only
the choice of a class's enrolled images is random, from a fixed seed.
"""

from collections.abc import Iterator, Sequence
import dataclasses
import functools

import numpy as np
from scipy import stats

from tff_fedemb import errors
from tff_fedemb import progress as progress_lib
from tff_fedemb.data import arrays
from tff_fedemb.evaluation import cohorts
from tff_fedemb.evaluation import pairs
from tff_fedemb.evaluation import rates as rates_lib

# A probe is compared with an identity by its nearest image, or by the mean
# direction of its images. The mean finds more people at the same strangers.
NEAREST = "nearest"
MEAN = "mean"
# Similarities of a block of probes with all identities, in numbers.
_BLOCK_SIZE = 2**22
# Number of strangers' similarities that are kept: the highest ones.
_MAX_EVENTS = 2**20
# Largest number of points of a curve, spread on the logarithm of FPIR.
_NUM_DET_POINTS = 25
# The similarity of a probe with another identity.
_EVENT = np.dtype([("probe", int), ("identity", int), ("similarity", float)])


@dataclasses.dataclass(frozen=True)
class Operation:
  """A way to use a gallery.

  Attributes:
    size: Identities enrolled, N.
    threshold: Smallest cosine similarity at which an identity is reported.
    rank: Largest number of identities that are reported, R.
  """

  size: int
  threshold: float = -1.0
  rank: int = 1


@dataclasses.dataclass(frozen=True)
class DetPoint:
  """A threshold and the rates there, for galleries of one size.

  Attributes:
    threshold: Smallest cosine similarity that is accepted.
    fpir: Share of strangers' probes that are accepted.
    fnir: Share of enrolled people's probes that are not found, at rank 1.
  """

  threshold: float
  fpir: rates_lib.Rate
  fnir: rates_lib.Rate


class Identification:
  """Rates of identification for galleries of any size, from held-out images.

  Intervals follow Korn and Graubard (1998): Clopper-Pearson's interval for as
  many independent probes as would have the variance of the delete-one-class
  jackknife. They cover the random choice of classes, as strangers and as
  members of the gallery, and of their images. They are for the mean over
  galleries; the rate of a single gallery varies around it.

  Attributes:
    num_classes: Classes with enough images.
    labels: Their labels, ascending, `[num_classes]`.
    enrolled: Rows of the images that are enrolled, `[num_classes, images]`.
    classes: Class of each image that is compared, by number, `[n]`.
    weights: Weight of each image as a stranger's, `[n]`; their sum is one.
    mate_weights: Weight of each image as a probe of its own identity, `[n]`; 0
      if it is enrolled. Their sum is one.
  """

  def __init__(
    self,
    embeddings: np.ndarray,
    labels: np.ndarray,
    *,
    images_of_identity: int = 1,
    compared: str = NEAREST,
    normalized: bool = False,
  ):
    """Compares all images with all identities of other classes.

    Args:
      embeddings: `[n, dim]` finite numbers, of any length.
      labels: `[n]` class of each embedding.
      images_of_identity: Images that each identity is enrolled with; classes
        need one more to be used.
      compared: `NEAREST` or `MEAN`, whose similarity is that of an identity.
      normalized: Whether a probe's similarity with a cohort is subtracted. The
        cohort is all classes but that of the probe and the one compared.

    Raises:
      errors.FieldError: If fewer than 3 classes have enough images, or a label
        is missing.
    """
    labels = arrays.to_array("labels", labels)
    arrays.check_complete("labels", labels)
    rows, classes = _choose(labels, images_of_identity)
    self.labels = np.unique(labels[rows])
    self.num_classes = len(self.labels)
    if self.num_classes < 3:
      must = f"have 3 classes of {images_of_identity + 1} images or more"
      raise errors.FieldError("labels", must, self.num_classes)
    self.classes = classes
    sizes = np.bincount(classes)
    starts = np.cumsum(sizes) - sizes
    enrolled = starts[:, np.newaxis] + np.arange(images_of_identity)
    self.enrolled = rows[enrolled]
    embeddings = pairs.normalize(np.asarray(embeddings)[rows])
    self._is_mate = np.ones(len(classes), bool)
    self._is_mate[enrolled] = False
    self._embeddings = embeddings
    self._templates = embeddings[enrolled]
    if compared == MEAN:
      means = self._templates.mean(axis=1, keepdims=True)
      self._templates = pairs.normalize(means)
    self._cohort = cohorts.Cohort(embeddings, classes) if normalized else None
    self.weights = 1 / (self.num_classes * sizes[classes])
    left = sizes - images_of_identity
    self.mate_weights = self._is_mate / (self.num_classes * left[classes])
    self._events = self._find_events()
    # The last size that was asked for, and its rates.
    self._last_rates = 0, np.zeros([0])

  @property
  def largest_size(self) -> int:
    """Identities of the largest gallery whose FPIR is measured, not bounded."""
    return self.num_classes - 2

  def blocks(self) -> Iterator[tuple[slice, np.ndarray, np.ndarray]]:
    """Compares the images block by block, at bounded memory.

    Yields:
      Rows of the images as a slice; float64 `[rows, num_classes]` similarities
      with all identities, -inf with their own; and `[rows]` with their own.
    """
    count, depth, dim = self._templates.shape
    flat = self._templates.reshape(count * depth, dim).T
    step = max(1, _BLOCK_SIZE // (count * depth))
    with progress_lib.create_bar(
      "Identifying", unit="images", total=len(self.classes)
    ) as progress:
      for start in range(0, len(self.classes), step):
        rows = slice(start, min(start + step, len(self.classes)))
        similarities = self._embeddings[rows] @ flat
        # The grid of `pairs`, on which equal similarities are equal.
        np.rint(similarities / pairs.GRID_STEP, out=similarities)
        similarities *= pairs.GRID_STEP
        best = similarities.reshape(-1, count, depth).max(axis=2)
        if self._cohort is not None:
          offsets = self._cohort.offsets_without(
            self._embeddings[rows], self.classes[rows]
          )
          best -= np.rint(offsets / pairs.GRID_STEP) * pairs.GRID_STEP
        own = (np.arange(len(best)), self.classes[rows])
        mates = best[own]
        best[own] = -np.inf
        yield rows, best, mates
        progress.update(len(best))

  def _find_events(self) -> np.ndarray:
    """Similarities of strangers, each an `_EVENT`, from the highest down."""
    found = []
    floor = -np.inf
    for rows, best, _ in self.blocks():
      # A probe's own identity is at -inf, below every floor.
      probes, identities = np.nonzero(best > floor)
      events = np.empty(len(probes), _EVENT)
      events["probe"] = probes + rows.start
      events["identity"] = identities
      events["similarity"] = best[probes, identities]
      found.append(events)
      if sum(map(len, found)) > 2 * _MAX_EVENTS:
        events = np.concatenate(found)
        floor = np.partition(events["similarity"], -_MAX_EVENTS)[-_MAX_EVENTS]
        # Equal similarities are kept all together or not at all.
        found = [events[events["similarity"] > floor]]
    self._floor = floor
    events = np.concatenate(found)
    return events[np.argsort(-events["similarity"], kind="stable")]

  @functools.cached_property
  def _ranks(self) -> np.ndarray:
    """Number of identities that a probe has met before an event's."""
    probes = self._events["probe"]
    order = np.argsort(probes, kind="stable")
    counts = np.bincount(probes, minlength=len(self.classes))
    starts = np.cumsum(counts) - counts
    ranks = np.empty(len(probes), np.int64)
    ranks[order] = np.arange(len(probes)) - starts[probes[order]]
    return ranks

  def _rates(self, size: int) -> np.ndarray:
    """Returns FPIR at the similarity of each event, ascending."""
    if size != self._last_rates[0]:
      steps = np.diff(_accepted(self.num_classes - 1, size))[self._ranks]
      steps *= self.weights[self._events["probe"]]
      self._last_rates = size, np.cumsum(steps)
    return self._last_rates[1]

  def threshold(self, rate: float, size: int) -> float | None:
    """Finds the smallest similarity at which FPIR stays within a rate.

    Args:
      rate: The FPIR, in (0, 1).
      size: Identities of the gallery; see `false_positive_rate` for galleries
        larger than `largest_size`.

    Returns:
      The lowest similarity that may be accepted; higher than necessary if lower
      ones were not kept; `None` if accepting even the highest one is too much.
    """
    measured = min(size, self.largest_size)
    rates = self._rates(measured)
    return rates_lib.find_threshold(
      self._events["similarity"], rates, rate * measured / size
    )

  def false_positive_rate(self, threshold: float, size: int) -> rates_lib.Rate:
    """Measures FPIR: the share of strangers' probes that are accepted.

    A gallery of more identities than `largest_size`, L, is not measured.
    FPIR(N) rises with N and is concave, so FPIR(L) is a lower bound and N / L
    FPIR(L) an upper bound. The value is the upper bound; the interval reaches
    from the lower bound's low end to the upper bound's high end.

    Args:
      threshold: Smallest cosine similarity at which a probe is accepted.
      size: Identities of the gallery, at least 1.

    Returns:
      The rate, with its interval of confidence `rates.CONFIDENCE`.
    """
    measured = min(size, self.largest_size)
    less = _accepted(self.num_classes - 2, measured)
    counts, changes = self._count_accepted(threshold, less)
    whole = _accepted(self.num_classes - 1, measured)[counts] * self.weights
    # Leaves each class out in turn: its probes, and its identity for others.
    parts = less[np.minimum(counts, self.num_classes - 2)] * self.weights
    rest = parts.sum() - np.bincount(self.classes, parts) - changes
    rate = self._rate(float(whole.sum()), rest)
    factor = size / measured
    value = min(rate.value * factor, 1.0)
    high = min(rate.high * factor, 1.0)
    return rates_lib.Rate(value, rate.low, high)

  def _count_accepted(
    self, threshold: float, rates: np.ndarray
  ) -> tuple[np.ndarray, np.ndarray]:
    """Counts the identities that each probe of a stranger is accepted as.

    Args:
      threshold: Smallest cosine similarity at which a probe is accepted.
      rates: Probability to be accepted by number of such identities.

    Returns:
      The counts, `[n]`, and the change of the rate by each identity if its
      probes stay and it is left out, `[num_classes]`.
    """

    def change(counts: np.ndarray, weights: np.ndarray) -> np.ndarray:
      with_all = rates[np.minimum(counts, self.num_classes - 2)]
      return (with_all - rates[np.maximum(counts - 1, 0)]) * weights

    if threshold > self._floor:
      values = self._events["similarity"]
      below = rates_lib.count_below(values, threshold, side="left")
      events = self._events[: len(values) - below]
      counts = np.bincount(events["probe"], minlength=len(self.classes))
      of_events = change(counts, self.weights)[events["probe"]]
      return counts, np.bincount(
        events["identity"], of_events, minlength=self.num_classes
      )
    # Not all similarities below this threshold were kept: compares again.
    counts = np.zeros(len(self.classes), np.int64)
    changes = np.zeros(self.num_classes)
    for rows, best, _ in self.blocks():
      accepted = best >= threshold
      counts[rows] = accepted.sum(axis=1)
      changes += change(counts[rows], self.weights[rows]) @ accepted
    return counts, changes

  def false_negative_rates(
    self, uses: Sequence[Operation]
  ) -> list[rates_lib.Rate]:
    """Measures FNIR: the share of enrolled people's probes that are not found.

    Probes are the images that are not enrolled. An identity as similar as the
    right one counts as more similar.

    Args:
      uses: Uses of galleries of at most `largest_size` identities.

    Returns:
      FNIR(N, R, T) of each. The intervals treat the threshold as fixed.
    """
    count = self.num_classes
    whole = _found_by(uses, count - 1)
    less = _found_by(uses, count - 2)
    thresholds = np.array([use.threshold for use in uses])
    found, kept, change = np.zeros([3, count, len(uses)])
    for rows, best, mates in self.blocks():
      better = best >= mates[:, np.newaxis]
      ranks = better.sum(axis=1)
      weights = self.mate_weights[rows, np.newaxis] * (
        mates[:, np.newaxis] >= thresholds
      )
      np.add.at(found, self.classes[rows], weights * whole[ranks])
      parts = weights * less[np.minimum(ranks, count - 2)]
      np.add.at(kept, self.classes[rows], parts)
      promoted = weights * less[np.maximum(ranks - 1, 0)]
      change += better.T @ (promoted - parts)
    # Leaves a class out, both its probes and its identity.
    rest = (count - 1) / count - (kept.sum(axis=0) - kept + change)
    values = 1 - found.sum(axis=0)
    return list(map(self._rate, values.tolist(), rest.T))

  def det(self, size: int) -> list[DetPoint]:
    """Measures FNIR(N, 1, T) over FPIR(N, T), from the highest T down.

    Args:
      size: Identities of the gallery, N, at most `largest_size`.

    Returns:
      At most 25 points, evenly spread on the logarithm of FPIR.
    """
    # So many are equal to the highest similarity that none was kept.
    thresholds = [self._floor]
    rates = self._rates(size)
    if len(rates):
      wanted = np.geomspace(rates[0], rates[-1], _NUM_DET_POINTS)
      chosen = np.unique(np.searchsorted(rates, wanted))
      similarities = self._events["similarity"]
      thresholds = np.unique(similarities[chosen])[::-1].tolist()
    missed = self.false_negative_rates([Operation(size, t) for t in thresholds])
    points = []
    for threshold, fnir in zip(thresholds, missed, strict=True):
      fpir = self.false_positive_rate(threshold, size)
      points.append(DetPoint(threshold, fpir, fnir))
    return points

  def confusions(self) -> np.ndarray:
    """Counts which identities the images that are not enrolled are taken for.

    Returns:
      int32 `[num_classes, num_classes]`: number of images of the row's class
      whose most similar identity, in a gallery of all classes, is the column's.
    """
    taken = np.zeros([self.num_classes, self.num_classes], np.int32)
    for rows, best, mates in self.blocks():
      own = self.classes[rows]
      is_mate = self._is_mate[rows]
      is_mistaken = best.max(axis=1) >= mates
      nearest = np.where(is_mistaken, best.argmax(axis=1), own)
      np.add.at(taken, (own[is_mate], nearest[is_mate]), 1)
    return taken

  def _rate(self, value: float, rest: np.ndarray) -> rates_lib.Rate:
    """A rate and its interval, from the counts without each class."""
    count = self.num_classes
    without = rest * count / (count - 1)
    deviations = without - without.mean()
    variance = (count - 1) / count * np.sum(deviations**2)
    # Removes rounding errors, so that 0 and 1 are recognised.
    value = min(max(round(value, 12), 0.0), 1.0)
    # Uses the interval for as many independent probes as there are classes.
    probes = count
    if variance and value not in (0.0, 1.0):
      probes = value * (1 - value) / variance
    hits = value * probes
    alpha = (1 - rates_lib.CONFIDENCE) / 2
    low, high = 0.0, 1.0
    if value > 0:
      low = float(stats.beta.ppf(alpha, hits, probes - hits + 1))
    if value < 1:
      high = rates_lib.bound_rate(value, probes, 1 - alpha)
    return rates_lib.Rate(value, low, high)


def numbers_of_images(labels: np.ndarray, wanted: Sequence[int]) -> list[int]:
  """Chooses numbers of images to enroll for which most classes have enough.

  Args:
    labels: `[n]` class of each image.
    wanted: Candidate numbers.

  Returns:
    Those candidates that leave an image to find in at least 3 classes and in
    four fifths of the classes with two images.
  """
  _, counts = np.unique(labels, return_counts=True)
  least = max(3, 0.8 * np.sum(counts > 1))
  return [images for images in wanted if np.sum(counts > images) >= least]


def _choose(labels: np.ndarray, images: int) -> tuple[np.ndarray, np.ndarray]:
  """Rows sorted by class, enrolled ones first, and their classes 0, 1, ..."""
  order = np.random.default_rng(0).permutation(len(labels))
  order = order[np.argsort(labels[order], kind="stable")]
  _, classes, counts = np.unique(
    labels[order], return_inverse=True, return_counts=True
  )
  kept = counts[classes] > images
  _, renumbered = np.unique(classes[kept], return_inverse=True)
  return order[kept], renumbered


@functools.lru_cache(maxsize=64)
def _accepted(others: int, size: int) -> np.ndarray:
  """Share of galleries with one of c identities, by c of 0 .. others."""
  return -np.expm1(
    stats.hypergeom.logpmf(0, others, np.arange(others + 1), size)
  )


def _found_by(uses: Sequence[Operation], others: int) -> np.ndarray:
  """Share of galleries where fewer than rank of c identities are.

  Returns:
    `[others + 1, uses]`, by c of 0 .. others.
  """
  counts = np.arange(others + 1)
  shares = np.empty([others + 1, len(uses)])
  for column, use in zip(shares.T, uses, strict=True):
    column[:] = stats.hypergeom.cdf(use.rank - 1, others, counts, use.size - 1)
  return shares
