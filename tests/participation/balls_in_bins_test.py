"""Tests of balls in bins: who takes part, and what may be claimed."""

import numpy as np

from tests.participation import draws
from tff_fedemb.participation import balls_in_bins

_CLAIM = balls_in_bins.BallsInBins(1_000, 100)


def test_everybody_is_in_the_same_round_of_every_pass():
  places = draws.places_in_passes(_CLAIM, 3)
  assert np.all(places == places[0])


def test_some_stay_out_where_bins_are_more_than_a_round_takes():
  claim = balls_in_bins.BallsInBins(1_000, 95)
  assert (claim.period, claim.sampling_probability) == (10, 0.95)
  count = sum(len(clients) for clients in draws.draw(claim, 100))
  assert abs(count - 9_500) < 5 * np.sqrt(9_500 * 0.05)


def test_what_is_claimed():
  assert _CLAIM.is_sampled
  assert _CLAIM.is_drawn_once
  assert _CLAIM.accountants == ("monte_carlo", "allocation")
  assert _CLAIM.participations(35) == 4
  words = "slots, the number of bins and the probability are public"
  assert _CLAIM.neighboring_relation_in_words.endswith(words)
  assert "one of 10 bins for the whole run" in _CLAIM.sampling
  assert "by the secret of who is in which bin" in _CLAIM.sampling
  larger = _CLAIM.resized(num_users=9_000, users_per_round=200)
  assert larger.period == 45
  assert _CLAIM.for_bands(3) == _CLAIM
  assert not _CLAIM.with_known_schedule(4).is_drawn_once
  # A single bin is no secret.
  assert balls_in_bins.BallsInBins(1_000, 501).period == 1
