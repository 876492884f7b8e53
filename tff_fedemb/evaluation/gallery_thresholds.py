"""Thresholds above which a stranger to a gallery is taken for somebody.

A curve of thresholds for wanted rates of false positive identification (FPIR),
over the number of identities in a gallery and of images that each is enrolled
with. A model's card contains it, measured on held-out classes.
"""

import bisect
from collections.abc import Mapping, Sequence
import dataclasses
import itertools
import math
from typing import Any

import numpy as np
from scipy import interpolate
from scipy import optimize

from tff_fedemb import errors
from tff_fedemb.evaluation import identification
from tff_fedemb.evaluation import rates as rates_lib
from tff_fedemb.evaluation import runner_up

RATES = (0.1, 0.03, 0.01, 0.003, 0.001)
_SIZES = tuple(10**i * j for i in range(6) for j in (1, 3))
_IMAGES = (1, 3, 10)
# Largest number of similarities to compute for each number of images.
_MOST_SIMILARITIES = 2**31
# A rate is supported if its interval ends at no more than this times the rate.
_LARGEST_RATIO = 3.0
# Names of a curve's values, each given by size and rate.
_THRESHOLD = "threshold"
_LOW = "fpir_low"
_HIGH = "fpir_high"
# A threshold, and the ends of the interval of its rate.
_Point = tuple[float | None, float | None, float | None]
# Gains by size of gallery, and a part of a curve.
_RunnerUp = tuple[dict[int, float], dict[str, Any]]
# Number of rates to try until one is certain enough.
_NUM_TRIED = 201
_MEANING = (
  "a stranger's image is taken for somebody of a gallery if its similarity"
  " with the mean of somebody's images, each of length 1, is at least the"
  " threshold; this is the case for a share fpir of strangers' images, mean"
  " over strangers and galleries. Each held-out class was a stranger to all"
  " galleries of the others"
)
_MEANING_OF_RUNNER_UP = (
  "in galleries of these sizes more people are found if weight times the"
  " similarity with the next identity is subtracted first. The intervals"
  " are those of the similarity alone at the same rates"
)


@dataclasses.dataclass(frozen=True)
class Promise:
  """The threshold of a curve for one gallery.

  Attributes:
    threshold: Smallest cosine similarity at which a probe is accepted.
    rate: Share of strangers' probes that are accepted, by the held-out classes;
      less than what was asked for where that is to be certain.
    low, high: Interval of that share.
    smallest: The smallest of `RATES` that is supported for such a gallery,
      `None` if none is.
    num_classes: Held-out classes that this is measured on.
    compared: Counterpart of a probe: `identification.MEAN` of the images of
      each identity, or `identification.NEAREST`.
    runner_up_weight: Share of the similarity with the next identity that is
      subtracted before a probe is compared with the threshold.
  """

  threshold: float
  rate: float
  low: float
  high: float
  smallest: float | None
  num_classes: int
  compared: str
  runner_up_weight: float = 0.0

  @property
  def is_supported(self) -> bool:
    """Whether the interval ends at no more than three times the rate."""
    return self.high <= _LARGEST_RATIO * self.rate


