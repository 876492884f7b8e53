"""Buffered linear Toeplitz (BLT) strategies.

Dvijotham, McMahan, Pillutla, Steinke & Thakurta 2024, "Efficient and
Near-Optimal Noise Generation for Streaming Differential Privacy", arXiv
2404.16706; McMahan, Xu & Zhang 2024, "A Hassle-free Algorithm for Private
Learning in Practice: Don't Use Tree Aggregation, Use BLTs", arXiv 2408.08868.
The first column of C is a sum of few geometric series, so the noise of a round
follows from as many buffers of the model's size, whatever the number of rounds.
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

# Limits of the logits: the decays stay off 0 and 1, the weights' sum off 1.
_DECAY_LOGITS = (-12.0, 16.0)
_WEIGHT_LOGITS = (-20.0, 20.0)


@dataclasses.dataclass(frozen=True)
class BltStrategy(toeplitz.ToeplitzStrategy):
  """c_0 = 1 and c_i = sum_j weights_j decays_j^(i - 1).

  The bounds keep c from ever increasing, which makes the sensitivity exact.

  Attributes:
    decays: One in (0, 1) per buffer; 1 to `MAX_BUFFERS` of them.
    weights: As many, positive, with a sum of at most 1.

  Raises:
    ValueError: If a value is out of its range.
  """

  name: ClassVar[str] = "blt"

  decays: tuple[float, ...]
  weights: tuple[float, ...]

  def __post_init__(self):
    super().__post_init__()
    for name in ("decays", "weights"):
      object.__setattr__(self, name, tuple(map(float, getattr(self, name))))
    decays, weights = self.decays, self.weights
    checks.check_integer(
      "number of decays", len(decays), minimum=1, maximum=MAX_BUFFERS
    )
    if not all(0.0 < decay < 1.0 for decay in decays):
      raise errors.FieldError("decays", "be in (0, 1)", decays)
    is_sum = all(weight > 0.0 for weight in weights) and sum(weights) <= 1.0
    if len(weights) != len(decays) or not is_sum:
      raise errors.FieldError(
        "weights",
        f"be {len(decays)} positive numbers with a sum of at most 1",
        weights,
      )

  def model_copies(self, rounds: int) -> int:
    return len(self.decays)

  def first_column(self, rounds: int) -> np.ndarray:
    return _first_column(np.array(self.decays), np.array(self.weights), rounds)

  def inverse_first_column(self, rounds: int) -> np.ndarray:
    # The inverse of a linear system of state matrix diag(decays), input 1 and
    # output `weights` is one of state matrix diag(decays) - 1 weights^T, which
    # is similar to this symmetric matrix.
    roots = np.sqrt(self.weights)
    inverse_decays, vectors = np.linalg.eigh(
      np.diag(self.decays) - np.outer(roots, roots)
    )
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

  Minimises `Strategy.model_error`, whose minima are local, from several starts,
  always the same ones.

  Args:
    schedule: As in `Strategy.sensitivity`.
    workload: How models are made of the rounds' sums, and which of them matter.
    num_buffers: Model-sized buffers that the noise takes, in
      [1, `MAX_BUFFERS`].

  Raises:
    errors.FieldError: If they are more or fewer.
  """
  checks.check_integer(
    "num_buffers", num_buffers, minimum=1, maximum=MAX_BUFFERS
  )

  def loss(logits: np.ndarray) -> float:
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
  return _from_logits(min(results, key=lambda result: result.fun).x)


def _first_column(
  decays: np.ndarray, weights: np.ndarray, rounds: int
) -> np.ndarray:
  powers = np.ones((rounds, decays.size))
  powers[2:] = decays
  column = np.cumprod(powers, axis=0) @ weights
  column[:1] = 1.0
  return column


def _from_logits(logits: np.ndarray) -> BltStrategy:
  decays, weights = np.split(logits, 2)
  # The last logit, 0, is that of what the weights lack of a sum of 1.
  return BltStrategy(
    decays=tuple(special.expit(decays)),
    weights=tuple(special.softmax(np.append(weights, 0.0))[:-1]),
  )


def _starts(rounds: int, num_buffers: int) -> Sequence[np.ndarray]:
  # Buffers that remember from about one round to some T^0.7 of T rounds. Two
  # that start close together tend to become one, which is a local minimum.
  longest = 0.7 * math.log(rounds)
  starts = []
  for shortest in (-1.0, 0.0, 1.0):
    decays = np.linspace(longest, shortest, num_buffers)
    weights = -0.5 * decays - math.log(num_buffers)
    starts.append(np.concatenate([decays, weights]))
  return starts
