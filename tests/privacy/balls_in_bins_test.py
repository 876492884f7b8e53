"""Tests of Monte-Carlo bounds on what balls in bins cost."""

import math

import dp_accounting
import numpy as np
import pytest

from tests.privacy import gaussian
from tests.privacy import mixtures
from tff_fedemb.privacy import balls_in_bins
from tff_fedemb.privacy import gaussian_accountant
from tff_fedemb.privacy import monte_carlo
from tff_fedemb.strategies import banded
from tff_fedemb.strategies import blt
from tff_fedemb.strategies import strategy as strategy_lib

_BLT = blt.BltStrategy(decays=(0.9,), weights=(0.4,))


def _event(noise_multiplier, strategy, num_bins, rounds):
  return balls_in_bins.BallsInBinsDpEvent(
    noise_multiplier, strategy, rounds, num_bins
  )


def _bin_known(event, delta):
  """Epsilon if everybody knows that a user is in bin 0."""
  (square,) = event.gram(np.array([0])).ravel()
  accountant = gaussian_accountant.GaussianAccountant()
  accountant.compose(dp_accounting.GaussianDpEvent(1.0 / math.sqrt(square)))
  return accountant.get_epsilon(delta)


def test_inner_products_by_hand():
  strategy = banded.BandedToeplitzStrategy((1.0, 0.5))
  # Bin 0 changes 1, 1/2, 1, 1/2, 1; bin 1 changes 0, 1, 1/2, 1, 1/2.
  found = _event(2.0, strategy, 2, 5).gram(np.arange(2))
  np.testing.assert_allclose(found * 4, [[3.5, 2.0], [2.0, 2.5]])
  # A bin of rounds that were not.
  found = _event(1.0, strategy, 9, 3).gram(np.array([1, 8]))
  np.testing.assert_allclose(found, [[1.25, 0.0], [0.0, 0.0]], atol=1e-15)
  # A matrix of whatever signs costs what its absolute values cost.
  signs = banded.BandedToeplitzStrategy((1.0, -0.5))
  assert (_event(1.0, signs, 2, 5).gram(np.arange(2)) >= 0).all()
  # Against the dense matrix.
  event = _event(0.7, _BLT, 7, 40)
  _, means = mixtures.ways(event)
  np.testing.assert_allclose(event.gram(np.arange(7)), means @ means.T)


def test_one_bin_is_a_gaussian_mechanism():
  event = _event(3.0, _BLT, 1, 6)
  sensitivity = _BLT.sensitivity(strategy_lib.Schedule(6, 1))
  assert monte_carlo.bound_epsilon(event, 1e-7) == pytest.approx(
    gaussian.exact_epsilon([3.0 / sensitivity], 1e-7), rel=1e-9
  )


@pytest.mark.parametrize(
  ("strategy", "num_bins", "rounds"),
  [(_BLT, 5, 12), (_BLT, 50, 60), (None, 3, 2)],
)
def test_delta_by_plain_simulation(strategy, num_bins, rounds):
  """Releases as they are drawn, losses from their densities."""
  event = _event(1.5, strategy, num_bins, rounds)
  delta = 0.02
  found = monte_carlo.bound_epsilon(event, delta)
  chances, means = mixtures.ways(event)
  generator = np.random.default_rng(1)
  deltas = []
  for with_user in (False, True):
    noise = generator.standard_normal((50_000, rounds))
    if with_user:
      noise += means[generator.integers(num_bins, size=len(noise))]
    loss = mixtures.log_ratios(chances, means, noise)
    loss = loss if with_user else -loss
    deltas.append(np.maximum(-np.expm1(found - loss), 0.0).mean())
  # Five deviations of a mean of 50,000 numbers in [0, 1].
  assert max(deltas) < delta + 5 * math.sqrt(delta / 50_000)
  if num_bins == 5:
    assert max(deltas) > 0.9 * delta


def test_what_samples_cannot_support_is_not_claimed():
  """No sample reaches a delta this small; the bound says what is sure."""
  event = _event(1.0, None, 8, 8)
  shares = [
    monte_carlo.bound_epsilon(event, delta) / _bin_known(event, delta)
    for delta in (1e-2, 1e-7, 1e-30)
  ]
  # Always amplified, ever less.
  assert 0.02 < shares[0] < shares[1] < shares[2] < 1
  # Also where nobody is protected, four bins have something to hide.
  event = _event(0.05, _BLT, 4, 15)
  known = _bin_known(event, 1e-6)
  assert 0.9 * known < monte_carlo.bound_epsilon(event, 1e-6) < known
