"""Verification metrics over all pairs of embeddings: recall@FAR, ROC and AUC.

The question is "do these two images show the same class?", the score is the
cosine similarity of their embeddings, and every pair i < j of the held-out set
counts once. Recall (true accept rate) at a fixed false accept rate is the
metric of the experiments in Xu et al., "Learning to Generate Image Embeddings
with User-level Differential Privacy", CVPR 2023.
"""

from collections.abc import Callable, Mapping, Sequence
import dataclasses
from typing import Any

import numpy as np
from scipy import stats

from tff_fedemb import checks
from tff_fedemb import errors
from tff_fedemb.data import arrays
from tff_fedemb.evaluation import pairs
from tff_fedemb.evaluation import retrieval

DEFAULT_FALSE_ACCEPT_RATES = (1e-3, 1e-2, 1e-1)

CONFIDENCE = 0.95
# Share of the intervals that may miss the true value.
_ERROR = 1 - CONFIDENCE
# (low, high) by false accept rate.
_Intervals = Mapping[float, tuple[float, float]]
_ROC_POINTS = 500
_MIN_FALSE_ACCEPTS = 10
_MIN_CLASSES = 10


@dataclasses.dataclass(frozen=True)
class _RocCurve:
  """Shares of negative and of positive pairs accepted, both ascending to 1."""

  false_accept_rates: tuple[float, ...]
  recalls: tuple[float, ...]


@dataclasses.dataclass(frozen=True)
class VerificationResult:
  """The result of `evaluate_pairs`; dictionaries are keyed by the FAR asked.

  Attributes:
    recall_at_far: Recall in [0, 1], see `evaluate_pairs`.
    threshold_at_far: Smallest cosine similarity at which a pair is accepted.
    recall_interval_at_far: (low, high), if all pairs were independent.
    recall_class_interval_at_far: (low, high), if classes are independent; (0,
      1) where there are too few classes to tell.
    threshold_interval_at_far: (low, high), if negative pairs were independent.
    confidence: Confidence of the intervals, `CONFIDENCE`.
    auc: Area under the ROC curve, in [0, 1].
    auc_error_bound: Largest possible distance of `auc` from the exact value;
      0 for up to some 4,000 images and about 1e-7 beyond.
    num_images: Number of embeddings.
    num_classes: Number of different labels.
    num_positive_pairs: Pairs of the same class.
    num_negative_pairs: Pairs of two classes.
    roc: The curve in some 500 points down to one false accept.
    warnings: Sentences for the reader of the figures.
    num_found: Number of images that the evaluated sample was drawn from; None
      if all were evaluated.
    recall_sample_interval_at_far: (low, high) for the recall of all images
      found, of which only the sample is known; None without one.
    metrics: Values by name, as from `retrieval.evaluate`; None if they were
      not asked for.
  """

  recall_at_far: Mapping[float, float]
  threshold_at_far: Mapping[float, float]
  recall_interval_at_far: _Intervals
  recall_class_interval_at_far: _Intervals
  threshold_interval_at_far: _Intervals
  confidence: float
  auc: float
  auc_error_bound: float
  num_images: int
  num_classes: int
  num_positive_pairs: int
  num_negative_pairs: int
  roc: _RocCurve
  warnings: tuple[str, ...]
  num_found: int | None = None
  recall_sample_interval_at_far: _Intervals | None = None
  metrics: Mapping[str, float | None] | None = None

  def to_json(self) -> dict[str, Any]:
    """Returns the result for `json.dump`: FARs as strings ("0.001"), no NaN."""
    result = dataclasses.asdict(self)
    for name, value in result.items():
      if name.endswith("_at_far") and value is not None:
        result[name] = {
          format_false_accept_rate(f): x for f, x in value.items()
        }
    return result

  @classmethod
  def from_json(cls, values: Mapping[str, Any]) -> "VerificationResult":
    """Reads what `to_json` returned.

    Args:
      values: Values by name; those of other names are left out.
    """
    restored = {}
    for field in dataclasses.fields(cls):
      value = values[field.name]
      restored[field.name] = value
      if field.name.endswith("_at_far") and value is not None:
        by_rate = {}
        for far, figure in value.items():
          is_interval = isinstance(figure, list)
          by_rate[float(far)] = tuple(figure) if is_interval else figure
        restored[field.name] = by_rate
    roc = {name: tuple(points) for name, points in values["roc"].items()}
    restored["roc"] = _RocCurve(**roc)
    restored["warnings"] = tuple(values["warnings"])
    return cls(**restored)


def format_false_accept_rate(false_accept_rate: float) -> str:
  """Returns a rate as a plain decimal number.

  Args:
    false_accept_rate: Say 1e-3, which becomes "0.001".
  """
  return np.format_float_positional(false_accept_rate, trim="-")


