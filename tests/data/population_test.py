"""Tests of populations and virtual clients' identifiers."""

import numpy as np
import pytest

from tff_fedemb.data import population


def test_default_identifiers_are_slots():
  assert population.Population(5).client_ids(
    [np.array([4]), np.array([0, 1])]
  ) == ["4", "0\n1"]


@pytest.mark.parametrize("ids", [["a", "a"], ["a'b"], ["a\nb"], [""], []])
def test_bad_identifiers_are_refused(ids):
  with pytest.raises(ValueError, match="must be"):
    population.Population.from_ids(ids)
