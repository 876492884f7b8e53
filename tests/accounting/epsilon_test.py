"""Tests of events and their epsilons: closed forms and known equivalences."""

import functools
import math

from absl import logging
import dp_accounting
import mpmath
import numpy as np
import pytest

from tff_fedemb.accounting import composition
from tff_fedemb.accounting import epsilon as epsilon_lib
from tff_fedemb.accounting import gaussian_accountant
from tff_fedemb.accounting import ledger as ledger_lib
from tff_fedemb.participation import fixed_size
from tff_fedemb.participation import min_separation
from tff_fedemb.participation import poisson

_ADD_OR_REMOVE = dp_accounting.NeighboringRelation.ADD_OR_REMOVE_ONE
_REPLACE = dp_accounting.NeighboringRelation.REPLACE_ONE
_GAUSSIAN = dp_accounting.GaussianDpEvent(1.0)
_NOISE = composition.Noise(1.0)


@functools.cache  # Tests share what takes half a second.
def _epsilon(
  participation, noise_multiplier, rounds, accountant="rdp", delta=1e-5
):
  noise = composition.Noise(noise_multiplier)
  ledger = ledger_lib.create_ledger(
    participation, noise, rounds, delta=delta, accountants=(accountant,)
  )
  return ledger.tightest_epsilon()


def test_replace_one_does_not_double_by_itself():
  """The reason for the division in `composed_events`."""
  one, other = (
    epsilon_lib.epsilon_of(
      [(_GAUSSIAN, 10)], 1e-5, accountant="rdp", neighboring_relation=relation
    )
    for relation in (_REPLACE, _ADD_OR_REMOVE)
  )
  assert one == other


def test_broken_accounting_is_not_epsilon_zero():
  class Broken(epsilon_lib.RdpAccountant):
    @property
    def rdp(self):
      return np.full(len(epsilon_lib.RDP_ORDERS), math.nan)

  with pytest.raises(ValueError, match="found NaN"):
    Broken(_ADD_OR_REMOVE).get_epsilon(1e-5)


def _sampled_delta(epsilon, probability, noise_multiplier):
  """Exact delta of one Poisson-sampled round: the densities' difference."""

  def tail(x):
    return 0.5 * math.erfc(x / noise_multiplier / math.sqrt(2))

  growth = math.expm1(epsilon)
  # Where the density with the user is exp(epsilon) times that without.
  x = noise_multiplier**2 * math.log1p(growth / probability) + 0.5
  return probability * (tail(x - 1) - tail(x)) - growth * tail(x)


@pytest.mark.parametrize("accountant", ["rdp", "pld"])
def test_a_divergence_lost_in_rounding_is_not_epsilon_zero(accountant):
  # RDP's orders 1.2 and 1.3 have a divergence of 0 by rounding.
  epsilon = _epsilon(poisson.Poisson(10**8, 100.0), 8.0, 10, accountant, 1e-10)
  # One of the ten rounds alone is not (0, delta)-private.
  assert _sampled_delta(0.0, 1e-6, 8.0) == pytest.approx(4.98e-8, rel=1e-3)
  assert _sampled_delta(1e-7, 1e-6, 8.0) > 1e-10
  assert 1e-7 < epsilon < 0.05


@pytest.mark.parametrize("accountant", ["rdp", "gaussian"])
@pytest.mark.parametrize("noise_multiplier", [1e-6, 1e6])
def test_the_limits_of_noise_have_an_epsilon(accountant, noise_multiplier):
  claim = min_separation.MinSeparation(10, 1, min_separation=1)
  epsilon = _epsilon(claim, noise_multiplier, 10**9, accountant)
  assert 0 < epsilon < math.inf


def test_fixed_size_of_everybody_is_the_gaussian_at_half_the_noise():
  assert _epsilon(fixed_size.FixedSize(50, 50), 2.0, 3) == pytest.approx(
    _epsilon(poisson.Poisson(50, 50), 1.0, 3), rel=1e-12
  )


_POISSON = poisson.Poisson(1_000, 10)
_POISSON_GROUPS = poisson.Poisson(1_000, 10, users_per_client=2)
_FIXED_SIZE = fixed_size.FixedSize(1_000, 10)


def _round_event(noise, participation, **options):
  ((composed, count),) = composition.composed_events(
    [composition.Rounds(count=7, noise=noise)], participation, **options
  )
  assert count == (7 if noise.strategy is None else 1)
  return composed


def test_the_noise_is_divided_by_the_sensitivity_once():
  gaussian = dp_accounting.GaussianDpEvent
  poisson_event = dp_accounting.PoissonSampledDpEvent
  assert _round_event(_NOISE, _POISSON) == poisson_event(0.01, gaussian(1.0))
  assert _round_event(_NOISE, _POISSON_GROUPS) == poisson_event(
    0.01, gaussian(0.5)
  )
  for options, noise_multiplier in (
    ({}, 0.5),
    ({"sensitivity_in_clip_norms": 1}, 1.0),
  ):
    assert _round_event(
      _NOISE, _FIXED_SIZE, **options
    ) == dp_accounting.SampledWithoutReplacementDpEvent(
      1_000, 10, gaussian(noise_multiplier)
    )


@pytest.mark.parametrize("noise_multiplier", [0.5, 8.0, 1e5, 1e6])
@pytest.mark.parametrize("delta", [1e-5, 1e-7, 3.5e-7])
def test_delta_is_met_at_any_size_of_epsilon(noise_multiplier, delta):
  accountant = gaussian_accountant.GaussianAccountant()
  accountant.compose(dp_accounting.GaussianDpEvent(noise_multiplier))
  epsilon = accountant.get_epsilon(delta)
  assert accountant.get_delta(epsilon) <= delta
  if epsilon:
    # And by nothing less.
    assert accountant.get_delta(epsilon * (1 - 1e-6)) > delta


@pytest.mark.parametrize("noise_multiplier", [0.5, 4.0, 1e3])
@pytest.mark.parametrize("delta", [1e-12, 1e-18, 1e-100, 1e-250])
def test_the_gaussian_is_exact_at_any_delta(noise_multiplier, delta):
  epsilon = mpmath.mpf(gaussian_accountant.epsilon_of(noise_multiplier, delta))
  with mpmath.workdps(300):
    moved = 1 / mpmath.mpf(noise_multiplier)
    found = mpmath.ncdf(moved / 2 - epsilon / moved) - mpmath.exp(
      epsilon
    ) * mpmath.ncdf(-moved / 2 - epsilon / moved)
    assert abs(float(found / mpmath.mpf(delta)) - 1) < 1e-8


def test_an_order_that_gives_no_bound_is_left_out_without_a_word(caplog):
  logging.warning("beside it")
  # The series of the lowest orders do not converge here.
  event = dp_accounting.PoissonSampledDpEvent(1 / 5, _GAUSSIAN)
  found = epsilon_lib.epsilon_of(
    [(event, 1)], 1e-3, accountant="rdp", neighboring_relation=_ADD_OR_REMOVE
  )
  assert found == pytest.approx(1.709, rel=1e-3)
  assert [record.getMessage() for record in caplog.records] == ["beside it"]
