"""DP-FC: gradients preconditioned by a private covariance of the features.

Mehta, Krichene, Thakurta, Kurakin and Cutkosky 2022, "Differentially Private
Image Classification from Features" (arXiv 2211.13403), DP-FC.
"""

from collections.abc import Mapping
import dataclasses
from typing import Any

import numpy as np

from tff_fedemb import checks
from tff_fedemb import config
from tff_fedemb.features import budget as budget_lib
from tff_fedemb.features import examples as examples_lib
from tff_fedemb.features import gradient_steps
from tff_fedemb.features import least_squares
from tff_fedemb.features import noise


@dataclasses.dataclass(frozen=True, kw_only=True)
class FeatureCovariance(gradient_steps.GradientMethod):
  """Steps W_l <- W_l - eta (F + lambda I)^-1 G_l from zero weights.

  F = PSD(sum x x' + noise) is released once and shared by all classes and
  steps: second-order information in d^2 numbers, however many classes there
  are. G is the clipped, noised gradient. Both are sums over examples.

  Privacy:
    Unit: example.
    Neighbouring relation: an example's slot stays empty.
    Sensitivity: C^2 for F, where C bounds the norm of x; that of
      `gradient_steps.GradientMethod` for each gradient.
    DpEvent: `GaussianDpEvent` for F, and as `gradient_steps.GradientMethod` for
      the gradients.

  Attributes:
    learning_rate: eta, positive. 4 is stable for the softmax loss, whose
      curvature is at most F / 2.
    regularization: lambda, positive. By default the largest of
      `relative_regularization` n C^2 / d, about the norm of the noise on F, and
      what `logit_noise` asks for where F is 0.
    relative_regularization: Multiple of the default, positive.
    covariance_share: Share of the budget that F gets, in (0, 1).
  """

  learning_rate: float = config.field(4.0, above=0)
  regularization: float | None = config.field(None, above=0)
  relative_regularization: float = config.field(1.0, above=0)
  covariance_share: float = config.field(0.02, above=0, below=1)

  def plan_releases(self, size: examples_lib.ProblemSize):
    """Plans F once, and a gradient in every step."""
    return (
      budget_lib.PlannedRelease("covariance", self.covariance_share),
      self.plan_gradients(share=1.0 - self.covariance_share),
    )

  def find_defaults(
    self,
    size: examples_lib.ProblemSize,
    noise_multipliers: Mapping[str, float],
  ) -> dict[str, Any]:
    """Adds lambda to the defaults of the gradients.

    It is at least the norm of the noise on F, and large enough for
    `logit_noise`.
    """
    of_covariance = noise.noise_norm(
      size.clip_norm**2 * noise_multipliers["covariance"], size.dim
    )
    # Where F is 0, the learning rate is eta n / lambda.
    of_steps = (
      self.learning_rate
      * size.num_examples
      * self.noise_on_logit(size, noise_multipliers["gradient"])
      / self.logit_noise
    )
    relative = self.relative_regularization * size.mean_eigenvalue
    defaults = super().find_defaults(size, noise_multipliers)
    defaults["regularization"] = max(relative, of_covariance, of_steps)
    return defaults

  def fit(
    self,
    examples: examples_lib.ClippedExamples,
    releases: noise.Releases,
  ) -> np.ndarray:
    """Releases F, then descends along gradients that it preconditions."""
    size = examples.size
    covariance, _ = least_squares.add_up(examples)
    release = releases.open("covariance", sensitivity=size.clip_norm**2)
    covariance = release.add_symmetric_noise(covariance)
    return self.descend(
      lambda weights: self.mean_gradient(weights, examples, releases),
      size,
      self.invert(covariance, size.num_examples),
    )

  def invert(self, covariance: np.ndarray, num_examples: float) -> np.ndarray:
    """Returns n (PSD(covariance) + lambda I)^-1, which multiplies gradients.

    Args:
      covariance: F with its noise, `[d, d]`.
      num_examples: n, the number that gradients are divided by.

    Returns:
      Float64 `[d, d]`, symmetric up to rounding.

    Raises:
      errors.FieldError: If the matrix is singular up to rounding.
    """
    identity = np.eye(len(covariance))
    regularization = checks.check_given("regularization", self.regularization)
    return num_examples * least_squares.solve(
      covariance, identity, regularization
    )
