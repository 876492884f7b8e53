"""Tests of what a claim allows any attacker, and of areas under curves."""

import math

import dp_accounting
import numpy as np
import pytest
from scipy import stats

from tff_fedemb.participation import fixed_size
from tff_fedemb.participation import poisson
from tff_fedemb.participation import random_allocation
from tff_fedemb.privacy import ledger as ledger_lib
from tff_fedemb.privacy.audit import registry
from tff_fedemb.privacy.audit import scores as scores_lib
from tff_fedemb.privacy.audit import trade_off

_DELTA = 1e-5
_REPEATS = 200
_SIGNIFICANCE = 0.05
# Two Gaussians so far apart cost epsilon 5.98 at this delta.
_MU = 1.307
# Rounds, their noise multiplier and sampling probability, at epsilon 5.98.
_ROUNDS, _NOISE, _PROBABILITY = 20, 1.2, 0.25


def _gaussian(noise_multiplier, rounds=1):
  event = dp_accounting.GaussianDpEvent(noise_multiplier)
  return trade_off.Curve(((event, rounds),))


_SAMPLED_EVENT = dp_accounting.PoissonSampledDpEvent(
  _PROBABILITY, dp_accounting.GaussianDpEvent(_NOISE)
)
_SAMPLED = trade_off.Curve(((_SAMPLED_EVENT, _ROUNDS),))


def _sampled_scores(rng, number):
  """Best scores of canaries: in, and out, of the sampled mechanism."""
  takes_part = rng.random([2, number, _ROUNDS]) < _PROBABILITY
  takes_part[1] = False
  seen = takes_part + _NOISE * rng.normal(size=takes_part.shape)
  ratios = np.exp((seen - 0.5) / _NOISE**2)
  scores = np.log(1 - _PROBABILITY + _PROBABILITY * ratios).sum(axis=2)
  return scores_lib.Scores(*scores)


def test_the_curve_of_a_gaussian_mechanism_is_known():
  curve = _gaussian(2.0, 9)
  rates = np.array([1e-3, 1e-2, 0.1, 0.5])
  # Nine rounds at 1 / 2 each: two Gaussians 3 / 2 apart.
  expected = stats.norm.cdf(stats.norm.ppf(rates) + 1.5)
  np.testing.assert_allclose(
    curve.true_positive_rates(rates), expected, rtol=3e-3
  )
  assert (curve.true_positive_rates(rates) >= expected).all()
  area = stats.norm.cdf(1.5 / math.sqrt(2))
  assert area <= curve.area < area + 1e-3
  # With twice the noise, half the distance.
  assert trade_off.with_noise(curve, 2.0).area == pytest.approx(
    stats.norm.cdf(0.75 / math.sqrt(2)), abs=1e-3
  )
  epsilon = registry.epsilon_of_mu(0.75, _DELTA)
  found = curve.epsilon_of_area(trade_off.with_noise(curve, 2.0).area, _DELTA)
  assert epsilon * 0.99 < found <= epsilon
  assert curve.epsilon_of_area(0.5, _DELTA) == 0.0


def test_the_curve_of_a_sampled_mechanism_bounds_the_best_attack():
  scores = _sampled_scores(np.random.default_rng(1), 100_000)
  curve = _SAMPLED
  rates = np.array([1e-3, 1e-2, 0.1])
  thresholds = np.quantile(scores.out_scores, 1 - rates)
  found = np.mean(scores.in_scores[:, np.newaxis] > thresholds, axis=0)
  allowed = curve.true_positive_rates(rates)
  # Five standard errors; the best attack comes near what is allowed.
  assert (found < allowed + 5 * np.sqrt(found / 100_000) + 2e-3).all()
  assert (found > 0.8 * allowed).all()


def test_the_curve_is_of_the_events_that_are_accounted_for():
  event = dp_accounting.GaussianDpEvent(1.0)
  curve, none = (
    trade_off.Curve.of(
      ledger_lib.Ledger(claim, delta=_DELTA).with_rounds(event, 5)
    )
    for claim in (poisson.Poisson(1000, 100), fixed_size.FixedSize(1000, 100))
  )
  sampled = dp_accounting.PoissonSampledDpEvent(0.1, event)
  assert curve == trade_off.Curve(((sampled, 5),))
  assert none is None


def test_the_curve_of_random_allocation_bounds_the_best_attack():
  # One of four rounds: the likelihood ratio is a mean of four.
  claim = random_allocation.RandomAllocation(1000, 250)
  ledger = ledger_lib.Ledger(claim, delta=_DELTA).with_rounds(
    dp_accounting.GaussianDpEvent(1.0), 4
  )
  curve = trade_off.Curve.of(ledger)
  seen = np.random.default_rng(3).normal(size=[2, 100_000, 4])
  seen[0, :, 2] += 1.0
  scores = scores_lib.Scores(*np.exp(seen - 0.5).mean(axis=2))
  area = trade_off.lower_area(scores, 0.5)
  assert area - 0.002 < curve.area < area + 0.01
  assert curve.epsilon_of_area(curve.area, _DELTA) == pytest.approx(
    ledger.epsilon(), rel=0.01
  )


@pytest.mark.parametrize("is_sampled", [False, True])
def test_exactly_the_claim_is_refuted_no_more_often_than_stated(is_sampled):
  rng = np.random.default_rng(2)
  curve = _SAMPLED if is_sampled else _gaussian(1 / _MU)
  allowed = curve.area
  bounds = []
  for _ in range(_REPEATS):
    if is_sampled:
      scores = _sampled_scores(rng, 1000)
    else:
      scores = scores_lib.Scores(
        rng.normal(_MU, size=1000), rng.normal(size=1000)
      )
    bounds.append(trade_off.lower_area(scores, _SIGNIFICANCE))
  # A larger area than the claim allows is a larger epsilon than claimed.
  assert sum(bound > allowed for bound in bounds) <= 16
  found = curve.epsilon_of_area(float(np.median(bounds)), _DELTA)
  assert 4.0 < found < 5.98


def test_areas_are_bounded_by_exact_probabilities():
  # All pairs in order: so likely by chance alone if the area were the bound.
  separate = scores_lib.Scores(np.arange(10.0, 30.0), np.arange(-50.0, 0.0))
  assert trade_off.lower_area(separate, 0.05) == pytest.approx(0.05 ** (1 / 20))
  alike = scores_lib.Scores(np.arange(20.0), np.arange(1.0, 21.0))
  assert trade_off.lower_area(alike, 0.05) == 0.0
  bound = registry.bound_epsilon(
    "area", separate, delta=_DELTA, significance=0.05
  )
  mu = math.sqrt(2) * stats.norm.ppf(bound["details"]["area_lower"])
  assert bound["epsilon_lower"] == pytest.approx(
    registry.epsilon_of_mu(mu, _DELTA), rel=0.01
  )
