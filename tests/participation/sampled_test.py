"""Traces of runs: honest ones are not refused, others refute the claim.

The line that refuses says what was assumed and what was run.
"""

import dataclasses
import functools
import itertools
import math

import numpy as np
import pytest
from scipy import stats

from tests.data import traces
from tests.participation import draws
from tff_fedemb.data import participation_check
from tff_fedemb.data import participation_trace
from tff_fedemb.participation import b_min_sep
from tff_fedemb.participation import balls_in_bins
from tff_fedemb.participation import cyclic_poisson
from tff_fedemb.participation import fixed_size
from tff_fedemb.participation import min_separation
from tff_fedemb.participation import participation
from tff_fedemb.participation import poisson
from tff_fedemb.participation import random_allocation
from tff_fedemb.participation import registry

_POISSON = poisson.Poisson(1_000, 50)
_FIXED_SIZE = fixed_size.FixedSize(1_000, 50)
_SEPARATION = min_separation.MinSeparation(1_000, 50)
_CYCLIC = cyclic_poisson.CyclicPoisson(1_000, 50, period=4)
_WAITING = b_min_sep.BMinSep(1_000, 60, min_separation=5)
_IN_BINS = balls_in_bins.BallsInBins(1_000, 100)
_ALLOCATED = random_allocation.RandomAllocation(1_000, 100)
_ROUNDS = 40


@pytest.mark.parametrize(
  ("name", "num_users", "users_per_round", "users_per_client", "options"),
  [
    ("poisson", 200, 50, 10, {}),
    ("poisson", 9, 2, 1, {}),
    ("poisson", 40, 30, 1, {}),
    ("fixed_size", 200, 50, 10, {}),
    ("fixed_size", 9, 2, 1, {}),
    ("min_separation", 12, 12, 4, {}),
    ("min_separation", 40, 30, 1, {}),
    ("cyclic_poisson", 200, 50, 10, {"period": 3}),
    ("cyclic_poisson", 60, 30, 3, {"period": 2}),
    ("cyclic_poisson", 300, 3, 1, {"period": 50}),
    ("random_allocation", 200, 60, 10, {"period": 2}),
    ("random_allocation", 12, 5, 1, {}),
    ("random_allocation", 60, 60, 3, {}),
    ("b_min_sep", 1_000, 60, 1, {"min_separation": 16}),
    ("b_min_sep", 200, 60, 10, {"min_separation": 3}),
    ("b_min_sep", 12, 5, 1, {"min_separation": 2}),
    ("balls_in_bins", 200, 60, 10, {}),
    ("balls_in_bins", 10, 5, 1, {}),
    ("balls_in_bins", 300, 3, 1, {}),
  ],
)
def test_honest_runs_are_not_refused(
  name, num_users, users_per_round, users_per_client, options
):
  # Each of 19 x 20 traces is refused with a probability of 1e-6 at most.
  claim = registry.create_participation(
    name,
    num_users=num_users,
    users_per_round=users_per_round,
    users_per_client=users_per_client,
    **options,
  )
  for seed in range(20):
    rounds = draws.draw(claim, 1 + 3 * seed, key=seed)
    traces.check(claim, rounds)
    traces.check(claim.with_known_schedule(), rounds)


def _changes_block():
  """User 3, who takes part, is once in a round of another block."""
  rounds = draws.draw(_CYCLIC, _ROUNDS)
  first = next(n for n in range(_ROUNDS) if 3 in draws.users(rounds[n]))
  slots = np.append(draws.users(rounds[first + 5]), 3)
  rounds[first + 5] = draws.alone(slots)
  return rounds


def _always_of_block():
  """User 3 in every round of their block."""
  rounds = draws.draw(_CYCLIC, 80)
  first = next(n for n in range(80) if 3 in draws.users(rounds[n]))
  return draws.always(rounds, 3, lambda number: number % 4 == first % 4)


def _shuffled_and_cut(claim, every=1):
  """As large as they should be; groups of equal size in every n-th round."""
  rounds = draws.draw(claim, _ROUNDS)
  generator = np.random.default_rng(1)
  for clients in rounds[::every]:
    clients[:] = np.array_split(generator.permutation(draws.users(clients)), 5)
  return rounds


def _often(probability):
  """User 3 with a probability of their own."""
  generator = np.random.default_rng(2)
  rounds = draws.draw(poisson.Poisson(1_000, 32), 30)
  return draws.always(rounds, 3, lambda _: generator.random() < probability)


def _one_larger():
  rounds = draws.draw(_POISSON, _ROUNDS)
  rounds[7] = draws.alone(np.arange(150))
  return rounds


