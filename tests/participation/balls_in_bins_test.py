"""Tests of balls in bins: who takes part, and what may be claimed."""

import json

import numpy as np
import pytest

from tests.data import traces
from tff_fedemb import errors
from tff_fedemb.participation import balls_in_bins
from tff_fedemb.participation import cyclic_poisson
from tff_fedemb.participation import participation
from tff_fedemb.participation import poisson
from tff_fedemb.participation import registry

_CLAIM = balls_in_bins.BallsInBins(1_000, 100)


def _draw(claim, rounds, key=5):
  return [claim.sample(r, key=key) for r in range(rounds)]


def test_everybody_is_once_in_every_pass():
  rounds = [np.concatenate(clients) for clients in _draw(_CLAIM, 30)]
  for first in (0, 10, 20):
    users = np.concatenate(rounds[first : first + 10])
    assert sorted(users) == list(range(1_000))
  # In the same round of it.
  for earlier, later in zip(rounds, rounds[10:], strict=False):
    assert earlier.tolist() == later.tolist()
  sizes = [users.size for users in rounds[:10]]
  # Binomial, not equal: five deviations of sqrt(90).
  assert len(set(sizes)) > 1
  assert all(abs(size - 100) < 48 for size in sizes)


def test_some_stay_out_where_bins_are_more_than_a_round_takes():
  claim = balls_in_bins.BallsInBins(1_000, 95)
  assert (claim.period, claim.sampling_probability) == (10, 0.95)
  count = sum(len(clients) for clients in _draw(claim, 100))
  assert abs(count - 9_500) < 5 * np.sqrt(9_500 * 0.05)
  # They are drawn as by cyclic Poisson sampling.
  other = cyclic_poisson.CyclicPoisson(1_000, 95, period=10)
  for clients, others in zip(_draw(claim, 3), _draw(other, 3), strict=True):
    assert np.concatenate(clients).tolist() == np.concatenate(others).tolist()


def test_what_is_claimed():
  assert _CLAIM.is_sampled
  assert _CLAIM.is_drawn_once
  assert _CLAIM.accountants == ("monte_carlo", "allocation")
  assert _CLAIM.participations(35) == 4
  assert _CLAIM.neighboring_relation_in_words == (
    "a user's slot stays empty; the number of slots, the number of bins and the"
    " probability are public"
  )
  assert "one of 10 bins for the whole run" in _CLAIM.sampling
  assert "by the secret of who is in which bin" in _CLAIM.sampling
  values = json.loads(json.dumps(registry.to_json(_CLAIM)))
  assert registry.from_json(values) == _CLAIM
  larger = _CLAIM.resized(num_users=9_000, users_per_round=200)
  assert larger.period == 45
  assert _CLAIM.for_bands(3) == _CLAIM
  known = _CLAIM.with_known_schedule(4)
  assert not known.is_sampled
  assert not known.is_drawn_once
  assert known.accountants == ("rdp", "gaussian")
  assert "none: who is drawn when" in known.sampling
  assert known.with_secret_schedule() == _CLAIM


def test_bins_are_as_many_as_rounds_of_a_pass():
  with pytest.raises(
    errors.FieldError, match=r"period must be num_users / .* rounded down, 10"
  ):
    balls_in_bins.BallsInBins(1_000, 100, period=9)
  # A single bin is no secret.
  assert balls_in_bins.BallsInBins(1_000, 501).period == 1


@pytest.mark.parametrize(
  ("num_users", "users_per_round", "users_per_client"),
  [(1_000, 100, 1), (200, 60, 10), (12, 5, 1), (10, 5, 1), (300, 3, 1)],
)
def test_honest_runs_are_not_refused(
  num_users, users_per_round, users_per_client
):
  claim = balls_in_bins.BallsInBins(
    num_users, users_per_round, users_per_client=users_per_client
  )
  for seed in range(12):
    rounds = _draw(claim, 1 + 5 * seed, key=seed)
    traces.check(claim, rounds)
    traces.check(claim.with_known_schedule(), rounds)


def _same_sizes():
  order = np.random.default_rng(1).permutation(1_000).reshape(10, 100)
  return [[order[n % 10][i : i + 1] for i in range(100)] for n in range(30)]


@pytest.mark.parametrize(
  ("create_rounds", "message"),
  [
    (
      lambda: _draw(poisson.Poisson(1_000, 100), 30),
      "a user is in rounds of one block of 10 alone; in the trace user",
    ),
    (
      lambda: _draw(cyclic_poisson.CyclicPoisson(1_000, 100, period=5), 30),
      "a user is in rounds of one block of 10 alone; in the trace user",
    ),
    (
      lambda: _draw(cyclic_poisson.CyclicPoisson(1_000, 50, period=10), 30),
      "too far from that to be chance",
    ),
    (_same_sizes, "10 bins in the trace have exactly 100 users"),
  ],
)
def test_a_trace_that_refutes_the_claim(create_rounds, message):
  with pytest.raises(participation.ClaimError, match=message):
    traces.check(_CLAIM, create_rounds())