def evaluate_pairs(
  embeddings: np.ndarray,
  labels: np.ndarray,
  *,
  false_accept_rates: Sequence[float] = DEFAULT_FALSE_ACCEPT_RATES,
  num_found: int | None = None,
  with_metrics: bool = False,
) -> VerificationResult:
  """Computes the verification metrics over all pairs of embeddings.

  Recall at false accept rate f is the share of positive pairs with similarity
  >= t, where t is the smallest threshold with (negative pairs >= t) /
  (negative pairs) <= f. It is exact: the largest recall on scikit-learn's
  `roc_curve` with a false positive rate of at most f, ties included.
  Similarities are cosines in double precision, rounded to multiples of 2^-40;
  t is such a multiple, and 1 + 2^-40 if even a similarity of 1 is not enough.
  Embeddings are normalised here; one of all zeros has similarity 0 to every
  other, and the result warns of it.

  The intervals answer two questions. `recall_interval_at_far` and
  `threshold_interval_at_far` take pairs as independent: the threshold's comes
  from order statistics of the negative pairs (the number of them above the
  true threshold is binomial), the recall's is Clopper-Pearson's at both ends of
  a threshold interval, each at half the error. They cover the choice of pairs
  only. Pairs that share an image are not independent, so for new classes these
  intervals are too narrow: in simulations with 30 to 100 classes of 10 images,
  "95%" held the true recall about half the time.

  Quote `recall_class_interval_at_far`. It takes the classes as drawn
  independently: Student's interval with the delete-one-class jackknife's
  standard error, which follows the threshold along the slope of the ROC curve
  (93% to 96% in the same simulations); a class of one image, which has no pair,
  is no degree of freedom. At a recall of exactly 0 or 1, where the jackknife
  sees no error, it is Clopper-Pearson's interval for the share of classes with
  another recall, if classes are of equal size.

  Args:
    embeddings: `[n, dim]` finite numbers, of any length.
    labels: `[n]` class of each embedding, integers or strings.
    false_accept_rates: Rates f to report, each in (0, 1).
    num_found: Number of images of which these are a random sample, drawn
      without replacement; None if they are all. It adds
      `recall_sample_interval_at_far`, for the recall of all images: a normal
      interval by the delete-one-image jackknife, of width 0 without others.
    with_metrics: Whether to compute `metrics` as well.

  Returns:
    The metrics, with a warning for each rate too small for the data.

  Raises:
    errors.FieldError: If a shape or a value is out of range, or if there is
      no positive or no negative pair.
  """
  compared = Comparison(
    embeddings,
    labels,
    false_accept_rates=false_accept_rates,
    with_metrics=with_metrics,
  )
  return compared.evaluate(false_accept_rates, num_found=num_found)


