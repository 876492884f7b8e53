"""What one user can change, measured: draw, grouping, clipping and sum.

Two populations that differ in one user go through the same draw and the same
virtual clients, as tests of the participations show; a virtual client's update
is the sum of its users' vectors. The clipped sums of a round may then differ by
the sensitivity that is accounted for, and no more, and there are users who
change that much.
"""

import functools
import itertools

import numpy as np
import pytest

from tests.mechanisms import noise_theory
from tests.mechanisms import released
from tff_fedemb.accounting import composition
from tff_fedemb.mechanisms import banded_strategy as banded_strategy_lib
from tff_fedemb.mechanisms import blt_strategy as blt_strategy_lib
from tff_fedemb.mechanisms import strategy as strategy_lib
from tff_fedemb.mechanisms import tree_strategy
from tff_fedemb.participation import min_separation as min_separation_lib
from tff_fedemb.participation import registry as participations

_CLIP_NORM = 2.0
_DIMENSION = released.SIZE
_CLIENTS_PER_ROUND = 5
_ROUNDS = 16


def _sum(client, vectors):
  return vectors[client].sum(axis=0)


def _clipped_sum(clients, vectors):
  """In NumPy, which is fast; compared with TFF below."""
  total = np.zeros(_DIMENSION)
  for client in clients:
    update = _sum(client, vectors)
    norm = np.linalg.norm(update)
    total += update * min(1.0, _CLIP_NORM / norm) if norm else 0.0
  return total


def _draw_vectors(claim, user, seed, aligned):
  """What users add to their virtual clients' updates, `[users, dimension]`.

  Aligned: the one user against all others, whatever their virtual client. Else
  at random, of norms far above and below the clip norm.
  """
  generator = np.random.default_rng([seed, user])
  if not aligned:
    vectors = generator.normal(size=[claim.num_users, _DIMENSION])
    return vectors * np.exp(generator.normal(0.0, 2.0, [claim.num_users, 1]))
  direction = generator.normal(size=_DIMENSION)
  direction /= np.linalg.norm(direction)
  scales = -generator.uniform(5.0, 20.0, claim.num_users)
  scales[user] = 50.0 * claim.num_users
  return np.outer(scales, direction)


def _neighbors(claim, user, seed, aligned, round_num):
  """Virtual clients of a round and users' vectors, of two populations.

  Under fixed-size sampling whoever comes in is like the user who goes, but the
  other way around. Else the user's slot stays empty: its vector is no number.
  """
  clients = claim.sample(round_num, key=seed)
  vectors = _draw_vectors(claim, user, seed, aligned)
  other = vectors.copy()
  if claim.name == "fixed_size":
    other[user] *= -1.0
    return (clients, vectors), (clients, other)
  other[user] = np.nan
  absent = (client[client != user] for client in clients)
  return (clients, vectors), ([c for c in absent if c.size], other)


def _sensitivity(claim):
  return claim.sensitivity_in_clip_norms * _CLIP_NORM


@pytest.fixture(name="aggregation", scope="module")
def _aggregation():
  """TFF's clipping and sum, without noise."""
  created = released.Aggregation(
    "gaussian",
    clip_norm=_CLIP_NORM,
    clients_per_round=float(_CLIENTS_PER_ROUND),
  )
  yield created
  created.close()


@pytest.mark.parametrize(
  "name", ["cyclic_poisson", "fixed_size", "min_separation", "poisson"]
)
@pytest.mark.parametrize("users_per_client", [1, 4])
def test_aggregator_is_as_sensitive(aggregation, name, users_per_client):
  claim = participations.create_participation(
    name,
    num_users=40,
    users_per_round=_CLIENTS_PER_ROUND * users_per_client,
    users_per_client=users_per_client,
    # All of a block where virtual clients have four users.
    period=2 if name == "cyclic_poisson" else None,
  )
  moves = []
  for seed, aligned, number in itertools.product(range(4), (0, 1), (0, 1)):
    # Whoever is in no round changes nothing.
    user = int(np.concatenate(claim.sample(0, key=seed))[-1])
    both = _neighbors(claim, user, seed, aligned, number)
    sums = _CLIENTS_PER_ROUND * np.array(
      aggregation.run(
        [[_sum(c, vectors) for c in clients] for clients, vectors in both]
      ).means
    )
    expected = [_clipped_sum(*each) for each in both]
    np.testing.assert_allclose(sums, expected, rtol=1e-4, atol=1e-5)
    moves.append(np.linalg.norm(sums[0] - sums[1]))
  delta = _sensitivity(claim)
  assert 0.99 * delta <= max(moves) <= delta * (1.0 + 1e-5)


@functools.cache
def _strategies(min_separation):
  """Strategies, and their matrices worked out another way."""
  schedule = strategy_lib.Schedule(_ROUNDS, min_separation)
  blt_strategy = blt_strategy_lib.optimize_blt(schedule)
  banded_strategy = banded_strategy_lib.optimize_banded(schedule)
  return {
    "tree": (tree_strategy.TreeStrategy(), noise_theory.node_matrix(_ROUNDS)),
    "restarts": (
      tree_strategy.TreeStrategy(restart_every=5),
      noise_theory.node_matrix(_ROUNDS, 5),
    ),
    "blt": (
      blt_strategy,
      noise_theory.blt_matrix(
        blt_strategy.decays, blt_strategy.weights, _ROUNDS
      ),
    ),
    "banded": (
      banded_strategy,
      noise_theory.toeplitz_matrix(banded_strategy.coefficients, _ROUNDS),
    ),
  }


@functools.cache
def _absent_users(users_per_client, min_separation):
  """Every user in turn, absent from a run with a minimum separation.

  Returns:
    The claim, and by how much each round's sum differs, `[absences, rounds,
    dimension]`.
  """
  # Five rounds in a pass.
  num_users = 5 * 2 * users_per_client
  claim = min_separation_lib.MinSeparation(
    num_users,
    2 * users_per_client,
    users_per_client=users_per_client,
    min_separation=min_separation,
  )
  differences = []
  for seed, aligned in itertools.product(range(3), (0, 1)):
    for user in range(num_users):
      rounds = (
        _neighbors(claim, user, seed, aligned, t) for t in range(_ROUNDS)
      )
      differences.append(
        [_clipped_sum(*one) - _clipped_sum(*other) for one, other in rounds]
      )
  return claim, np.array(differences)


@pytest.mark.parametrize("name", ["tree", "restarts", "blt", "banded"])
@pytest.mark.parametrize("users_per_client", [1, 3])
@pytest.mark.parametrize("min_separation", [5, 3])
def test_one_user_changes_a_run_by_the_sensitivity(
  name, users_per_client, min_separation
):
  strategy, matrix = _strategies(min_separation)[name]
  claim, differences = _absent_users(users_per_client, min_separation)
  moves = np.linalg.norm(matrix @ differences, axis=(1, 2))
  delta = _sensitivity(claim) * strategy.sensitivity(
    strategy_lib.Schedule(_ROUNDS, min_separation)
  )
  assert max(moves) <= delta * (1.0 + 1e-9)
  # The account has just that sensitivity.
  ((event, count),) = composition.composed_events(
    [composition.Rounds(count=_ROUNDS, noise=composition.Noise(3.0, strategy))],
    claim,
  )
  assert count == 1
  assert event.noise_multiplier == pytest.approx(3.0 * _CLIP_NORM / delta)
  if min_separation == claim.rounds_per_pass:
    # The users who come as often as the separation allows.
    assert max(moves) >= 0.99 * delta
