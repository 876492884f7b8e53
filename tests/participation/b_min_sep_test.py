"""Tests of b-min-sep sampling: who takes part, and what may be claimed."""

import numpy as np
import pytest

from tests.participation import draws
from tff_fedemb.participation import b_min_sep

_CLAIM = b_min_sep.BMinSep(1_000, 60, min_separation=5)


def _taken(claim, rounds):
  """Who is in which round, `[rounds, users]`."""
  taken = np.zeros((rounds, claim.num_users), int)
  for number, clients in enumerate(draws.draw(claim, rounds)):
    taken[number, draws.users(clients)] = 1
  return taken


def test_every_round_has_its_share_and_nobody_comes_back_too_soon():
  claim = b_min_sep.BMinSep(40_000, 4_000, min_separation=4)
  assert claim.coin_probability == pytest.approx(1 / 7)
  taken = _taken(claim, 30)
  # Every round, the first too, is within five deviations of sqrt(3,600).
  assert np.all(np.abs(taken.sum(axis=1) - 4_000) < 300)
  windows = np.lib.stride_tricks.sliding_window_view(taken, 4, axis=0)
  assert windows.sum(axis=-1).max() == 1
  # Four rounds later a coin decides.
  again = (taken[4:] & taken[:-4]).sum() / taken[:-4].sum()
  assert again == pytest.approx(1 / 7, abs=5 * np.sqrt(0.13 / 104_000))


def test_at_the_largest_separation_everybody_keeps_their_place():
  claim = b_min_sep.BMinSep(600, 100, min_separation=6)
  assert claim.coin_probability == 1.0
  taken = _taken(claim, 18)
  np.testing.assert_array_equal(taken[:6], taken[6:12])
  np.testing.assert_array_equal(taken[:6].sum(axis=0), 1)


def test_a_round_does_not_depend_on_what_was_asked_before():
  rounds = [draws.users(c).tolist() for c in draws.draw(_CLAIM, 20)]
  for number in (19, 3, 2, 17, 17, 13, 0):
    assert draws.users(_CLAIM.sample(number, key=5)).tolist() == rounds[number]
    _CLAIM.sample(number, key=6)


def test_what_is_claimed():
  assert _CLAIM.is_sampled
  assert _CLAIM.is_mixture
  assert not _CLAIM.is_drawn_once
  assert _CLAIM.accountants == ("monte_carlo",)
  assert _CLAIM.participations(12) == 3
  assert _CLAIM.for_bands(3).min_separation == 3
  assert "by a coin of probability 0.07895" in _CLAIM.sampling
  assert not _CLAIM.with_known_schedule(3).is_mixture
