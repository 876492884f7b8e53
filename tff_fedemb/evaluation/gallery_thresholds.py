"""Thresholds above which a stranger to a gallery is taken for somebody.

A curve of thresholds for wanted rates of false positive identification (FPIR),
over the number of identities in a gallery and of images that each is enrolled
with. A model's card has it, measured on held-out classes.
"""

from collections.abc import Mapping, Sequence
import dataclasses
import math
from typing import Any

import numpy as np

from tff_fedemb import errors
from tff_fedemb.evaluation import identification

RATES = (0.1, 0.03, 0.01, 0.003, 0.001)
_SIZES = tuple(10**i * j for i in range(6) for j in (1, 3))
_IMAGES = (1, 3, 10)
# Largest number of similarities to compute for each number of images.
_MOST_SIMILARITIES = 2**31
# A rate is supported if its interval ends at no more than this times the rate.
_LARGEST_RATIO = 3.0
# Names of a curve's values, each given by size and rate.
_THRESHOLD, _LOW, _HIGH = "threshold", "fpir_low", "fpir_high"


@dataclasses.dataclass(frozen=True)
class Promise:
  """The threshold of a curve for one gallery.

  Attributes:
    threshold: Smallest cosine similarity at which a probe is accepted.
    rate: Wanted share of strangers' probes that are accepted.
    low, high: Interval of that share.
    smallest: The smallest of `RATES` that is supported for such a gallery,
      `None` if none is.
    num_classes: Number of held-out classes that it was measured on.
  """

  threshold: float
  rate: float
  low: float
  high: float
  smallest: float | None
  num_classes: int

  @property
  def is_supported(self) -> bool:
    """Whether the interval ends at no more than three times the rate."""
    return self.high <= _LARGEST_RATIO * self.rate


def measure(
  embeddings: np.ndarray, labels: np.ndarray, *, sizes: Sequence[int] = _SIZES
) -> dict[str, Any] | None:
  """Measures the curve on held-out classes.

  Thresholds for galleries of more identities than there are classes follow
  from an upper bound of their FPIR (`identification`).

  Args:
    embeddings: `[n, dim]` finite numbers, of any length.
    labels: `[n]` class of each embedding.
    sizes: Identities of the galleries, ascending.

  Returns:
    The curve as JSON values by name; `None` if fewer than 3 classes have two
    images. A threshold is null where no stranger's similarity is high enough
    to set it.
  """
  by_images = []
  _, counts = np.unique(labels, return_counts=True)
  for images in identification.numbers_of_images(labels, _IMAGES):
    num_similarities = len(labels) * int(np.sum(counts > images)) * images
    if images > 1 and num_similarities > _MOST_SIMILARITIES:
      break
    measured = identification.Identification(
      embeddings, labels, images_of_identity=images
    )
    rows = []
    for size in sizes:
      row = [_measure_point(measured, rate, size) for rate in RATES]
      if all(threshold is None for threshold, *_ in row):
        break
      rows.append(row)
    by_images.append(
      {
        "images": images,
        "num_classes": measured.num_classes,
        "largest_measured_size": measured.largest_size,
        "size": list(sizes[: len(rows)]),
        **{
          name: [[point[i] for point in row] for row in rows]
          for i, name in enumerate((_THRESHOLD, _LOW, _HIGH))
        },
      }
    )
  if not by_images:
    return None
  return {
    "meaning": (
      "a stranger's image is taken for somebody of a gallery if its similarity"
      " with one of the gallery's images is at least the threshold; this is the"
      " case for a share fpir of strangers' images, mean over strangers and"
      " galleries. Each held-out class was a stranger to all galleries of the"
      " others"
    ),
    "confidence": identification.CONFIDENCE,
    "fpir": list(RATES),
    "by_images": by_images,
  }


def _measure_point(
  measured: identification.Identification, rate: float, size: int
) -> tuple[float | None, float | None, float | None]:
  """A threshold and the interval of its FPIR, rounded; None without one."""
  threshold = measured.threshold(rate, size)
  if threshold is None:
    return None, None, None
  found = measured.false_positive_rate(threshold, size)
  low, high = (float(f"{x:.4g}") for x in (found.low, found.high))
  # Rounding up keeps the share of accepted probes from rising.
  return math.ceil(threshold * 1e6) / 1e6, low, high


def find(
  curve: Mapping[str, Any], rate: float, size: int, images: float
) -> Promise:
  """Finds the threshold for a gallery, between the points of a curve.

  Args:
    curve: As of `measure`.
    rate: The FPIR that is wanted.
    size: Identities of the gallery.
    images: Mean number of images of an identity. Beyond the curve's largest
      number, the gallery counts as a larger one of identities with fewer
      images, whose threshold is never too low.

  Raises:
    errors.FieldError: If the rate is out of range, or too small to be known for
      such a gallery.
  """
  rates = curve["fpir"]
  if not min(rates) <= rate <= max(rates):
    must = f"be from {min(rates):g} to {max(rates):g}"
    raise errors.FieldError("fpir", must, f"{rate:g}")
  threshold, low, high = _interpolate(curve, rate, size, images)
  supported = (
    other
    for other in sorted(rates)
    if _interpolate(curve, other, size, images)[2] <= _LARGEST_RATIO * other
  )
  smallest = next(supported, None)
  num_classes = curve["by_images"][0]["num_classes"]
  if np.isnan(threshold):
    least = f"at least {smallest:g}" if smallest else f"above {max(rates):g}"
    must = (
      f"be {least} for a gallery of {size:,} identities: the model's"
      f" threshold comes from {num_classes:,} held-out classes, which are too"
      " few for less"
    )
    raise errors.FieldError("fpir", must, f"{rate:g}")
  return Promise(threshold, rate, low, high, smallest, num_classes)


def _interpolate(
  curve: Mapping[str, Any], rate: float, size: float, images: float
) -> tuple[float, float, float]:
  """Threshold and interval; NaN where one of the neighbours has none."""
  order = np.argsort(curve["fpir"])
  rates = np.array(curve["fpir"])[order]
  by_images = curve["by_images"]
  depths = [part["images"] for part in by_images]
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
      column = [
        np.interp(np.log(size), sizes, values, right=np.nan)
        for values in table.T
      ]
      point.append(np.interp(np.log(rate), np.log(rates), column))
    found.append(point)
  threshold, low, high = (
    float(np.interp(np.log(images), np.log(depths), values))
    for values in zip(*found, strict=True)
  )
  return threshold, math.exp(low) * rate, math.exp(high) * rate
