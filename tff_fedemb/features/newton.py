"""Newton's method on one logistic regression per class.

Mehta, Krichene, Thakurta, Kurakin and Cutkosky 2022, "Differentially Private
Image Classification from Features" (arXiv 2211.13403), DP-Newton.
"""

from collections.abc import Iterator, Mapping
import dataclasses
import math
from typing import Any

import numpy as np

from tff_fedemb import checks
from tff_fedemb import config
from tff_fedemb.features import budget as budget_lib
from tff_fedemb.features import examples as examples_lib
from tff_fedemb.features import least_squares
from tff_fedemb.features import losses
from tff_fedemb.features import method
from tff_fedemb.features import noise

# Numbers of the Hessians in memory at a time: 256 MB of float64.
_NUMBERS_OF_HESSIANS = 2**25
# The defaults grow with the square of C, with K and with alpha.
_BOUND_RANGE: dict[str, Any] = {"minimum": 1e-22, "maximum": 1e34}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Newton(method.Method):
  """Damped steps theta_l <- theta_l - eta (H_l + lambda I)^-1 g_l.

  H_l = PSD(sum a_l h_l x x' + noise) with h_l = p_l (1 - p_l), p_l the
  probability of class l, and g_l = sum a_l (p_l - y_l) x + noise + lambda
  theta_l. Both are released anew in every step: K d^2 numbers. a_l is 1 for the
  examples of class l, and alpha for others. An example adds a term to the
  Hessian and the gradient of every class; these terms are clipped together.

  A step takes n K d^2 multiplications, as many as K covariance matrices of all
  examples. Besides the weights, memory holds Hessians of as many classes at
  once as fit in `_NUMBERS_OF_HESSIANS`.

  Privacy:
    Unit: example.
    Neighbouring relation: an example's slot stays empty.
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
    relative_regularization: Multiple of the default, positive.
    damping: Number added to the Hessians' diagonal besides lambda, not
      negative. By default about the norm of their noise.
    hessian_clip_norm: In [1e-22, 1e34]. By default the bound s / 4 C^2, where C
      bounds the norm of x and s = sqrt(1 + (K - 1) alpha^2): nothing is
      clipped.
    gradient_clip_norm: In [1e-22, 1e34]. By default the bound s C.
    hessian_share: Share of the budget that the Hessians get, in (0, 1).
    negative_weight: alpha, positive: weight of an example in the loss of each
      class that it does not belong to.
    logit_bias: Constant that is added to all logits; it is not trained. Far
      from 0, the first Hessian is almost zero.
  """

  steps: int = config.field(4, minimum=1)
  learning_rate: float = config.field(1.0, above=0, maximum=1)
  regularization: float | None = config.field(None, above=0)
  relative_regularization: float = config.field(0.1, above=0)
  damping: float | None = config.field(None, minimum=0)
  hessian_clip_norm: float | None = config.field(None, **_BOUND_RANGE)
  gradient_clip_norm: float | None = config.field(None, **_BOUND_RANGE)
  hessian_share: float = config.field(0.3, above=0, below=1)
  negative_weight: float = config.field(1.0, above=0, maximum=1e10)
  logit_bias: float = config.field(0.0, minimum=-100, maximum=100)

  def plan_releases(self, size: examples_lib.ProblemSize):
    """Plans all Hessians, and all gradients, in every step."""
    return (
      budget_lib.PlannedRelease("hessian", self.hessian_share, self.steps),
      budget_lib.PlannedRelease("gradient", 1 - self.hessian_share, self.steps),
    )

  def find_defaults(
    self,
    size: examples_lib.ProblemSize,
    noise_multipliers: Mapping[str, float],
  ) -> dict[str, Any]:
    """Bounds norms so that nothing is clipped; damps by the noise's norm."""
    others = (size.num_classes - 1) * self.negative_weight**2
    root = math.sqrt(1 + others)
    hessian_clip_norm = self.hessian_clip_norm or root / 4 * size.clip_norm**2
    stddev = hessian_clip_norm * noise_multipliers["hessian"]
    return {
      "regularization": self.relative_regularization * size.mean_eigenvalue,
      "damping": noise.noise_norm(stddev, size.dim),
      "hessian_clip_norm": hessian_clip_norm,
      "gradient_clip_norm": root * size.clip_norm,
    }

  def fit(
    self,
    examples: examples_lib.ClippedExamples,
    releases: noise.Releases,
  ) -> np.ndarray:
    """Takes `steps` damped steps from zero weights.

    Gradient and Hessians of a step are both at the weights before it.
    """
    regularization = checks.check_given("regularization", self.regularization)
    damping = checks.check_given("damping", self.damping)
    hessian_norm = checks.check_given(
      "hessian_clip_norm", self.hessian_clip_norm
    )
    gradient_norm = checks.check_given(
      "gradient_clip_norm", self.gradient_clip_norm
    )
    size = examples.size
    weights = np.zeros([size.num_classes, size.dim])
    for _ in range(self.steps):
      gradient = losses.total_gradient(
        weights,
        examples.chunks(wide=size.num_classes),
        loss="sigmoid",
        clip_norm=gradient_norm,
        logit_bias=self.logit_bias,
        negative_weight=self.negative_weight,
      )
      release = releases.open("gradient", sensitivity=gradient_norm)
      gradient = release.add_noise(gradient) + regularization * weights
      release = releases.open(
        "hessian", sensitivity=hessian_norm, parts=size.num_classes
      )
      hessians = self._add_up_hessians(weights.copy(), examples, hessian_norm)
      for label, hessian in enumerate(hessians):
        step = least_squares.solve(
          release.add_symmetric_noise(hessian),
          gradient[label],
          regularization + damping,
        )
        weights[label] -= self.learning_rate * step
    return weights

  def _add_up_hessians(
    self,
    weights: np.ndarray,
    examples: examples_lib.ClippedExamples,
    clip_norm: float,
  ) -> Iterator[np.ndarray]:
    """Yields the Hessian of each class, float64 `[d, d]`, without noise.

    The Hessians of one example are clipped together, to `clip_norm`. The
    examples are read once for each group of classes whose Hessians fit into
    memory.
    """
    size = examples.size
    group = max(1, _NUMBERS_OF_HESSIANS // size.dim**2)
    for first in range(0, size.num_classes, group):
      end = min(first + group, size.num_classes)
      hessians = np.zeros([end - first, size.dim, size.dim])
      for features, labels in examples.chunks(wide=size.num_classes):
        # h of all classes; it is 0 where logits overflow.
        with np.errstate(over="ignore", invalid="ignore"):
          logits = features @ weights.T.astype(features.dtype)
          logits += self.logit_bias
          curvatures = losses.probabilities(logits, "sigmoid")
        curvatures = np.nan_to_num(curvatures * (1 - curvatures), copy=False)
        losses.weigh_negatives(curvatures, labels, self.negative_weight)
        # The Frobenius norm of h x x', stacked over classes, is |h| |x|^2.
        norms = losses.row_norms(curvatures) * losses.row_norms(features) ** 2
        curvatures *= losses.clip_scales(norms, clip_norm)[:, None]
        for label in range(first, end):
          weighted = features * curvatures[:, label, None]
          hessians[label - first] += features.T @ weighted
      yield from hessians
