"""Membership figures and the estimate from normal scores, by hand."""

import math

import numpy as np
import pytest

from tff_fedemb import errors
from tff_fedemb.privacy.audit import gaussian_estimate
from tff_fedemb.privacy.audit import membership
from tff_fedemb.privacy.audit import registry
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


@pytest.mark.parametrize("mu", [0.5, 3.0])
def test_the_estimate_finds_the_epsilon_of_a_gaussian(mu):
  rng = np.random.default_rng(3)
  values = rng.normal(size=20_000)
  # Of exactly the mean and the variance that are to be fitted.
  values = (values - values.mean()) / values.std(ddof=1)
  scores = scores_lib.Scores(0.1 * values + 0.1 * mu, 0.1 * values)
  assert gaussian_estimate.estimate_epsilon(
    scores, delta=1e-5
  ) == pytest.approx(registry.epsilon_of_mu(mu, 1e-5), rel=1e-4)


def test_the_estimate_of_scores_that_tell_all():
  told = scores_lib.Scores(np.ones(9), np.zeros(9))
  assert gaussian_estimate.estimate_epsilon(told, delta=1e-5) == math.inf
  alike = scores_lib.Scores(np.ones(9), np.ones(9))
  assert gaussian_estimate.estimate_epsilon(alike, delta=1e-5) == 0.0


def test_infinite_scores_have_no_estimate():
  scores = scores_lib.Scores(np.array([0.0, math.inf]), np.zeros(9))
  with pytest.raises(errors.FieldError, match="be finite"):
    gaussian_estimate.estimate_epsilon(scores, delta=1e-5)
