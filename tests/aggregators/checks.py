"""Checks that every aggregator has to pass."""

from collections.abc import Sequence
import math
from typing import Any

import numpy as np
import pytest
import tree

from tests.aggregators import noise_theory
from tests.aggregators import released

# Tensors of as many numbers but other shapes, for the noise.
LARGE = ((50, 100), (5_000,))
LARGE_LENGTH = 5_000

CLIP_NORM = 2.0
CLIENTS_PER_ROUND = 100.0
CONFIG = {"clip_norm": CLIP_NORM, "clients_per_round": CLIENTS_PER_ROUND}


def draw_updates(seed: int = 0) -> list[list[np.ndarray]]:
  """Updates of a few rounds, about as often above `CLIP_NORM` as below."""
  generator = np.random.default_rng(seed)
  rounds = []
  # Never the expected number, and a round without anybody.
  for num_clients in (3, 5, 1, 0, 4, 2, 6, 3, 7):
    updates = generator.normal(size=[num_clients, released.SIZE])
    norms = np.exp(generator.normal(math.log(CLIP_NORM), 1.0, num_clients))
    updates *= (norms / np.linalg.norm(updates, axis=1))[:, np.newaxis]
    rounds.append(list(updates.astype(np.float32)))
  return rounds


def clip(update: np.ndarray, clip_norm: float) -> np.ndarray:
  """Scales an update down to a norm, all tensors together."""
  norm = np.linalg.norm(update)
  return update * min(1.0, clip_norm / norm) if norm else update


def clipped_means(
  updates: Sequence[Sequence[np.ndarray]], clip_norms: Sequence[float]
) -> np.ndarray:
  """What is released without noise, [rounds, size]."""
  return np.array(
    [
      sum((clip(u, norm) for u in round_updates), np.zeros(released.SIZE))
      / CLIENTS_PER_ROUND
      for round_updates, norm in zip(updates, clip_norms, strict=True)
    ]
  )


def adapted_clip_norms(
  updates: Sequence[Sequence[np.ndarray]],
  *,
  period: int = 1,
  quantile: float = 0.5,
  learning_rate: float = 0.2,
) -> list[float]:
  """Clip norms of the rounds, without noise (Andrew et al. 2021, section 2.2).

  Args:
    updates: Those of each round.
    period: Rounds after which the clip norm becomes what it has come to.
    quantile: Share of updates not to clip.
    learning_rate: Of the clip norm's logarithm.
  """
  clip_norms = [CLIP_NORM]
  estimate = CLIP_NORM
  for t, round_updates in enumerate(updates, start=1):
    # Absent clients count for a half.
    below = (
      0.5
      + sum(
        math.copysign(0.5, estimate - np.linalg.norm(u)) for u in round_updates
      )
      / CLIENTS_PER_ROUND
    )
    estimate *= math.exp(-learning_rate * (below - quantile))
    clip_norms.append(clip_norms[-1] if t % period else estimate)
  return clip_norms[:-1]


def check_without_noise(
  aggregation: released.Aggregation,
  clip_norms: Sequence[float] | None = None,
) -> None:
  """Without noise, all rounds are those of clipping alone, and say so.

  Args:
    aggregation: With `CONFIG` and noise multiplier 0.
    clip_norms: One for each round; constant if None.
  """
  updates = draw_updates()
  if clip_norms is None:
    clip_norms = [CLIP_NORM] * len(updates)
  rounds = aggregation.run(updates)
  np.testing.assert_allclose(
    rounds.means, clipped_means(updates, clip_norms), rtol=1e-4, atol=1e-7
  )
  _check_counts(rounds, updates, clip_norms)
  np.testing.assert_array_equal(rounds.column("noise_stddev_of_mean"), 0.0)
  assert np.all(np.isposinf(rounds.column("signal_to_noise")))


