"""The base of methods that release many noised gradients.

Subclasses choose the learning rate, and may precondition the gradients.
"""

from collections.abc import Callable, Mapping
import dataclasses
import math
from typing import Any

import numpy as np

from tff_fedemb import checks
from tff_fedemb import config
from tff_fedemb.features import budget as budget_lib
from tff_fedemb.features import examples as examples_lib
from tff_fedemb.features import losses
from tff_fedemb.features import method
from tff_fedemb.features import noise

GRADIENT = "gradient"


@dataclasses.dataclass(frozen=True, kw_only=True)
class GradientMethod(method.Method):
  """Steps of gradient descent with momentum from zero weights.

  Every step uses all examples: noise is added to the sum of their gradients,
  which is divided by their number. Momentum is v <- m v + g, w <- w - eta v,
  without a factor 1 - m.

  Privacy:
    Unit: example.
    Neighbouring relation: an example's slot stays empty.
    Sensitivity: `gradient_clip_norm`: the whole K x d gradient of each example
      is clipped to it, whatever the loss. `logit_bias` is a constant that
      is not computed from the data, so the sensitivity does not depend on it.
    DpEvent: `steps` times `GaussianDpEvent`.

  Attributes:
    steps: Number of gradients, at least 1.
    momentum: In [0, 1).
    loss: One of `losses.LOSSES`.
    gradient_clip_norm: In [1e-10, 1e10]; by default C, which bounds the norm of
      the features.
    logit_bias: Constant that is added to all logits in the sigmoid loss; it is
      not trained. By default -log(K - 1), so that each of K classes begins
      with probability 1 / K. The softmax loss has none.
    logit_noise: Largest standard deviation that the noise of all steps may add
      to a logit, positive. Other hyperparameters' defaults respect it.
    learning_rate: Positive.
  """

  protects_users = True

  steps: int = config.field(30, minimum=1)
  momentum: float = config.field(0.9, minimum=0, below=1)
  loss: str = config.field("softmax", choices=losses.LOSSES)
  gradient_clip_norm: float | None = config.field(
    None, **examples_lib.BOUND_RANGE
  )
  logit_bias: float | None = config.field(None, minimum=-100, maximum=100)
  logit_noise: float = config.field(1.0, above=0)
  learning_rate: float | None = config.field(None, above=0)

  def find_defaults(
    self,
    size: examples_lib.ProblemSize,
    noise_multipliers: Mapping[str, float],
  ) -> dict[str, Any]:
    """Clips gradients to C, and begins a sigmoid loss at probability 1 / K."""
    logit_bias = 0.0
    if self.loss == "sigmoid":
      logit_bias = math.log(1 / (size.num_classes - 1))
    return {"gradient_clip_norm": size.clip_norm, "logit_bias": logit_bias}

  def plan_gradients(self, share: float) -> budget_lib.PlannedRelease:
    """Plans the release of a gradient in every step.

    Args:
      share: Share of the fit's budget that all gradients get together.

    Returns:
      A release named `GRADIENT`, made `steps` times.
    """
    return budget_lib.PlannedRelease(GRADIENT, share, self.steps)

  def fit(
    self,
    examples: examples_lib.ClippedExamples,
    releases: noise.Releases,
  ) -> np.ndarray:
    """Fits as `Method.fit`.

    Args:
      examples: The data.
      releases: Makes the release of each step.

    Returns:
      Weights, float64 `[K, d]`.

    Raises:
      errors.FieldError: If the features are not finite.
    """
    return self.descend(
      lambda weights: self.mean_gradient(weights, examples, releases),
      examples.size,
    )

  def descend(
    self,
    mean_gradient: Callable[[np.ndarray], np.ndarray],
    size: examples_lib.ProblemSize,
    preconditioner: np.ndarray | None = None,
  ) -> np.ndarray:
    """Descends from zero weights, with all defaults filled in.

    Args:
      mean_gradient: Releases a gradient `[K, d]` at weights `[K, d]`; called
        `steps` times.
      size: Size of the problem.
      preconditioner: Symmetric `[d, d]`, which multiplies gradients from the
        right; `None` for the identity.

    Returns:
      The weights after all steps, float64 `[K, d]`.
    """
    weights = np.zeros([size.num_classes, size.dim])
    velocity = np.zeros_like(weights)
    for _ in range(self.steps):
      gradient = mean_gradient(weights)
      if preconditioner is not None:
        gradient = gradient @ preconditioner
      velocity = self.momentum * velocity + gradient
      weights = weights - self.learning_rate * velocity
    return weights

  def noise_on_logit(
    self,
    size: examples_lib.ProblemSize,
    noise_multiplier: float,
  ) -> float:
    """Bounds the noise on a logit after all steps at learning rate 1.

    With momentum m and k steps left, this one included, the noise of a step
    moves the weights by (1 - m^k) / (1 - m) times itself: at most 1 / (1 - m),
    and close to that except in the last steps. A default learning rate that
    bounds this noise is large where noise is small, and depends on no data.

    Args:
      size: Size of the problem.
      noise_multiplier: That of each gradient.

    Returns:
      A close upper bound of the standard deviation, for features of norm C.
    """
    of_sum = noise_multiplier * (self.gradient_clip_norm or size.clip_norm)
    of_mean = of_sum / size.num_examples
    of_steps = math.sqrt(self.steps) * of_mean * size.clip_norm
    return of_steps / (1 - self.momentum)

  def mean_gradient(
    self,
    weights: np.ndarray,
    examples: examples_lib.ClippedExamples,
    releases: noise.Releases,
  ) -> np.ndarray:
    """Releases the noised sum of gradients over the number of examples.

    Args:
      weights: `[K, d]`.
      examples: The data.
      releases: Makes the release.

    Returns:
      Float64 `[K, d]`.

    Raises:
      RuntimeError: If all planned gradients were released.
      errors.FieldError: If the features are not finite.
    """
    clip_norm = checks.check_given(
      "gradient_clip_norm", self.gradient_clip_norm
    )
    size = examples.size
    total = losses.total_gradient(
      weights,
      examples.chunks(wide=size.num_classes),
      loss=self.loss,
      clip_norm=clip_norm,
      logit_bias=self.logit_bias,
    )
    release = releases.open(GRADIENT, sensitivity=clip_norm)
    return release.add_noise(total) / size.num_examples
