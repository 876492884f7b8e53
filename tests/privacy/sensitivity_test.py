"""What one user can change, measured: draw, grouping, clipping and sum.

Two populations that differ in one user go through the same draw and the same
virtual clients, as tests of the participations show; a virtual client's update
is the sum of its users' vectors. The clipped sums of a round may then differ by
the sensitivity that is accounted for, and no more, and there are users who
change that much.
"""

from collections.abc import Iterator
import dataclasses
import functools
import itertools

import numpy as np
import pytest

from tests.aggregators import noise_theory
from tests.aggregators import released
from tff_fedemb.participation import min_separation as min_separation_lib
from tff_fedemb.participation import participation as participation_lib
from tff_fedemb.participation import registry as participations
from tff_fedemb.privacy import composition
from tff_fedemb.strategies import banded
from tff_fedemb.strategies import blt
from tff_fedemb.strategies import strategy as strategy_lib
from tff_fedemb.strategies import tree

_CLIP_NORM = 2.0
_DIMENSION = released.SIZE
_NUM_USERS = 40
_CLIENTS_PER_ROUND = 5
_ROUNDS = 16
_CASES = [
  (name, users_per_client)
  for name in ("cyclic_poisson", "fixed_size", "min_separation", "poisson")
  for users_per_client in (1, 4)
]


def _update(client, vectors):
  return vectors[client].sum(axis=0)


def _clipped_sum(clients, vectors, clip_norm=_CLIP_NORM):
  """In NumPy, which is fast; compared with TFF below."""
  total = np.zeros(_DIMENSION)
  for client in clients:
    update = _update(client, vectors)
    norm = np.linalg.norm(update)
    total += update * min(1.0, clip_norm / norm) if norm else 0.0
  return total


def _create(name, users_per_client):
  return participations.create_participation(
    name,
    num_users=_NUM_USERS,
    users_per_round=_CLIENTS_PER_ROUND * users_per_client,
    users_per_client=users_per_client,
    # All of a block where virtual clients have four users.
    period=2 if name == "cyclic_poisson" else None,
  )


@dataclasses.dataclass(frozen=True)
class _Neighbors:
  """Two populations that differ in one user.

  Attributes:
    claim: How the first population takes part.
    seed: Of all rounds.
    user: The slot in which they differ.
    vectors: Of the first population, [users, dimension].
    other_vector: Of the user in the second, None if there is none.
  """

  claim: participation_lib.Participation
  seed: int
  user: int
  vectors: np.ndarray
  other_vector: np.ndarray | None

  def clients(self, round_num: int) -> tuple[list, list]:
    """Virtual clients of both populations in a round."""
    first = self.claim.sample(round_num, key=self.seed)
    if self.other_vector is not None:
      return first, first
    absent = (client[client != self.user] for client in first)
    return first, [client for client in absent if client.size]

  def other_vectors(self) -> np.ndarray:
    """Of the second population; the absent user's are not a number."""
    vectors = self.vectors.copy()
    vectors[self.user] = (
      np.nan if self.other_vector is None else self.other_vector
    )
    return vectors

  def difference(self, round_num: int) -> np.ndarray:
    """Of the clipped sums in a round, [dimension]."""
    first, second = self.clients(round_num)
    return _clipped_sum(first, self.vectors) - _clipped_sum(
      second, self.other_vectors()
    )


def _aligned(generator, num_users, user):
  """One user against all others, whatever their virtual client."""
  direction = generator.normal(size=_DIMENSION)
  direction /= np.linalg.norm(direction)
  vectors = -np.outer(generator.uniform(5.0, 20.0, num_users), direction)
  vectors[user] = 50.0 * num_users * direction
  return vectors


def _at_random(generator, num_users, user):
  """Norms far above and below the clip norm."""
  del user  # As the others.
  vectors = generator.normal(size=[num_users, _DIMENSION])
  return vectors * np.exp(generator.normal(0.0, 2.0, [num_users, 1]))


def _draw_neighbors(name, users_per_client, seed, draw_vectors):
  generator = np.random.default_rng([seed, users_per_client])
  claim = _create(name, users_per_client)
  # Whoever is in no round changes nothing.
  user = int(generator.choice(np.concatenate(claim.sample(0, key=seed))))
  vectors = draw_vectors(generator, claim.num_users, user)
  if name == "fixed_size":
    # Whoever comes in is like the user who goes, but the other way around.
    scale = generator.uniform(0.5, 2.0)
    return _Neighbors(claim, seed, user, vectors, -scale * vectors[user])
  return _Neighbors(claim, seed, user, vectors, None)


def _trials(name, users_per_client, num_seeds) -> Iterator[_Neighbors]:
  for seed in range(num_seeds):
    for draw_vectors in (_aligned, _at_random):
      yield _draw_neighbors(name, users_per_client, seed, draw_vectors)


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


@pytest.mark.parametrize(("name", "users_per_client"), _CASES)
def test_aggregator_is_as_sensitive(aggregation, name, users_per_client):
  delta = _sensitivity(_create(name, users_per_client))
  moves = []
  for neighbors in _trials(name, users_per_client, 4):
    for round_num in range(2):
      clients = neighbors.clients(round_num)
      vectors = (neighbors.vectors, neighbors.other_vectors())
      sums = (
        aggregation.run(
          [
            [_update(client, v) for client in round_clients]
            for round_clients, v in zip(clients, vectors, strict=True)
          ]
        ).means
        * _CLIENTS_PER_ROUND
      )
      for found, round_clients, v in zip(sums, clients, vectors, strict=True):
        np.testing.assert_allclose(
          found, _clipped_sum(round_clients, v), rtol=1e-4, atol=1e-5
        )
      moves.append(np.linalg.norm(sums[0] - sums[1]))
  assert max(moves) <= delta * (1.0 + 1e-5)
  assert max(moves) >= 0.99 * delta


@functools.cache
def _strategies(min_separation):
  """Strategies, and their matrices worked out another way."""
  schedule = strategy_lib.Schedule(_ROUNDS, min_separation)
  blt_strategy = blt.optimize_blt(schedule)
  banded_strategy = banded.optimize_banded(schedule)
  return {
    "tree": (tree.TreeStrategy(), noise_theory.node_matrix(_ROUNDS)),
    "restarts": (
      tree.TreeStrategy(restart_every=5),
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
  for seed, draw_vectors in itertools.product(range(3), (_aligned, _at_random)):
    generator = np.random.default_rng(seed)
    for user in range(num_users):
      neighbors = _Neighbors(
        claim, seed, user, draw_vectors(generator, num_users, user), None
      )
      differences.append([neighbors.difference(t) for t in range(_ROUNDS)])
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
  # What is accounted for is just that.
  ((event, count),) = composition.composed_events(
    [(strategy_lib.CorrelatedGaussianDpEvent(3.0, strategy), _ROUNDS)], claim
  )
  assert count == 1
  assert event.noise_multiplier == pytest.approx(3.0 * _CLIP_NORM / delta)
  if min_separation == claim.rounds_per_pass:
    # The users who come as often as the separation allows.
    assert max(moves) >= 0.99 * delta
