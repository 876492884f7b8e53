"""Labelled features, clipped to a norm and read a chunk at a time."""

from collections.abc import Iterator
import dataclasses
import functools
from typing import Any

import numpy as np

from tff_fedemb import checks
from tff_fedemb import errors
from tff_fedemb.data import arrays

# A chunk is 16 MB of float32; the allocator reuses its memory for the next one.
_NUMBERS_OF_CHUNK = 2**22
# A block of this size fits into the processor's cache while it is clipped.
_NUMBERS_OF_BLOCK = 2**17
# Clipped features are kept between passes if they take no more memory.
_KEPT_BYTES = 2**28
# Bounds lie in this range, so that numbers computed with them, squares too,
# neither overflow nor underflow in float32.
BOUND_RANGE: dict[str, Any] = {"minimum": 1e-10, "maximum": 1e10}


@dataclasses.dataclass(frozen=True)
class ProblemSize:
  """Public facts of the data, which a method may use without noise.

  Attributes:
    num_examples: n, at least 1. The guarantee assumes that it is public.
    dim: d, length of a feature vector.
    num_classes: K, at least 2.
    clip_norm: C, in [1e-10, 1e10], bound of a feature vector's L2 norm.
  """

  num_examples: int
  dim: int
  num_classes: int
  clip_norm: float

  @property
  def mean_eigenvalue(self) -> float:
    """n C^2 / d, the mean eigenvalue of sum x x' if all x have norm C."""
    return self.num_examples * self.clip_norm**2 / self.dim


class ClippedExamples:
  """Examples whose feature vectors have at most a given norm.

  Features are clipped when they are read: a chunk of 16 MB at a time, or all of
  them once if they take 256 MB at most.

  Attributes:
    size: Public facts of the examples.
    labels: All labels, int64 `[n]`.
    dtype: Type of the chunks: float64 if the features are, else float32.
  """

  def __init__(
    self,
    features: np.ndarray,
    labels: np.ndarray,
    *,
    num_classes: int,
    clip_norm: float,
  ):
    """Initialises the examples.

    Args:
      features: `[n, d]`, real numbers.
      labels: `[n]`, integers in [0, num_classes).
      num_classes: K, at least 2; public.
      clip_norm: C, in [1e-10, 1e10]: longer vectors are scaled down to this
        L2 norm.

    Raises:
      errors.FieldError: If an argument is of another shape, type or range.
        `chunks` finds features that are not finite.
    """
    checks.check_integer("num_classes", num_classes, minimum=2)
    checks.check_number("clip_norm", clip_norm, **BOUND_RANGE)
    self._features = check_features(features)
    self.labels = arrays.to_labels("labels", labels, len(features))
    smallest = self.labels.min()
    largest = self.labels.max()
    if not 0 <= smallest <= largest < num_classes:
      found = f"{smallest} to {largest}"
      raise errors.FieldError("labels", f"be in [0, {num_classes})", found)
    self.dtype = np.dtype(np.float32)
    if features.dtype == np.float64:
      self.dtype = features.dtype
    self.size = ProblemSize(
      len(features), features.shape[1], int(num_classes), float(clip_norm)
    )

  def chunks(
    self,
    rows: np.ndarray | None = None,
    *,
    wide: int = 0,
  ) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yields clipped features `[b, d]` and labels `[b]`, each example once.

    Do not write to the features: they may be read-only.

    Args:
      rows: Numbers of the examples, `[m]`, in any order; `None` for all.
      wide: Number of further values that the caller holds for each example;
        with more of them, chunks have fewer examples.

    Yields:
      Features float64 and labels int64, some 4 million numbers at a time. A sum
      of many rows in single precision may move by more than its sensitivity.

    Raises:
      errors.FieldError: If a feature is not finite.
    """
    size = max(1, _NUMBERS_OF_CHUNK // (self.size.dim + wide))
    num_rows = len(self.labels) if rows is None else len(rows)
    is_small = self._features.size * self.dtype.itemsize <= _KEPT_BYTES
    for start in range(0, num_rows, size):
      chunk: slice | np.ndarray = slice(start, start + size)
      if rows is not None:
        chunk = rows[chunk]
      features = self._kept[chunk] if is_small else self._clip(chunk)
      yield features.astype(np.float64, copy=False), self.labels[chunk]

  @functools.cached_property
  def _kept(self) -> np.ndarray:
    """All clipped features `[n, d]`, read-only, computed on the first use."""
    kept = self._clip(slice(None))
    kept.flags.writeable = False
    return kept

  def _clip(self, rows: np.ndarray | slice) -> np.ndarray:
    """Returns clipped features of some rows, of type `dtype`."""
    return clip_rows(
      self._features[rows], self.size.clip_norm, dtype=self.dtype
    )


def check_features(features: np.ndarray) -> np.ndarray:
  """Checks that features are a matrix of real numbers.

  Args:
    features: `[n, d]`, n and d at least 1; integers and truth values count.

  Returns:
    The same array.

  Raises:
    errors.FieldError: If they are something else.
  """
  is_matrix = features.ndim == 2 and features.size
  if not is_matrix or features.dtype.kind not in "fiub":
    found = f"{features.dtype} {list(features.shape)}"
    must = "be real numbers [n, d], n and d at least 1"
    raise errors.FieldError("features", must, found)
  return features


def clip_rows(
  features: np.ndarray,
  clip_norm: float,
  *,
  dtype: np.dtype | None = None,
) -> np.ndarray:
  """Scales rows down whose L2 norm exceeds a bound.

  Args:
    features: `[n, d]`.
    clip_norm: The bound, positive.
    dtype: Type of the result; None for that of the features.

  Returns:
    A new array `[n, d]`; rows within the bound keep their values.

  Raises:
    errors.FieldError: If a number is not finite, or a norm above 1e154.
  """
  clipped = np.empty(features.shape, dtype or features.dtype)
  size = max(1, _NUMBERS_OF_BLOCK // max(1, features.shape[1]))
  for start in range(0, len(features), size):
    block = slice(start, start + size)
    # In float32, squares of large and small numbers would over- and underflow.
    rows = features[block].astype(np.float64)
    norms = np.sqrt(np.einsum("ij,ij->i", rows, rows))
    num_bad = np.count_nonzero(~np.isfinite(norms))
    if num_bad:
      found = f"{num_bad} or more examples with others, or norms above 1e154"
      raise errors.FieldError("features", "be finite numbers", found)
    with np.errstate(divide="ignore"):
      rows *= np.minimum(clip_norm / norms, 1.0)[:, None]
    np.copyto(clipped[block], rows, casting="same_kind")
  return clipped