def _check_counts(
  rounds: released.Rounds,
  updates: Sequence[Sequence[np.ndarray]],
  clip_norms: Sequence[float],
) -> None:
  np.testing.assert_allclose(rounds.column("clip_norm"), clip_norms, rtol=1e-5)
  for report, round_updates, clip_norm in zip(
    rounds.reports, updates, clip_norms, strict=True
  ):
    norms = sorted(np.linalg.norm(update) for update in round_updates)
    assert report["num_clients"] == len(norms)
    clipped = sum(norm > clip_norm for norm in norms) / max(len(norms), 1)
    assert report["clipped_share"] == pytest.approx(clipped, abs=1e-6)
    median = norms[(len(norms) - 1) // 2] if norms else 0.0
    assert report["median_update_norm"] == pytest.approx(median, rel=0.003)


def check_reports(
  aggregation: released.Aggregation,
  stddevs: Sequence[float],
  noise_multiplier: float,
) -> None:
  """With noise, each round's report says what was done.

  Args:
    aggregation: With `CONFIG` and noise.
    stddevs: Of each round's noise, in standard deviations of a row of Z.
    noise_multiplier: That of the sum.
  """
  updates = draw_updates()
  rounds = aggregation.run(updates)
  clip_norms = rounds.column("clip_norm")
  _check_counts(rounds, updates, clip_norms)
  stated = (
    noise_multiplier
    * clip_norms
    * np.array(stddevs)[: len(updates)]
    / CLIENTS_PER_ROUND
  )
  np.testing.assert_allclose(
    rounds.column("noise_stddev_of_mean"), stated, rtol=1e-5
  )
  squares = np.sum(np.square(rounds.means), axis=1)
  ratios = squares / (released.SIZE * np.square(stated))
  # The root has no bounded slope at 0.
  np.testing.assert_allclose(
    np.square(rounds.column("signal_to_noise")),
    np.maximum(ratios - 1.0, 0.0),
    rtol=1e-4,
    atol=1e-4,
  )


def stddevs(matrix: np.ndarray) -> np.ndarray:
  """Standard deviations of the rounds' noise, from that of `noise_theory`."""
  return np.linalg.norm(matrix, axis=1)


def measure_noise(
  aggregation: released.Aggregation,
  num_rounds: int,
  noise_multiplier: float,
  state: Any = None,
) -> np.ndarray:
  """Noise that should be of N(0, R R^T).

  Args:
    aggregation: With `CONFIG`, noise and tensors of the shapes `LARGE`.
    num_rounds: How many rounds to run.
    noise_multiplier: That of the sum.
    state: Where to begin; the first state if None.

  Returns:
    `[num_rounds, tensors, numbers]`.
  """
  rounds = aggregation.run_on_zeros(num_rounds, state)
  scale = noise_multiplier * rounds.column("clip_norm") / CLIENTS_PER_ROUND
  return (rounds.means / scale[:, np.newaxis]).reshape(
    num_rounds, len(LARGE), LARGE_LENGTH
  )


def check_noise(
  aggregation: released.Aggregation,
  matrix: np.ndarray,
  noise_multiplier: float,
) -> None:
  """Noise has the variances and covariances of R Z over rounds, and is fresh.

  False alarms: once in 10^6 runs at most, see `noise_theory.alarms`; what makes
  an alarm is in `noise_theory_test`.

  Args:
    aggregation: With `CONFIG`, noise and tensors of the shapes `LARGE`.
    matrix: R [rounds, m].
    noise_multiplier: That of the sum.
  """
  noise = measure_noise(aggregation, len(matrix), noise_multiplier)
  assert not noise_theory.alarms(noise, matrix)


def check_secret_noise(
  aggregation: released.Aggregation, other: released.Aggregation
) -> None:
  """Every run has noise of its own, which its state determines.

  False alarms: none to speak of. Two runs whose noise was drawn independently
  are equal in all their numbers once in 10^30 times at most.

  Args:
    aggregation: With correlated noise.
    other: One more, of the same config.
  """
  num_rounds = 3
  runs = [
    aggregation.run_on_zeros(num_rounds),
    aggregation.run_on_zeros(num_rounds, aggregation.initialize()),
    other.run_on_zeros(num_rounds),
  ]
  for i, run in enumerate(runs):
    for another in runs[:i]:
      assert np.all(np.any(run.means != another.means, axis=1))
  # In a state once drawn nothing is left to chance.
  for start, run in enumerate(runs[0].states[:-1], start=1):
    np.testing.assert_array_equal(
      aggregation.run_on_zeros(num_rounds - start, run).means,
      runs[0].means[start:],
    )


def check_resumed_noise(aggregation: released.Aggregation) -> None:
  """A run that is saved and loaded goes on as if nothing had happened."""
  updates = draw_updates()
  whole = aggregation.run(updates)
  for start in (1, 4, 6):
    saved = aggregation.save(whole.states[start - 1])
    # As a checkpoint: nothing but numbers, and no memory of its own.
    copied = tree.map_structure(
      lambda leaf: np.array(leaf) if isinstance(leaf, np.ndarray) else leaf,
      saved,
    )
    resumed = aggregation.run(updates[start:], aggregation.load(copied))
    np.testing.assert_array_equal(resumed.means, whole.means[start:])


def check_seed_is_in_the_state(aggregation: released.Aggregation) -> None:
  """The state's seed, and nothing else, decides on the noise to come."""
  state = aggregation.run_on_zeros(1).states[0]

  def shift(leaf):
    array = np.asarray(leaf)
    return array + 1_000 if array.dtype == np.int64 else leaf

  shifted = aggregation.load(tree.map_structure(shift, aggregation.save(state)))
  # The next round's noise may have been drawn before.
  first, second = (
    aggregation.run_on_zeros(3, start).means[-1] for start in (state, shifted)
  )
  assert np.all(first != second)


def check_shared_seed(
  seeded: released.Aggregation, same: released.Aggregation
) -> None:
  """With a seed, for tests, all runs have the same noise."""
  expected = seeded.run_on_zeros(4).means
  assert np.all(expected)
  np.testing.assert_array_equal(same.run_on_zeros(4).means, expected)
