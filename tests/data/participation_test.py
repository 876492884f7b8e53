"""Tests of who takes part: sizes, resumption, and neighbouring populations."""

import collections
import itertools

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


def _passes(sampler, num_passes):
  """Rounds of each user in each pass, and the virtual clients' sizes."""
  rounds = np.full((num_passes, sampler.num_users), -1)
  sizes = []
  for p, place in itertools.product(
    range(num_passes), range(sampler.rounds_per_pass)
  ):
    round_num = p * sampler.rounds_per_pass + place
    clients = sampler.sample(round_num)
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
    (7, 7, 1),
    (7, 1, 1),
    (10, 3, 1),
    (23, 2, 2),
    (50, 3, 4),
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
    for seed in range(4):
      sampler = participation.MinSeparationSampler(
        num_users,
        clients_per_round,
        users_per_client,
        seed=seed,
        min_separation=min_separation,
      )
      assert sampler.rounds_per_pass == rounds_per_pass
      rounds, sizes = _passes(sampler, 6)
      assert np.all(np.diff(rounds, axis=0) >= min_separation)
      users = [sum(round_sizes) for round_sizes in sizes]
      assert max(users) <= most
      assert max(users) - min(users) <= 1
      for round_sizes, round_users in zip(sizes, users, strict=True):
        assert len(round_sizes) == min(clients_per_round, round_users)
        assert max(round_sizes) <= users_per_client
        assert max(round_sizes) - min(round_sizes) <= 1


def test_min_separation_is_no_larger_than_asked():
  """Rounds in consecutive passes are as close, and as far, as they may be."""
  sampler = participation.MinSeparationSampler(40, 4, min_separation=7)
  rounds, _ = _passes(sampler, 200)
  # Ten rounds in windows of 4, 4 and 2.
  assert np.unique(np.diff(rounds, axis=0)).tolist() == list(range(7, 14))
  windows = np.unique(rounds % 10 // 4, axis=0)
  assert windows.shape[0] == 1
  assert np.bincount(windows[0]).tolist() == [16, 16, 8]


def test_largest_separation_is_the_default_and_fixes_the_rounds():
  sampler = participation.MinSeparationSampler(22, 2, 2)
  assert sampler.min_separation == sampler.rounds_per_pass == 6
  rounds, _ = _passes(sampler, 5)
  assert np.all(np.diff(rounds, axis=0) == 6)


@pytest.mark.parametrize("regroup_clients", [True, False])
def test_virtual_clients_are_regrouped_or_fixed(regroup_clients):
  sampler = participation.MinSeparationSampler(
    48, 4, 3, regroup_clients=regroup_clients
  )
  groups = [
    {frozenset(client.tolist()) for client in sampler.sample(4 * p)}
    for p in range(400)
  ]
  users = frozenset.union(*groups[0])
  assert all(frozenset.union(*group) == users for group in groups)
  together = collections.Counter(
    pair
    for group in groups
    for client in group
    for pair in itertools.combinations(sorted(client), 2)
  )
  if regroup_clients:
    # A pair is together with probability 2 / 11: 73 times in 400, and by five
    # standard deviations of a binomial, between 34 and 112.
    assert len(together) == 12 * 11 // 2
    assert all(34 < count < 112 for count in together.values())
  else:
    assert set(together.values()) == {400}


@pytest.mark.parametrize("min_separation", [1, 3, 5])
def test_the_rounds_of_a_window_are_drawn_anew_and_alike(min_separation):
  sampler = participation.MinSeparationSampler(
    20, 4, min_separation=min_separation, seed=2
  )
  rounds, _ = _passes(sampler, 3000)
  window_size = 5 - min_separation + 1
  for slot in range(20):
    places = rounds[:, slot] % 5
    first = places.min() - places.min() % window_size
    size = min(window_size, 5 - first)
    counts = np.bincount(places - first, minlength=size)
    # Binomial(3000, 1 / size), five standard deviations.
    bound = 5 * np.sqrt(3000 / size * (1 - 1 / size))
    assert counts.size == size
    assert np.all(np.abs(counts - 3000 / size) <= bound)


@pytest.mark.parametrize("users_per_client", [1, 4])
@pytest.mark.parametrize("min_separation", [1, 4, None])
def test_an_absent_user_changes_one_virtual_client_so_many_rounds_apart(
  users_per_client, min_separation
):
  sampler = participation.MinSeparationSampler(
    120, 5, users_per_client, seed=1, min_separation=min_separation
  )
  names = [f"user{i:03}" for i in range(120)]
  before = population.Population.from_ids(names)
  after = population.Population.from_ids([*names[:17], "absent", *names[18:]])
  changed = []
  for r in range(5 * sampler.rounds_per_pass):
    clients = sampler.sample(r)
    changes = _changed(before.client_ids(clients), after.client_ids(clients))
    assert changes <= 1
    if changes:
      changed.append(r)
  assert len(changed) == 5
  assert min(np.diff(changed)) >= sampler.min_separation


def test_min_separation_rounds_need_no_earlier_ones():
  """A resumed run draws what the uninterrupted one would have drawn."""
  options = {"min_separation": 3, "seed": 9}
  running = participation.MinSeparationSampler(50, 3, 2, **options)
  rounds = [running.sample(r) for r in range(40)]
  for r in reversed(range(40)):
    resumed = participation.MinSeparationSampler(50, 3, 2, **options)
    for client, expected in zip(resumed.sample(r), rounds[r], strict=True):
      assert client.tolist() == expected.tolist()
      # What a caller does with a round does not reach the next.
      client[:] = -1
    assert np.concatenate(resumed.sample(r)).min() >= 0


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


@pytest.mark.parametrize(
  ("options", "message"),
  [
    ({"min_separation": 0}, "at most the 5 rounds of a pass, found 0"),
    ({"min_separation": 6}, "at most the 5 rounds of a pass, found 6"),
    (
      {"min_separation": 4, "regroup_clients": False},
      "regroup_clients must be true unless min_separation is the 5",
    ),
  ],
)
def test_mistakes_of_min_separation_are_named(options, message):
  with pytest.raises(ValueError, match=message):
    participation.create_sampler(
      "min_separation", num_users=50, clients_per_round=10, **options
    )


@pytest.mark.parametrize("name", ["fixed_size", "poisson"])
@pytest.mark.parametrize(
  "option", [{"min_separation": 2}, {"regroup_clients": False}]
)
def test_options_of_another_sampler_are_refused(name, option):
  with pytest.raises(ValueError, match=f"{next(iter(option))} must be left at"):
    participation.create_sampler(
      name, num_users=50, clients_per_round=10, **option
    )


def test_options_reach_the_sampler():
  sampler = participation.create_sampler(
    "min_separation",
    num_users=50,
    clients_per_round=5,
    users_per_client=2,
    min_separation=5,
    regroup_clients=False,
    seed=4,
  )
  assert sampler == participation.MinSeparationSampler(
    50, 5, 2, seed=4, min_separation=5, regroup_clients=False
  )
