"""Releases without noise, computed in NumPy."""

from collections.abc import Sequence
import math

import numpy as np

from tests.mechanisms import released


def draw_updates(size: int = released.SIZE) -> list[list[np.ndarray]]:
  """Updates of a few rounds, about as often above `CLIP_NORM` as below.

  All but five of their numbers are 0.
  """
  places = np.linspace(0, size - 1, released.SIZE).astype(int)
  generator = np.random.default_rng(0)
  rounds = []
  # Never the expected number, and a round without anybody.
  for num_clients in (3, 5, 1, 0, 4, 2, 6, 3, 7):
    updates = generator.normal(size=[num_clients, released.SIZE])
    norms = np.exp(
      generator.normal(math.log(released.CLIP_NORM), 1.0, num_clients)
    )
    updates *= (norms / np.linalg.norm(updates, axis=1))[:, np.newaxis]
    rounds.append(list(np.zeros([num_clients, size], np.float32)))
    for whole, update in zip(rounds[-1], updates, strict=True):
      whole[places] = update
  return rounds


def clipped_means(
  updates: Sequence[Sequence[np.ndarray]], clip_norms: Sequence[float]
) -> np.ndarray:
  """Means of updates that are scaled down to a norm each, [rounds, size]."""
  means = np.zeros([len(updates), released.SIZE])
  for mean, round_updates, clip_norm in zip(
    means, updates, clip_norms, strict=True
  ):
    for update in round_updates:
      norm = np.linalg.norm(update)
      mean += update * min(1.0, clip_norm / norm) / released.CLIENTS_PER_ROUND
  return means


def adapted_clip_norms(
  updates: Sequence[Sequence[np.ndarray]],
  *,
  restart_every: int = 1,
  target_unclipped_quantile: float = 0.5,
  clip_learning_rate: float = 0.2,
) -> list[float]:
  """Clip norms of the rounds, without noise (Andrew et al. 2021, section 2.2).

  Args:
    updates: Those of each round.
    restart_every: Rounds after which the clip norm becomes what it has come to.
    target_unclipped_quantile: Share of updates not to clip.
    clip_learning_rate: Learning rate of the clip norm's logarithm.
  """
  estimate = released.CLIP_NORM
  clip_norms = [estimate]
  for t, round_updates in enumerate(updates, start=1):
    signs = [np.sign(estimate - np.linalg.norm(u)) for u in round_updates]
    # Absent clients count for a half.
    below = 0.5 + 0.5 * sum(signs) / released.CLIENTS_PER_ROUND
    estimate *= math.exp(
      -clip_learning_rate * (below - target_unclipped_quantile)
    )
    clip_norms.append(clip_norms[-1] if t % restart_every else estimate)
  return clip_norms[:-1]
