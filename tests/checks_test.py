"""Tests of the ranges of arguments."""

import math

import numpy as np
import pytest

from tff_fedemb import checks
from tff_fedemb import errors


def test_noise_multipliers():
  for value in (0, 0.0, 1e-6, 1.28, 1e6):
    checks.check_noise_multiplier(value)
  for value in (-1.0, 1e-200, 9e-7, 1.1e6, 1e300):
    with pytest.raises(
      ValueError, match=r"noise_multiplier must be 0 or in \[1e-06, 1e\+06\], f"
    ):
      checks.check_noise_multiplier(value)


def test_infinity_is_a_number_where_it_is_the_maximum():
  options = {"above": 0, "maximum": math.inf}
  assert checks.check_number("epsilon", math.inf, **options) == math.inf
  for value in (-math.inf, math.nan, 0.0, "inf"):
    with pytest.raises(ValueError, match=r"epsilon must be in \(0, inf\]"):
      checks.check_number("epsilon", value, **options)
  with pytest.raises(ValueError, match="positive and finite, found inf"):
    checks.check_number("epsilon", math.inf, above=0)


def test_a_value_of_another_type_takes_one_line():
  checks.check_type("users", [1], list)
  with pytest.raises(errors.FieldError) as error:
    checks.check_type("task", np.zeros([50, 8]), dict)
  assert str(error.value) == "task must be a dict, found a ndarray."
  with pytest.raises(errors.FieldError, match="be a text, found 3"):
    checks.check_type("task", 3, str, "a text")


def test_zero_is_given_and_none_is_not():
  assert checks.check_given("rounds", 0) == 0
  with pytest.raises(errors.FieldError, match="rounds must be given"):
    checks.check_given("rounds", None)
