"""Banded Toeplitz strategies (Choquette-Choo et al. 2023, arXiv 2306.08153).

"(Amplified) Banded Matrix Factorization: A unified approach to private
training": the columns of a user's participations do not overlap if these are at
least as many rounds apart as the matrix has bands; then their squared norms add
up. The noise of a round depends on the noise of the `num_bands` - 1 rounds
before it.
"""

import dataclasses
import functools
import math
from typing import ClassVar

import numpy as np
from scipy import optimize
from scipy import signal

from tff_fedemb import errors
from tff_fedemb.mechanisms import strategy
from tff_fedemb.mechanisms import toeplitz


@dataclasses.dataclass(frozen=True)
class BandedToeplitzStrategy(toeplitz.ToeplitzStrategy):
  """A Toeplitz matrix that is zero except on the given diagonals.

  Attributes:
    coefficients: `[num_bands]` coefficients of the main diagonal, which is 1,
      and of the diagonals below it, downwards.

  Raises:
    errors.FieldError: If there is no coefficient, the first is not 1, or one is
      not finite.
  """

  name: ClassVar[str] = "banded"
  is_banded: ClassVar[bool] = True

  coefficients: tuple[float, ...]

  def __post_init__(self):
    super().__post_init__()
    coefficients = tuple(float(value) for value in self.coefficients)
    object.__setattr__(self, "coefficients", coefficients)
    if coefficients[:1] != (1.0,):
      raise errors.FieldError("coefficients", "start with 1", coefficients[:1])
    if not all(math.isfinite(value) for value in coefficients):
      raise errors.FieldError("coefficients", "be finite", coefficients)

  @property
  def num_bands(self) -> int:
    """Number of coefficients, the main diagonal's included."""
    return len(self.coefficients)

  def first_column(self, rounds: int) -> np.ndarray:
    """Returns the coefficients, cut to the rounds or followed by zeros.

    Args:
      rounds: Number of rounds, at least 1.

    Returns:
      Float64 `[rounds]`.
    """
    column = np.zeros(rounds)
    kept = self.coefficients[:rounds]
    column[: len(kept)] = kept
    return column

  def model_copies(self, rounds: int) -> int:
    """Returns the number of bands but one: earlier noise that is remembered."""
    return self.num_bands - 1

  def inverse_first_column(self, rounds: int) -> np.ndarray:
    """Returns the first column of C^-1, by a recurrence of `num_bands` terms.

    Args:
      rounds: Number of rounds, at least 1.

    Returns:
      Float64 `[rounds]`.
    """
    return toeplitz.inverse_column(np.array(self.coefficients), rounds)


@functools.cache
def optimize_banded(
  schedule: strategy.Schedule,
  workload: strategy.Workload = strategy.PREFIX_SUMS,
  *,
  num_bands: int | None = None,
) -> BandedToeplitzStrategy:
  """Returns the strategy of least noise of the models at equal zCDP.

  It minimises the product of noise and sensitivity by L-BFGS-B, with exact
  gradients. Equal arguments get the same strategy, which is computed once.

  Args:
    schedule: The rounds, and which of them a user may be in.
    workload: How models are made of the rounds' sums, and which of them matter.
    num_bands: Number of diagonals, in [1, min(min_separation, rounds)]; the
      largest possible if None.

  Returns:
    The strategy, with coefficients in [0, 1]; a single band is independent
    noise.

  Raises:
    errors.FieldError: If `num_bands` is out of its range.
  """
  rounds, min_separation = schedule.rounds, schedule.min_separation
  most_bands = min(min_separation, rounds)
  if num_bands is None:
    num_bands = most_bands
  if not 1 <= num_bands <= most_bands:
    raise errors.FieldError(
      "num_bands",
      f"be in [1, min(min_separation, rounds)] = [1, {most_bands}]",
      num_bands,
    )
  if num_bands == 1:
    return BandedToeplitzStrategy((1.0,))

  # How often each coefficient appears in the columns 0, b, 2 b, ..., where b is
  # the separation.
  starts = np.arange(schedule.participations) * min_separation
  appearances = np.sum(
    starts[:, np.newaxis] + np.arange(num_bands) < rounds, axis=0
  )
  # How many of the models that matter have each coefficient of B = A C^-1.
  durations = np.arange(rounds, 0.0, -1.0)
  if workload.noise_objective == "last":
    durations = np.ones(rounds)

  def loss_and_gradient(free: np.ndarray) -> tuple[float, np.ndarray]:
    """Twice the logarithm of noise x sensitivity, and its gradient.

    The noise is up to a constant factor.

    Args:
      free: `[num_bands - 1]` coefficients below the main diagonal.
    """
    column = np.append(1.0, free)
    inverse = toeplitz.inverse_column(column, rounds)
    model = toeplitz.model_column(inverse, workload)
    noise = durations @ np.square(model)
    sensitivity = appearances @ np.square(column)
    # As power series, d(model) = -model / c dc; then back through the
    # convolution with dc.
    slopes = signal.fftconvolve(model, inverse)[:rounds]
    products = signal.fftconvolve(2.0 * durations * model, slopes[::-1])
    noise_gradient = -products[rounds - 1 : rounds - 1 + num_bands]
    gradient = noise_gradient / noise + 2.0 * appearances * column / sensitivity
    return math.log(noise) + math.log(sensitivity), gradient[1:]

  # Starts from the square root of the prefix sums' A, the best matrix for one
  # participation in the limit of many rounds (Fichtenberger, Henzinger &
  # Upadhyay 2023, "Constant matters: Fine-grained error bound on differentially
  # private continual observation").
  steps = np.arange(1, num_bands)
  square_root = np.cumprod((2 * steps - 1) / (2 * steps))
  result = optimize.minimize(
    loss_and_gradient,
    square_root,
    jac=True,
    method="L-BFGS-B",
    # Outside these bounds, a long step may reach a C^-1 that grows without
    # limit.
    bounds=[(0.0, 1.0)] * (num_bands - 1),
    options={"maxiter": 2_000, "ftol": 1e-12, "gtol": 1e-8},
  )
  return BandedToeplitzStrategy((1.0, *result.x.tolist()))