class Comparison:
  """All pairs of embeddings, counted once for results at several rates."""

  def __init__(
    self,
    embeddings: np.ndarray,
    labels: np.ndarray,
    *,
    false_accept_rates: Sequence[float],
    with_metrics: bool = False,
  ):
    """Counts the pairs.

    Args:
      embeddings, labels, with_metrics: See `evaluate_pairs`.
      false_accept_rates: All that a result may be asked for, each in (0, 1).

    Raises:
      errors.FieldError: As `evaluate_pairs`.
    """
    self._rates = tuple(map(float, false_accept_rates))
    for rate in self._rates:
      checks.check_number("false_accept_rates", rate, above=0, below=1)
    self._images, self._num_zero = _prepare(embeddings, labels)
    exact = []
    for rate in self._rates:
      exact.append(rate)
      exact += self._ends(rate, _ERROR)
      exact += self._ends(rate, _ERROR / 2)
    self._counts = pairs.count_pairs(
      self._images, exact, image_rates=self._rates, with_crossing=with_metrics
    )
    self._steps = self._counts.steps
    self._metrics = None
    if with_metrics:
      self._metrics = retrieval.evaluate(self._images, self._steps)

  def evaluate(
    self,
    false_accept_rates: Sequence[float],
    *,
    num_found: int | None = None,
  ) -> VerificationResult:
    """Returns what `evaluate_pairs` does, at some of the rates counted for.

    Args:
      false_accept_rates: Some of the rates of the comparison.
      num_found: See `evaluate_pairs`.
    """
    images = self._images
    steps = self._steps
    rates = tuple(map(float, false_accept_rates))

    def by_rate(measure: Callable[[float], Any]) -> dict[float, Any]:
      return {rate: measure(rate) for rate in rates}

    of_sample = None
    if num_found is not None:
      of_sample = by_rate(lambda rate: self._sample_interval(rate, num_found))
    return VerificationResult(
      recall_at_far=by_rate(steps.recall),
      threshold_at_far=by_rate(steps.threshold),
      recall_interval_at_far=by_rate(self._recall_interval),
      recall_class_interval_at_far=by_rate(self._class_interval),
      threshold_interval_at_far=by_rate(self._threshold_interval),
      confidence=CONFIDENCE,
      auc=steps.auc(),
      auc_error_bound=self._counts.auc_error_bound,
      num_images=len(images.classes),
      num_classes=len(images.sizes),
      num_positive_pairs=images.num_positives,
      num_negative_pairs=images.num_negatives,
      roc=_roc(steps),
      warnings=self._warnings(rates),
      num_found=num_found,
      recall_sample_interval_at_far=of_sample,
      metrics=self._metrics,
    )

  def _ends(self, rate: float, error: float) -> tuple[float, float]:
    """Interval of the FAR of the true threshold; a low end of -1 is open."""
    number = self._images.num_negatives
    low, high = stats.binom.ppf([error / 2, 1 - error / 2], number, rate)
    low_rate = (low - 1) / number if low >= 1 else -1.0
    return float(low_rate), float(high / number)

  def _threshold_interval(self, rate: float) -> tuple[float, float]:
    """Interval of the threshold, if negative pairs were independent."""
    low, high = self._ends(rate, _ERROR)
    highest = self._steps.threshold(low) if low >= 0 else 1.0 + pairs.GRID_STEP
    return self._steps.threshold(high), highest

  def _recall_interval(self, rate: float) -> tuple[float, float]:
    """The outer ends of Clopper-Pearson's intervals at two FARs."""
    total = self._images.num_positives
    error = _ERROR / 2
    lowest, highest = self._ends(rate, error)
    few = self._steps.num_accepted_positives(lowest)
    many = self._steps.num_accepted_positives(highest)
    low, high = 0.0, 1.0
    if few:
      low = stats.beta.ppf(error / 2, few, total - few + 1)
    if many < total:
      high = stats.beta.ppf(1 - error / 2, many + 1, total - many)
    return float(low), float(high)

  def _class_interval(self, rate: float) -> tuple[float, float]:
    """The delete-one-class jackknife's interval for the recall."""
    deviation = self._delete_one(rate, is_class=True)
    # A class of one image has no pair that could be accepted.
    degrees = self._images.num_classes_with_pairs - 1
    reach = stats.t.ppf(1 - _ERROR / 2, degrees)
    return self._around(rate, reach, deviation)

  def _sample_interval(
    self,
    rate: float,
    num_found: int,
  ) -> tuple[float, float]:
    """The delete-one-image jackknife's interval for all images found."""
    # Drawn without replacement, a larger sample leaves less open.
    share_left = 1 - len(self._images.classes) / num_found
    reach = stats.norm.ppf(1 - _ERROR / 2) * np.sqrt(max(share_left, 0.0))
    deviation = self._delete_one(rate, is_class=False)
    return self._around(rate, reach, deviation)

  def _around(
    self, rate: float, reach: float, deviation: float | None
  ) -> tuple[float, float]:
    """Interval of `reach` deviations around a recall, in [0, 1].

    Without a deviation it is all of [0, 1]. At a recall of 0 or 1, where the
    jackknife sees no deviation, it is Clopper and Pearson's for the share of
    classes with another recall, unless nothing is left open (`reach` 0).
    """
    recall = self._steps.recall(rate)
    if deviation is not None and reach and recall in (0.0, 1.0):
      num_classes = self._images.num_classes_with_pairs
      share = float(1 - (_ERROR / 2) ** (1 / num_classes))
      return (0.0, share) if recall == 0 else (1 - share, 1.0)
    distance = 1.0 if deviation is None else reach * deviation
    low = max(recall - distance, 0.0)
    high = min(recall + distance, 1.0)
    return float(low), float(high)

  def _delete_one(self, rate: float, *, is_class: bool) -> float | None:
    """The jackknife's standard error of a recall, by class or image.

    None if no pairs are left without one of them.
    """
    images = self._images
    index = self._rates.index(rate)
    # Pairs that go with each class or image, and those that are accepted.
    true = self._counts.true_accepts[index]
    false = self._counts.false_accepts[index]
    if is_class:
      sizes = images.sizes
      positives = sizes * (sizes - 1) // 2
      negatives = sizes * (len(images.classes) - sizes)
      starts = np.cumsum(sizes) - sizes
      # A positive pair was counted at both its images, which are of one class.
      true = np.add.reduceat(true, starts) // 2
      false = np.add.reduceat(false, starts)
    else:
      sizes = images.sizes[images.classes]
      positives = sizes - 1
      negatives = len(images.classes) - sizes
    positives_left = images.num_positives - positives
    negatives_left = images.num_negatives - negatives
    if np.min(positives_left) < 1 or np.min(negatives_left) < 1:
      return None
    total = np.sum(false) // 2
    shifts = (total - false) / negatives_left - total / images.num_negatives
    accepted = np.sum(true) // (1 if is_class else 2)
    recalls = (accepted - true) / positives_left
    low = rate / 1.25
    high = min(rate * 1.25, 1.0)
    recall = self._steps.recall
    slope = (recall(high) - recall(low)) / (high - low)
    variance = np.var(recalls - slope * shifts)
    return float(np.sqrt((len(recalls) - 1) * variance))

  def _warnings(self, rates: Sequence[float]) -> tuple[str, ...]:
    """Sentences about data that are too few, or embeddings that coincide."""
    messages = []
    negatives = self._images.num_negatives
    for rate in rates:
      expected = negatives * rate
      if expected < _MIN_FALSE_ACCEPTS:
        above_all = ": recall is that above every negative pair"
        messages.append(
          f"FAR {format_false_accept_rate(rate)} needs at least"
          f" {round(_MIN_FALSE_ACCEPTS / rate):,} negative pairs for"
          f" {_MIN_FALSE_ACCEPTS} expected false accepts, found"
          f" {negatives:,}{above_all if expected < 1 else ''}"
        )
    num_classes = self._images.num_classes_with_pairs
    if num_classes < _MIN_CLASSES:
      messages.append(
        f"recall_class_interval_at_far needs at least {_MIN_CLASSES} classes of"
        f" two images, found {num_classes}"
      )
    if self._num_zero:
      messages.append(
        f"{self._num_zero:,} of {len(self._images.classes):,} embeddings are"
        " all zeros: their similarity to every other is taken as 0"
      )
    lost = [f for f in rates if self._steps.threshold(f) > 1]
    if lost:
      accepted = self._steps.accepted_negatives
      messages.append(
        f"{accepted[0] / accepted[-1]:.1%} of the pairs of two classes have the"
        " same embedding: no threshold keeps to FAR"
        f" {format_false_accept_rate(max(lost))}, and recall there is 0"
      )
    return tuple(messages)


