"""Tests of passes over all users, so many rounds apart."""

import collections
import itertools

import numpy as np
import pytest

from tests.participation import draws
from tff_fedemb import errors
from tff_fedemb.participation import min_separation as min_separation_lib


def _create(num_users, clients_per_round, users_per_client=1, **options):
  return min_separation_lib.MinSeparation(
    num_users,
    clients_per_round * users_per_client,
    users_per_client=users_per_client,
    **options,
  )


def _passes(claim, num_passes, seed=0):
  """Rounds of each user in each pass, and the virtual clients' sizes."""
  rounds = np.full((num_passes, claim.num_users), -1)
  sizes = []
  for p, place in itertools.product(
    range(num_passes), range(claim.rounds_per_pass)
  ):
    round_num = p * claim.rounds_per_pass + place
    clients = claim.sample(round_num, key=seed)
    slots = np.concatenate(clients)
    # Nobody is met twice in a pass, in the same or in another round.
    assert np.all(rounds[p, slots] == -1)
    assert np.unique(slots).size == slots.size
    rounds[p, slots] = round_num
    sizes.append([client.size for client in clients])
  assert np.all(rounds >= 0)
  return rounds, sizes


@pytest.mark.parametrize(
  ("num_users", "clients_per_round", "users_per_client"),
  [
    (1, 1, 1),
    (7, 1, 1),
    (23, 2, 2),
    (60, 3, 4),
    (61, 3, 4),
    (25, 12, 2),
  ],
)
def test_min_separation_holds_in_every_pass(
  num_users, clients_per_round, users_per_client
):
  most = clients_per_round * users_per_client
  rounds_per_pass = -(-num_users // most)
  for min_separation in range(1, rounds_per_pass + 1):
    for seed in range(2):
      claim = _create(
        num_users,
        clients_per_round,
        users_per_client,
        min_separation=min_separation,
      )
      assert claim.rounds_per_pass == rounds_per_pass
      rounds, sizes = _passes(claim, 6, seed)
      assert np.all(np.diff(rounds, axis=0) >= min_separation)
      users = [sum(round_sizes) for round_sizes in sizes]
      assert max(users) <= most
      assert max(users) - min(users) <= 1
      for round_sizes, round_users in zip(sizes, users, strict=True):
        assert len(round_sizes) == min(clients_per_round, round_users)
        assert max(round_sizes) <= users_per_client
        assert max(round_sizes) - min(round_sizes) <= 1


def test_virtual_clients_are_regrouped():
  claim = _create(48, 4, 3)
  groups = [claim.sample(4 * p, key=0) for p in range(400)]
  assert len({tuple(sorted(draws.users(group))) for group in groups}) == 1
  together = collections.Counter(
    pair
    for group in groups
    for client in group
    for pair in itertools.combinations(sorted(client), 2)
  )
  # A pair is together with probability 2 / 11: 73 times in 400, and by five
  # standard deviations of a binomial, between 34 and 112.
  assert len(together) == 12 * 11 // 2
  assert all(34 < count < 112 for count in together.values())


def test_passes_bound_participations_where_the_separation_does_not():
  # 77 rounds a pass; 40 apart would allow 20 participations in 800 rounds.
  claim = _create(770, 10, min_separation=40)
  assert claim.participations(800) == 20
  known = claim.for_rounds(800)
  assert known.participations(800) == 11
  assert known.participations(41) == 2
  assert known.for_rounds(None) == claim


def test_another_population_has_passes_of_its_own():
  claim = _create(100, 10, min_separation=3, max_participations=2)
  larger = claim.resized(num_users=1_000, users_per_round=30.5)
  assert larger.min_separation == larger.rounds_per_pass == 33
  # A bound on the smaller population's rounds says nothing of these.
  assert larger.max_participations is None


def test_a_bound_that_passes_exceed_is_refused():
  claim = _create(100, 10, max_participations=2)
  claim.check_rounds(20)
  with pytest.raises(
    errors.FieldError, match="be at least 3, the passes of 21"
  ):
    claim.check_rounds(21)
