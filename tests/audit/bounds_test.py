"""All methods: bounds that are bounds, with power, and what they refuse."""

import math

import dp_accounting
import numpy as np
import pytest
from scipy import stats

from tff_fedemb import errors
from tff_fedemb.accounting import composition
from tff_fedemb.accounting import ledger as ledger_lib
from tff_fedemb.audit import clopper_pearson
from tff_fedemb.audit import one_run
from tff_fedemb.audit import registry
from tff_fedemb.audit import scores as scores_lib
from tff_fedemb.audit import trade_off
from tff_fedemb.participation import fixed_size
from tff_fedemb.participation import poisson
from tff_fedemb.participation import random_allocation

_DELTA = 1e-5
_REPEATS = 200
_METHODS = sorted(registry.METHODS)
# They look for the noise that has such an area, or such scores, 200 times.
_LONG = (("area", 1.0), ("one_run", 1.0))


def _normal(rng, number, distance):
  """Scores of a Gaussian mechanism with noise multiplier 1 / distance."""
  return scores_lib.Scores(
    rng.normal(distance, size=number), rng.normal(size=number)
  )


def _most_failures(probability):
  """Failures of `_REPEATS` that chance explains but once in a million."""
  return stats.binom.ppf(1 - 1e-6, _REPEATS, probability)


@pytest.mark.parametrize(
  ("method", "distance"),
  [
    pytest.param(
      *(method, distance),
      marks=[pytest.mark.slow] if (method, distance) in _LONG else [],
    )
    for method in _METHODS
    for distance in (0.1, 1.0)
  ],
)
def test_two_gaussians_are_bounded_from_below(method, distance, monkeypatch):
  # Trying several numbers of guesses takes longer.
  monkeypatch.setattr(one_run, "_guesses_to_try", lambda number: [(50, 50)])
  rng = np.random.default_rng(5)
  truth = registry.epsilon_of_mu(distance, _DELTA)
  significance = 0.1
  bounds = [
    registry.bound_epsilon(
      method,
      _normal(rng, 200, distance),
      delta=_DELTA,
      significance=significance,
    )["epsilon_lower"]
    for _ in range(_REPEATS)
  ]
  assert sum(bound > truth for bound in bounds) <= _most_failures(significance)


@pytest.mark.parametrize(
  ("method", "share"),
  [
    ("clopper_pearson", 0.3),
    ("fdp_one_run", 0.45),
    ("gdp_clopper_pearson", 0.75),
    ("one_run", 0.35),
  ],
)
def test_many_canaries_show_a_good_part_of_the_truth(method, share):
  truth = registry.epsilon_of_mu(1.5, _DELTA)
  found = _bound(method, _normal(np.random.default_rng(6), 5_000, 1.5))
  assert share * truth < found["epsilon_lower"] < truth
  assert found["method"] == method
  assert (found["num_in"], found["num_out"]) == (5_000, 5_000)


def _bound(method, scores, delta=_DELTA):
  return registry.bound_epsilon(method, scores, delta=delta, significance=0.05)


@pytest.mark.parametrize("method", _METHODS)
def test_equal_scores_show_nothing(method):
  ties = scores_lib.Scores(np.ones(400), np.ones(400))
  assert _bound(method, ties)["epsilon_lower"] == 0.0


@pytest.mark.parametrize("method", ["area", "clopper_pearson", "one_run"])
def test_the_order_of_scores_makes_no_difference(method):
  rng = np.random.default_rng(7)
  scores = scores_lib.Scores(
    rng.integers(3, 9, 300).astype(float), rng.integers(0, 6, 300).astype(float)
  )
  turned = scores_lib.Scores(scores.in_scores[::-1], scores.out_scores[::-1])
  first = _bound(method, scores)
  assert first == _bound(method, turned)
  assert first["epsilon_lower"] > 0


# An area hardly sees what happens to one user in a hundred.
@pytest.mark.parametrize("method", sorted({*_METHODS} - {"area"}))
def test_delta_counts(method):
  # A mechanism that publishes a user with probability 0.01, and else nothing.
  rng = np.random.default_rng(8)
  published = (rng.random(20_000) < 0.01).astype(float)
  scores = scores_lib.Scores(published, np.zeros(20_000))
  # A whole Gaussian curve refutes this where a single point of it may not.
  if method not in registry.OF_MU:
    assert _bound(method, scores, 0.02)["epsilon_lower"] == 0.0
  assert _bound(method, scores, 1e-6)["epsilon_lower"] > 1.5


@pytest.mark.parametrize(
  ("method", "delta", "number", "message"),
  [
    # A Gaussian has no epsilon there.
    ("fdp_one_run", 0.0, 9, "delta must be"),
    # Too few to halve.
    ("clopper_pearson", 0.0, 3, "be at least 4, for two halves, found 3"),
  ],
)
def test_what_bounds_nothing_is_refused(method, delta, number, message):
  scores = scores_lib.Scores(np.zeros(number), np.zeros(number))
  with pytest.raises(errors.FieldError, match=message):
    _bound(method, scores, delta)


@pytest.mark.parametrize("method", ["one_run", "fdp_one_run"])
def test_coins_that_are_not_fair_are_refused(method):
  # Guessing "in" is right nine times of ten.
  scores = scores_lib.Scores(np.zeros(90), np.zeros(10))
  with pytest.raises(errors.FieldError, match=r"half of the 100 .* found 90"):
    _bound(method, scores, _DELTA)


def test_coins_are_true_or_false():
  with pytest.raises(errors.FieldError, match="be true or false"):
    scores_lib.Scores.of_coins(np.zeros(4), np.array([0, 1, 1, 0]))


