"""Tests of banded noise."""

import numpy as np
import pytest

from tests.aggregators import checks
from tests.aggregators import noise_theory
from tff_fedemb.aggregators import banded
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
  return np.linalg.inv(
    noise_theory.toeplitz_matrix(
      aggregation.mechanism.strategy.coefficients, rounds
    )
  )


@pytest.fixture(name="noisy", scope="module")
def _noisy(create_aggregation):
  return create_aggregation(
    "banded", **_options(noise_multiplier=_NOISE_MULTIPLIER)
  )


@pytest.mark.parametrize("num_bands", [None, 1])
def test_zero_noise_is_clipping(create_aggregation, num_bands):
  checks.check_without_noise(
    create_aggregation("banded", **_options(num_bands=num_bands))
  )


@pytest.mark.parametrize(
  "num_bands", [1, pytest.param(2, marks=pytest.mark.slow), None]
)
def test_noise(create_aggregation, num_bands):
  aggregation = create_aggregation(
    "banded",
    shapes=checks.LARGE,
    **_options(num_bands=num_bands, noise_multiplier=_NOISE_MULTIPLIER),
  )
  matrix = _matrix(aggregation)
  checks.check_noise(aggregation, matrix, _NOISE_MULTIPLIER)
  noise = checks.measure_noise(aggregation, _ROUNDS, _NOISE_MULTIPLIER)
  # One band is independent noise; more are not.
  assert bool(noise_theory.alarms(noise, np.eye(_ROUNDS))) == (num_bands != 1)


def test_noise_of_the_wrong_order_of_bands_is_told(create_aggregation):
  aggregation = create_aggregation(
    "banded",
    shapes=checks.LARGE,
    **_options(noise_multiplier=_NOISE_MULTIPLIER),
  )
  first, *rest = aggregation.mechanism.strategy.coefficients
  assert len(rest) == 3
  noise = checks.measure_noise(aggregation, _ROUNDS, _NOISE_MULTIPLIER)
  wrong = noise_theory.toeplitz_matrix([first, *rest[::-1]], _ROUNDS)
  assert noise_theory.alarms(noise, np.linalg.inv(wrong))


def test_reports(noisy):
  checks.check_reports(noisy, checks.stddevs(_matrix(noisy)), _NOISE_MULTIPLIER)


def test_no_seed_is_used_twice(noisy):
  # Two for the two tensors of each round.
  states = noisy.run_on_zeros(5).states
  seeds = [noisy.seeds(s) for s in (noisy.first_state, *states)]
  assert all(len(found) == 1 and found[0].shape == (2,) for found in seeds)
  np.testing.assert_array_equal(np.diff([s[0] for s in seeds], axis=0), 2)


@pytest.mark.parametrize(("num_bands", "copies"), [(1, 0), (2, 1), (None, 3)])
def test_size_of_the_state(create_aggregation, num_bands, copies):
  aggregation = create_aggregation(
    "banded",
    shapes=((20, 10), (100,)),
    **_options(num_bands=num_bands, noise_multiplier=_NOISE_MULTIPLIER),
  )
  for state in aggregation.run_on_zeros(5).states:
    # Scalars are not worth a model.
    assert copies <= aggregation.model_copies(state) < copies + 0.1


def test_bands_beyond_the_separation_are_refused():
  with pytest.raises(
    ValueError,
    match=r"num_bands must be in \[1, min.*\] = \[1, 4\], found 5",
  ):
    banded.BandedConfig(clients_per_round=4, num_bands=5).create(
      mechanism.Schedule(rounds=9, min_separation=4)
    )
