"""Tests of rates, their bounds and thresholds."""

import numpy as np
import pytest
from scipy import stats

from tff_fedemb.evaluation import rates


def test_the_opposite_of_a_rate():
  found = rates.Rate(0.25, 0.125, 0.5).complement()
  assert found == rates.Rate(0.75, 0.5, 0.875)


def test_bound_is_where_so_few_hits_would_be_too_unlikely():
  bound = rates.bound_rate(0.1, 20, 0.95)
  # 2 of 20 or fewer have probability 1 - 0.95 there.
  assert stats.binom.cdf(2, 20, bound) == pytest.approx(0.05)


@pytest.mark.parametrize(
  ("rate", "expected"),
  [(0.05, None), (0.1, 0.9), (0.25, 0.9), (0.3, 0.5), (1.0, 0.4)],
)
def test_values_at_a_threshold_are_accepted_together(rate, expected):
  values = np.array([0.9, 0.7, 0.7, 0.5, 0.4])
  accepted = np.array([0.1, 0.2, 0.3, 0.3, 0.4])
  assert rates.find_threshold(values, accepted, rate) == expected


def test_counting_values_below_a_threshold():
  values = np.array([0.9, 0.7, 0.7, 0.5])
  assert rates.count_below(values, 0.7, side="left") == 1
  assert rates.count_below(values, 0.7, side="right") == 3
