"""Tests of the ranges of arguments."""

import pytest

from tff_fedemb import checks


@pytest.mark.parametrize("value", [0, 0.0, 1e-6, 1.28, 1e6])
def test_noise_multipliers(value):
  checks.check_noise_multiplier(value)


@pytest.mark.parametrize("value", [-1.0, 1e-200, 9e-7, 1.1e6, 1e300])
def test_noise_multipliers_out_of_range(value):
  with pytest.raises(
    ValueError,
    match=r"noise_multiplier must be 0 or in \[1e-06, 1e\+06\], found",
  ):
    checks.check_noise_multiplier(value)


def test_number_of_rounds():
  assert checks.check_rounds(10**9, minimum=1) == 10**9
  with pytest.raises(ValueError, match="rounds must be at most 1,000,000,000"):
    checks.check_rounds(10**23, minimum=1)