def _groups(claim, size=10):
  return dataclasses.replace(claim, users_per_client=size)


_BLOCK_OF_4 = "a user is in rounds of one block of 4 alone; in the trace user"
_NOT_ALONE = (
  "virtual clients of one user were assumed, .* virtual clients of several"
)
_CUT = (
  "poisson participation was assumed, in which every user joins a virtual"
  " client independently of the others; in the trace .* of 40 rounds have"
  " virtual clients of equal size: its users were shuffled and cut"
)
# Each entry has the claim, the run, and the message.
_REFUSED = {
  "more virtual clients than claimed": (
    _groups(_FIXED_SIZE),
    lambda: draws.draw(_FIXED_SIZE, _ROUNDS),
    "virtual clients of 10 users were assumed, 5 a round; the trace has a"
    " round of 50",
  ),
  "Poisson under a fixed-size claim": (
    _FIXED_SIZE,
    lambda: draws.draw(_POISSON, _ROUNDS),
    "fixed_size participation was assumed, in which every round has exactly 50"
    " users; the trace has rounds of [34][0-9] to 6[0-9]",
  ),
  "sampling under a separation claim": (
    _SEPARATION,
    lambda: draws.draw(_FIXED_SIZE, _ROUNDS),
    "at most 2 participations of a user in 40 rounds were assumed; in the"
    " trace user",
  ),
  "closer than the separation": (
    _SEPARATION,
    lambda: [
      [np.array([12 if number == 30 else number])] for number in range(_ROUNDS)
    ],
    "a separation of at least 20 rounds between two participations of a user"
    " was assumed; in the trace user 12 is in rounds 12 and 30",
  ),
  "a user more often than claimed": (
    dataclasses.replace(_SEPARATION, max_participations=1),
    lambda: draws.draw(_SEPARATION, _ROUNDS),
    "at most 1 participations of a user in 40 rounds were assumed; .* has 2",
  ),
  "one larger round under a Poisson claim": (
    _POISSON,
    _one_larger,
    "poisson participation was assumed, in which a round has 50 users on"
    " average; .* to 150, 5.* on average, too far from that to be chance",
  ),
  "a user with probability 0.5 instead of 0.032": (
    poisson.Poisson(1_000, 32),
    lambda: _often(0.5),
    "with probability 0.032; in the trace user 3 is in 1[0-9] of 30 rounds",
  ),
  "a user who is never drawn": (
    poisson.Poisson(1_000, 600),
    lambda: draws.always(
      draws.draw(poisson.Poisson(1_000, 600), _ROUNDS), 3, lambda _: False
    ),
    "with probability 0.6; in the trace a user is in no more than 0 of 40",
  ),
  "fixed size under a Poisson claim": (
    _POISSON,
    lambda: draws.draw(_FIXED_SIZE, _ROUNDS),
    "poisson participation was assumed, in which the number of users varies;"
    " every one of 40 rounds in the trace has exactly 50: that is fixed_size",
  ),
  "shuffled and cut": (
    _groups(_POISSON),
    lambda: _shuffled_and_cut(_groups(_POISSON)),
    _CUT,
  ),
  "shuffled and cut in one of 3 rounds": (
    _groups(_POISSON),
    lambda: _shuffled_and_cut(_groups(_POISSON), 3),
    _CUT,
  ),
  "shuffled and cut in blocks": (
    _groups(_CYCLIC),
    lambda: _shuffled_and_cut(_groups(_CYCLIC)),
    "shuffled and cut",
  ),
  "cyclic rounds under a claim of their users": (
    _POISSON,
    lambda: draws.draw(_CYCLIC, _ROUNDS),
    "two consecutive rounds have 2.5 users in common .* 0 to 0",
  ),
  "cyclic rounds under a claim of their probability": (
    poisson.Poisson(1_000, 200),
    lambda: draws.draw(_CYCLIC, _ROUNDS),
    "a round has 200 users on average",
  ),
  "a user who changes block": (
    _CYCLIC,
    _changes_block,
    rf"{_BLOCK_OF_4} 3 is in rounds \d+ and \d+, which are of blocks \d and \d",
  ),
  "passes of two sizes within a block": (
    _CYCLIC,
    lambda: draws.passes(1_000, 50, _ROUNDS, blocks=4, leaves_out=True),
    "two rounds 4 apart have 10 users in common on average; in the trace of 40"
    " rounds they have 0 to 0: its users were not drawn independently",
  ),
  "a user in every round of a block": (
    _CYCLIC,
    _always_of_block,
    "one of 4 rounds with probability 0.2; in the trace user 3 is in 20 of 80",
  ),
  "rounds of a fixed size within a block": (
    _CYCLIC,
    lambda: draws.passes(1_000, 50, _ROUNDS, blocks=4),
    "every one of 40 rounds in the trace has exactly 50: that is fixed_size",
  ),
  "waits that are too short": (
    _WAITING,
    lambda: draws.draw(dataclasses.replace(_WAITING, min_separation=4), 30),
    r"rounds are at least 5 apart; in the trace user [\d,]+ is in rounds",
  ),
  # Rounds are small enough each, but not all of them.
  "waits of fewer users": (
    _WAITING,
    lambda: draws.draw(dataclasses.replace(_WAITING, users_per_round=50), 90),
    "too far from that to be chance",
  ),
  "waits that are too long": (
    _WAITING,
    lambda: draws.draw(cyclic_poisson.CyclicPoisson(1_000, 60, period=16), 90),
    "5 apart have .* users in common|in which a user is in",
  ),
  "waits of rounds of one size": (
    _WAITING,
    lambda: draws.passes(1_000, 60, 48),
    "every one of 48 rounds in the trace has exactly 60",
  ),
  "no wait for one user": (
    _WAITING,
    lambda: draws.always(
      draws.draw(_WAITING, 90), 999, lambda number: number % 5 == 0
    ),
    "user 999 is in 18 of 90 rounds",
  ),
  "fewer users of a bin": (
    _IN_BINS,
    lambda: draws.draw(cyclic_poisson.CyclicPoisson(1_000, 50, period=10), 30),
    "too far from that to be chance",
  ),
  "bins of one size": (
    _IN_BINS,
    lambda: draws.passes(1_000, 100, 30),
    "10 bins in the trace have exactly 100 users",
  ),
  "no passes": (
    _ALLOCATED,
    lambda: draws.draw(poisson.Poisson(1_000, 100), 30),
    "one of 10 rounds of a pass; in the trace of 30 rounds users are in 0 to 8",
  ),
  "passes of rounds of one size": (
    _ALLOCATED,
    lambda: draws.passes(1_000, 100, 30),
    "has exactly 100: that is fixed_size",
  ),
}
for _claim in (_POISSON, _FIXED_SIZE, _SEPARATION, _CYCLIC):
  _REFUSED[f"groups under a claim of users on their own, {_claim.name}"] = (
    _claim,
    functools.partial(draws.draw, _groups(_claim), _ROUNDS),
    _NOT_ALONE,
  )
