"""What methods of many noised gradients share: batches, steps, optimizers."""

from collections.abc import Callable
import dataclasses
import math

import numpy as np

from tff_fedemb import config
from tff_fedemb import errors
from tff_fedemb.features import budget as budget_lib
from tff_fedemb.features import examples as examples_lib
from tff_fedemb.features import losses
from tff_fedemb.features import method
from tff_fedemb.features import noise

GRADIENT = "gradient"
OPTIMIZERS = ("momentum", "adam")

# Of Kingma and Ba 2015, "Adam: A Method for Stochastic Optimization".
_ADAM_DECAY, _ADAM_EPSILON = 0.999, 1e-8


@dataclasses.dataclass(frozen=True, kw_only=True)
class GradientMethod(method.Method):
  """Steps of gradient descent from zero weights.

  Noise is added to the sum of gradients, which is divided by the expected
  number of examples in it.

  Privacy:
    Unit: example.
    Neighbouring relation: add or remove one example.
    Sensitivity: `gradient_clip_norm`: the whole K x d gradient of each example
      is clipped to it.
    DpEvent: `steps` times `GaussianDpEvent`, Poisson-sampled with probability
      batch_size / n if there is a batch size.

  Attributes:
    steps: Number of gradients, at least 1.
    momentum: In [0, 1).
    loss: One of `losses.LOSSES`.
    gradient_clip_norm: In [1e-10, 1e10]; by default C, which bounds the norm of
      the features.
    batch_size: Expected number of examples in a step, at least 1, drawn by
      Poisson sampling; `None` for all examples in every step.
    logit_noise: Standard deviation that the noise of all steps may give to a
      logit, positive: defaults of other hyperparameters keep to it.
    learning_rate: Positive.
  """

  steps: int = config.field(30, minimum=1)
  momentum: float = config.field(0.9, minimum=0, below=1)
  loss: str = config.field("softmax", choices=losses.LOSSES)
  gradient_clip_norm: float | None = config.field(
    None, **examples_lib.BOUND_RANGE
  )
  batch_size: float | None = config.field(None, minimum=1)
  logit_noise: float = config.field(1.0, above=0)
  learning_rate: float | None = config.field(None, above=0)

  @property
  def optimizer_name(self) -> str:
    """One of `OPTIMIZERS`."""
    return "momentum"

  def find_defaults(self, size, noise_multipliers):
    del noise_multipliers
    return {"gradient_clip_norm": size.clip_norm}

  def plan_gradients(
    self, size: examples_lib.ProblemSize, share: float
  ) -> budget_lib.PlannedRelease:
    """Returns the release of all gradients with this share of the budget.

    Raises:
      errors.FieldError: If a batch would have more examples than there are.
    """
    probability = 1.0
    if self.batch_size is not None:
      if self.batch_size > size.num_examples:
        raise errors.FieldError(
          "batch_size",
          f"be at most the number of examples, {size.num_examples}",
          self.batch_size,
        )
      probability = self.batch_size / size.num_examples
    return budget_lib.PlannedRelease(GRADIENT, share, self.steps, probability)

  def fit(self, examples, releases, rng):
    return self.descend(
      lambda weights: self.mean_gradient(weights, examples, releases, rng),
      examples.size,
    )

  def descend(
    self,
    mean_gradient: Callable[[np.ndarray], np.ndarray],
    size: examples_lib.ProblemSize,
    preconditioner: np.ndarray | None = None,
  ) -> np.ndarray:
    """Returns the weights `[K, d]` after all steps, from zeros.

    Args:
      mean_gradient: Releases a gradient `[K, d]` at weights.
      size: Of the problem.
      preconditioner: Symmetric `[d, d]`, what gradients are multiplied by.
    """
    optimizer = Optimizer(
      self.optimizer_name,
      learning_rate=self.learning_rate,
      momentum=self.momentum,
    )
    weights = np.zeros([size.num_classes, size.dim])
    for _ in range(self.steps):
      gradient = mean_gradient(weights)
      if preconditioner is not None:
        gradient = gradient @ preconditioner
      weights = optimizer.step(weights, gradient)
    return weights

  def noise_on_logit(
    self, size: examples_lib.ProblemSize, noise_multiplier: float
  ) -> float:
    """What the noise of all steps at learning rate 1 makes of a logit.

    With momentum m and k steps left, this one's included, the noise of a step
    moves the weights by (1 - m^k) / (1 - m) times itself: at most 1 / (1 - m),
    and close to that but in the last steps. A default learning rate that keeps
    this in bounds is large where there is little noise, and depends on no data.

    Returns:
      About the standard deviation, which is never above it, for features of
      the largest norm.
    """
    of_sum = noise_multiplier * (self.gradient_clip_norm or size.clip_norm)
    of_mean = of_sum / (self.batch_size or size.num_examples)
    of_steps = math.sqrt(self.steps) * of_mean * size.clip_norm
    return of_steps / (1 - self.momentum)

  def mean_gradient(
    self,
    weights: np.ndarray,
    examples: examples_lib.ClippedExamples,
    releases: noise.Releases,
    rng: np.random.Generator,
  ) -> np.ndarray:
    """Releases a gradient's noised sum `[K, d]` over the expected batch size.

    Args:
      weights: `[K, d]`.
      examples: The data.
      releases: Makes the release.
      rng: Draws the batch.
    """
    clip_norm, size = self.gradient_clip_norm, examples.size
    expected = self.batch_size or size.num_examples
    rows = None
    if self.batch_size is not None:
      is_drawn = rng.random(size.num_examples) < expected / size.num_examples
      rows = np.flatnonzero(is_drawn)
    total = losses.total_gradient(
      weights,
      examples.chunks(rows, wide=size.num_classes),
      loss=self.loss,
      clip_norm=clip_norm,
    )
    release = releases.open(GRADIENT, sensitivity=clip_norm)
    return release.add_noise(total) / expected


@dataclasses.dataclass
class Optimizer:
  """Steps of gradient descent with momentum, or of Adam.

  Momentum is v <- m v + g, w <- w - eta v, without a factor 1 - m. Adam is that
  of Kingma and Ba 2015, algorithm 1: both moments corrected for their bias,
  epsilon beside the square root.

  Attributes:
    name: One of `OPTIMIZERS`.
    learning_rate: Positive.
    momentum: In [0, 1); Adam's first decay.
  """

  name: str
  learning_rate: float
  momentum: float

  def __post_init__(self):
    self._steps = 0
    self._mean: np.ndarray | float = 0.0
    self._square: np.ndarray | float = 0.0

  def step(self, weights: np.ndarray, gradient: np.ndarray) -> np.ndarray:
    """Returns the weights after a step; shapes are equal and stay the same."""
    self._steps += 1
    if self.name == "momentum":
      self._mean = self.momentum * self._mean + gradient
      return weights - self.learning_rate * self._mean
    decay = self.momentum
    self._mean = decay * self._mean + (1 - decay) * gradient
    self._square = _ADAM_DECAY * self._square + (1 - _ADAM_DECAY) * gradient**2
    mean = self._mean / (1 - decay**self._steps)
    square = self._square / (1 - _ADAM_DECAY**self._steps)
    return weights - self.learning_rate * mean / (
      np.sqrt(square) + _ADAM_EPSILON
    )
