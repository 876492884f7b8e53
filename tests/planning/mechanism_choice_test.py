"""Tests of the choice of a mechanism: errors and epsilons derived anew."""

import itertools
import math

import dp_accounting
import numpy as np
import pytest
from scipy import linalg

from tests.accounting import gaussian
from tff_fedemb import errors
from tff_fedemb.participation import balls_in_bins
from tff_fedemb.participation import check_ins
from tff_fedemb.participation import cyclic_poisson
from tff_fedemb.participation import fixed_size
from tff_fedemb.participation import min_separation
from tff_fedemb.participation import poisson
from tff_fedemb.planning import mechanism_choice

_ROUNDS, _DELTA = 12, 1e-4
_USERS = {"num_users": 1_000, "users_per_round": 100}


def _list(*claims, rounds=_ROUNDS, **options):
  return mechanism_choice.list_plans(
    claims, rounds=rounds, delta=_DELTA, **options
  )


def _matrix(candidate):
  """The matrix C of a candidate, from its first column."""
  strategy = candidate.strategy
  if strategy is None:
    return np.eye(_ROUNDS)
  return linalg.toeplitz(strategy.first_column(_ROUNDS), np.zeros(_ROUNDS))


def _check_errors(candidate, clients_per_round):
  """Prefix sums A, released as A C^-1 (C x + Z), over the clients."""
  prefix_noise = np.tril(np.ones((_ROUNDS, _ROUNDS))) @ np.linalg.inv(
    _matrix(candidate)
  )
  scale = candidate.noise_multiplier / clients_per_round
  stddevs = scale * np.linalg.norm(prefix_noise, axis=1)
  np.testing.assert_allclose(candidate.model_stddevs, stddevs, rtol=1e-9)
  assert candidate.rmse == pytest.approx(math.sqrt(np.mean(stddevs**2)))
  assert candidate.max_error == pytest.approx(max(stddevs))


@pytest.mark.slow
def test_sampled_candidates():
  target_epsilon = 2.0
  options = _USERS | {"users_per_client": 4}
  candidates = _list(
    poisson.Poisson(**options), cyclic_poisson.CyclicPoisson(**options)
  )
  # 1,000 users have at most ten blocks of 100.
  sizes = [candidate.size for candidate in candidates]
  assert sizes == [None, 2, 3, 4, 6, 8, 10]
  found = mechanism_choice.rank(candidates[::6], target_epsilon)
  for candidate in found:
    _check_errors(candidate, 25)
    period = candidate.size or 1
    column = max(np.linalg.norm(_matrix(candidate), axis=0))

    def epsilon(factor, candidate=candidate, period=period, column=column):
      accountant = dp_accounting.pld.PLDAccountant()
      noise = factor * candidate.noise_multiplier / (2 * column)
      event = dp_accounting.PoissonSampledDpEvent(
        min(period * 100 / 1_000, 1.0), dp_accounting.GaussianDpEvent(noise)
      )
      accountant.compose(event, math.ceil(_ROUNDS / period))
      return accountant.get_epsilon(_DELTA)

    # The target holds, and hardly less noise would do.
    assert epsilon(0.99) > target_epsilon >= epsilon(1.0)
  assert [c.rmse for c in found] == sorted(c.rmse for c in found)


def test_users_whose_rounds_hang_together():
  candidates = _list(balls_in_bins.BallsInBins(1_000, 80))
  assert [c.size for c in candidates] == [2, 12]
  assert [c.participation.min_separation for c in candidates] == [12, 12]


def test_cohorts_of_fixed_size_have_an_accountant_for_it():
  (found,) = mechanism_choice.rank(
    _list(fixed_size.FixedSize(**_USERS), rounds=1), 2.0
  )
  assert (found.name, found.accountants) == ("gaussian", ("pld",))
  assert 1.98 < found.account.tightest_epsilon() <= 2.0


@pytest.mark.parametrize(
  ("claim", "clients", "most_participations"),
  [
    (min_separation.MinSeparation(1_000, 200, users_per_client=4), 50, 3),
    (
      check_ins.CheckIns(1_000, 100, min_separation=4, max_participations=2),
      *(100, 2),
    ),
  ],
)
def test_candidates_without_sampling(claim, clients, most_participations):
  found = mechanism_choice.rank(
    _list(claim, mechanisms=("gaussian", "blt", "banded")), 2.0
  )
  sizes = {(c.name, c.size) for c in found}
  assert sizes > {("gaussian", None), ("blt", 2), ("blt", 4), ("banded", 4)}
  schedules = [
    rounds
    for number in range(1, most_participations + 1)
    for rounds in itertools.combinations(range(_ROUNDS), number)
    if all(np.diff(rounds) >= claim.min_separation)
  ]
  per_round = 1 if claim.users_per_client == 1 else 2
  for candidate in found:
    _check_errors(candidate, clients)
    matrix = _matrix(candidate)
    # No entry is negative, and so a user changes all rounds alike at worst.
    assert matrix.min() >= 0
    sensitivity = per_round * max(
      np.linalg.norm(matrix[:, list(rounds)].sum(axis=1))
      for rounds in schedules
    )
    mu = sensitivity / candidate.noise_multiplier
    assert gaussian.exact_delta(2.0, mu) <= _DELTA
    assert gaussian.exact_delta(2.0, mu * 1.001) > _DELTA


@pytest.mark.slow
def test_the_best_size_for_each_epsilon_is_that_of_all():
  candidates = _list(cyclic_poisson.CyclicPoisson(1_000, 250), rounds=50)
  targets = (0.5, 8.0)
  (bests,) = mechanism_choice.best_by_epsilon(
    candidates, [candidates[0].family], targets
  )
  assert bests == [
    mechanism_choice.rank(candidates, target)[0] for target in targets
  ]
  # Bands pay where noise is low.
  sizes = [best.size for best in bests]
  assert sizes == sorted(set(sizes))


@pytest.mark.parametrize(
  ("changes", "message"),
  [
    ({"rounds": 100_001}, "rounds must be at most 100,000"),
    ({"mechanisms": ("blt",)}, "mechanism must be one that .* poisson allows"),
  ],
)
def test_nothing_to_choose_from(changes, message):
  with pytest.raises(errors.FieldError, match=message):
    _list(poisson.Poisson(**_USERS), **changes)


def test_targets_that_are_none():
  with pytest.raises(errors.FieldError, match="target_epsilon must be"):
    mechanism_choice.rank(_list(poisson.Poisson(**_USERS)), 20.1)
