"""Tests of cyclic Poisson sampling: its blocks, its coins and its claims."""

import dataclasses
import json
import math

import dp_accounting
import numpy as np
import pytest

from tests.data import traces
from tff_fedemb import errors
from tff_fedemb.participation import cyclic_poisson
from tff_fedemb.participation import participation
from tff_fedemb.participation import poisson
from tff_fedemb.participation import registry

_CLAIM = cyclic_poisson.CyclicPoisson(1_000, 50, period=4)
_ROUNDS = 40


def _draw(claim, rounds=_ROUNDS, key=5):
  return [claim.sample(r, key=key) for r in range(rounds)]


def _users(clients):
  return np.concatenate([np.empty(0, np.int64), *clients])


def _alone(slots):
  return [slots[i : i + 1] for i in range(len(slots))]


def test_what_is_claimed():
  assert _CLAIM.sampling_probability == 0.2
  assert _CLAIM.min_separation == 4
  # Rounds 0, 4, 8 of the first block.
  assert [_CLAIM.participations(n) for n in (0, 1, 4, 5, 9)] == [0, 1, 1, 2, 3]
  event = dp_accounting.GaussianDpEvent(1.0)
  assert _CLAIM.sampled_event(event) == dp_accounting.PoissonSampledDpEvent(
    0.2, event
  )
  assert _CLAIM.neighboring_relation_in_words == (
    "a user's slot stays empty; the number of slots, the probability and the"
    " period are public"
  )
  assert _CLAIM.accountants == ("rdp", "pld")
  assert _CLAIM.sensitivity_in_clip_norms == 1
  groups = dataclasses.replace(_CLAIM, users_per_client=5)
  assert groups.sensitivity_in_clip_norms == 2
  assert "one of 4 blocks for the whole run" in _CLAIM.sampling
  assert "with probability 0.2, 50 expected" in _CLAIM.sampling
  values = json.loads(json.dumps(registry.to_json(_CLAIM)))
  assert registry.from_json(values) == _CLAIM
  larger = _CLAIM.resized(num_users=8_000, users_per_round=200)
  assert (larger.period, larger.sampling_probability) == (4, 0.1)
  assert _CLAIM.for_bands(5).period == 5


@pytest.mark.parametrize(
  ("period", "message"),
  [
    (
      21,
      r"period must be at most num_users / users_per_round = 20: .* 1,000 /",
    ),
    (0, "period must be an integer of at least 1, found 0"),
    (2.5, "period must be an integer of at least 1, found 2.5"),
  ],
)
def test_periods_that_cannot_be(period, message):
  with pytest.raises(errors.FieldError, match=message):
    cyclic_poisson.CyclicPoisson(1_000, 50, period=period)
  assert cyclic_poisson.CyclicPoisson(1_000, 50, period=20)


def test_every_user_is_in_the_rounds_of_one_block():
  rounds = [_users(clients) for clients in _draw(_CLAIM, 400)]
  seen = [set().union(*map(set, rounds[block::4])) for block in range(4)]
  # With 100 rounds of probability 0.2 nobody is missing.
  assert sum(map(len, seen)) == 1_000
  assert set().union(*seen) == set(range(1_000))
  # Binomial(1,000, 1 / 4), and (1,000, 0.05) in a round: five deviations.
  assert all(abs(len(block) - 250) < 5 * math.sqrt(187.5) for block in seen)
  assert all(abs(users.size - 50) < 5 * math.sqrt(47.5) for users in rounds)
  # Of 100 rounds of their block, users are in a fifth.
  counts = np.bincount(np.concatenate(rounds), minlength=1_000)
  assert abs(counts.mean() - 20) < 5 * math.sqrt(16 / 1_000)
  assert abs(counts.var() - 16) < 5 * 16 * math.sqrt(2 / 1_000)
  # Blocks are drawn from the key.
  others = [_users(clients) for clients in _draw(_CLAIM, 400, key=6)]
  assert set(np.concatenate(others[::4])) != seen[0]


@pytest.mark.parametrize("users_per_client", [1, 5])
def test_one_user_less_moves_nobody(users_per_client):
  claim = dataclasses.replace(_CLAIM, users_per_client=users_per_client)
  fewer = claim.resized(num_users=999, users_per_round=50 * 999 / 1_000)
  assert fewer.clients_per_round == claim.clients_per_round
  for clients, without in zip(_draw(claim), _draw(fewer), strict=True):
    left = [client[client != 999].tolist() for client in clients]
    assert [c for c in left if c] == [c.tolist() for c in without]


def test_draws_do_not_change_from_version_to_version():
  claim = cyclic_poisson.CyclicPoisson(40, 6, users_per_client=2, period=3)
  clients = claim.sample(9, key=4)
  assert [client.tolist() for client in clients] == [[5, 7, 9, 10, 20], [19]]
  # Resumed, the same again.
  again = cyclic_poisson.CyclicPoisson(40, 6, users_per_client=2, period=3)
  cyclic_poisson.CyclicPoisson(50, 6, period=2).sample(9, key=4)
  assert [c.tolist() for c in again.sample(9, key=4)] == [
    c.tolist() for c in clients
  ]


def test_one_block_is_poisson_sampling():
  claim = cyclic_poisson.CyclicPoisson(1_000, 50)
  for clients, other in zip(
    _draw(claim, 5), _draw(poisson.Poisson(1_000, 50), 5), strict=True
  ):
    assert [c.tolist() for c in clients] == [c.tolist() for c in other]


