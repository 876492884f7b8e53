"""DP-FC: gradients preconditioned by a private covariance of the features.

Mehta, Krichene, Thakurta, Kurakin and Cutkosky 2022, "Differentially Private
Image Classification from Features" (arXiv 2211.13403), DP-FC.
"""

from __future__ import annotations

from collections.abc import Mapping
import dataclasses
from typing import ClassVar

import numpy as np
from scipy import linalg

from tff_fedemb.features import budget as budget_lib
from tff_fedemb.features import examples as examples_lib
from tff_fedemb.features import gradient_steps
from tff_fedemb.features import least_squares
from tff_fedemb.features import method
from tff_fedemb.features import noise


@dataclasses.dataclass(frozen=True)
class FeatureCovariance(gradient_steps.GradientMethod):
  """Steps W_l <- W_l - eta (F + lambda I)^-1 G_l from zero weights.

  F = PSD(sum x x' + noise) is released once and shared by all classes and
  steps: second-order information that costs d^2 numbers, whatever the number
  of classes. G is the clipped, noised gradient; both are sums over examples.

  Privacy:
    Unit: example.
    Neighbouring relation: add or remove one example.
    Sensitivity: C^2 for F, where C bounds the norm of x; `gradient_clip_norm`
      for each gradient, which is clipped as a whole.
    DpEvent: `GaussianDpEvent` for F, and as `gradient_steps.GradientRelease`
      for the gradients.

  Attributes:
    steps: T, number of gradients, at least 1.
    learning_rate: eta, positive. 4 is stable for the softmax loss, of which F
      bounds twice the curvature.
    regularization: lambda, positive. By default the largest of
      `relative_regularization` n C^2 / d, about the norm of the noise on F, and
      what `logit_noise` asks for.
    relative_regularization: Of the default, positive.
    logit_noise: Of the default: standard deviation that the gradients' noise
      may give to a logit where F is 0, positive.
    momentum: In [0, 1).
    loss: One of `losses.LOSSES`.
    gradient_clip_norm: In [1e-10, 1e10], C by default.
    batch_size: Expected number of examples in a step, at least 1, drawn by
      Poisson sampling; `None` for all examples in every step.
    covariance_share: Of the budget, in (0, 1): what F gets.
  """

  steps: int = 30
  learning_rate: float = 4.0
  regularization: float | None = None
  relative_regularization: float = 1.0
  logit_noise: float = 1.0
  momentum: float = 0.9
  loss: str = "softmax"
  gradient_clip_norm: float | None = None
  batch_size: float | None = None
  covariance_share: float = 0.02

  name: ClassVar[str] = "feature_covariance"

  def __post_init__(self):
    self.check_gradients()
    method.check_positive_or_none("regularization", self.regularization)
    for name in ("learning_rate", "relative_regularization", "logit_noise"):
      method.check_positive(name, getattr(self, name))
    method.check_share("covariance_share", self.covariance_share)

  def plan_releases(
    self, size: examples_lib.ProblemSize
  ) -> tuple[budget_lib.PlannedRelease, ...]:
    """See base class."""
    return (
      budget_lib.PlannedRelease("covariance", self.covariance_share),
      self.gradient_release(size).plan(size, share=1.0 - self.covariance_share),
    )

  def resolve(
    self,
    size: examples_lib.ProblemSize,
    noise_multipliers: Mapping[str, float],
  ) -> FeatureCovariance:
    """See base class."""
    regularization = max(
      self.relative_regularization * size.mean_eigenvalue,
      noise.noise_norm(
        size.clip_norm**2 * noise_multipliers["covariance"], size.dim
      ),
      # Where F is 0, the learning rate is eta n / lambda.
      self.learning_rate
      * size.num_examples
      * self.gradient_release(size).logit_noise(
        size, noise_multipliers["gradient"], momentum=self.momentum
      )
      / self.logit_noise,
    )
    return dataclasses.replace(
      self,
      regularization=self.regularization or regularization,
      gradient_clip_norm=self.gradient_clip_norm or size.clip_norm,
    )

  def fit(
    self,
    examples: examples_lib.ClippedExamples,
    releases: noise.Releases,
    rng: np.random.Generator,
  ) -> np.ndarray:
    """See base class."""
    size = examples.size
    covariance = np.zeros([size.dim, size.dim])
    for features, _ in examples.chunks():
      covariance += features.T @ features
    covariance = releases.open(
      "covariance", sensitivity=size.clip_norm**2
    ).add_symmetric_noise(covariance)
    factor = factorize(
      covariance, self.regularization, num_examples=size.num_examples
    )
    release = self.gradient_release(size)
    optimizer = gradient_steps.Optimizer(
      "momentum", learning_rate=self.learning_rate, momentum=self.momentum
    )
    weights = np.zeros([size.num_classes, size.dim])
    for _ in range(self.steps):
      gradient = release.mean_gradient(weights, examples, releases, rng)
      weights = optimizer.step(weights, linalg.cho_solve(factor, gradient.T).T)
    return weights


def factorize(
  covariance: np.ndarray, regularization: float, *, num_examples: float
) -> tuple[np.ndarray, bool]:
  """Returns the Cholesky factor of (PSD(covariance) + regularization I) / n.

  Args:
    covariance: `[d, d]`, noised sum.
    regularization: Positive.
    num_examples: n, (expected) number of examples in the sum.

  Returns:
    What `scipy.linalg.cho_solve` takes.

  Raises:
    ValueError: If that is no positive definite matrix, but for rounding.
  """
  matrix = noise.project_to_psd(covariance)
  matrix[np.diag_indices_from(matrix)] += regularization
  try:
    return linalg.cho_factor(matrix / num_examples)
  except linalg.LinAlgError as error:
    raise least_squares.too_little(regularization) from error
