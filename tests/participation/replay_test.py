"""Tests of draws that are made once more."""

import functools

import numpy as np
import pytest

from tff_fedemb.data import participation_trace
from tff_fedemb.participation import participation
from tff_fedemb.participation import registry
from tff_fedemb.participation import replay

_KEY = 3


def _draw(claim):
  return [
    participation_trace.RecordedRound.of(r, claim.sample(r, key=_KEY))
    for r in range(12)
  ]


def _check(claim, rounds, key):
  draw = functools.partial(claim.sample, key=key)
  replay.check_draw(draw, rounds, source="it draws from the key")


@pytest.mark.parametrize(
  ("name", "options"),
  [
    ("poisson", {}),
    ("fixed_size", {}),
    ("min_separation", {}),
    ("cyclic_poisson", {"period": 3}),
    ("random_allocation", {"period": 3}),
    ("b_min_sep", {"min_separation": 3}),
    ("balls_in_bins", {}),
  ],
)
@pytest.mark.parametrize("users_per_client", [1, 4])
def test_what_was_drawn_and_nothing_else(name, options, users_per_client):
  claim = registry.create_participation(
    name,
    num_users=60,
    users_per_round=12,
    users_per_client=users_per_client,
    **options,
  )
  rounds = _draw(claim)
  _check(claim, rounds, _KEY)
  with pytest.raises(participation.ClaimError, match="round 0 of the trace"):
    _check(claim, rounds, _KEY + 1)
  clients = claim.sample(5, key=_KEY)
  swapped = [client.copy() for client in clients]
  swapped[0][0] = np.setdiff1d(np.arange(60), np.concatenate(clients))[0]
  rounds[5] = participation_trace.RecordedRound.of(5, swapped)
  with pytest.raises(participation.ClaimError, match="round 5 of the trace"):
    _check(claim, rounds, _KEY)


def test_groups_are_compared():
  claim = registry.create_participation(
    "fixed_size", num_users=60, users_per_round=12, users_per_client=4
  )
  rounds = _draw(claim)
  clients = [client.copy() for client in claim.sample(5, key=_KEY)]
  clients[0][0], clients[1][0] = clients[1][0], clients[0][0]
  rounds[5] = participation_trace.RecordedRound.of(5, clients)
  with pytest.raises(participation.ClaimError, match="others, 12 in 3"):
    _check(claim, rounds, _KEY)
