"""Buffered linear Toeplitz (BLT) strategies.

Dvijotham, McMahan, Pillutla, Steinke & Thakurta 2024, "Efficient and
Near-Optimal Noise Generation for Streaming Differential Privacy", arXiv
2404.16706; McMahan, Xu & Zhang 2024, "A Hassle-free Algorithm for Private
Learning in Practice: Don't Use Tree Aggregation, Use BLTs", arXiv 2408.08868.
The first column of C is a sum of a few geometric series. The noise of a round
therefore follows from as many buffers of the model's size, whatever the number
of rounds.
"""

from collections.abc import Sequence
import dataclasses
import functools
import math
from typing import ClassVar

import numpy as np
from scipy import optimize
from scipy import special

from tff_fedemb import checks
from tff_fedemb import errors
from tff_fedemb.mechanisms import strategy
from tff_fedemb.mechanisms import toeplitz

MAX_BUFFERS = 4

# Limits of the logits. They keep the decays off 0 and 1, and the sum of the
# weights off 1.
_DECAY_LOGITS = (-12.0, 16.0)
_WEIGHT_LOGITS = (-20.0, 20.0)


@dataclasses.dataclass(frozen=True)
class BltStrategy(toeplitz.ToeplitzStrategy):
  """c_0 = 1 and c_i = sum_j weights_j decays_j^(i - 1).

  With values in these ranges, c never increases, so the sensitivity is exact.

  Attributes:
    decays: A number in (0, 1) for each buffer; 1 to `MAX_BUFFERS` of them.
    weights: As many positive numbers, whose sum is at most 1.

  Raises:
    errors.FieldError: If a value is out of its range.
  """

  name: ClassVar[str] = "blt"

  decays: tuple[float, ...]
  weights: tuple[float, ...]

  def __post_init__(self):
    super().__post_init__()
    decays = tuple(map(float, self.decays))
    weights = tuple(map(float, self.weights))
    object.__setattr__(self, "decays", decays)
    object.__setattr__(self, "weights", weights)
    checks.check_integer(
      "number of decays", len(decays), minimum=1, maximum=MAX_BUFFERS
    )
    if not all(0.0 < decay < 1.0 for decay in decays):
      raise errors.FieldError("decays", "be in (0, 1)", decays)
    are_positive = all(weight > 0.0 for weight in weights)
    are_as_many = len(weights) == len(decays)
    if not (are_positive and are_as_many and sum(weights) <= 1.0):
      raise errors.FieldError(
        "weights",
        f"be {len(decays)} positive numbers with a sum of at most 1",
        weights,
      )

  def model_copies(self, rounds: int) -> int:
    """Returns the number of buffers, whatever the number of rounds."""
    return len(self.decays)

  def first_column(self, rounds: int) -> np.ndarray:
    """Returns 1 and sums of geometric series, as the class defines them.

    Args:
      rounds: Number of rounds, at least 1.

    Returns:
      Float64 `[rounds]`.
    """
    return _first_column(np.array(self.decays), np.array(self.weights), rounds)

  def inverse_first_column(self, rounds: int) -> np.ndarray:
    """Returns the first column of C^-1, which has the same form.

    C is a linear system with state matrix diag(decays), input 1 and output
    `weights`. The state matrix of its inverse is diag(decays) - 1 weights^T,
    which is similar to a symmetric matrix: its eigenvalues are the decays of
    the inverse, and its weights are negative.

    Args:
      rounds: Number of rounds, at least 1.

    Returns:
      Float64 `[rounds]`.
    """
    roots = np.sqrt(self.weights)
    symmetric = np.diag(self.decays) - np.outer(roots, roots)
    inverse_decays, vectors = np.linalg.eigh(symmetric)
    inverse_weights = -np.square(roots @ vectors)
    return _first_column(inverse_decays, inverse_weights, rounds)


@functools.cache
def optimize_blt(
  schedule: strategy.Schedule,
  workload: strategy.Workload = strategy.PREFIX_SUMS,
  *,
  num_buffers: int = 2,
) -> BltStrategy:
  """Returns the strategy of least noise of the models at equal zCDP.

  Minimises `Strategy.model_error`. It has several local minima, so the search
  has several starts, which are always the same. Equal arguments get the same
  strategy, which is computed once.

  Args:
    schedule: The rounds, and which of them a user may be in.
    workload: How models are made of the rounds' sums, and which of them matter.
    num_buffers: Number of model-sized buffers that the noise takes, in
      [1, `MAX_BUFFERS`].

  Returns:
    The best strategy that was found.

  Raises:
    errors.FieldError: If `num_buffers` is out of its range.
  """
  checks.check_integer(
    "num_buffers", num_buffers, minimum=1, maximum=MAX_BUFFERS
  )

  def loss(logits: np.ndarray) -> float:
    """Logarithm of the models' noise at unit zCDP."""
    return math.log(_from_logits(logits).model_error(schedule, workload))

  bounds = [_DECAY_LOGITS] * num_buffers + [_WEIGHT_LOGITS] * num_buffers
  options = {"maxiter": 500, "maxfun": 5_000, "ftol": 1e-10}
  results = []
  for start in _starts(schedule.rounds, num_buffers):
    results.append(
      optimize.minimize(
        loss, start, method="L-BFGS-B", bounds=bounds, options=options
      )
    )
  best = min(results, key=lambda result: result.fun)
  return _from_logits(best.x)


def _first_column(
  decays: np.ndarray, weights: np.ndarray, rounds: int
) -> np.ndarray:
  """The first column for decays and weights `[k]`, float64 `[rounds]`.

  It is 1, then sum_j weights_j decays_j^(i - 1) for i = 1, 2, ...
  """
  powers = np.ones((rounds, decays.size))
  powers[2:] = decays
  column = np.cumprod(powers, axis=0) @ weights
  column[:1] = 1.0
  return column


def _from_logits(logits: np.ndarray) -> BltStrategy:
  """The strategy of unbounded numbers `[2 k]`, for the optimizer.

  The first half are logits of the decays. The other half are those of the
  weights, by a softmax that leaves a share for 1 - sum(weights).
  """
  decays, weights = np.split(logits, 2)
  # The last logit, 0, belongs to the difference of 1 and the weights' sum.
  shares = special.softmax(np.append(weights, 0.0))
  return BltStrategy(
    decays=tuple(special.expit(decays)), weights=tuple(shares[:-1])
  )


def _starts(rounds: int, num_buffers: int) -> Sequence[np.ndarray]:
  """Three arrays of logits `[2 k]` from which the optimizer starts.

  The buffers remember between about one round and T^0.7 of T rounds. Two that
  start close together tend to become one, which is a local minimum.
  """
  longest = 0.7 * math.log(rounds)
  starts = []
  for shortest in (-1.0, 0.0, 1.0):
    decays = np.linspace(longest, shortest, num_buffers)
    weights = -0.5 * decays - math.log(num_buffers)
    starts.append(np.concatenate([decays, weights]))
  return starts
