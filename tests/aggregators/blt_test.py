"""Tests of BLT noise."""

import numpy as np
import pytest

from tests.aggregators import checks
from tests.aggregators import noise_theory
from tff_fedemb.aggregators import blt
from tff_fedemb.aggregators import mechanism

_NOISE_MULTIPLIER = 3.0
_ROUNDS = 16


def _options(rounds=_ROUNDS, **options):
  return {
    "rounds": rounds,
    "min_separation": 4,
    **checks.CONFIG,
    **options,
  }


def _matrix(aggregation, rounds=_ROUNDS):
  strategy = aggregation.mechanism.strategy
  return np.linalg.inv(
    noise_theory.blt_matrix(strategy.decays, strategy.weights, rounds)
  )


@pytest.fixture(name="noisy", scope="module")
def _noisy(create_aggregation):
  return create_aggregation(
    "blt", **_options(noise_multiplier=_NOISE_MULTIPLIER)
  )


def test_zero_noise_is_clipping(create_aggregation):
  checks.check_without_noise(create_aggregation("blt", **_options()))


@pytest.mark.parametrize(
  "num_buffers",
  [
    pytest.param(1, marks=pytest.mark.slow),
    2,
    pytest.param(3, marks=pytest.mark.slow),
  ],
)
def test_noise(create_aggregation, num_buffers):
  aggregation = create_aggregation(
    "blt",
    shapes=checks.LARGE,
    **_options(num_buffers=num_buffers, noise_multiplier=_NOISE_MULTIPLIER),
  )
  matrix = _matrix(aggregation)
  checks.check_noise(aggregation, matrix, _NOISE_MULTIPLIER)
  # Which is worth something only if the strategy is not the trivial one.
  noise = checks.measure_noise(aggregation, _ROUNDS, _NOISE_MULTIPLIER)
  assert noise_theory.alarms(noise, np.eye(_ROUNDS))
  assert noise_theory.alarms(noise, matrix.T)


def test_noise_of_prefix_sums_is_less_than_independent(create_aggregation):
  # What the correlation is for.
  aggregation = create_aggregation(
    "blt",
    shapes=checks.LARGE,
    **_options(noise_multiplier=_NOISE_MULTIPLIER),
  )
  noise = checks.measure_noise(aggregation, _ROUNDS, _NOISE_MULTIPLIER)
  variance = np.var(np.cumsum(noise, axis=0)[-1])
  assert variance < _ROUNDS / 2
  np.testing.assert_allclose(
    variance, np.sum(np.square(_matrix(aggregation).sum(axis=0))), rtol=0.1
  )


def test_reports(noisy):
  checks.check_reports(noisy, checks.stddevs(_matrix(noisy)), _NOISE_MULTIPLIER)


def test_no_seed_is_used_twice(noisy):
  # Two for the two tensors of each round.
  states = noisy.run_on_zeros(5).states
  seeds = [noisy.seeds(s) for s in (noisy.first_state, *states)]
  assert all(len(found) == 1 and found[0].shape == (2,) for found in seeds)
  np.testing.assert_array_equal(np.diff([s[0] for s in seeds], axis=0), 2)


@pytest.mark.parametrize("num_buffers", [1, 2, 4])
def test_size_of_the_state(create_aggregation, num_buffers):
  aggregation = create_aggregation(
    "blt",
    shapes=((20, 10), (100,)),
    **_options(num_buffers=num_buffers, noise_multiplier=_NOISE_MULTIPLIER),
  )
  for state in aggregation.run_on_zeros(3).states:
    # Scalars are not worth a model.
    assert num_buffers <= aggregation.model_copies(state) < num_buffers + 0.1


def test_too_many_buffers_are_refused():
  with pytest.raises(
    ValueError, match=r"num_buffers must be in \[1, 4\], found 5"
  ):
    blt.BltConfig(clients_per_round=4, num_buffers=5).create(
      mechanism.Schedule(rounds=8)
    )
