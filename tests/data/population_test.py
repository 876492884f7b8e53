"""Tests of populations and virtual clients' identifiers."""

import numpy as np
import pytest

from tff_fedemb.data import population


def test_client_id_names_its_users():
  people = population.Population.from_ids(["ann", "bob", "cyd"])
  client_id = people.client_id(np.array([2, 0]))
  assert population.user_ids_of(client_id) == ["cyd", "ann"]
  assert len(people) == 3


def test_default_identifiers_are_slots():
  assert population.Population(5).client_ids(
    [np.array([4]), np.array([0, 1])]
  ) == ["4", "0\n1"]


@pytest.mark.parametrize("ids", [["a", "a"], ["a'b"], ["a\nb"], [""], []])
def test_bad_identifiers_are_refused(ids):
  with pytest.raises(ValueError, match="must be"):
    population.Population.from_ids(ids)
