"""Strategy matrices of correlated noise.

A matrix factorisation mechanism adds C^-1 Z, not independent noise Z, to the
rounds' sums x, which have one row each. The models are weighted sums of all
rounds so far, so their noise then cancels in part (Denisov et al. 2022,
"Improved Differential Privacy for SGD via Optimal Private Linear Operators on
Adaptive Streams"; Choquette-Choo et al. 2023, "(Amplified) Banded Matrix
Factorization"). The *strategy* is the matrix C. x + C^-1 Z is computed from
C x + Z, so the whole run is one Gaussian mechanism, whose sensitivity is that
of C x.
"""

import abc
import dataclasses
import math
from typing import ClassVar

import numpy as np

from tff_fedemb import config


@dataclasses.dataclass(frozen=True)
class Schedule(config.Config):
  """How many rounds there are, and which of them a user may be in.

  Attributes:
    rounds: Number of rounds.
    min_separation: A user who takes part in round t does not take part again
      before round t + min_separation.
    max_participations: Most rounds that a user takes part in; None for as many
      as the separation allows.
  """

  rounds: int = config.field(1, minimum=1)
  min_separation: int = config.field(1, minimum=1)
  max_participations: int | None = config.field(None, minimum=1)

  @property
  def participations(self) -> int:
    """Largest number of rounds that a user is in."""
    possible = -(-self.rounds // self.min_separation)
    return min(possible, self.max_participations or possible)


OBJECTIVES = ("rmse", "last")


@dataclasses.dataclass(frozen=True)
class Workload(config.Config):
  """How models are made of the rounds' sums, and which of them matter.

  A server that steps with momentum beta adds each round's sum to the models of
  this and later rounds with the weights 1, 1 + beta, 1 + beta + beta^2, ...
  (Choquette-Choo et al. 2023, "Multi-Epoch Matrix Factorization Mechanisms for
  Private Machine Learning", arXiv 2211.06530, section 5). The learning rate,
  which is the same in all rounds, scales all errors alike and is taken as 1.

  Attributes:
    momentum: Momentum of the server's optimizer, for which correlated noise is
      made; 0 makes models of prefix sums.
    noise_objective: Models in which banded and BLT noise is made small: rmse is
      the root mean square over the models of all rounds, last that of the last
      round alone.

  Examples:
    >>> workload = fe.Workload(momentum=0.5)
    >>> workload.first_column(3).tolist()
    [1.0, 1.5, 1.75]
  """

  momentum: float = config.field(
    0.0, minimum=0, below=1, flag="server_momentum"
  )
  noise_objective: str = config.field("rmse", choices=OBJECTIVES)

  def first_column(self, rounds: int) -> np.ndarray:
    """Returns the weights of a round in its model and later ones.

    Args:
      rounds: Number of rounds, at least 1.

    Returns:
      Float64 `[rounds]`, the first column of a lower triangular Toeplitz
      matrix.
    """
    return np.cumsum(self.momentum ** np.arange(rounds))

  def error(self, stddevs: np.ndarray) -> float:
    """Returns the noise that the objective makes small.

    Args:
      stddevs: Noise of the model after each round, `[rounds]`.

    Returns:
      The root mean square of them, or the last one, in the same unit.
    """
    if self.noise_objective == "last":
      return float(stddevs[-1])
    return math.sqrt(np.mean(np.square(stddevs)))


# Plain SGD, the default of TFF's own processes.
PREFIX_SUMS = Workload()
# The objective of a run that has this workload, whatever its optimizer.
OF_PREFIX_SUMS = "prefix_sums"


@dataclasses.dataclass(frozen=True)
class Strategy(config.Config, abc.ABC):
  """The matrix C of a matrix factorisation, for any number of rounds.

  C is lower triangular, so that no release depends on a later round. The
  diagonal is at least 1: the noise multiplier is the noise of a single round's
  sum, before any later round reduces it.

  A strategy is a dataclass, whose fields determine the matrix.

  Attributes:
    name: Its key in the registry of strategies, and its name in texts.
    is_banded: Whether only a few diagonals differ from zero.
  """

  name: ClassVar[str]
  is_banded: ClassVar[bool] = False

  @property
  def num_bands(self) -> int | None:
    """Number of diagonals that may differ from zero; None for all."""
    return None

  @abc.abstractmethod
  def sensitivity(self, schedule: Schedule) -> float:
    """Largest L2 change of C x if each row of x that a user is in changes by 1.

    Args:
      schedule: Which rounds a user may be in.

    Returns:
      The sensitivity, or an upper bound if the class's docstring says so.

    Raises:
      ValueError: If it is not known for such a schedule.
    """

  @abc.abstractmethod
  def model_stddevs(
    self, rounds: int, workload: Workload = PREFIX_SUMS
  ) -> np.ndarray:
    """Noise of the model after each round.

    Args:
      rounds: Number of rounds, at least 1.
      workload: How a model is made of the rounds' sums.

    Returns:
      Float64 `[rounds]`, in standard deviations of a row of Z.
    """

  @abc.abstractmethod
  def round_stddevs(self, rounds: int) -> np.ndarray:
    """Noise added to each round's own sum.

    Args:
      rounds: Number of rounds, at least 1.

    Returns:
      Float64 `[rounds]`, in standard deviations of a row of Z.
    """

  @abc.abstractmethod
  def round_noise_matrix(self, rounds: int) -> np.ndarray:
    """The linear map from independent noise to the noise of the rounds' sums.

    It is dense, for audits: their attackers know how noise is correlated.

    Args:
      rounds: Number of rounds, at least 1.

    Returns:
      Float64 R `[rounds, m]`: the noise of the rounds' sums is R Z, where the m
      rows of Z are independent. C^-1 if C is square.
    """

  def model_copies(self, rounds: int) -> int:
    """Most arrays of the model's size that the noise needs beside the model.

    Args:
      rounds: Number of rounds, at least 1.

    Returns:
      All earlier noise, `rounds` - 1, unless a recurrence needs less.
    """
    return rounds - 1

  def model_error(
    self, schedule: Schedule, workload: Workload = PREFIX_SUMS
  ) -> float:
    """Noise of the models at unit total zCDP cost.

    The noise multiplier that a zCDP budget asks for is proportional to the
    sensitivity. So strategies are compared by the product of sensitivity and
    noise.

    Args:
      schedule: The rounds, and which of them a user may be in.
      workload: How models are made, and which of them matter.

    Returns:
      The product, which has no unit: only ratios of it mean something.

    Raises:
      ValueError: As `sensitivity`.
    """
    stddevs = self.model_stddevs(schedule.rounds, workload)
    return workload.error(stddevs) * self.sensitivity(schedule)
