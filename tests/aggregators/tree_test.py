"""Tests of tree aggregation."""

import math

import numpy as np
import pytest

from tests.aggregators import checks
from tests.aggregators import noise_theory

_NOISE_MULTIPLIER = 3.0
_ROUNDS = 16
# One tree; several, the last of them incomplete; one for each round.
_RESTARTS = [
  None,
  pytest.param(4, marks=pytest.mark.slow),
  5,
  pytest.param(1, marks=pytest.mark.slow),
]


def _options(restart_every, rounds=_ROUNDS, **options):
  return {
    "rounds": rounds,
    "restart_every": restart_every,
    **checks.CONFIG,
    **options,
  }


@pytest.mark.parametrize("restart_every", [None, 4])
def test_zero_noise_is_clipping(create_aggregation, restart_every):
  checks.check_without_noise(
    create_aggregation("tree", **_options(restart_every))
  )


@pytest.mark.parametrize("restart_every", _RESTARTS)
def test_noise(create_aggregation, restart_every):
  aggregation = create_aggregation(
    "tree",
    shapes=checks.LARGE,
    **_options(restart_every, noise_multiplier=_NOISE_MULTIPLIER),
  )
  checks.check_noise(
    aggregation,
    noise_theory.tree_noise_matrix(_ROUNDS, restart_every),
    _NOISE_MULTIPLIER,
  )


def test_strategy_without_restarts_is_told_from_that_with(create_aggregation):
  aggregation = create_aggregation(
    "tree",
    shapes=checks.LARGE,
    **_options(4, noise_multiplier=_NOISE_MULTIPLIER),
  )
  noise = checks.measure_noise(aggregation, _ROUNDS, _NOISE_MULTIPLIER)
  for wrong in (
    noise_theory.tree_noise_matrix(_ROUNDS),
    noise_theory.tree_noise_matrix(_ROUNDS, 5),
  ):
    assert noise_theory.alarms(noise, wrong)


@pytest.mark.parametrize("restart_every", [None, 5])
def test_reports(create_aggregation, restart_every):
  checks.check_reports(
    create_aggregation(
      "tree",
      **_options(restart_every, noise_multiplier=_NOISE_MULTIPLIER),
    ),
    checks.stddevs(noise_theory.tree_noise_matrix(_ROUNDS, restart_every)),
    _NOISE_MULTIPLIER,
  )


@pytest.mark.parametrize("restart_every", [None, 5])
def test_no_seed_is_used_twice(create_aggregation, restart_every):
  # The seeds of a round begin where those of the round before ended: two
  # tensors for every node, whose number is known.
  aggregation = create_aggregation(
    "tree", **_options(restart_every, noise_multiplier=_NOISE_MULTIPLIER)
  )
  states = aggregation.run_on_zeros(_ROUNDS).states
  before = aggregation.seeds(aggregation.first_state)
  for t, state in enumerate(states, start=1):
    seeds = aggregation.seeds(state)
    assert len(seeds) == 1
    assert seeds[0].shape == (2,)
    period = restart_every or 2 * _ROUNDS
    # The next leaf is drawn ahead, and completes as many nodes as its number
    # in the tree is divisible by powers of two.
    leaf = (t - 1) % period + 2
    drawn = (leaf & -leaf).bit_length()
    # When it restarts, one more: the first leaf of the new tree.
    drawn += t % period == 0
    np.testing.assert_array_equal(seeds[0] - before[0], 2 * drawn)
    before = seeds


@pytest.mark.parametrize("restart_every", [None, 13])
def test_size_of_the_state(create_aggregation, restart_every):
  aggregation = create_aggregation(
    "tree",
    shapes=((20, 10), (100,)),
    **_options(restart_every, 64, noise_multiplier=_NOISE_MULTIPLIER),
  )
  # Scalars and the levels' numbers are not worth a model.
  copies = [
    math.floor(aggregation.model_copies(state))
    for state in aggregation.run_on_zeros(64).states
  ]
  for rounds in range(3, 65):
    most = math.ceil(math.log2(min(rounds, restart_every or rounds))) + 1
    assert max(copies[:rounds]) <= most
  # The bound is met: as many complete subtrees as there are digits.
  assert max(copies) == (7 if restart_every is None else 4)