for _claim, _leaves_out in ((_FIXED_SIZE, False), (_POISSON, True)):
  _REFUSED |= {
    f"{what} under a claim of sampling, {_claim.name}": (
      _claim,
      create_rounds,
      f"{_claim.name} participation was assumed, in which {message}",
    )
    for what, create_rounds, message in (
      (
        "passes",
        functools.partial(draws.passes, 1_000, 50, 200, leaves_out=_leaves_out),
        "two consecutive rounds have .* they have 0 to 0: its users were not"
        " drawn independently for every",
      ),
      (
        "one cohort again and again",
        lambda: [draws.alone(np.arange(50))] * 3,
        "two consecutive rounds have .* they have 50 to 50",
      ),
      (
        "a user more often than sampling explains",
        functools.partial(
          draws.always, draws.draw(_claim, _ROUNDS), 3, lambda _: True
        ),
        "a user is in a round with probability 0.05; in the trace user 3 is in"
        " 40 of 40 rounds",
      ),
    )
  }


@pytest.mark.parametrize("case", _REFUSED)
def test_a_trace_that_refutes_the_claim(case):
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


def test_evidence_against_independent_groups_is_fair():
  """Its expectation is 1: the law of even rounds is exact."""
  rounds = draws.draw(_groups(_POISSON), 4_000, key=11)
  groups = [[client.size for client in clients] for clients in rounds]
  seen = sum(len(g) == 5 and max(g) - min(g) <= 1 for g in groups)
  expected = []
  for sizes in groups:
    # All ways to share the users out, from the definition.
    law = stats.multinomial(sum(sizes), [0.2] * 5)
    size, larger = divmod(law.n, 5)
    shape = [size + 1] * larger + [size] * (5 - larger)
    expected.append(math.comb(5, larger) * law.pmf(shape))
  variance = sum(p * (1 - p) for p in expected)
  # Five standard deviations.
  assert abs(seen - sum(expected)) < 5 * math.sqrt(variance)
  assert sum(expected) > 3
