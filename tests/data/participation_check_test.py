"""Tests of what is derived from the trace of who took part."""

import itertools
import os
import time

import pytest

from tests.data import traces
from tff_fedemb.data import participation_check
from tff_fedemb.data import participation_trace
from tff_fedemb.data.participation import min_separation
from tff_fedemb.data.participation import registry as participations


def _derive(num_users, rounds):
  """The same facts, from the definitions."""
  when = {slot: [] for slot in range(num_users)}
  for r, clients in enumerate(rounds):
    for client in clients:
      for slot in client.tolist():
        when[slot].append(r)
  sizes = [sum(client.size for client in clients) for clients in rounds]
  pairs = {
    (slot, a, b)
    for slot, took_part in when.items()
    for i, a in enumerate(took_part)
    for b in took_part[i + 1 :]
  }
  users = [set().union(*(c.tolist() for c in clients)) for clients in rounds]
  common = [len(a & b) for a, b in itertools.pairwise(users)]
  closest = min((b - a for _, a, b in pairs), default=None)
  most = max(len(took_part) for took_part in when.values())
  return {
    "num_users": num_users,
    "num_rounds": len(rounds),
    "max_participations": most,
    "most_frequent_users": {
      slot for slot, took_part in when.items() if len(took_part) == most
    },
    "min_separation": closest,
    "closest_pairs": {(slot, a, b) for slot, a, b in pairs if b - a == closest},
    "min_users_per_round": min(sizes, default=0),
    "max_users_per_round": max(sizes, default=0),
    "max_clients_per_round": max(map(len, rounds), default=0),
    "users_alone": all(
      client.size == 1 for clients in rounds for client in clients
    ),
    "common_users": (min(common), max(common)) if common else None,
  }


def _agree(observed, derived):
  for name, value in derived.items():
    if name == "most_frequent_users":
      if observed.max_participations:
        assert observed.most_frequent_user in value
      else:
        assert observed.most_frequent_user is None
    elif name == "closest_pairs":
      if value:
        # The first pair is the one whose later round comes first.
        _, _, later = observed.closest_pair
        assert observed.closest_pair in value
        assert later == min(b for _, _, b in value)
      else:
        assert observed.closest_pair is None
    else:
      assert getattr(observed, name) == value, name


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize(
  ("name", "num_users", "clients_per_round", "users_per_client"),
  [
    ("poisson", 300, 3, 1),
    ("poisson", 40, 3, 2),
    ("fixed_size", 200, 2, 1),
    ("min_separation", 55, 3, 2),
  ],
)
def test_observations_agree_with_their_definitions(
  tmp_path, name, num_users, clients_per_round, users_per_client, seed
):
  claim = participations.create_participation(
    name,
    num_users=num_users,
    users_per_round=clients_per_round * users_per_client,
    users_per_client=users_per_client,
  )
  rounds = [claim.sample(r, seed=seed) for r in range(40)]
  path = tmp_path / "trace"
  traces.write(path, num_users, rounds)
  with participation_trace.TraceReader(path) as reader:
    for n in (0, 1, 2, 5, 17, 40):
      _agree(
        participation_check.observe(num_users, reader.read(0, n)),
        _derive(num_users, rounds[:n]),
      )


def test_observations_by_hand(trace):
  with participation_trace.TraceReader(trace) as reader:
    observed = participation_check.observe(reader.num_users, reader)
    first = participation_check.observe(reader.num_users, reader.read(0, 1))
  assert observed == participation_check.ObservedParticipation(
    num_users=100,
    num_rounds=4,
    max_participations=3,
    most_frequent_user=3,
    min_separation=1,
    closest_pair=(3, 2, 3),
    min_users_per_round=0,
    max_users_per_round=3,
    max_clients_per_round=3,
    users_alone=False,
    common_users=(0, 1),
  )
  assert first.min_separation is None


@pytest.mark.slow
def test_the_trace_of_a_large_run_is_small(tmp_path):
  """800 rounds of 131,072 of 10 million users, as the paper's table has it."""
  claim = min_separation.MinSeparation(10_000_000, 131_072, users_per_client=32)
  path = tmp_path / "trace"
  writing = 0.0
  with participation_trace.TraceWriter(path, claim.num_users) as writer:
    for r in range(800):
      clients = claim.sample(r, seed=0)
      start = time.perf_counter()
      writer.record(r, clients)
      writing += time.perf_counter() - start
  start = time.perf_counter()
  with participation_trace.TraceReader(path) as reader:
    observed = participation_check.observe(reader.num_users, reader)
  checking = time.perf_counter() - start
  size = os.path.getsize(path)
  print(
    f"{size / 1e6:.0f} MB, {writing / 800 * 1e3:.1f} ms to record a round,"
    f" {checking:.1f} s to check"
  )
  assert size < 1e9
  # 10,000,000 / 131,072 is 76.3 rounds; 800 rounds are 10.4 passes of 77.
  assert observed.min_separation == 77
  assert observed.max_participations == 11
  assert observed.max_users_per_round <= 131_072
