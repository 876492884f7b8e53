"""Tests of how users are drawn by sampling, and of neighbouring populations."""

import numpy as np
import pytest

from tests.data.participation import changes as changes_lib
from tff_fedemb.data import population
from tff_fedemb.data.participation import fixed_size
from tff_fedemb.data.participation import poisson


@pytest.mark.parametrize("users_per_client", [1, 4])
def test_adding_a_user_under_poisson_changes_one_virtual_client(
  users_per_client,
):
  smaller, larger = (
    poisson.Poisson(n, 0.2 * n, users_per_client=users_per_client)
    for n in (100, 101)
  )
  people = population.Population(101)
  changes = [
    changes_lib.count(
      people.client_ids(smaller.sample(r, seed=3)),
      people.client_ids(larger.sample(r, seed=3)),
    )
    for r in range(300)
  ]
  took_part = [
    any(100 in client for client in larger.sample(r, seed=3))
    for r in range(300)
  ]
  # Exactly one virtual client if the user takes part, none if not.
  assert changes == [int(t) for t in took_part]
  assert 30 < sum(took_part) < 90


@pytest.mark.parametrize("users_per_client", [1, 4])
def test_replacing_a_user_under_fixed_size_changes_one_virtual_client(
  users_per_client,
):
  claim = fixed_size.FixedSize(
    40, 5 * users_per_client, users_per_client=users_per_client
  )
  names = [f"user{i:02}" for i in range(40)]
  before = population.Population.from_ids(names)
  after = population.Population.from_ids([*names[:17], "new", *names[18:]])
  changes, took_part = [], []
  for r in range(100):
    clients = claim.sample(r, seed=1)
    changes.append(
      changes_lib.count(before.client_ids(clients), after.client_ids(clients))
    )
    took_part.append(int(any(17 in client for client in clients)))
  assert changes == took_part
  assert 0 < sum(took_part) < 100


def test_fixed_size_sizes():
  claim = fixed_size.FixedSize(20, 12, users_per_client=3)
  assert [client.size for client in claim.sample(0, seed=0)] == [3, 3, 3, 3]


def test_poisson_sizes_are_binomial():
  claim = poisson.Poisson(200, 40, users_per_client=8)
  rounds = [claim.sample(r, seed=0) for r in range(2000)]
  assert max(len(clients) for clients in rounds) == 5
  sizes = np.array([sum(c.size for c in clients) for clients in rounds])
  # Binomial(200, 0.2): mean 40, variance 32; bounds at five standard errors.
  assert abs(sizes.mean() - 40) < 5 * np.sqrt(32 / 2000)
  assert abs(sizes.var() - 32) < 5 * 32 * np.sqrt(2 / 2000)
