"""Tests of populations and virtual clients' identifiers."""

import numpy as np
import pytest

from tff_fedemb.data import population


@pytest.mark.parametrize(
  "ids", [["a", "a"], ["a'b"], ["a\nb"], [""], ["f\udcfc"], []]
)
def test_bad_identifiers_are_refused(ids):
  with pytest.raises(ValueError, match="must be"):
    population.Population.from_ids(ids)


@pytest.mark.parametrize("number", [1, 3, 9])
def test_left_out_are_some_and_the_others_keep_their_order(number):
  ids = list("abcdefghij")
  users, left_out = population.Population.from_ids(ids).leave_out(number)
  found = [users.user_id(slot) for slot in range(len(users))]
  assert len(left_out) == number
  assert found == [i for i in ids if i not in left_out]
  # The same ones whenever and wherever.
  again, _ = population.Population.from_ids(ids).leave_out(number)
  assert again.client_id(range(len(again))) == users.client_id(
    range(len(users))
  )


def test_left_out_of_ten_million_are_spread_over_all():
  users, left_out = population.Population(10_000_000).leave_out(1_000)
  assert len(users) == 9_999_000
  assert users.user_id(len(users) - 1) >= "9999000"
  assert 4e6 < np.median([int(user) for user in left_out]) < 6e6


def test_a_digest_tells_populations_apart():
  ids = [["a", "b"], ["b", "a"], ["ab"], ["a", "b", "c"]]
  digests = [population.Population.from_ids(some).digest for some in ids]
  assert len(set(digests)) == 4
  assert population.Population(2, "ab".__getitem__).digest == digests[0]
  # The digest reads some of ten million users, evenly spread.
  assert len(population.Population(10_000_000).digest) == 64
