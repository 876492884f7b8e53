"""Tests of what is derived from the trace of who took part."""

import itertools
import math

import numpy as np
import pytest

from tests.participation import draws
from tests.participation import traces
from tff_fedemb.participation import min_separation
from tff_fedemb.participation import participation_check
from tff_fedemb.participation import participation_trace
from tff_fedemb.participation import registry as participations


def _check_against_definitions(observed, num_users, rounds):
  """The same facts, from who was in which round."""
  present = np.zeros((num_users, len(rounds)), bool)
  for number, clients in enumerate(rounds):
    present[draws.users(clients), number] = True
  counts = present.sum(axis=1)
  assert observed.max_participations == counts.max()
  assert observed.min_participations == counts.min()
  frequent = np.flatnonzero(counts == counts.max()) if counts.any() else [None]
  assert observed.most_frequent_user in frequent
  pairs = []
  for slot, took_part in enumerate(present):
    numbers = np.flatnonzero(took_part).tolist()
    for earlier, later in itertools.pairwise(numbers):
      pairs.append((later - earlier, later, slot, earlier))
  if pairs:
    # The first pair is the one whose later round comes first.
    slot, earlier, later = observed.closest_pair
    assert (later - earlier, later, slot, earlier) in pairs
    assert (later - earlier, later) == min(pairs)[:2]
    assert observed.min_separation == later - earlier
  else:
    assert observed.closest_pair is observed.min_separation is None
  gaps = {(after - n, after, slot, n) for slot, n, after in observed.gaps}
  assert gaps.issubset(pairs)
  divisors = [math.gcd(*(each[0] for each in some)) for some in (gaps, pairs)]
  assert divisors[0] == divisors[1]
  sizes = present.sum(axis=0).tolist()
  assert (observed.num_users, observed.num_rounds) == (num_users, len(rounds))
  assert observed.min_users_per_round == min(sizes, default=0)
  assert observed.max_users_per_round == max(sizes, default=0)
  assert observed.max_clients_per_round == max(map(len, rounds), default=0)
  assert observed.users_alone == all(
    client.size == 1 for clients in rounds for client in clients
  )


@pytest.mark.parametrize("seed", range(2))
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
  rounds = [claim.sample(r, key=seed) for r in range(40)]
  path = tmp_path / "trace"
  traces.write(path, num_users, rounds)
  with participation_trace.TraceReader(path) as reader:
    for n in (0, 1, 2, 5, 17, 40):
      observed = participation_check.observe(num_users, reader.read(n))
      _check_against_definitions(observed, num_users, rounds[:n])


@pytest.mark.slow
def test_the_trace_of_a_large_run_is_small(tmp_path):
  """A fifth of 800 rounds of 131,072 of 10 million users, as in the paper.

  No record depends on those before it, so all of them take five times as much.
  """
  claim = min_separation.MinSeparation(10_000_000, 131_072, users_per_client=32)
  path = tmp_path / "trace"
  rounds = (claim.sample(r, key=0) for r in range(160))
  traces.write(path, claim.num_users, rounds)
  with participation_trace.TraceReader(path) as reader:
    observed = participation_check.observe(reader.num_users, reader)
  assert path.stat().st_size < 2e8
  # 10,000,000 / 131,072 is 76.3 rounds; 160 rounds are 2.1 passes of 77.
  assert observed.min_separation == 77
  assert observed.max_participations == 3
  assert observed.max_users_per_round <= 131_072
