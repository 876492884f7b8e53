"""Tests of random allocation: its passes, its blocks and its claims."""

import json
import math

import dp_accounting
import numpy as np
import pytest

from tests.data import traces
from tff_fedemb import errors
from tff_fedemb.participation import participation
from tff_fedemb.participation import poisson
from tff_fedemb.participation import random_allocation
from tff_fedemb.participation import registry

_CLAIM = random_allocation.RandomAllocation(1_000, 100)
_IN_BLOCKS = random_allocation.RandomAllocation(1_000, 100, period=2)


def _draw(claim, rounds, key=5):
  return [claim.sample(r, key=key) for r in range(rounds)]


@pytest.mark.parametrize("claim", [_CLAIM, _IN_BLOCKS])
def test_everybody_is_once_in_every_pass_anew(claim):
  rounds = [np.concatenate(clients) for clients in _draw(claim, 30)]
  places = []
  for first in (0, 10, 20):
    users = np.concatenate(rounds[first : first + 10])
    assert sorted(users) == list(range(1_000))
    sizes = [len(users) for users in rounds[first : first + 10]]
    places.append(np.repeat(np.arange(10), sizes)[np.argsort(users)])
    # Binomial, not equal: five deviations of sqrt(90).
    assert len(set(sizes)) > 1
    assert all(abs(size - 100) < 48 for size in sizes)
  # Five or ten rounds to be in, of which passes have the same by chance.
  period, chance = claim.period, claim.sampling_probability
  for one, other in ((0, 1), (1, 2), (0, 2)):
    share = np.mean(places[one] == places[other])
    assert abs(share - chance) < 5 * math.sqrt(chance / 1_000)
    assert all(places[one] % period == places[other] % period)


def test_draws_do_not_change_from_version_to_version():
  claim = random_allocation.RandomAllocation(40, 6, users_per_client=2)
  clients = claim.sample(9, key=4)
  assert [c.tolist() for c in clients] == [[4, 12, 35], [0, 17]]


def test_what_is_claimed():
  assert (_CLAIM.rounds_of_pass, _CLAIM.sampling_probability) == (10, 0.1)
  assert [_CLAIM.participations(n) for n in (0, 1, 10, 11)] == [0, 1, 1, 2]
  assert _CLAIM.accountants == ("allocation",)
  assert (_CLAIM.min_separation, _IN_BLOCKS.min_separation) == (1, 2)
  assert "one of the 10 rounds of a pass, drawn anew" in _CLAIM.sampling
  assert "their block, one of 2, has in a pass of 10" in _IN_BLOCKS.sampling
  values = json.loads(json.dumps(registry.to_json(_IN_BLOCKS)))
  assert registry.from_json(values) == _IN_BLOCKS
  # Passes of whole rounds: a cohort is a little smaller.
  claim = _CLAIM.resized(num_users=20_000, users_per_round=512)
  assert (claim.rounds_of_pass, claim.users_per_round) == (40, 500)
  assert (claim.for_bands(8).rounds_of_pass, claim.clients_per_round) == (
    *(40, 500),
  )
  known = _CLAIM.with_known_schedule(2)
  assert (known.accountants, known.participations(99)) == (
    *(("rdp", "gaussian"), 2),
  )
  with pytest.raises(errors.FieldError, match=r"period must be at most .* 10:"):
    random_allocation.RandomAllocation(1_000, 100, period=11)


@pytest.mark.parametrize(
  ("claim", "rounds", "slots"),
  [
    (_CLAIM, 10, [((2.0, 10),)]),
    (_CLAIM, 4, [((2.0, 4), (math.inf, 6))]),
    (_CLAIM, 21, [((2.0, 10),), ((2.0, 1), (math.inf, 9))]),
    # Two and three of the rounds of a block are left; the second is claimed.
    (_IN_BLOCKS, 15, [((2.0, 5),), ((2.0, 3), (math.inf, 2))]),
    (_IN_BLOCKS, 19, [((2.0, 5),)]),
  ],
)
def test_events_of_passes(claim, rounds, slots):
  passes = claim.participations(rounds)
  found = claim.sampled_events(
    dp_accounting.GaussianDpEvent(2.0), passes, rounds=rounds
  )
  assert [event.slots for event, _ in found] == slots
  assert sum(count for _, count in found) == passes
  # One noise of several: it may be that of any pass.
  found = claim.sampled_events(
    dp_accounting.GaussianDpEvent(2.0), passes - 1, rounds=rounds
  )
  assert [event.slots for event, _ in found] == [
    claim.sampled_event(dp_accounting.GaussianDpEvent(2.0)).slots
  ]


@pytest.mark.parametrize(
  ("num_users", "users_per_round", "users_per_client", "period"),
  [
    (1_000, 100, 1, 1),
    (200, 60, 10, 2),
    (12, 5, 1, 1),
    (10, 5, 1, 2),
    (300, 3, 1, 7),
    (60, 60, 3, 1),
  ],
)
def test_honest_runs_are_not_refused(
  num_users, users_per_round, users_per_client, period
):
  claim = random_allocation.RandomAllocation(
    num_users, users_per_round, users_per_client=users_per_client, period=period
  )
  for seed in range(20):
    rounds = _draw(claim, 1 + 5 * seed, key=seed)
    traces.check(claim, rounds)
    traces.check(claim.with_known_schedule(), rounds)


def _same_sizes():
  generator = np.random.default_rng(1)
  return [
    list(users[:, np.newaxis])
    for _ in range(3)
    for users in generator.permutation(1_000).reshape(10, 100)
  ]


@pytest.mark.parametrize(
  ("create_rounds", "message"),
  [
    (lambda: _draw(poisson.Poisson(1_000, 100), 30), "users are in 0 to 8"),
    (
      lambda: _draw(_CLAIM.resized(num_users=1_000, users_per_round=50), 30),
      "one of 10 rounds of a pass; in the trace of 30 rounds users are in 1 to",
    ),
    (_same_sizes, "has exactly 100: that is fixed_size"),
  ],
)
def test_a_trace_that_refutes_the_claim(create_rounds, message):
  with pytest.raises(participation.ClaimError, match=message):
    traces.check(_CLAIM, create_rounds())
