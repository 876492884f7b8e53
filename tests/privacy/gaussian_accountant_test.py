"""Tests of the exact accountant of Gaussian mechanisms."""

import dp_accounting
import pytest

from tff_fedemb.privacy import gaussian_accountant


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
