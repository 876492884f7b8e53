"""Least squares: the classifier in closed form, from sums released once.

Mehta, Krichene, Thakurta, Kurakin and Cutkosky 2022, "Differentially Private
Image Classification from Features" (arXiv 2211.13403), DP-LS.
"""

from collections.abc import Mapping
import dataclasses
import math
from typing import Any

import numpy as np
from scipy import linalg
from scipy import sparse

from tff_fedemb import checks
from tff_fedemb import config
from tff_fedemb import errors
from tff_fedemb.features import budget as budget_lib
from tff_fedemb.features import examples as examples_lib
from tff_fedemb.features import method
from tff_fedemb.features import noise

COVARIANCES = ("shared", "per_class")

# Share of the budget that all A_l get, relative to those of G and b_l.
_CLASS_COVARIANCE_SHARE = 0.15
# Default regularization in units of C times the norm of the noise on a class
# sum.
_NOISE_FACTOR = 4.0


@dataclasses.dataclass(frozen=True, kw_only=True)
class LeastSquares(method.Method):
  """Ridge regression on the classes' indicators.

  With G = sum x x', A_l = sum over class l of x x' and b_l = sum over class l
  of x, the weights of class l are (A_l + alpha G + lambda I)^-1 b_l, or without
  A_l (G + lambda I)^-1 b_l: d^2 + K d numbers to release instead of K d^2.

  Privacy:
    Unit: example.
    Neighbouring relation: an example's slot stays empty.
    Sensitivity: C^2 for G, C^2 for all A_l together (an example is in one of
      them), C for all b_l together; C bounds the norm of x.
    DpEvent: a `GaussianDpEvent` for each of G, all A_l and all b_l, once.

  Attributes:
    covariance: 'shared' for G alone, 'per_class' for A_l + alpha G.
    regularization: lambda, positive. With a shared matrix, the default is the
      larger of `relative_regularization` n C^2 / d and 4 C times the norm of
      the noise on b_l, about C z sqrt(d) for its noise multiplier z. With one
      per class it is the larger of `relative_regularization` (alpha + 1 / K) n
      C^2 / d and about the norm of the noise on A_l, `noise.noise_norm`. The
      default ignores the noise on the other sums: with a tiny share for the
      covariance, choose lambda yourself.
    relative_regularization: Multiple of the default, positive.
    background_weight: alpha of 'per_class', positive.
    covariance_share: Share of the budget that G gets, in (0, 1); the rest goes
      to all b_l, whose noise harms the classifier more.
  """

  protects_users = True

  covariance: str = config.field("shared", choices=COVARIANCES)
  regularization: float | None = config.field(None, above=0)
  relative_regularization: float = config.field(0.3, above=0)
  background_weight: float = config.field(0.1, above=0)
  covariance_share: float = config.field(0.05, above=0, below=1)

  def plan_releases(self, size: examples_lib.ProblemSize):
    """Plans the class sums, G and, with 'per_class', all A_l, each once."""
    class_sum = budget_lib.PlannedRelease(
      "class_sum", 1 - self.covariance_share
    )
    covariance = budget_lib.PlannedRelease("covariance", self.covariance_share)
    if self.covariance == "shared":
      return (class_sum, covariance)
    class_covariance = budget_lib.PlannedRelease(
      "class_covariance", _CLASS_COVARIANCE_SHARE
    )
    return (class_sum, covariance, class_covariance)

  def find_defaults(
    self,
    size: examples_lib.ProblemSize,
    noise_multipliers: Mapping[str, float],
  ) -> dict[str, Any]:
    """Chooses lambda by the noise on the sums, see the class."""
    relative = self.relative_regularization * size.mean_eigenvalue
    noise_norm = (
      _NOISE_FACTOR
      * noise_multipliers["class_sum"]
      * size.clip_norm**2
      * math.sqrt(size.dim)
    )
    if self.covariance == "per_class":
      relative *= self.background_weight + 1 / size.num_classes
      noise_norm = noise.noise_norm(
        size.clip_norm**2 * noise_multipliers["class_covariance"], size.dim
      )
    return {"regularization": max(relative, noise_norm)}

  def fit(
    self,
    examples: examples_lib.ClippedExamples,
    releases: noise.Releases,
  ) -> np.ndarray:
    """Releases the sums once and solves for each class.

    With 'per_class' the examples are read K + 1 times, and one matrix A_l is in
    memory at a time.
    """
    regularization = checks.check_given("regularization", self.regularization)
    size = examples.size
    background, class_sums = add_up(examples)
    release = releases.open("class_sum", sensitivity=size.clip_norm)
    class_sums = release.add_noise(class_sums)
    release = releases.open("covariance", sensitivity=size.clip_norm**2)
    background = release.add_symmetric_noise(background)
    if self.covariance == "shared":
      return solve(background, class_sums, regularization)
    release = releases.open(
      "class_covariance", sensitivity=size.clip_norm**2, parts=size.num_classes
    )
    weights = np.zeros([size.num_classes, size.dim])
    for label in range(size.num_classes):
      matrix = np.zeros([size.dim, size.dim])
      rows = np.flatnonzero(examples.labels == label)
      for features, _ in examples.chunks(rows):
        matrix = matrix + features.T @ features
      matrix = release.add_symmetric_noise(matrix)
      matrix = matrix + self.background_weight * background
      weights[label] = solve(matrix, class_sums[label], regularization)
    return weights


def solve(
  matrix: np.ndarray,
  class_sums: np.ndarray,
  regularization: float,
) -> np.ndarray:
  """Returns (PSD(matrix) + regularization I)^-1 applied to each row of sums.

  Args:
    matrix: `[d, d]`; noise may have made it indefinite or not symmetric.
    class_sums: `[k, d]`, or `[d]` for one row.
    regularization: lambda, positive.

  Returns:
    An array of the shape of `class_sums`.

  Raises:
    errors.FieldError: If the matrix is singular up to rounding.
  """
  matrix = noise.project_to_psd(matrix)
  matrix[np.diag_indices_from(matrix)] += regularization
  try:
    return linalg.solve(matrix, class_sums.T, assume_a="pos").T
  except linalg.LinAlgError as error:
    must = "be larger: the matrix it is added to stays singular"
    raise errors.FieldError("regularization", must, regularization) from error


def add_up(
  examples: examples_lib.ClippedExamples,
) -> tuple[np.ndarray, np.ndarray]:
  """Adds up the statistics of least squares, without noise.

  Args:
    examples: The data.

  Returns:
    G, the sum of x x', float64 `[d, d]`; and all b_l, the sums of x by class,
    float64 `[K, d]`.
  """
  size = examples.size
  covariance = np.zeros([size.dim, size.dim])
  class_sums = np.zeros([size.num_classes, size.dim])
  for features, labels in examples.chunks():
    covariance += features.T @ features
    rows = np.arange(len(labels))
    ones = np.ones(len(labels))
    shape = (size.num_classes, len(labels))
    indicator = sparse.csr_matrix((ones, (labels, rows)), shape)
    class_sums += indicator @ features
  return covariance, class_sums
