"""Membership figures and the estimate from normal scores, by hand."""

import numpy as np
import pytest

from tff_fedemb.privacy.audit import membership
from tff_fedemb.privacy.audit import scores as scores_lib


def test_figures_by_hand():
  scores = scores_lib.Scores(
    np.array([1.0, 2.0, 3.0, 4.0]), np.array([0.0, 0.5, 2.0, 3.5])
  )
  found = membership.measure(
    scores, significance=0.05, false_positive_rates=(0.0, 0.25, 0.5)
  )
  # Others below each member: 2, 2.5 (a tie), 3, 4 of 4.
  assert found.auc == pytest.approx((2 + 2.5 + 3 + 4) / 16)
  assert found.auc_interval[0] < found.auc <= found.auc_interval[1]
  assert [point.true_positive_rate for point in found.points] == [
    *(0.25, 0.5, 1.0)
  ]
  assert [point.false_positive_rate for point in found.points] == [
    *(0.0, 0.25, 0.5)
  ]
  # One of four: Clopper and Pearson's printed interval.
  assert found.points[0].true_positive_interval == pytest.approx(
    (0.00631, 0.80588), abs=1e-5
  )
  assert found.points[0].false_positive_interval[0] == 0.0


def test_intervals_of_the_area_cover_it():
  rng = np.random.default_rng(4)
  area = 0.76025  # Phi(1 / sqrt(2)).
  covered = 0
  for _ in range(200):
    scores = scores_lib.Scores(rng.normal(1, 1, 80), rng.normal(0, 1, 60))
    low, high = membership.measure(scores, significance=0.1).auc_interval
    covered += low < area < high
  assert covered >= 163  # Binomial(200, 0.9) is below once in a million times.


def test_members_that_score_as_others_have_half_the_area():
  scores = scores_lib.Scores(np.zeros(30), np.zeros(30))
  found = membership.measure(scores, significance=0.05)
  assert found.auc == 0.5
  assert [point.true_positive_rate for point in found.points] == [0.0, 0.0]
