"""Tests of random allocation: its passes, its blocks and its claims."""

import math

import dp_accounting
import numpy as np
import pytest

from tests.participation import draws
from tff_fedemb.participation import random_allocation

_CLAIM = random_allocation.RandomAllocation(1_000, 100)
_IN_BLOCKS = random_allocation.RandomAllocation(1_000, 100, period=2)


@pytest.mark.parametrize("claim", [_CLAIM, _IN_BLOCKS])
def test_everybody_is_once_in_every_pass_anew(claim):
  places = draws.places_in_passes(claim, 3)
  # Five or ten rounds to be in, of which passes have the same by chance.
  period, chance = claim.period, claim.sampling_probability
  for one, other in ((0, 1), (1, 2), (0, 2)):
    share = np.mean(places[one] == places[other])
    assert abs(share - chance) < 5 * math.sqrt(chance / 1_000)
    assert all(places[one] % period == places[other] % period)


def test_what_is_claimed():
  assert (_CLAIM.rounds_of_pass, _CLAIM.sampling_probability) == (10, 0.1)
  assert [_CLAIM.participations(n) for n in (0, 1, 10, 11)] == [0, 1, 1, 2]
  assert _CLAIM.accountants == ("allocation",)
  assert (_CLAIM.min_separation, _IN_BLOCKS.min_separation) == (1, 2)
  assert "one of the 10 rounds of a pass, drawn anew" in _CLAIM.sampling
  assert "their block, one of 2, has in a pass of 10" in _IN_BLOCKS.sampling
  # Passes of whole rounds: a cohort is a little smaller.
  claim = _CLAIM.resized(num_users=20_000, users_per_round=512)
  assert (claim.rounds_of_pass, claim.users_per_round) == (40, 500)
  assert (claim.for_bands(8).rounds_of_pass, claim.clients_per_round) == (
    *(40, 500),
  )


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
  ("num_users", "users", "period", "rounds"),
  [(1_000, 16, None, 62), (1_000, 16, 4, 60), (16, 16, None, 1)],
)
def test_a_round_has_a_whole_virtual_client(num_users, users, period, rounds):
  claim = random_allocation.RandomAllocation(
    num_users, users, users_per_client=16, period=period
  )
  assert claim.rounds_of_pass == rounds
  assert claim.users_per_round == pytest.approx(num_users / rounds)
  assert claim.users_per_round >= 16


def test_blocks_of_all_users_are_drawn_from_in_spite_of_rounding():
  claim = random_allocation.RandomAllocation(21, 21 / 19, period=19)
  assert claim.sampling_probability == 1.0
