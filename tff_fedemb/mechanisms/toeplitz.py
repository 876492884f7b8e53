"""Lower triangular Toeplitz strategies.

The matrix C is given by its first column c, c[0] = 1, read as a power series.
Then C^-1 is the Toeplitz matrix of the series 1 / c. B = A C^-1, whose rows
make the noise of the models, is that of a / c for a workload with first column
a.
"""

import abc

import numpy as np
from scipy import linalg
from scipy import signal

from tff_fedemb import errors
from tff_fedemb.mechanisms import strategy

# Rounding errors of a first column that never increases in exact arithmetic.
_ROUNDING = 1e-12


def inverse_column(column: np.ndarray, rounds: int) -> np.ndarray:
  """Returns the first column of C^-1, the power series 1 / c.

  Args:
    column: First column of C, `[n]`, c[0] not 0; zero beyond its end.
    rounds: Length of the result, at least 1.

  Returns:
    Float64 `[rounds]`, by a recurrence that takes n terms a round.
  """
  impulse = np.zeros(rounds)
  impulse[0] = 1.0
  return signal.lfilter([1.0], column[:rounds], impulse)


def model_column(
  inverse: np.ndarray, workload: strategy.Workload
) -> np.ndarray:
  """Returns the first column of B = A C^-1, the power series a / c.

  Since a = 1 / ((1 - x) (1 - momentum x)), this is what the optimizer itself
  does: a running sum of velocities.

  Args:
    inverse: First column of C^-1, `[rounds]`.
    workload: Its momentum decides A.

  Returns:
    Float64 `[rounds]`.
  """
  velocity = signal.lfilter([1.0], [1.0, -workload.momentum], inverse)
  return np.cumsum(velocity)


class ToeplitzStrategy(strategy.Strategy):
  """A strategy whose matrix is Toeplitz, the same for any number of rounds.

  A subclass gives the first column of C; all else follows from it.
  """

  @abc.abstractmethod
  def first_column(self, rounds: int) -> np.ndarray:
    """Returns the first column of C.

    Args:
      rounds: Number of rounds, at least 1.

    Returns:
      Float64 `[rounds]`, whose first number is 1.
    """

  def inverse_first_column(self, rounds: int) -> np.ndarray:
    """Returns the first column of C^-1.

    Args:
      rounds: Number of rounds, at least 1.

    Returns:
      Float64 `[rounds]`. It takes a time that grows with the square of the
      rounds, unless a subclass knows better.
    """
    return inverse_column(self.first_column(rounds), rounds)

  def sensitivity(self, schedule: strategy.Schedule) -> float:
    """Exact, as `Strategy.sensitivity`.

    The worst participation is 0, b, 2 b, ... for the separation b if no entry
    of c is negative or larger than the one before it (Kalinin & Lampert 2024,
    "Banded Square Root Matrix Factorization for Differentially Private Model
    Training", theorem 2). It is the same, whatever the signs, if the columns of
    a participation do not overlap: then their squared norms add up, and no
    column has a smaller norm than a later one. Any other matrix is refused.

    Args:
      schedule: The rounds, and which of them a user may be in.

    Returns:
      The norm of the sum of the columns of that participation.

    Raises:
      errors.FieldError: If the columns overlap and an entry of c is negative or
        larger than the one before it.
    """
    rounds, participations = schedule.rounds, schedule.participations
    separation = min(schedule.min_separation, rounds)
    column = np.trim_zeros(self.first_column(rounds), "b")
    is_disjoint = participations <= 1 or column.size <= separation
    is_negative = np.any(column < 0.0)
    increases = np.any(np.diff(column) > _ROUNDING)
    if not is_disjoint and (is_negative or increases):
      raise errors.FieldError(
        "min_separation",
        f"be at least {column.size}, the number of coefficients, of which some"
        " are negative or increase",
        schedule.min_separation,
      )
    padded = np.zeros(-(-rounds // separation) * separation)
    padded[: column.size] = column
    # Row j holds rounds j b ... (j + 1) b - 1 for the separation b, so columns
    # shifted by multiples of b add up along the first axis.
    blocks = padded.reshape(-1, separation)
    sums = np.cumsum(blocks, axis=0)
    if participations < len(blocks):
      sums[participations:] -= sums[:-participations].copy()
    return float(np.linalg.norm(sums.ravel()[:rounds]))

  def model_stddevs(
    self,
    rounds: int,
    workload: strategy.Workload = strategy.PREFIX_SUMS,
  ) -> np.ndarray:
    """As in the base class: norms of the first parts of B's first column."""
    model = model_column(self.inverse_first_column(rounds), workload)
    return np.sqrt(np.cumsum(np.square(model)))

  def round_stddevs(self, rounds: int) -> np.ndarray:
    """As in the base class: norms of the first parts of C^-1's first column."""
    return np.sqrt(np.cumsum(np.square(self.inverse_first_column(rounds))))

  def round_noise_matrix(self, rounds: int) -> np.ndarray:
    """As in the base class: C^-1 itself, `[rounds, rounds]`."""
    return linalg.toeplitz(self.inverse_first_column(rounds), np.zeros(rounds))