def _prepare(embeddings: Any, labels: Any) -> tuple[pairs.Images, int]:
  """Returns the checked images and how many embeddings are all zeros."""
  embeddings = arrays.to_array("embeddings", embeddings)
  labels = arrays.to_array("labels", labels)
  is_matrix = embeddings.ndim == 2 and embeddings.shape[1]
  if not is_matrix or embeddings.dtype.kind not in "fiu":
    found = f"{embeddings.dtype} {list(embeddings.shape)}"
    raise errors.FieldError("embeddings", "be real numbers [n, dim]", found)
  if labels.shape != embeddings.shape[:1]:
    must = f"be [{len(embeddings)}], one for each embedding"
    raise errors.FieldError("labels", must, list(labels.shape))
  arrays.check_complete("labels", labels)
  embeddings = embeddings.astype(np.float64)
  is_finite = np.isfinite(embeddings).all(axis=1)
  num_broken = int(np.sum(~is_finite))
  if num_broken:
    found = f"NaN or infinity in {num_broken:,} of {len(embeddings):,}"
    raise errors.FieldError("embeddings", "be finite", found)
  _, classes, sizes = np.unique(labels, return_inverse=True, return_counts=True)
  if len(sizes) < 2 or max(sizes) < 2:
    must = "be of at least 2 classes, one of them of 2 images"
    found = f"{len(sizes):,} of at most {max(sizes, default=0):,}"
    raise errors.FieldError("labels", must, found)
  order = np.argsort(classes, kind="stable")
  embeddings = pairs.normalize(embeddings[order])
  num_zero = int(np.sum(~embeddings.any(axis=1)))
  return pairs.Images(embeddings, classes[order], sizes), num_zero


def _roc(steps: pairs.Steps) -> _RocCurve:
  """Picks some 500 points, evenly on the logarithm of the false accept rate."""
  smallest = 1 / steps.accepted_negatives[-1]
  asked = np.append(0.0, np.geomspace(smallest, 1.0, _ROC_POINTS))
  chosen = np.unique(steps.num_within(asked))
  return _RocCurve(
    _shares(steps.accepted_negatives, chosen),
    _shares(steps.accepted_positives, chosen),
  )


def _shares(accepted: np.ndarray, chosen: np.ndarray) -> tuple[float, ...]:
  """Shares of all pairs that are accepted before some of the steps."""
  shares = np.append(0, accepted)[chosen] / accepted[-1]
  return tuple(shares.tolist())
