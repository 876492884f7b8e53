"""Tests of b-min-sep sampling: who takes part, and what may be claimed."""

import itertools
import json

import numpy as np
import pytest

from tests.data import traces
from tff_fedemb import errors
from tff_fedemb.participation import b_min_sep
from tff_fedemb.participation import balls_in_bins
from tff_fedemb.participation import cyclic_poisson
from tff_fedemb.participation import participation
from tff_fedemb.participation import poisson
from tff_fedemb.participation import registry

_CLAIM = b_min_sep.BMinSep(1_000, 60, min_separation=5)


def _draw(claim, rounds, key=5):
  return [claim.sample(r, key=key) for r in range(rounds)]


def _taken(claim, rounds, key=5):
  """Who is in which round, `[rounds, users]`."""
  taken = np.zeros((rounds, claim.num_users), int)
  for number, clients in enumerate(_draw(claim, rounds, key)):
    taken[number, np.concatenate([[], *clients]).astype(int)] = 1
  return taken


def test_every_round_has_its_share_and_nobody_comes_back_too_soon():
  claim = b_min_sep.BMinSep(40_000, 4_000, min_separation=4)
  assert claim.coin_probability == pytest.approx(1 / 7)
  taken = _taken(claim, 30)
  # From the first round on: five deviations of sqrt(3,600).
  assert np.all(np.abs(taken.sum(axis=1) - 4_000) < 300)
  windows = np.lib.stride_tricks.sliding_window_view(taken, 4, axis=0)
  assert windows.sum(axis=-1).max() == 1
  # Four rounds later a coin decides.
  again = (taken[4:] & taken[:-4]).sum() / taken[:-4].sum()
  assert again == pytest.approx(1 / 7, abs=5 * np.sqrt(0.13 / 104_000))


def test_at_a_separation_of_one_it_is_poisson_sampling():
  claim = b_min_sep.BMinSep(500, 40, min_separation=1)
  for clients, others in zip(
    _draw(claim, 6), _draw(poisson.Poisson(500, 40), 6), strict=True
  ):
    assert np.concatenate(clients).tolist() == np.concatenate(others).tolist()


def test_at_the_largest_separation_everybody_keeps_their_place():
  claim = b_min_sep.BMinSep(600, 100, min_separation=6)
  assert claim.coin_probability == 1.0
  taken = _taken(claim, 18)
  np.testing.assert_array_equal(taken[:6], taken[6:12])
  np.testing.assert_array_equal(taken[:6].sum(axis=0), 1)


def test_a_round_does_not_depend_on_what_was_asked_before():
  rounds = [np.concatenate(clients).tolist() for clients in _draw(_CLAIM, 20)]
  for number in (19, 3, 2, 17, 17, 13, 0):
    found = np.concatenate(_CLAIM.sample(number, key=5)).tolist()
    assert found == rounds[number]
    _CLAIM.sample(number, key=6)
  # One user more moves nobody else.
  larger = b_min_sep.BMinSep(1_001, 60 * 1.001, min_separation=5)
  for clients, others in zip(_draw(larger, 20), rounds, strict=True):
    slots = np.concatenate(clients)
    assert slots[slots < 1_000].tolist() == others


def test_what_is_claimed():
  assert _CLAIM.is_sampled
  assert _CLAIM.is_mixture
  assert not _CLAIM.is_drawn_once
  assert _CLAIM.accountants == ("monte_carlo",)
  assert _CLAIM.participations(12) == 3
  assert _CLAIM.sensitivity_in_clip_norms == 1.0
  assert _CLAIM.for_bands(3).min_separation == 3
  assert "by a coin of probability 0.07895" in _CLAIM.sampling
  assert "from a secret key" in _CLAIM.amplification
  values = json.loads(json.dumps(registry.to_json(_CLAIM)))
  assert registry.from_json(values) == _CLAIM
  known = _CLAIM.with_known_schedule(3)
  assert not known.is_mixture
  assert known.accountants == ("rdp", "gaussian")
  assert known.with_secret_schedule() == _CLAIM
  with pytest.raises(
    errors.FieldError, match=r"min_separation must be at most .* 16.6667"
  ):
    b_min_sep.BMinSep(1_000, 60, min_separation=17)


@pytest.mark.parametrize(
  ("num_users", "users_per_round", "separation", "users_per_client"),
  [
    (1_000, 60, 5, 1),
    (1_000, 60, 16, 1),
    (200, 60, 3, 10),
    (12, 5, 2, 1),
    (300, 3, 100, 1),
  ],
)
def test_honest_runs_are_not_refused(
  num_users, users_per_round, separation, users_per_client
):
  claim = b_min_sep.BMinSep(
    num_users,
    users_per_round,
    min_separation=separation,
    users_per_client=users_per_client,
  )
  for seed in range(8):
    rounds = _draw(claim, 1 + 7 * seed, key=seed)
    traces.check(claim, rounds)
    traces.check(claim.with_known_schedule(), rounds)


def _same_sizes():
  order = np.random.default_rng(1).permutation(1_000)[:960].reshape(16, 60)
  return [[order[n % 16][i : i + 1] for i in range(60)] for n in range(48)]


def _one_comes_always():
  return [
    [client for client in clients if client[0] != 999]
    + [np.array([999])] * (number % 5 == 0)
    for number, clients in enumerate(_draw(_CLAIM, 90))
  ]


@pytest.mark.parametrize(
  ("create_rounds", "message"),
  [
    (
      lambda: _draw(poisson.Poisson(1_000, 60), 30),
      r"rounds are at least 5 apart; in the trace user [\d,]+ is in rounds",
    ),
    (
      lambda: _draw(b_min_sep.BMinSep(1_000, 60, min_separation=4), 30),
      "rounds are at least 5 apart",
    ),
    # Rounds are small enough each, but not all of them.
    (
      lambda: _draw(b_min_sep.BMinSep(1_000, 50, min_separation=5), 90),
      "too far from that to be chance",
    ),
    (
      lambda: _draw(cyclic_poisson.CyclicPoisson(1_000, 60, period=16), 90),
      "5 apart have .* users in common|in which a user is in",
    ),
    (
      lambda: _draw(balls_in_bins.BallsInBins(1_000, 62.5), 90),
      "users in common|in which a user is in",
    ),
    (_same_sizes, "every one of 48 rounds in the trace has exactly 60"),
    (_one_comes_always, "user 999 is in 18 of 90 rounds"),
  ],
)
def test_a_trace_that_refutes_the_claim(create_rounds, message):
  with pytest.raises(participation.ClaimError, match=message):
    traces.check(_CLAIM, create_rounds())


def test_chances_of_counts_by_all_coins():
  claim = b_min_sep.BMinSep(10, 3, min_separation=2)
  coin = claim.coin_probability
  expected = np.zeros(4)
  for wait, share in ((0, 0.7), (1, 0.3)):
    for coins in itertools.product((0, 1), repeat=5):
      left, count = wait, 0
      for heads in coins:
        count += heads and not left
        left = heads if not left else 0
      probability = np.prod([coin if heads else 1 - coin for heads in coins])
      expected[count] += share * probability
  np.testing.assert_allclose(claim.count_chances(5), expected)