def test_no_noise_allows_more_than_the_draw_of_users():
  # In 90 % of the runs, nobody is drawn who could be told apart.
  event = dp_accounting.PoissonSampledDpEvent(
    0.1, dp_accounting.GaussianDpEvent(1.0)
  )
  assert trade_off.Curve(((event, 1),)).epsilon_of_area(0.7, _DELTA) > 40


def test_limits_of_a_probability_by_hand():
  # None of n at probability p: (1 - p)^n = 0.05; all of them: p^n = 0.05.
  assert clopper_pearson.upper_limit(0, 10, 0.05) == pytest.approx(
    1 - 0.05**0.1
  )
  assert clopper_pearson.lower_limit(10, 10, 0.05) == pytest.approx(0.05**0.1)
  assert clopper_pearson.lower_limit(0, 10, 0.05) == 0.0
  assert clopper_pearson.upper_limit(10, 10, 0.05) == 1.0
  # Clopper and Pearson: P[Binomial(20, limit) >= 7] = 0.025.
  limit = float(clopper_pearson.lower_limit(7, 20, 0.025))
  assert stats.binom.sf(6, 20, limit) == pytest.approx(0.025)


def test_clopper_pearson_by_hand():
  scores = scores_lib.Scores(np.ones(40), np.zeros(60))
  found, _ = clopper_pearson.bound(scores, delta=0.01, significance=0.1)
  # Halves of 20 and 30, which are told apart without a mistake.
  true_positives, false_positives = 0.05 ** (1 / 20), 1 - 0.05 ** (1 / 30)
  true_negatives, false_negatives = 0.05 ** (1 / 30), 1 - 0.05 ** (1 / 20)
  assert found == pytest.approx(
    max(
      math.log((true_positives - 0.01) / false_positives),
      math.log((true_negatives - 0.01) / false_negatives),
    )
  )


def test_one_run_by_hand():
  # Without delta: all of 10 right guesses have chance (e / (1 + e))^10.
  assert one_run.p_value(
    correct=10, guesses=10, num_canaries=40, epsilon=1.0, delta=0.0
  ) == pytest.approx((math.e / (1 + math.e)) ** 10)
  # With: 2 m delta max_i P[v > W >= v - i] / i, here the 10 ways to miss one
  # of 10 at epsilon 0, more than ((10 + 45) / 2, ...) / 2^10 of further ones?
  shares = [
    sum(math.comb(10, 10 - j) for j in range(1, i + 1)) / i
    for i in range(1, 11)
  ]
  assert one_run.p_value(
    correct=10, guesses=10, num_canaries=40, epsilon=0.0, delta=1e-3
  ) == pytest.approx((1 + 2 * 40 * 1e-3 * max(shares)) / 2**10)


def test_fdp_one_run_agrees_with_what_a_gaussian_does_to_one_canary():
  # A single guess is right with at most Phi(mu / 2).
  chance = float(stats.norm.cdf(0.4))

  def is_refuted(level):
    return one_run.is_refuted(
      correct=1, guesses=1, num_canaries=1, mu=0.8, level=level
    )

  assert is_refuted(chance + 1e-6)
  assert not is_refuted(chance - 1e-6)


def test_rates_and_area_by_hand():
  scores = scores_lib.Scores(
    np.array([1.0, 2.0, 3.0, 4.0]), np.array([0.0, 0.5, 2.0, 3.5])
  )
  # Others below each member: 2, 2.5 (a tie), 3, 4 of 4.
  assert scores.area == pytest.approx((2 + 2.5 + 3 + 4) / 16)
  # Members above all others, all but one, all but two.
  assert scores.true_positive_rates([0.0, 0.25, 0.5]) == [0.25, 0.25, 0.5]
  ties = scores_lib.Scores(np.zeros(30), np.zeros(30))
  assert ties.area == 0.5
  assert ties.true_positive_rates([0.01]) == [0.0]


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


def _ledger(claim, rounds):
  noise = composition.Noise(1.0)
  return ledger_lib.create_ledger(claim, noise, rounds, delta=_DELTA)


def test_the_curve_is_of_the_events_that_are_accounted_for():
  curve, none = (
    trade_off.Curve.of(_ledger(claim, 5))
    for claim in (poisson.Poisson(1000, 100), fixed_size.FixedSize(1000, 100))
  )
  event = dp_accounting.GaussianDpEvent(1.0)
  sampled = dp_accounting.PoissonSampledDpEvent(0.1, event)
  assert curve == trade_off.Curve(((sampled, 5),))
  assert none is None


def test_the_curve_of_random_allocation_bounds_the_best_attack():
  # One of four rounds: the likelihood ratio is a mean of four.
  claim = random_allocation.RandomAllocation(1000, 250)
  ledger = _ledger(claim, 4)
  curve = trade_off.Curve.of(ledger)
  seen = np.random.default_rng(3).normal(size=[2, 100_000, 4])
  seen[0, :, 2] += 1.0
  scores = scores_lib.Scores(*np.exp(seen - 0.5).mean(axis=2))
  area = trade_off.lower_area(scores, 0.5)
  assert area - 0.002 < curve.area < area + 0.01
  assert curve.epsilon_of_area(curve.area, _DELTA) == pytest.approx(
    ledger.tightest_epsilon(), rel=0.01
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
  # Only with the curve of the claim is it no Gaussian's.
  with_curve = registry.bound_epsilon(
    "area", separate, delta=_DELTA, significance=0.05, curve=_gaussian(1 / _MU)
  )
  claim = "the claim is that of a Gaussian mechanism as a whole"
  for found, is_told in ((bound, True), (with_curve, False)):
    assert (claim in found["assumes"]) == is_told
