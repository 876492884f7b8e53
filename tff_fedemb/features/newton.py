"""Newton's method on one logistic regression a class.

Mehta, Krichene, Thakurta, Kurakin and Cutkosky 2022, "Differentially Private
Image Classification from Features" (arXiv 2211.13403), DP-Newton.
"""

from collections.abc import Iterator
import dataclasses
import math
from typing import ClassVar

import numpy as np

from tff_fedemb import config
from tff_fedemb.features import budget as budget_lib
from tff_fedemb.features import examples as examples_lib
from tff_fedemb.features import least_squares
from tff_fedemb.features import losses
from tff_fedemb.features import method
from tff_fedemb.features import noise

# Of float64, 256 MB.
_NUMBERS_OF_HESSIANS = 2**25


@dataclasses.dataclass(frozen=True, kw_only=True)
class Newton(method.Method):
  """Damped steps theta_l <- theta_l - eta (H_l + lambda I)^-1 g_l.

  H_l = PSD(sum h_l x x' + noise) with h_l = p_l (1 - p_l), p_l the probability
  of class l, and g_l = sum (p_l - y_l) x + noise + lambda theta_l, both
  released anew in every step: K d^2 numbers. An example has a term in the
  Hessian and the gradient of every class, so what it adds to all of them is
  clipped together.

  A step takes n K d^2 multiplications, as many as K covariance matrices of all
  examples: in memory there are besides the weights only n numbers, and Hessians
  of as many classes at once as fit in `_NUMBERS_OF_HESSIANS`.

  Privacy:
    Unit: example.
    Neighbouring relation: add or remove one example.
    Sensitivity: `hessian_clip_norm` for the Hessians of all classes together,
      `gradient_clip_norm` for the gradients of all classes together, in every
      step.
    DpEvent: `steps` times a `GaussianDpEvent` for the Hessians and one for the
      gradients.

  Attributes:
    steps: Number of steps, at least 1.
    learning_rate: eta, in (0, 1]; below 1 steps are damped.
    regularization: lambda of the loss, lambda / 2 |theta_l|^2 beside the sum
      over examples; positive. By default `relative_regularization` n C^2 / d.
    relative_regularization: Of the default, positive.
    damping: What is added to the Hessians besides lambda, not negative. By
      default about the norm of their noise.
    hessian_clip_norm: In [1e-10, 1e10]. By default the bound sqrt(K) / 4 C^2,
      where C bounds the norm of x: nothing is clipped.
    gradient_clip_norm: In [1e-10, 1e10]. By default the bound sqrt(K) C.
    hessian_share: Of the budget, in (0, 1): what the Hessians get.
  """

  steps: int = config.field(4, minimum=1)
  learning_rate: float = config.field(1.0, above=0, maximum=1)
  regularization: float | None = config.field(None, above=0)
  relative_regularization: float = config.field(0.1, above=0)
  damping: float | None = config.field(None, minimum=0)
  hessian_clip_norm: float | None = config.field(
    None, **examples_lib.BOUND_RANGE
  )
  gradient_clip_norm: float | None = config.field(
    None, **examples_lib.BOUND_RANGE
  )
  hessian_share: float = config.field(0.3, above=0, below=1)

  name: ClassVar[str] = "newton"

  def plan_releases(self, size):
    del size  # As many for every problem.
    return (
      budget_lib.PlannedRelease("hessian", self.hessian_share, self.steps),
      budget_lib.PlannedRelease("gradient", 1 - self.hessian_share, self.steps),
    )

  def find_defaults(self, size, noise_multipliers):
    root = math.sqrt(size.num_classes)
    hessian_clip_norm = self.hessian_clip_norm or root / 4 * size.clip_norm**2
    return {
      "regularization": self.relative_regularization * size.mean_eigenvalue,
      "damping": noise.noise_norm(
        hessian_clip_norm * noise_multipliers["hessian"], size.dim
      ),
      "hessian_clip_norm": hessian_clip_norm,
      "gradient_clip_norm": root * size.clip_norm,
    }

  def fit(self, examples, releases, rng):
    del rng  # Nothing is random but the noise.
    size = examples.size
    weights = np.zeros([size.num_classes, size.dim])
    for _ in range(self.steps):
      gradient, scales = self._sum_up(weights, examples)
      gradient = releases.open(
        "gradient", sensitivity=self.gradient_clip_norm
      ).add_noise(gradient)
      gradient += self.regularization * weights
      release = releases.open(
        "hessian", sensitivity=self.hessian_clip_norm, parts=size.num_classes
      )
      hessians = _hessians(weights.copy(), examples, scales)
      for label, hessian in enumerate(hessians):
        weights[label] -= self.learning_rate * least_squares.solve(
          release.add_symmetric_noise(hessian),
          gradient[label],
          self.regularization + self.damping,
        )
    return weights

  def _sum_up(
    self, weights: np.ndarray, examples: examples_lib.ClippedExamples
  ) -> tuple[np.ndarray, np.ndarray]:
    """The gradient's sum `[K, d]`, and what Hessians are scaled by, `[n]`."""
    size = examples.size
    gradient = np.zeros_like(weights)
    scales = []
    for features, labels in examples.chunks(wide=size.num_classes):
      gradient += losses.clipped_gradient(
        weights,
        features,
        labels,
        loss="sigmoid",
        clip_norm=self.gradient_clip_norm,
      )
      # The Frobenius norm of h x x', stacked over classes, is |h| |x|^2.
      norms = (
        losses.row_norms(_curvatures(weights, features))
        * losses.row_norms(features) ** 2
      )
      scales.append(losses.clip_scales(norms, self.hessian_clip_norm))
    return gradient, np.concatenate(scales)


def _hessians(
  weights: np.ndarray,
  examples: examples_lib.ClippedExamples,
  scales: np.ndarray,
) -> Iterator[np.ndarray]:
  """Yields the classes' Hessians `[d, d]`, clipped together by `scales`."""
  size = examples.size
  group = max(1, _NUMBERS_OF_HESSIANS // size.dim**2)
  for first in range(0, size.num_classes, group):
    of_group = weights[first : first + group]
    hessians = np.zeros([len(of_group), size.dim, size.dim])
    start = 0
    for features, _ in examples.chunks(wide=len(of_group)):
      rows = _curvatures(of_group, features)
      rows *= scales[start : start + len(features), None]
      for hessian, row in zip(hessians, rows.T, strict=True):
        hessian += features.T @ (features * row[:, None])
      start += len(features)
    yield from hessians


def _curvatures(weights: np.ndarray, features: np.ndarray) -> np.ndarray:
  """h `[b, k]` of some classes, 0 where logits overflow."""
  with np.errstate(over="ignore", invalid="ignore"):
    probabilities = losses.probabilities(
      features @ weights.T.astype(features.dtype), "sigmoid"
    )
  return np.nan_to_num(probabilities * (1 - probabilities), copy=False)
