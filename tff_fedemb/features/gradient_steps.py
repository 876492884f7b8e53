"""What methods of many noised gradients share: batches and optimizers."""

from collections.abc import Iterator
import dataclasses
import math

import numpy as np

from tff_fedemb import checks
from tff_fedemb.features import budget as budget_lib
from tff_fedemb.features import examples as examples_lib
from tff_fedemb.features import losses
from tff_fedemb.features import method
from tff_fedemb.features import noise

GRADIENT = "gradient"
OPTIMIZERS = ("momentum", "adam")

# Of Kingma and Ba 2015, "Adam: A Method for Stochastic Optimization".
_ADAM_DECAY, _ADAM_EPSILON = 0.999, 1e-8


@dataclasses.dataclass(frozen=True)
class GradientRelease:
  """How often gradients are released, and of which examples.

  Privacy:
    Unit: example.
    Neighbouring relation: add or remove one example.
    Sensitivity: `clip_norm`: each example's whole gradient is clipped to it.
    DpEvent: `steps` times `GaussianDpEvent`, Poisson-sampled with probability
      batch_size / n if there is a batch size.

  Noise is added to the sum, which is divided by the expected number of
  examples in it.

  Attributes:
    steps: Number of gradients.
    batch_size: Expected number of examples in a gradient; `None` for all.
    loss: One of `losses.LOSSES`.
    clip_norm: Bound of the norm of an example's gradient.
  """

  steps: int
  batch_size: float | None
  loss: str
  clip_norm: float

  def plan(
    self, size: examples_lib.ProblemSize, share: float
  ) -> budget_lib.PlannedRelease:
    """Returns the release with this share of the budget.

    Raises:
      ValueError: If a batch would have more examples than there are.
    """
    probability = 1.0
    if self.batch_size is not None:
      if self.batch_size > size.num_examples:
        raise ValueError(
          "batch_size must be at most the number of examples,"
          f" {size.num_examples}, found {self.batch_size}."
        )
      probability = float(self.batch_size / size.num_examples)
    return budget_lib.PlannedRelease(GRADIENT, share, self.steps, probability)

  def logit_noise(
    self,
    size: examples_lib.ProblemSize,
    noise_multiplier: float,
    *,
    momentum: float,
  ) -> float:
    """What the noise of all steps at learning rate 1 makes of a logit.

    With momentum m and k steps left, this one's included, the noise of a step
    moves the weights by (1 - m^k) / (1 - m) times itself: at most 1 / (1 - m),
    and close to that but in the last steps. A default learning rate that keeps
    this in bounds is large where there is little noise, and depends on no data.

    Args:
      size: Of the problem.
      noise_multiplier: Of each gradient.
      momentum: In [0, 1).

    Returns:
      About the standard deviation, which is never above it, for features of
      the largest norm.
    """
    of_mean = (
      noise_multiplier * self.clip_norm / (self.batch_size or size.num_examples)
    )
    return math.sqrt(self.steps) * of_mean * size.clip_norm / (1 - momentum)

  def mean_gradient(
    self,
    weights: np.ndarray,
    examples: examples_lib.ClippedExamples,
    releases: noise.Releases,
    rng: np.random.Generator,
  ) -> np.ndarray:
    """Releases one gradient.

    Args:
      weights: `[K, d]`.
      examples: The data.
      releases: Makes the release.
      rng: Draws the batch.

    Returns:
      The noised sum `[K, d]` over the expected number of examples.
    """
    total = np.zeros_like(weights)
    for features, labels in self._batches(examples, rng):
      total += losses.clipped_gradient(
        weights, features, labels, loss=self.loss, clip_norm=self.clip_norm
      )
    release = releases.open(GRADIENT, sensitivity=self.clip_norm)
    expected = self.batch_size or examples.size.num_examples
    return release.add_noise(total) / expected

  def _batches(
    self, examples: examples_lib.ClippedExamples, rng: np.random.Generator
  ) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    size = examples.size
    if self.batch_size is None:
      return examples.chunks(wide=size.num_classes)
    drawn = rng.random(size.num_examples) < self.batch_size / size.num_examples
    return examples.chunks(wide=size.num_classes, rows=np.flatnonzero(drawn))


class GradientMethod(method.Method):
  """What methods of gradients have in common.

  Subclasses have the hyperparameters `steps`, `momentum`, `loss`,
  `gradient_clip_norm` and `batch_size`.
  """

  def check_gradients(self) -> None:
    """Raises ValueError if one of these is out of its range."""
    checks.check_integer("steps", self.steps, minimum=1)
    method.check_bound_or_none("gradient_clip_norm", self.gradient_clip_norm)
    method.check_positive_or_none("batch_size", self.batch_size)
    if self.batch_size is not None and self.batch_size < 1:
      raise ValueError(
        f"batch_size must be at least 1, found {self.batch_size!r}."
      )
    method.check_choice("loss", self.loss, losses.LOSSES)
    if not checks.is_number(self.momentum) or not 0 <= self.momentum < 1:
      raise ValueError(f"momentum must be in [0, 1), found {self.momentum!r}.")

  def gradient_release(self, size: examples_lib.ProblemSize) -> GradientRelease:
    """Returns the release of gradients for a problem of this size."""
    return GradientRelease(
      self.steps,
      self.batch_size,
      self.loss,
      self.gradient_clip_norm or size.clip_norm,
    )


class Optimizer:
  """Steps of gradient descent with momentum, or of Adam.

  Momentum is v <- m v + g, w <- w - eta v, without a factor 1 - m. Adam is that
  of Kingma and Ba 2015, algorithm 1: both moments corrected for their bias,
  epsilon beside the square root.
  """

  def __init__(self, name: str, *, learning_rate: float, momentum: float):
    """Initialises the optimizer.

    Args:
      name: One of `OPTIMIZERS`.
      learning_rate: Positive.
      momentum: In [0, 1); Adam's first decay.
    """
    self._name = name
    self._learning_rate = learning_rate
    self._momentum = momentum
    self._steps = 0
    self._mean: np.ndarray | float = 0.0
    self._square: np.ndarray | float = 0.0

  def step(self, weights: np.ndarray, gradient: np.ndarray) -> np.ndarray:
    """Returns the weights after a step; shapes are equal and stay the same."""
    self._steps += 1
    if self._name == "momentum":
      self._mean = self._momentum * self._mean + gradient
      return weights - self._learning_rate * self._mean
    decay = self._momentum
    self._mean = decay * self._mean + (1 - decay) * gradient
    self._square = _ADAM_DECAY * self._square + (1 - _ADAM_DECAY) * gradient**2
    mean = self._mean / (1 - decay**self._steps)
    square = self._square / (1 - _ADAM_DECAY**self._steps)
    return weights - self._learning_rate * mean / (
      np.sqrt(square) + _ADAM_EPSILON
    )