def measure(
  embeddings: np.ndarray,
  labels: np.ndarray,
  *,
  sizes: Sequence[int] = _SIZES,
  normalized: bool = False,
) -> dict[str, Any] | None:
  """Measures the curve on held-out classes.

  Thresholds for galleries of more identities than there are classes follow
  from an upper bound of their FPIR (`identification`).

  Args:
    embeddings: `[n, dim]` finite numbers, of any length.
    labels: `[n]` class of each embedding.
    sizes: Identities of the galleries, ascending.
    normalized: Whether similarities are normalized by the classes as a cohort.
      If so, the runner-up is not measured.

  Returns:
    The curve as JSON values by name; `None` if fewer than 3 classes have two
    images, or the embeddings tell none of them apart. `fpir` has the rates, and
    each of `by_images` has tables `[sizes, rates]` of thresholds and of the
    ends of their intervals. A threshold is null if no stranger's similarity is
    high enough to set it.
  """
  by_images = []
  with_runner_up: list[_RunnerUp] = []
  _, counts = np.unique(labels, return_counts=True)
  for images in identification.numbers_of_images(labels, _IMAGES):
    num_similarities = len(labels) * int(np.sum(counts > images)) * images
    if images > 1 and num_similarities > _MOST_SIMILARITIES:
      break
    measured = identification.Identification(
      embeddings,
      labels,
      images_of_identity=images,
      compared=identification.MEAN,
      normalized=normalized,
    )
    rows = _measure_rows(measured, sizes)
    if not rows:
      break
    by_images.append(_describe(measured, images, rows))
    if not normalized:
      with_runner_up.append(_measure_runner_up(measured, images))
  if not by_images:
    return None
  curve = {
    "meaning": _MEANING,
    "compared": identification.MEAN,
    "confidence": rates_lib.CONFIDENCE,
    "fpir": list(RATES),
    "by_images": by_images,
  }
  by_runner_up = _keep_gains(with_runner_up)
  if by_runner_up:
    curve["runner_up"] = {
      "meaning": _MEANING_OF_RUNNER_UP,
      "weight": runner_up.WEIGHT,
      "by_images": by_runner_up,
    }
  return curve


def _measure_rows(
  measured: identification.Identification, sizes: Sequence[int]
) -> dict[int, list[_Point]]:
  """Points at all of `RATES` by size, up to the last size that has any."""
  rows = {}
  for size in sizes:
    row = [_measure_point(measured, rate, size) for rate in RATES]
    if all(threshold is None for threshold, _, _ in row):
      break
    rows[size] = row
  return rows


def _describe(
  measured: identification.Identification,
  images: int,
  rows: Mapping[int, Sequence[_Point]],
) -> dict[str, Any]:
  """Part of a curve, for one number of images: tables by size and rate."""
  part: dict[str, Any] = {
    "images": images,
    "num_classes": measured.num_classes,
    "largest_measured_size": measured.largest_size,
    "size": list(rows),
  }
  for place, name in enumerate((_THRESHOLD, _LOW, _HIGH)):
    part[name] = [[point[place] for point in row] for row in rows.values()]
  return part


def _measure_runner_up(
  measured: identification.Identification, images: int
) -> _RunnerUp:
  """Gains of the score with the runner-up by size, and its curve.

  A gain is a share of enrolled people's probes. The intervals are those of the
  similarity alone at the same rates.
  """
  gains = {}
  rows = {}
  for size, found in runner_up.measure(measured, RATES).items():
    gains[size] = found.gain
    rows[size] = []
    for rate, threshold in zip(RATES, found.thresholds, strict=True):
      alone, low, high = _measure_point(measured, rate, size)
      if alone is None or threshold is None:
        rows[size].append((None, None, None))
      else:
        rows[size].append((_round_up(threshold), low, high))
  return gains, _describe(measured, images, rows)


def _keep_gains(found: Sequence[_RunnerUp]) -> list[dict[str, Any]]:
  """The curves, at sizes that all have and where the runner-up finds more.

  Gains are summed over the numbers of images; empty if no size is left.
  """
  parts: list[dict[str, Any]] = []
  if not found:
    return parts
  measured = set.intersection(*(set(gains) for gains, _ in found))
  sizes = set()
  for size in measured:
    if sum(gains[size] for gains, _ in found) > 0:
      sizes.add(size)
  for _, part in found:
    kept = [size in sizes for size in part["size"]]
    by_size = {
      name: list(itertools.compress(part[name], kept))
      for name in ("size", _THRESHOLD, _LOW, _HIGH)
    }
    parts.append(part | by_size)
  return parts if sizes else []