@pytest.mark.parametrize(
  ("num_users", "users_per_round", "users_per_client", "period"),
  [
    (1_000, 50, 1, 4),
    (200, 50, 10, 3),
    (12, 2, 1, 6),
    (9, 1, 1, 2),
    (60, 30, 3, 2),
    (300, 3, 1, 50),
  ],
)
def test_honest_runs_are_not_refused(
  num_users, users_per_round, users_per_client, period
):
  # Of 6 x 40 traces, each refused with a probability of 1e-6 at most.
  claim = cyclic_poisson.CyclicPoisson(
    num_users, users_per_round, users_per_client=users_per_client, period=period
  )
  for seed in range(40):
    rounds = _draw(claim, 1 + 2 * seed, key=seed)
    traces.check(claim, rounds)
    traces.check(claim.with_known_schedule(), rounds)


def _other_blocks():
  """User 3, who takes part, is once in a round of another block."""
  rounds = _draw(_CLAIM)
  first = next(n for n, clients in enumerate(rounds) if 3 in _users(clients))
  other = first + 5
  rounds[other] = _alone(np.append(_users(rounds[other]), 3))
  return rounds


def _passes():
  """Users in turn within their block, so that nobody comes back early."""
  order = np.random.default_rng(1).permutation(1_000).reshape(4, 5, 50)
  return [_alone(order[n % 4, n // 4 % 5]) for n in range(_ROUNDS)]


def _same_again():
  order = np.random.default_rng(1).permutation(1_000).reshape(4, 250)
  return [_alone(order[n % 4, :50]) for n in range(_ROUNDS)]


def _too_many():
  claim = dataclasses.replace(_CLAIM, users_per_round=65)
  return _draw(claim)


def _too_often():
  rounds = _draw(_CLAIM, 80)
  first = next(n for n, clients in enumerate(rounds) if 3 in _users(clients))
  for number in range(first % 4, 80, 4):
    users = np.setdiff1d(_users(rounds[number]), [3])
    rounds[number] = _alone(np.append(users[1:], 3))
  return rounds


def _same_size():
  generator = np.random.default_rng(2)
  blocks = generator.permutation(1_000).reshape(4, 250)
  return [
    _alone(generator.choice(blocks[n % 4], 50, replace=False))
    for n in range(_ROUNDS)
  ]


_REFUSED = {
  "a user who changes block": (
    _other_blocks,
    "a user is in rounds of one block of 4 alone; in the trace user 3 is in"
    r" rounds \d+ and \d+, which are of blocks \d and \d",
  ),
  "Poisson sampling of all users": (
    lambda: _draw(poisson.Poisson(1_000, 50)),
    "a user is in rounds of one block of 4 alone; in the trace user",
  ),
  "blocks of another period": (
    lambda: _draw(dataclasses.replace(_CLAIM, period=5)),
    "a user is in rounds of one block of 4 alone; in the trace user",
  ),
  "passes within a block": (
    _passes,
    "the number of users varies; every one of 40 rounds in the trace has",
  ),
  "passes of two sizes": (
    lambda: [clients[n % 3 :] for n, clients in enumerate(_passes())],
    "two rounds 4 apart have 10 users in common on average; in the trace of 40"
    " rounds they have 0 to 0: its users were not drawn independently",
  ),
  "the same users of a block again": (
    lambda: [clients[n % 3 :] for n, clients in enumerate(_same_again()[:9])],
    "two rounds 4 apart have 10 users in common on average; .* they have 4",
  ),
  "more users": (
    _too_many,
    "a round has 50 users on average; .* too far from that to be chance",
  ),
  "a user in every round of a block": (
    _too_often,
    "one of 4 rounds with probability 0.2; in the trace user 3 is in 20 of 80",
  ),
  "rounds of a fixed size": (
    _same_size,
    "every one of 40 rounds in the trace has exactly 50: that is fixed_size",
  ),
}


@pytest.mark.parametrize("case", _REFUSED)
def test_a_trace_that_refutes_the_claim(case):
  create_rounds, message = _REFUSED[case]
  with pytest.raises(participation.ClaimError, match=message):
    traces.check(_CLAIM, create_rounds())


def test_users_who_were_shuffled_and_cut_into_groups():
  claim = dataclasses.replace(_CLAIM, users_per_client=10)
  generator = np.random.default_rng(1)
  rounds = [
    np.array_split(generator.permutation(_users(clients)), 5)
    for clients in _draw(claim)
  ]
  with pytest.raises(participation.ClaimError, match="shuffled and cut"):
    traces.check(claim, rounds)


def test_claims_of_poisson_sampling_that_cyclic_rounds_refute():
  # At the probability of a round, and at that of a round of one's block.
  for users_per_round, message in (
    (50, "two consecutive rounds have 2.5 users in common .* 0 to 0"),
    (200, "a round has 200 users on average"),
  ):
    with pytest.raises(participation.ClaimError, match=message):
      traces.check(poisson.Poisson(1_000, users_per_round), _draw(_CLAIM))


def test_a_known_schedule_is_that_of_a_separation():
  known = _CLAIM.with_known_schedule(7)
  assert not known.is_sampled
  assert known.participations(400) == 7
  assert known.accountants == ("rdp", "gaussian")
  assert known.with_secret_schedule() == _CLAIM
