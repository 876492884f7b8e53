"""Tests of the Renyi divergences of random allocation."""

import math

import dp_accounting
import numpy as np
import pytest

from tff_fedemb.accounting import composition
from tff_fedemb.accounting import epsilon as epsilon_lib
from tff_fedemb.accounting import ledger as ledger_lib
from tff_fedemb.accounting import random_allocation
from tff_fedemb.accounting import random_allocation_rdp
from tff_fedemb.accounting import tuning
from tff_fedemb.participation import random_allocation as participation_lib

_event = participation_lib.RandomAllocationDpEvent
_ORDERS = np.array([1.1, 1.5, 2.0, 3.0, 4.5, 8.0])


@pytest.mark.parametrize("noises", [(0.7, 0.7), (2.0, 2.0), (1.5, 3.0)])
def test_two_rounds_by_integration(noises):
  numbers = np.arange(-30, 30, 0.05)
  weights = np.exp(-(numbers**2) / 2)
  weights /= weights.sum()
  one, other = (np.exp(numbers / z - 0.5 / z**2) for z in noises)
  ratios = (one[:, np.newaxis] + other) / 2
  exact = np.array(
    [
      [np.log(weights @ ratios**power @ weights) for power in (a, 1 - a)]
      for a in _ORDERS
    ]
  ).max(axis=1) / (_ORDERS - 1)
  found = random_allocation_rdp.divergences(
    _event(tuple((z, 1) for z in noises)), _ORDERS
  )
  whole = np.round(_ORDERS) == _ORDERS
  np.testing.assert_allclose(found[whole], exact[whole], rtol=1e-9)
  assert np.all(found >= exact)


def test_one_round_is_a_gaussian_mechanism():
  found = random_allocation_rdp.divergences(_event(((1.3, 1),)), [2, 3, 64])
  np.testing.assert_allclose(found, np.array([2, 3, 64]) / (2 * 1.3**2))


def test_one_round_of_a_pass_is_poisson_sampling():
  """Whoever is in the only round that ran was so with probability 1 / 30."""
  orders = [2.0, 3.0, 8.0, 40.0]
  sampled = dp_accounting.rdp.RdpAccountant(orders)
  gaussian = dp_accounting.GaussianDpEvent(1.1)
  sampled.compose(dp_accounting.PoissonSampledDpEvent(1 / 30, gaussian))
  event = _event(((1.1, 1), (math.inf, 29)))
  found = random_allocation_rdp.divergences(event, orders)
  np.testing.assert_allclose(found, sampled.rdp, rtol=1e-9)


@pytest.mark.parametrize("noise", [0.05, 0.4, 1.4, 8.0])
def test_epsilon_is_between_the_exact_one_and_that_of_known_rounds(noise):
  delta, events = 1e-5, [(_event(((noise, 30),)), 2)]
  exact = random_allocation.RandomAllocationAccountant()
  exact.compose(*events[0])
  low, bound, high = (
    epsilon_lib.epsilon_of(
      counts,
      delta,
      accountant=name,
      neighboring_relation=dp_accounting.NeighboringRelation.ADD_OR_REMOVE_ONE,
    )
    for name, counts in (
      ("allocation", events),
      ("rdp", events),
      ("rdp", [(dp_accounting.GaussianDpEvent(noise), 2)]),
    )
  )
  assert low < bound <= high


def test_tuning_rests_on_the_secret_draw():
  claim = participation_lib.RandomAllocation(20_000, 512)
  selection = tuning.RepeatAndSelect(4.0)
  trial, known = (
    ledger_lib.create_ledger(
      each, composition.Noise(1.4), 40, delta=1e-5, accountants=("rdp",)
    )
    for each in (claim, claim.with_known_schedule())
  )
  secret = selection.epsilon(trial)
  assert secret < 0.5 * selection.epsilon(known)
  report = tuning.create_report(selection, trial, chosen_by_others=True)
  assert report["epsilon"] == secret > report["epsilon_of_one_trial"]
  assert "exactly one of the 40 rounds of a pass" in report["statement"]
  assert "RandomAllocationDpEvent" in report["statement"]