def _measure_point(
  measured: identification.Identification,
  rate: float,
  size: int,
) -> _Point:
  """A threshold and the interval of its FPIR, rounded; None without one."""
  threshold = measured.threshold(rate, size)
  if threshold is None:
    return None, None, None
  found = measured.false_positive_rate(threshold, size)
  low = float(f"{found.low:.4g}")
  high = float(f"{found.high:.4g}")
  return _round_up(threshold), low, high


def _round_up(threshold: float) -> float:
  """Rounds up to six decimals: the share of accepted probes cannot rise."""
  return math.ceil(threshold * 1e6) / 1e6


def find(
  curve: Mapping[str, Any],
  rate: float,
  size: int,
  images: float,
  *,
  certainty: float | None = None,
) -> Promise:
  """Finds the threshold for a gallery, between the points of a curve.

  Args:
    curve: The result of `measure`, or the same from a model's card.
    rate: The FPIR that is wanted, the mean over galleries; within the rates of
      the curve.
    size: Identities of the gallery.
    images: Images of an identity, the mean. Beyond those of the curve,
      thresholds for their mean are extrapolated linearly in 1 / images. If the
      nearest image counts, the gallery is taken for a larger one of identities
      with fewer images: no stranger is rejected by that who would be accepted
      by its images.
    certainty: Probability, over held-out classes, that the mean is at most
      `rate`, from 0.5; `None` for an estimate of it.

  Returns:
    The threshold, and the rate that it keeps by the held-out classes.

  Raises:
    errors.FieldError: If the rate is out of range, or so small for such a
      gallery that nothing is known of it, or not certain.
  """
  curve, weight = _choose_score(curve, size, images)
  rates = curve["fpir"]
  if not min(rates) <= rate <= max(rates):
    must = f"be from {min(rates):g} to {max(rates):g}"
    raise errors.FieldError("fpir", must, f"{rate:g}")
  smallest = None
  for other in sorted(rates):
    _, _, high = _interpolate(curve, other, size, images)
    if high <= _LARGEST_RATIO * other:
      smallest = other
      break
  num_classes = curve["by_images"][0]["num_classes"]
  few = (
    f"for a gallery of {size:,} identities: the threshold comes from"
    f" {num_classes:,} held-out classes, which are too few for"
  )
  known = rate
  if certainty is not None:
    known = _find_certain(curve, rate, certainty, size, images)
    if np.isnan(known):
      must = f"be smaller at fpir {rate:g} {few} more"
      raise errors.FieldError("fpir_certainty", must, f"{certainty:g}")
  threshold, low, high = _interpolate(curve, known, size, images)
  if np.isnan(threshold):
    if smallest is None:
      must = f"not be given {few} any; a threshold or a cohort may be"
      raise errors.FieldError("fpir", must, f"{rate:g}")
    must = f"be at least {smallest:g} {few} less"
    raise errors.FieldError("fpir", must, f"{rate:g}")
  compared = _compared(curve, images)
  return Promise(
    threshold, known, low, high, smallest, num_classes, compared, weight
  )


def _choose_score(
  curve: Mapping[str, Any], size: int, images: float
) -> tuple[Mapping[str, Any], float]:
  """The curve for a gallery, and the weight of the runner-up there.

  The runner-up counts only at sizes at which it was measured.
  """
  other = curve.get("runner_up")
  if other is None or _compared(curve, images) != identification.MEAN:
    return curve, 0.0
  sizes = other["by_images"][0]["size"]
  if not sizes[0] <= size <= sizes[-1]:
    return curve, 0.0
  return {**curve, "by_images": other["by_images"]}, other["weight"]


def _compared(curve: Mapping[str, Any], images: float) -> str:
  """Whether a gallery is compared by the mean or by the nearest image."""
  depths = [part["images"] for part in curve["by_images"]]
  if len(depths) == 1 and images > depths[0]:
    # The curve has no means of several images.
    return identification.NEAREST
  return curve.get("compared", identification.NEAREST)


