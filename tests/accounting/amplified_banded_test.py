"""Tests of the cost of banded noise that cyclic Poisson sampling amplifies."""

import itertools

import dp_accounting
import numpy as np
import pytest
from scipy import special

from tests.accounting import gaussian
from tests.mechanisms import noise_theory
from tff_fedemb import errors
from tff_fedemb.accounting import composition
from tff_fedemb.accounting import epsilon as epsilon_lib
from tff_fedemb.mechanisms import banded_strategy
from tff_fedemb.mechanisms import strategy as strategy_lib
from tff_fedemb.participation import cyclic_poisson
from tff_fedemb.planning import planning

_USERS = (10_000_000, 131_072)
_ROUNDS = 800
_DELTA = 5e-8


def _claim(period, **options):
  return cyclic_poisson.CyclicPoisson(*_USERS, period=period, **options)


def _plan(noise_multiplier, bands, period=None, **options):
  """A plan whose largest column has norm 1: the noise is in its units."""
  mechanism = "gaussian" if bands == 1 else "banded"
  strategy = banded_strategy.optimize_banded(
    strategy_lib.Schedule(_ROUNDS, period or bands), num_bands=bands
  )
  return planning.create_plan(
    mechanism,
    _claim(period or bands, **options),
    rounds=_ROUNDS,
    noise_multiplier=noise_multiplier
    * float(np.linalg.norm(strategy.coefficients)),
    delta=_DELTA,
    num_bands=None if bands == 1 else bands,
  )


# Computed with dp_accounting 0.4.3: events of PLD on a grid of 1e-3.
@pytest.mark.parametrize(
  ("noise_multiplier", "bands", "expected"),
  [
    (4.0, 16, "2.013"),
    (4.0, 1, "0.445"),
    (8.0, 4, "0.437"),
    (8.0, 1, "0.215"),
  ],
)
def test_table_of_amplified_banded_noise(noise_multiplier, bands, expected):
  plan = _plan(noise_multiplier, bands)
  ((event, count),) = plan.account.composed_events()
  assert count == -(-_ROUNDS // bands)
  assert event.sampling_probability == pytest.approx(bands * 0.0131072)
  assert event.event.noise_multiplier == pytest.approx(noise_multiplier)
  coarse = dp_accounting.pld.PLDAccountant(value_discretization_interval=1e-3)
  epsilon = coarse.compose(event, count).get_epsilon(_DELTA)
  # Neither less than the digits of the table, nor more.
  assert f"{epsilon:.3f}" == expected
  # On the default grid it is a little less, and never more than by RDP.
  found = epsilon_lib.epsilon_by_accountant(plan.account)
  assert epsilon - 0.007 < found["pld"] <= epsilon < found["rdp"]


def test_table_of_unamplified_banded_noise():
  # A pass takes 77 rounds, of which 800 have at most 11.
  for noise_multiplier, expected in ((4.0, "4.449"), (8.0, "2.089")):
    epsilon = gaussian.exact_epsilon([noise_multiplier] * 11, _DELTA)
    assert f"{epsilon:.3f}" == expected
  known = _claim(76, known_schedule=True)
  ((event, count),) = composition.composed_events(
    [composition.Rounds(count=_ROUNDS, noise=composition.Noise(4.0))], known
  )
  assert (event, count) == (dp_accounting.GaussianDpEvent(4.0), 11)
  with pytest.raises(errors.FieldError, match=r"period must be at most .* 77"):
    _claim(77)


def test_a_column_is_what_a_participation_costs():
  strategy = banded_strategy.BandedToeplitzStrategy((1.0, 0.5, 0.25))
  noise = composition.Noise(6.0, strategy)
  for users_per_client, sensitivity in ((1, 1.0), (32, 2.0)):
    # More rounds than bands from one participation to the next.
    claim = _claim(5, users_per_client=users_per_client)
    ((composed, count),) = composition.composed_events(
      [composition.Rounds(count=11, noise=noise)], claim
    )
    assert count == 3
    assert composed.sampling_probability == 5 * 131_072 / 10_000_000
    assert composed.event.noise_multiplier == pytest.approx(
      6.0 / (sensitivity * np.sqrt(1.0 + 0.25 + 0.0625))
    )
  # All of a user's rounds together if it is known which ones these are: two
  # whole columns, and one of the last round, cut short.
  ((composed, count),) = composition.composed_events(
    [composition.Rounds(count=11, noise=noise)], _claim(5, known_schedule=True)
  )
  assert (type(composed), count) == (dp_accounting.GaussianDpEvent, 1)
  assert composed.noise_multiplier == pytest.approx(
    6.0 / np.sqrt(2 * 1.3125 + 1.0)
  )


def test_the_rounds_with_least_noise_may_be_those_of_a_block():
  counts = [
    composition.Rounds(count=4, noise=composition.Noise(z))
    for z in (3.0, 1.0, 2.0)
  ]
  found = composition.composed_events(counts, _claim(2))
  assert [(e.event.noise_multiplier, n) for e, n in found] == [
    (1.0, 4),
    (2.0, 2),
  ]


def _losses(
  matrix, rounds, probability, noise_multiplier, with_user, generator
):
  """Privacy losses of what is released, from its densities alone.

  A user adds 1 to each of some rounds, each drawn with the probability. All
  rounds are released at once, C x + Z; nothing is taken apart by rounds.
  """
  coins = np.array(list(itertools.product((0, 1), repeat=len(rounds))))
  chances = np.prod(np.where(coins, probability, 1 - probability), axis=1)
  means = coins @ matrix[:, rounds].T
  noise = generator.normal(0, noise_multiplier, (100_000, len(matrix)))
  if with_user:
    noise += means[generator.choice(len(coins), len(noise), p=chances)]
  exponents = noise @ means.T - 0.5 * np.sum(means**2, axis=1)
  loss = special.logsumexp(exponents / noise_multiplier**2, 1, chances)
  return loss if with_user else -loss


def test_delta_of_the_whole_matrix_is_that_of_sampled_columns():
  """The theorem, held to the densities of six rounds by simulation."""
  strategy = banded_strategy.BandedToeplitzStrategy((1.0, 0.6))
  claim = cyclic_poisson.CyclicPoisson(1_000, 150, period=2)
  noise = composition.Noise(0.8, strategy)
  composed = composition.composed_events(
    [composition.Rounds(count=6, noise=noise)], claim
  )
  accountant = dp_accounting.pld.PLDAccountant()
  for found, count in composed:
    accountant.compose(found, count)
  matrix = noise_theory.toeplitz_matrix(strategy.coefficients, 6)
  generator = np.random.default_rng(0)
  for delta in (0.1, 0.02):
    epsilon = accountant.get_epsilon(delta)
    assert epsilon > 0.1
    deltas = []
    for with_user in (False, True):
      losses = _losses(matrix, [0, 2, 4], 0.3, 0.8, with_user, generator)
      deltas.append(np.maximum(-np.expm1(epsilon - losses), 0.0).mean())
    assert max(deltas) == pytest.approx(delta, abs=0.003)
