"""Tests of the Gaussian mechanism."""

import math

import numpy as np
import pytest

from tests.aggregators import checks
from tests.aggregators import released

_NOISE_MULTIPLIER = 3.0
_ROUNDS = 16


def test_zero_noise_is_clipping(create_aggregation):
  checks.check_without_noise(create_aggregation("gaussian", **checks.CONFIG))


def test_sum_is_clipped_and_divided_by_the_expected_count(create_aggregation):
  # Norms 1, 2 and 6 in three coordinates; only the last is clipped, and the
  # divisor is 4 although 3 clients took part.
  aggregation = create_aggregation(
    "gaussian", clients_per_round=4.0, clip_norm=2.0
  )
  rounds = aggregation.run([np.diag([1.0, 2.0, 0.0, 0.0, 6.0])[[0, 1, 4]]])
  np.testing.assert_allclose(
    rounds.means, [[0.25, 0.5, 0.0, 0.0, 0.5]], rtol=1e-6
  )


def test_reports(create_aggregation):
  aggregation = create_aggregation(
    "gaussian", noise_multiplier=_NOISE_MULTIPLIER, **checks.CONFIG
  )
  checks.check_reports(aggregation, np.ones(_ROUNDS), _NOISE_MULTIPLIER)


def test_noise(create_aggregation):
  aggregation = create_aggregation(
    "gaussian",
    shapes=checks.LARGE,
    noise_multiplier=_NOISE_MULTIPLIER,
    **checks.CONFIG,
  )
  checks.check_noise(aggregation, np.eye(_ROUNDS), _NOISE_MULTIPLIER)


def test_noise_has_the_stated_scale_and_is_fresh(create_aggregation):
  """Also for few numbers and many rounds.

  False alarms, if noise is as it should be: below once in 10^9 runs for all
  that follows together. Each of 13 figures is held to 6.6 of its standard
  errors, which it leaves once in 2 x 10^10 runs. Two of the 400 rounds are
  equal in all their numbers once in 10^30 runs; single numbers repeat, float32
  being what it is.
  """
  clip_norm, clients_per_round, num_rounds = 2.0, 4.0, 400
  count = num_rounds * released.SIZE
  aggregation = create_aggregation(
    "gaussian",
    noise_multiplier=_NOISE_MULTIPLIER,
    clip_norm=clip_norm,
    clients_per_round=clients_per_round,
  )
  rounds = aggregation.run_on_zeros(num_rounds)
  stated = rounds.reports[-1]["noise_stddev_of_mean"]
  assert stated == pytest.approx(
    _NOISE_MULTIPLIER * clip_norm / clients_per_round
  )
  noise = rounds.means / stated
  assert abs(noise.std() - 1.0) < 6.6 / math.sqrt(2 * count)
  assert abs(noise.mean()) < 6.6 / math.sqrt(count)
  # Fresh for each round, each tensor and each number.
  assert len(np.unique(noise, axis=0)) == num_rounds
  correlation = np.corrcoef(noise.T) - np.eye(released.SIZE)
  assert np.abs(correlation).max() < 6.6 / math.sqrt(num_rounds)
  lagged = np.mean(noise[1:] * noise[:-1])
  assert abs(lagged) < 6.6 / math.sqrt(count - released.SIZE)
  # Nothing but noise: the ratio is small and often 0.
  assert np.median(rounds.column("signal_to_noise")) < 1.0


def test_noise_is_of_the_round_and_not_of_the_state(create_aggregation):
  # Independent noise needs no memory: drawing it anew is as good.
  aggregation = create_aggregation(
    "gaussian", noise_multiplier=_NOISE_MULTIPLIER, **checks.CONFIG
  )
  first, second = (aggregation.run_on_zeros(1).means for _ in range(2))
  assert np.all(first != second)


def test_signal_to_noise_of_a_known_signal(create_aggregation):
  aggregation = create_aggregation(
    "gaussian",
    clients_per_round=1.0,
    clip_norm=200.0,
    noise_multiplier=0.01,
  )
  report = aggregation.run([[np.array([200.0, 0, 0, 0, 0])]]).reports[0]
  # |mean| = 200 against a noise of norm 2 sqrt(5), in expectation.
  assert report["signal_to_noise"] == pytest.approx(
    200.0 / (2.0 * math.sqrt(5)), rel=0.1
  )


def test_removing_a_client_moves_the_sum_by_at_most_the_clip_norm(
  create_aggregation,
):
  aggregation = create_aggregation("gaussian", **checks.CONFIG)
  generator = np.random.default_rng(0)
  for _ in range(5):
    updates = generator.normal(size=[3, 5]) * [10.0, 10.0, 1.0, 1.0, 1.0]
    with_all, without = (
      aggregation.run([clients]).means for clients in (updates, updates[:-1])
    )
    moved = np.linalg.norm(with_all - without) * checks.CLIENTS_PER_ROUND
    assert moved <= checks.CLIP_NORM * (1 + 1e-5)


def test_state_has_no_copy_of_the_model(create_aggregation):
  aggregation = create_aggregation(
    "gaussian",
    shapes=checks.LARGE,
    noise_multiplier=_NOISE_MULTIPLIER,
    **checks.CONFIG,
  )
  assert aggregation.model_copies(aggregation.first_state) < 0.01
