"""Tests of who takes part: sizes, resumption, and neighbouring populations."""

import collections

import numpy as np
import pytest

from tff_fedemb.data import participation
from tff_fedemb.data import population


def _changed(before: list[str], after: list[str]) -> int:
  """Virtual clients of one round that are not in the other, at most."""
  before, after = collections.Counter(before), collections.Counter(after)
  return max((before - after).total(), (after - before).total())


@pytest.mark.parametrize("users_per_client", [1, 4])
def test_adding_a_user_under_poisson_changes_one_virtual_client(
    users_per_client,
):
  options = {
      "clients_per_round": 6,
      "users_per_client": users_per_client,
      "seed": 3,
      "sampling_probability": 0.2,
  }
  smaller = participation.PoissonSampler(100, **options)
  larger = participation.PoissonSampler(101, **options)
  people = population.Population(101)
  changes = [
      _changed(
          people.client_ids(smaller.sample(r)),
          people.client_ids(larger.sample(r)),
      )
      for r in range(300)
  ]
  took_part = [
      any(100 in client for client in larger.sample(r)) for r in range(300)
  ]
  # Exactly one virtual client if the user takes part, none if not.
  assert changes == [int(t) for t in took_part]
  assert 30 < sum(took_part) < 90


@pytest.mark.parametrize("users_per_client", [1, 4])
def test_replacing_a_user_under_fixed_size_changes_one_virtual_client(
    users_per_client,
):
  sampler = participation.FixedSizeSampler(40, 5, users_per_client, seed=1)
  names = [f"user{i:02}" for i in range(40)]
  before = population.Population.from_ids(names)
  after = population.Population.from_ids([*names[:17], "new", *names[18:]])
  changes, took_part = [], []
  for r in range(100):
    clients = sampler.sample(r)
    changes.append(
        _changed(before.client_ids(clients), after.client_ids(clients))
    )
    took_part.append(int(any(17 in client for client in clients)))
  assert changes == took_part
  assert 0 < sum(took_part) < 100


@pytest.mark.parametrize("name", sorted(participation.SAMPLERS))
@pytest.mark.parametrize("users_per_client", [1, 3])
def test_a_user_is_in_one_virtual_client_at_most(name, users_per_client):
  sampler = participation.create_sampler(
      name,
      num_users=50,
      clients_per_round=10,
      users_per_client=users_per_client,
      seed=5,
  )
  for r in range(50):
    clients = sampler.sample(r)
    slots = np.concatenate(clients)
    assert np.unique(slots).size == slots.size
    assert slots.min() >= 0
    assert slots.max() < 50
    assert all(client.size for client in clients)


def test_fixed_size_sizes():
  sampler = participation.FixedSizeSampler(20, 4, 3)
  assert [client.size for client in sampler.sample(0)] == [3, 3, 3, 3]


def test_every_user_takes_part_equally_often():
  for name in participation.SAMPLERS:
    sampler = participation.create_sampler(
        name, num_users=30, clients_per_round=2, users_per_client=3
    )
    rounds = 4000
    counts = np.zeros(30)
    for r in range(rounds):
      for client in sampler.sample(r):
        counts[client] += 1
    # Binomial(4000, 0.2): five standard deviations are 127; a false alarm
    # among 30 users has a probability below 2e-5.
    assert np.all(np.abs(counts - rounds * 0.2) < 5 * np.sqrt(4000 * 0.16))


def test_poisson_sizes_are_binomial_and_clients_alike():
  sampler = participation.PoissonSampler(200, 5, 8)
  rounds = [sampler.sample(r) for r in range(2000)]
  sizes = np.array([sum(c.size for c in clients) for clients in rounds])
  # Binomial(200, 0.2): mean 40, variance 32; bounds at five standard errors.
  assert abs(sizes.mean() - 40) < 5 * np.sqrt(32 / 2000)
  assert abs(sizes.var() - 32) < 5 * 32 * np.sqrt(2 / 2000)


@pytest.mark.parametrize("name", sorted(participation.SAMPLERS))
def test_rounds_are_a_function_of_seed_and_round(name):
  def sample(seed, round_num):
    sampler = participation.create_sampler(
        name,
        num_users=40,
        clients_per_round=4,
        users_per_client=2,
        seed=seed,
    )
    return [client.tolist() for client in sampler.sample(round_num)]

  assert sample(1, 7) == sample(1, 7)
  assert sample(1, 7) != sample(1, 8)
  assert sample(1, 7) != sample(2, 7)


@pytest.mark.parametrize("name", sorted(participation.SAMPLERS))
def test_ten_million_users_need_no_strings(name):
  people = population.Population(10_000_000, lambda slot: f"u{slot:08}")
  sampler = participation.create_sampler(
      name, num_users=len(people), clients_per_round=8, users_per_client=4
  )
  ids = people.client_ids(sampler.sample(0))
  users = [u for client_id in ids for u in population.user_ids_of(client_id)]
  assert len(set(users)) == len(users)
  assert all(len(user) == 9 for user in users)


@pytest.mark.parametrize(
    ("name", "numbers", "message"),
    [
        ("uniform", (10, 2, 2), "participation must be one of"),
        ("poisson", (10, 0, 2), "clients_per_round must be at least 1"),
        ("fixed_size", (10, 4, 3), "must be at most the number of users, 10"),
    ],
)
def test_mistakes_are_named(name, numbers, message):
  num_users, clients_per_round, users_per_client = numbers
  with pytest.raises(ValueError, match=message):
    participation.create_sampler(
        name,
        num_users=num_users,
        clients_per_round=clients_per_round,
        users_per_client=users_per_client,
    )
