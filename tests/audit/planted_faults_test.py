"""Faults that were planted in a mechanism, and whether audits see them.

Each fault is that of one step; the rest is the product's. Without the fault the
same audit refutes nothing. `pytest -s` prints the rows of a table in
docs/audits.md.
"""

from collections.abc import Callable
import dataclasses
import functools

import numpy as np
import pytest
from scipy import linalg

from tests.mechanisms import released
from tff_fedemb.accounting import composition
from tff_fedemb.accounting import ledger as ledger_lib
from tff_fedemb.audit import registry
from tff_fedemb.audit import scores as scores_lib
from tff_fedemb.mechanisms import banded_strategy
from tff_fedemb.participation import registry as participations

_DELTA = 1e-5
_SIGNIFICANCE = 1e-4
_NOISE = 2.0
_COHORT = 100.0
_CANARIES = 16_000
_CLIPPED_CANARIES = 400
_RATE = 0.1
_ROUNDS_OF_RATE = 60


_OPEN: list[released.Aggregation] = []


@pytest.fixture(scope="module", autouse=True)
def _close_aggregations():
  yield
  for aggregation in _OPEN:
    aggregation.close()


@functools.cache
def _release(name, size, *, clip_norm=1.0, noise=_NOISE, **options):
  """An aggregator of two tensors; the same one for the same arguments."""
  aggregation = released.Aggregation(
    name,
    shapes=[(size,)] * 2,
    clients_per_round=_COHORT,
    clip_norm=clip_norm,
    noise_multiplier=noise,
    **options,
  )
  _OPEN.append(aggregation)
  return aggregation


def _draw_noise(name="gaussian", size=_CANARIES, **options):
  """What two rounds add to sums, in clip norms: `[rounds, tensors, size]`."""
  aggregation = _release(name, size, **options)
  means = aggregation.run_on_zeros(2, aggregation.initialize()).means
  return _COHORT * means.reshape(2, 2, size)


def _claim(noise, kind="min_separation", *, rounds=2, users=1_000, **options):
  """The epsilon of a ledger whose users are in one of two rounds."""
  claim = participations.create_participation(
    kind,
    num_users=users,
    users_per_round=options.pop("users_per_round", users / 2),
    **options,
  )
  claim = claim.for_rounds(rounds)
  ledger = ledger_lib.create_ledger(claim, noise, rounds, delta=_DELTA)
  return ledger.tightest_epsilon()


def _coins(number):
  return np.random.default_rng(11).random(number) < 0.5


def _scores(noise, weights, signal, *, out=0.0):
  """Scores of canaries, one for each number of a tensor.

  Args:
    noise: `[rounds, tensors, canaries]`.
    weights: `[rounds, tensors]`, how the attacker adds up; a canary sends as
      much, times `signal` if it is included and `out` if not.
  """
  weights = np.asarray(weights, float)
  weights /= np.linalg.norm(weights)
  included = _coins(noise.shape[2])
  scores = np.tensordot(weights, noise, axes=2)
  scores += np.where(included, signal, out) * np.sum(weights**2)
  return scores_lib.Scores.of_coins(scores, included)


@dataclasses.dataclass(frozen=True)
class _Audit:
  """A claim, and the scores that an attacker has got."""

  claimed: float
  scores: scores_lib.Scores
  method: str = "gdp_clopper_pearson"

  @property
  def lower(self):
    return registry.bound_epsilon(
      self.method, self.scores, delta=_DELTA, significance=_SIGNIFICANCE
    )["epsilon_lower"]


def _event():
  return composition.noise_of(_release("gaussian", _CANARIES).mechanism)


def _changed_noise(change, weights):
  """A fault of the noise; the attacker adds up rounds and tensors so."""

  def audit(is_faulty):
    noise = _draw_noise()
    return _Audit(
      _claim(_event()),
      _scores(change(noise.copy()) if is_faulty else noise, weights, 1.0),
    )

  return audit


def _repeat_tensor(noise):
  noise[:, 1] = noise[:, 0]
  return noise


def _repeat_round(noise):
  noise[1] = noise[0]
  return noise


def _clip(is_faulty):
  # The same noise, and a bound that canaries of ten clip norms keep within.
  clip_norm = 10.0 if is_faulty else 1.0
  aggregation = _release(
    "gaussian", _CLIPPED_CANARIES, clip_norm=clip_norm, noise=_NOISE / clip_norm
  )
  included = _coins(_CLIPPED_CANARIES)
  canaries = 10.0 * np.eye(_CLIPPED_CANARIES, 2 * _CLIPPED_CANARIES)[included]
  sums = (
    _COHORT * aggregation.run([[*canaries]], aggregation.initialize()).means
  )
  return _Audit(
    _claim(_event()),
    scores_lib.Scores.of_coins(sums[0, :_CLIPPED_CANARIES], included),
  )


