"""Tests of the number of trials, and of what choosing the best costs."""

import functools
import json
import math

import dp_accounting
import numpy as np
import pytest
from scipy import stats

from tff_fedemb.accounting import composition
from tff_fedemb.accounting import ledger as ledger_lib
from tff_fedemb.accounting import tuning
from tff_fedemb.participation import fixed_size
from tff_fedemb.participation import min_separation
from tff_fedemb.participation import poisson

_DELTA = 1e-6
_POISSON = poisson.Poisson(100_000, 100.0)
_FIXED_SIZE = fixed_size.FixedSize(100_000, 100, users_per_client=4)
_SHAPES = (0, 0.5, 1, 5, math.inf)

# Chance that a right sampler fails, per check of draws.
_FALSE_ALARM_RATE = 1e-6
_DRAWS = 1_200


def _mean(shape, success):
  """Papernot and Steinke 2022, definition 1."""
  if shape == math.inf:
    return success
  if shape == 0:
    return (1 / success - 1) / math.log(1 / success)
  return shape * (1 - success) / (success * (1 - success**shape))


def _probabilities(shape, success, most):
  """The same definition: P[K = 1], ..., P[K = most]."""
  k = np.arange(1, most + 1)
  if shape == math.inf:
    return stats.poisson.pmf(k, success)
  if shape == 0:
    return (1 - success) ** k / k / math.log(1 / success)
  factors = (1 - success) * (k - 1 + shape) / k
  return np.cumprod(factors) / (success**-shape - 1)


@pytest.mark.parametrize(
  ("shape", "success"),
  # For Poisson (shape infinity), the second number is the mean.
  [(0, 0.1), (0.5, 0.0625), (5, 0.4), (math.inf, 4.0)],
)
def test_number_of_trials_has_the_probabilities_accounted_for(shape, success):
  selection = tuning.RepeatAndSelect(_mean(shape, success), shape)
  generator = np.random.default_rng(7)
  draws = [selection.draw_num_trials(generator) for _ in range(_DRAWS)]
  probabilities = _probabilities(shape, success, 8)
  none = math.exp(-success) if shape == math.inf else 0.0
  expected = _DRAWS * np.array([*probabilities, 1 - none - probabilities.sum()])
  assert expected.min() > 5
  counts = np.bincount(np.minimum(draws, 9), minlength=10)
  if none:
    expected = np.append(_DRAWS * none, expected)
  else:
    assert counts[0] == 0
    counts = counts[1:]
  assert stats.chisquare(counts, expected).pvalue > _FALSE_ALARM_RATE


def test_mean_of_one_is_a_single_trial():
  selection = tuning.RepeatAndSelect(1, 0.5)
  generator = np.random.default_rng(0)
  assert {selection.draw_num_trials(generator) for _ in range(100)} == {1}


def _trial(claim, noise_multiplier=1.0, rounds=100, delta=_DELTA):
  noise = composition.Noise(noise_multiplier)
  return ledger_lib.create_ledger(
    claim, noise, rounds, delta=delta, accountants=("rdp",)
  )


@functools.cache
def _epsilon(mean, shape, claim=_POISSON):
  return tuning.RepeatAndSelect(mean, shape).epsilon(_trial(claim))


@pytest.mark.parametrize("shape", [0, 1, math.inf])
def test_epsilon_is_that_of_dp_accounting(shape):
  """The reference has 100 rounds and replacement, by `dp_accounting` alone."""
  accountant = dp_accounting.rdp.RdpAccountant(
    neighboring_relation=dp_accounting.NeighboringRelation.REPLACE_ONE
  )
  # Twice the clip norm: half the noise multiplier.
  one_round = dp_accounting.SampledWithoutReplacementDpEvent(
    100_000, 100, dp_accounting.GaussianDpEvent(0.5)
  )
  accountant.compose(
    dp_accounting.dp_event.RepeatAndSelectDpEvent(
      dp_accounting.SelfComposedDpEvent(one_round, 100), 10.0, shape
    )
  )
  found = _epsilon(10, shape, _FIXED_SIZE)
  assert found == pytest.approx(accountant.get_epsilon(_DELTA), rel=1e-12)


