"""First order: gradients of the last layer, each example's clipped.

Abadi et al. 2016, "Deep Learning with Differential Privacy". As in Mehta,
Thakurta, Kurakin and Cutkosky 2022, "Large Scale Transfer Learning for
Differentially Private Image Classification" (arXiv 2205.02973), every step uses
all examples, and weights begin at zero.
"""

from collections.abc import Mapping
import dataclasses
from typing import Any

from tff_fedemb.features import examples as examples_lib
from tff_fedemb.features import gradient_steps

_LARGEST_RATE = 4.0


@dataclasses.dataclass(frozen=True, kw_only=True)
class Sgd(gradient_steps.GradientMethod):
  """Gradient descent from zero weights.

  Privacy:
    As `gradient_steps.GradientMethod`.

  Attributes:
    learning_rate: Positive. By default 4 / C^2, where C bounds the norm of the
      features: the softmax loss, whose curvature is at most C^2 / 2, stays
      stable up to this rate. Smaller if `logit_noise` asks for it.
  """

  def plan_releases(self, size: examples_lib.ProblemSize):
    """Plans nothing but the gradients."""
    return (self.plan_gradients(share=1.0),)

  def find_defaults(
    self,
    size: examples_lib.ProblemSize,
    noise_multipliers: Mapping[str, float],
  ) -> dict[str, Any]:
    """Adds the learning rate: 4 / C^2, or less if the noise is large."""
    learning_rate = _LARGEST_RATE / size.clip_norm**2
    noise = self.noise_on_logit(size, noise_multipliers["gradient"])
    if noise:
      learning_rate = min(learning_rate, self.logit_noise / noise)
    defaults = super().find_defaults(size, noise_multipliers)
    defaults["learning_rate"] = learning_rate
    return defaults
