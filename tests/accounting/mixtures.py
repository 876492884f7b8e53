"""Runs whose users take part in one of several ways, by their definition."""

from collections.abc import Callable, Sequence
import math

import numpy as np
from scipy import special

from tests.mechanisms import noise_theory
from tff_fedemb.accounting import balls_in_bins


def ways(
  event: balls_in_bins.BallsInBinsDpEvent,
) -> tuple[np.ndarray, np.ndarray]:
  """Returns all ways to take part: probabilities `[n]`, and their changes.

  All bins have the same probability.

  Args:
    event: A run.

  Returns:
    Probabilities `[n]`; changes `[n, rounds]` by the dense matrix, in noise.
  """
  bins = np.arange(event.num_bins)
  takes_part = np.arange(event.rounds) % event.num_bins == bins[:, None]
  chances = np.full(event.num_bins, 1.0 / event.num_bins)
  matrix = np.eye(event.rounds)
  if event.strategy is not None:
    matrix = noise_theory.toeplitz_matrix(
      event.strategy.first_column(event.rounds), event.rounds
    )
  return chances, takes_part @ matrix.T / event.noise_multiplier


def log_ratios(
  probabilities: np.ndarray, means: np.ndarray, releases: np.ndarray
) -> np.ndarray:
  """Returns logarithms `[k]` of how much likelier releases are with the user.

  Args:
    probabilities: `[n]` of the ways to take part.
    means: `[n, rounds]` what they change, in noise.
    releases: `[k, rounds]`.
  """
  logs = releases @ means.T - 0.5 * np.sum(means**2, axis=1)
  return special.logsumexp(logs, axis=1, b=probabilities)


def integrate_two_rounds(
  probabilities: Sequence[float], means: np.ndarray
) -> Callable[[float], float]:
  """Returns delta by epsilon, from densities on a grid.

  Args:
    probabilities: `[n]` of the ways to take part.
    means: `[n, 2]` what they change, in noise.
  """
  step = 0.02
  axis = np.arange(-11.0, 14.0, step)
  releases = np.stack(np.meshgrid(axis, axis, indexing="ij"), -1)

  def density(mean):
    distances = np.sum((releases - mean) ** 2, -1)
    return np.exp(-0.5 * distances) / (2 * np.pi)

  without = density(np.zeros(2))
  with_user = sum(
    probability * density(mean)
    for probability, mean in zip(probabilities, means, strict=True)
  )

  def delta(epsilon):
    factor = math.exp(epsilon)
    return max(
      np.maximum(one - factor * other, 0.0).sum() * step**2
      for one, other in ((with_user, without), (without, with_user))
    )

  return delta
