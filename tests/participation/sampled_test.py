"""Traces of runs that contradict the claim.

The line that refuses says what was assumed and what was run.
"""

import dataclasses
import itertools

import numpy as np
import pytest

from tests.participation import draws
from tests.participation import traces
from tff_fedemb.participation import check_ins
from tff_fedemb.participation import cyclic_poisson
from tff_fedemb.participation import fixed_size
from tff_fedemb.participation import min_separation
from tff_fedemb.participation import participation
from tff_fedemb.participation import participation_check
from tff_fedemb.participation import participation_trace
from tff_fedemb.participation import poisson
from tff_fedemb.participation import random_allocation

_POISSON = poisson.Poisson(1_000, 50)
_FIXED_SIZE = fixed_size.FixedSize(1_000, 50)
_SEPARATION = min_separation.MinSeparation(1_000, 50)
_CYCLIC = cyclic_poisson.CyclicPoisson(1_000, 50, period=4)
_ALLOCATED = random_allocation.RandomAllocation(1_000, 100)
_CHECK_INS = check_ins.CheckIns(100, 4, min_separation=3, max_participations=2)
_ROUNDS = 40


def _changes_block():
  """User 3, who takes part, is once in a round of another block."""
  rounds = draws.draw(_CYCLIC, _ROUNDS)
  first = next(n for n in range(_ROUNDS) if 3 in draws.users(rounds[n]))
  slots = np.append(draws.users(rounds[first + 5]), 3)
  rounds[first + 5] = draws.alone(slots)
  return rounds


def _groups(claim, size=10):
  return dataclasses.replace(claim, users_per_client=size)


# Each entry has the claim, the run, and the message.
_REFUSED = {
  "more virtual clients than claimed": (
    _groups(_FIXED_SIZE),
    lambda: draws.draw(_FIXED_SIZE, _ROUNDS),
    "a round has at most 5 virtual clients; in the trace a round has 50",
  ),
  "Poisson under a fixed-size claim": (
    _FIXED_SIZE,
    lambda: draws.draw(_POISSON, _ROUNDS),
    "fixed_size participation was assumed, in which a round has 50 to 50 users;"
    " in the trace rounds have [34][0-9] to 6[0-9]",
  ),
  "sampling under a separation claim": (
    _SEPARATION,
    lambda: draws.draw(_FIXED_SIZE, _ROUNDS),
    "a user is in at most 2 of 40 rounds; in the trace user",
  ),
  "closer than the separation": (
    _SEPARATION,
    lambda: [
      [np.array([12 if number == 30 else number])] for number in range(_ROUNDS)
    ],
    "a user's rounds are at least 20 apart; in the trace user 12 is in rounds"
    " 12 and 30",
  ),
  "a user more often than claimed": (
    dataclasses.replace(_SEPARATION, max_participations=1),
    lambda: draws.draw(_SEPARATION, _ROUNDS),
    r"at most 1 of 40 rounds; in the trace user [\d,]+ is in 2",
  ),
  "a user who changes block": (
    _CYCLIC,
    _changes_block,
    r"one block of 4 alone; in the trace user 3 is in rounds \d+ and \d+, which"
    r" are of blocks \d and \d",
  ),
  "no passes": (
    _ALLOCATED,
    lambda: draws.draw(poisson.Poisson(1_000, 100), 30),
    "one of 10 rounds of a pass; in the trace a user is in 0 of 30",
  ),
  "groups under a claim of users on their own": (
    _FIXED_SIZE,
    lambda: draws.draw(_groups(_FIXED_SIZE), _ROUNDS),
    "fixed_size participation was assumed, in which every virtual client has"
    " one user; in the trace some virtual clients have several",
  ),
  "more devices than the goal": (
    _CHECK_INS,
    lambda: [draws.alone([1, 2, 3, 4, 5])],
    "a round has 0 to 4 users; in the trace rounds have 5 to 5",
  ),
}


@pytest.mark.parametrize("case", _REFUSED)
def test_a_trace_that_contradicts_the_claim(case):
  claim, create_rounds, message = _REFUSED[case]
  with pytest.raises(participation.ClaimError, match=message):
    traces.check(claim, create_rounds())


@pytest.mark.parametrize(
  ("num_users", "rounds", "message"),
  [
    (1_000, 45, "hold the 45 rounds that are accounted for, found 40"),
    (
      10_000,
      40,
      "be of 10,000 users, as the accounting assumes, found one of 1,",
    ),
  ],
)
def test_the_trace_is_of_all_rounds_and_users(num_users, rounds, message):
  recorded = itertools.starmap(
    participation_trace.RecordedRound.of,
    enumerate(draws.draw(_FIXED_SIZE, _ROUNDS)),
  )
  observed = participation_check.observe(1_000, recorded)
  claim = dataclasses.replace(_FIXED_SIZE, num_users=num_users)
  with pytest.raises(
    participation.ClaimError, match=f"the trace must {message}"
  ):
    claim.check_trace(observed, rounds=rounds)
