"""First order: gradients of the last layer, each example's clipped.

Abadi et al. 2016, "Deep Learning with Differential Privacy"; with all examples
in every step and weights that begin at zero as in Mehta, Thakurta, Kurakin and
Cutkosky 2022, "Large Scale Transfer Learning for Differentially Private Image
Classification" (arXiv 2205.02973).
"""

from __future__ import annotations

from collections.abc import Mapping
import dataclasses
from typing import ClassVar

import numpy as np

from tff_fedemb.features import budget as budget_lib
from tff_fedemb.features import examples as examples_lib
from tff_fedemb.features import gradient_steps
from tff_fedemb.features import method
from tff_fedemb.features import noise

_LARGEST_RATE = 4.0


@dataclasses.dataclass(frozen=True)
class Sgd(gradient_steps.GradientMethod):
  """Gradient descent from zero weights.

  Privacy:
    As `gradient_steps.GradientRelease`: the whole K x d gradient of an example
    is clipped to `gradient_clip_norm`.

  Attributes:
    steps: Number of gradients, at least 1.
    learning_rate: Positive. Of Adam 0.1 / C by default, where C bounds the norm
      of the features; with momentum 4 / C^2, within which the softmax loss,
      whose curvature is at most C^2 / 2, stays stable, or less where
      `logit_noise` says so.
    logit_noise: Of the default: standard deviation that the noise of all steps
      may give to a logit, positive.
    optimizer: One of `gradient_steps.OPTIMIZERS`.
    momentum: In [0, 1).
    loss: One of `losses.LOSSES`.
    gradient_clip_norm: In [1e-10, 1e10], C by default.
    batch_size: Expected number of examples in a step, at least 1, drawn by
      Poisson sampling; `None` for all examples in every step.
  """

  steps: int = 30
  learning_rate: float | None = None
  logit_noise: float = 1.0
  optimizer: str = "momentum"
  momentum: float = 0.9
  loss: str = "softmax"
  gradient_clip_norm: float | None = None
  batch_size: float | None = None

  name: ClassVar[str] = "sgd"

  def __post_init__(self):
    self.check_gradients()
    method.check_positive_or_none("learning_rate", self.learning_rate)
    method.check_positive("logit_noise", self.logit_noise)
    method.check_choice("optimizer", self.optimizer, gradient_steps.OPTIMIZERS)

  def plan_releases(
    self, size: examples_lib.ProblemSize
  ) -> tuple[budget_lib.PlannedRelease, ...]:
    """See base class."""
    return (self.gradient_release(size).plan(size, share=1.0),)

  def resolve(
    self,
    size: examples_lib.ProblemSize,
    noise_multipliers: Mapping[str, float],
  ) -> Sgd:
    """See base class."""
    if self.optimizer == "adam":
      learning_rate = 0.1 / size.clip_norm
    else:
      learning_rate = _LARGEST_RATE / size.clip_norm**2
      logit_noise = self.gradient_release(size).logit_noise(
        size, noise_multipliers["gradient"], momentum=self.momentum
      )
      if logit_noise:
        learning_rate = min(learning_rate, self.logit_noise / logit_noise)
    return dataclasses.replace(
      self,
      learning_rate=self.learning_rate or learning_rate,
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
    release = self.gradient_release(size)
    optimizer = gradient_steps.Optimizer(
      self.optimizer, learning_rate=self.learning_rate, momentum=self.momentum
    )
    weights = np.zeros([size.num_classes, size.dim])
    for _ in range(self.steps):
      gradient = release.mean_gradient(weights, examples, releases, rng)
      weights = optimizer.step(weights, gradient)
    return weights
