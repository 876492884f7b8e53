"""Checks that the arguments of this package have in common."""

import math
import numbers
import operator
from typing import Any

from tff_fedemb.strategies import strategy as strategy_lib

# Numbers of rounds are multiplied as floating-point numbers.
MAX_ROUNDS = 10**9


def check_delta(delta: float) -> None:
  """Raises ValueError unless delta lies strictly between 0 and 1."""
  if not is_number(delta) or not 0 < delta < 1:
    raise ValueError(f"delta must be in (0, 1), found {delta!r}.")


def check_noise_multiplier(noise_multiplier: float) -> None:
  """Raises ValueError unless it is a number as in `strategies.strategy`."""
  if not is_number(noise_multiplier):
    raise ValueError(
      f"noise_multiplier must be a finite number, found {noise_multiplier!r}."
    )
  strategy_lib.check_noise_multiplier(noise_multiplier)


def check_rounds(rounds: int, *, minimum: int) -> int:
  """As `check_integer`, and at most `MAX_ROUNDS`."""
  rounds = check_integer("rounds", rounds, minimum=minimum)
  if rounds > MAX_ROUNDS:
    raise ValueError(
      f"rounds must be at most {MAX_ROUNDS:,}, found {rounds:,}."
    )
  return rounds


def check_integer(name: str, value: int, *, minimum: int) -> int:
  """Returns value, Python's or NumPy's, as an `int`.

  Args:
    name: What the error calls it.
    value: The number.
    minimum: The smallest value allowed.

  Raises:
    ValueError: If value is too small, a truth value or no integer at all.
  """
  is_integer = isinstance(value, numbers.Integral)
  if not is_integer or isinstance(value, bool) or value < minimum:
    raise ValueError(
      f"{name} must be an integer of at least {minimum}, found {value!r}."
    )
  return operator.index(value)


def count_in_words(number: float) -> str:
  """Returns a count with thousands separated, for example '131,072'."""
  return f"{int(number) if number == int(number) else number:,}"


def is_number(value: Any) -> bool:
  """Whether value is a finite real number, and not a truth value."""
  return (
    isinstance(value, numbers.Real)
    and not isinstance(value, bool)
    and math.isfinite(value)
  )