def test_geometric_epsilon_by_the_theorem():
  """Theorem 2 of the paper for shape 1, of a plain Gaussian, on a fine grid.

  All users in every one of 4 rounds at z = 4: rho = 4 / (2 x 4^2) = 1 / 8, and
  with minimum separation 1 nothing else is left of the accounting. Replacing
  one of k > 1 users doubles the sensitivity: rho = 1 / 2.
  """
  participation = min_separation.MinSeparation(
    10, 10, users_per_client=2, min_separation=1
  )
  mean, rho, delta = 10.0, 0.5, 1e-5
  trial, undoubled = (_trial(participation, z, 4, delta) for z in (4.0, 8.0))
  orders = np.linspace(1.01, 60, 20_000)
  constant = 2 * np.min(
    (1 - 1 / orders) * rho * orders + math.log(mean) / orders
  )
  rdp = rho * orders + constant + math.log(mean) / (orders - 1)
  expected = np.min(
    rdp
    + np.log1p(-1 / orders)
    - (np.log(orders) + math.log(delta)) / (orders - 1)
  )
  selection = tuning.RepeatAndSelect(mean, 1)
  found = selection.epsilon(trial)
  assert found == pytest.approx(expected, rel=2e-3)
  assert found >= expected - 1e-6
  # Delta = C: rho is a quarter of that, and the cost is smaller.
  smaller = selection.epsilon(trial, sensitivity_in_clip_norms=1.0)
  assert smaller == pytest.approx(selection.epsilon(undoubled), rel=1e-12)
  assert smaller < 0.6 * found


def test_more_trials_and_larger_shapes_cost_more():
  of_one_trial = _trial(_POISSON).tightest_epsilon()
  for shape in _SHAPES:
    epsilons = [_epsilon(mean, shape) for mean in (1, 2, 10, 1_000)]
    assert of_one_trial <= epsilons[0] < 1.05 * of_one_trial
    assert epsilons == sorted(set(epsilons))
  of_shapes = [_epsilon(10, shape) for shape in (0, 0.5, 1, 5)]
  assert of_shapes == sorted(set(of_shapes))


def test_round_without_noise_costs_everything():
  trial = _trial(_POISSON).with_rounds(composition.Noise(0.0))
  selection = tuning.RepeatAndSelect(10, 1)
  assert selection.epsilon(trial) == math.inf
  report = tuning.create_report(selection, trial, chosen_by_others=True)
  assert any("nothing is protected" in text for text in report["warnings"])
  assert report["epsilon"] == "inf"
  assert report["unit_is_virtual_client_epsilon"] is None


@pytest.mark.parametrize("values", [(0.9, 1), (math.inf, 1), (3, -0.5)])
def test_values_out_of_range(values):
  with pytest.raises(ValueError, match=r"(mean|shape) must be"):
    tuning.RepeatAndSelect(*values)


def test_report_has_both_readings_and_all_assumptions():
  selection = tuning.RepeatAndSelect(10, math.inf)
  report = tuning.create_report(
    selection, _trial(_FIXED_SIZE), chosen_by_others=True
  )
  epsilon, of_one_trial = report["epsilon"], report["epsilon_of_one_trial"]
  assert epsilon == _epsilon(10, math.inf, _FIXED_SIZE)
  assert 0 < report["unit_is_virtual_client_epsilon"] < epsilon
  assert of_one_trial < epsilon
  for text in (f"{epsilon:.4g}", f"{of_one_trial:.4g}", *tuning.ASSUMPTIONS):
    assert text in report["statement"]
  assert json.loads(json.dumps(report, allow_nan=False)) == report


def test_choice_without_noise_costs_everything_where_rounds_cost_nothing():
  trial = _trial(_FIXED_SIZE, 1e6, rounds=2, delta=1e-2)
  selection = tuning.RepeatAndSelect(2.0)
  free = tuning.create_report(selection, trial, chosen_by_others=True)
  assert free["epsilon"] == free["unit_is_virtual_client_epsilon"] == 0
  report = tuning.create_report(selection, trial, chosen_by_others=False)
  assert report["epsilon"] == "inf"
  assert report["unit_is_virtual_client_epsilon"] == "inf"