def _two_clip_norms(is_faulty):
  # A user of a pair changes its clipped update into the opposite.
  return _Audit(
    _claim(_event(), users_per_client=1 if is_faulty else 2),
    _scores(_draw_noise(), [[1, 0], [0, 0]], 1.0, out=-1.0),
  )


def _two_clients(is_faulty):
  return _Audit(
    _claim(_event()),
    _scores(_draw_noise(), [[1, 0], [0, 0]], 2.0 if is_faulty else 1.0),
  )


def _known_seed(is_faulty):
  options = {"noise_seed": 5} if is_faulty else {}
  options |= {"rounds": 2, "min_separation": 2}
  noise, of_attacker = (
    _draw_noise("blt", _CLIPPED_CANARIES, **options) for _ in range(2)
  )
  mechanism = _release("blt", _CLIPPED_CANARIES, **options).mechanism
  return _Audit(
    _claim(composition.Noise(_NOISE, mechanism.strategy)),
    _scores(noise - of_attacker, [[1, 0], [0, 0]], 1.0),
  )


def _cohort(is_faulty):
  users = 20_000
  included = _coins(users)
  claim = participations.create_participation(
    "poisson", num_users=users, users_per_round=_RATE * users
  )
  counts = np.zeros(users)
  for number in range(_ROUNDS_OF_RATE):
    drawn = claim.sample(0 if is_faulty else number, key=3)
    counts[np.concatenate(drawn)] += 1
  stddev = _NOISE * np.sqrt(_ROUNDS_OF_RATE)
  sums = counts * included + np.random.default_rng(4).normal(
    scale=stddev, size=users
  )
  return _Audit(
    _claim(
      _event(),
      "poisson",
      rounds=_ROUNDS_OF_RATE,
      users=users,
      users_per_round=_RATE * users,
    ),
    scores_lib.Scores.of_coins(sums, included),
    "clopper_pearson",
  )


def _block(is_faulty):
  """Amplified banded noise; of a known block, the coins are the secret."""
  users, rounds = 20_000, 2 * _ROUNDS_OF_RATE
  included = _coins(users)
  options = {"users_per_round": _RATE / 2 * users, "period": 2}
  claim = participations.create_participation(
    "cyclic_poisson", num_users=users, **options
  )
  drawn = np.zeros((rounds, users))
  for number in range(rounds):
    clients = claim.sample(number % 2 if is_faulty else number, key=3)
    drawn[number, np.concatenate(clients)] = 1.0
  strategy = banded_strategy.BandedToeplitzStrategy((1.0, 0.5))
  noise = np.random.default_rng(4).normal(scale=_NOISE, size=drawn.shape)
  # C times what is released, matched with the columns of a user's block.
  matrix = linalg.toeplitz(strategy.first_column(rounds), np.zeros(rounds))
  matched = matrix.T @ (matrix @ (drawn * included) + noise)
  first, second = (matched[block::2].sum(axis=0) for block in range(2))
  return _Audit(
    _claim(
      composition.Noise(_NOISE, strategy),
      "cyclic_poisson",
      rounds=rounds,
      users=users,
      **options,
    ),
    scores_lib.Scores.of_coins(
      np.where(drawn[::2].any(axis=0), first, second), included
    ),
    "clopper_pearson",
  )


_FAULTS: dict[str, Callable[[bool], _Audit]] = {
  "no noise": _changed_noise(np.zeros_like, [[1, 1], [0, 0]]),
  "the same noise in two tensors": _changed_noise(
    _repeat_tensor, [[1, -1], [0, 0]]
  ),
  "the same noise in two rounds": _changed_noise(
    _repeat_round, [[1, 0], [-1, 0]]
  ),
  "noise divided by the cohort twice": _changed_noise(
    lambda noise: noise / _COHORT, [[1, 1], [0, 0]]
  ),
  "clipping off": _clip,
  "2 C accounted as C": _two_clip_norms,
  "a user in two virtual clients": _two_clients,
  "noise from a known seed": _known_seed,
  "a cohort that never changes": _cohort,
  "a block's cohort that never changes": _block,
}


@pytest.mark.parametrize("fault", _FAULTS)
def test_planted_fault_is_caught(fault):
  honest, faulty = (_FAULTS[fault](is_faulty) for is_faulty in (False, True))
  found, without = faulty.lower, honest.lower
  print(
    f"\n| {fault} | {faulty.claimed:.2f} | {found:.2f} | {honest.claimed:.2f} |"
    f" {without:.2f} |"
  )
  assert found > faulty.claimed
  assert without <= honest.claimed