def _find_certain(
  curve: Mapping[str, Any],
  rate: float,
  certainty: float,
  size: int,
  images: float,
) -> float:
  """The largest rate whose upper bound is at most `rate`; NaN for none.

  The bound is one-sided, for as many independent probes as the interval of the
  curve stands for.
  """
  confidence = curve.get("confidence", rates_lib.CONFIDENCE)

  def is_above(tried: float) -> bool:
    _, _, high = _interpolate(curve, tried, size, images)
    if np.isnan(high):
      return False
    # A curve of few different similarities may end below the rate itself.
    high = min(max(high, 1.001 * tried), 1.0)
    probes = _find_probes(tried, high, (1 + confidence) / 2)
    return rates_lib.bound_rate(tried, probes, certainty) > rate

  smallest = min(curve["fpir"])
  tried = np.geomspace(smallest, rate, _NUM_TRIED).tolist()
  count = bisect.bisect_left(tried, True, key=is_above)
  if not count:
    return math.nan
  known = tried[count - 1]
  threshold, _, _ = _interpolate(curve, known, size, images)
  return math.nan if np.isnan(threshold) else known


def _find_probes(rate: float, high: float, level: float) -> float:
  """Finds the number of probes whose upper bound of a rate is `high`.

  `level` is the probability of that bound; the number need not be whole.
  """

  def miss(log_probes: float) -> float:
    probes = math.exp(log_probes)
    return rates_lib.bound_rate(rate, probes, level) - high

  return math.exp(optimize.brentq(miss, -12.0, 30.0))


def _interpolate(
  curve: Mapping[str, Any],
  rate: float,
  size: float,
  images: float,
) -> tuple[float, float, float]:
  """Threshold and interval; NaN where one of the neighbours has none.

  Sizes and rates are interpolated on their logarithms, by a cubic that keeps
  their order: thresholds are concave there, so a line would be too low. Images
  are interpolated linearly on theirs, or on their reciprocals if means are
  compared.
  """
  order = np.argsort(curve["fpir"])
  rates = np.array(curve["fpir"])[order]
  by_images = curve["by_images"]
  depths = np.array([part["images"] for part in by_images], float)
  is_mean = _compared(curve, images) == identification.MEAN
  if not is_mean:
    size *= max(images / depths[-1], 1.0)
  found = []
  for part in by_images:
    sizes = np.log(part["size"])
    point = []
    for name in (_THRESHOLD, _LOW, _HIGH):
      table = np.array(part[name], float)[:, order]
      if name != _THRESHOLD:
        # Interpolates shares of the rate, to which the ends are almost
        # proportional.
        table = np.log(table / rates)
      column = [_between(sizes, values, math.log(size)) for values in table.T]
      point.append(_between(np.log(rates), np.array(column), math.log(rate)))
    found.append(point)
  places = np.log(depths)
  place = math.log(images)
  if is_mean:
    places = -1 / depths
    place = -1 / images
  thresholds, lows, highs = np.transpose(found)
  threshold = float(np.interp(place, places, thresholds))
  low = float(np.interp(place, places, lows))
  high = float(np.interp(place, places, highs))
  if is_mean and place > places[-1]:
    before, last = thresholds[-2:]
    slope = (last - before) / (places[-1] - places[-2])
    threshold = last + slope * (place - places[-1])
  return threshold, math.exp(low) * rate, math.exp(high) * rate


def _between(places: np.ndarray, values: np.ndarray, place: float) -> float:
  """The value at a place, by a monotone cubic (PCHIP); NaN beyond the known.

  Args:
    places: Ascending, `[n]`.
    values: Values there, `[n]`; NaN where none is known.
    place: Where the value is wanted.
  """
  is_known = np.isfinite(values)
  places, values = places[is_known], values[is_known]
  if len(places) < 2:
    is_there = len(places) == 1 and place == places[0]
    return float(values[0]) if is_there else math.nan
  return float(
    interpolate.PchipInterpolator(places, values, extrapolate=False)(place)
  )
