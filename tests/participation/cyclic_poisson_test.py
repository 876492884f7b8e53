"""Tests of cyclic Poisson sampling: its blocks, its coins and its claims."""

import math

import dp_accounting
import numpy as np

from tests.participation import draws
from tff_fedemb.participation import cyclic_poisson

_CLAIM = cyclic_poisson.CyclicPoisson(1_000, 50, period=4)


def test_what_is_claimed():
  assert _CLAIM.sampling_probability == 0.2
  assert _CLAIM.min_separation == 4
  # Rounds 0, 4, 8 of the first block.
  assert [_CLAIM.participations(n) for n in (0, 1, 4, 5, 9)] == [0, 1, 1, 2, 3]
  event = dp_accounting.GaussianDpEvent(1.0)
  assert _CLAIM.sampled_event(event) == dp_accounting.PoissonSampledDpEvent(
    0.2, event
  )
  words = "the number of slots, the probability and the period are public"
  assert _CLAIM.neighboring_relation_in_words.endswith(words)
  assert _CLAIM.accountants == ("rdp", "pld")
  assert "one of 4 blocks for the whole run" in _CLAIM.sampling
  assert "with probability 0.2, 50 expected" in _CLAIM.sampling
  larger = _CLAIM.resized(num_users=8_000, users_per_round=200)
  assert (larger.period, larger.sampling_probability) == (4, 0.1)
  assert _CLAIM.for_bands(5).period == 5


def test_every_user_is_in_the_rounds_of_one_block():
  rounds = list(map(draws.users, draws.draw(_CLAIM, 400)))
  seen = [np.unique(np.concatenate(rounds[block::4])) for block in range(4)]
  # With 100 rounds of probability 0.2 nobody is missing.
  assert sorted(np.concatenate(seen)) == list(range(1_000))
  # Binomial(1,000, 1 / 4), and (1,000, 0.05) in a round: five deviations.
  blocks = np.array(list(map(len, seen)))
  sizes = np.array(list(map(len, rounds)))
  assert np.all(np.abs(blocks - 250) < 5 * math.sqrt(187.5))
  assert np.all(np.abs(sizes - 50) < 5 * math.sqrt(47.5))
  # Users are in a fifth of the 100 rounds of their block.
  counts = np.bincount(np.concatenate(rounds), minlength=1_000)
  assert abs(counts.mean() - 20) < 5 * math.sqrt(16 / 1_000)
  assert abs(counts.var() - 16) < 5 * 16 * math.sqrt(2 / 1_000)
  # Blocks are drawn from the key.
  others = list(map(draws.users, draws.draw(_CLAIM, 400, key=6)))
  assert set(np.concatenate(others[::4])) != set(seen[0])
