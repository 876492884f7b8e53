"""The contract between a method and the classifier that runs it.

A method says which releases it will make, is told their noise, and makes them.
It sees the data through `examples`, and may publish only what came out of
`releases`.
"""

from __future__ import annotations

import abc
from collections.abc import Mapping
import dataclasses
import numbers
from typing import Any
from typing import ClassVar

import numpy as np

from tff_fedemb import checks
from tff_fedemb.features import budget as budget_lib
from tff_fedemb.features import examples as examples_lib
from tff_fedemb.features import noise


@dataclasses.dataclass(frozen=True)
class Method(abc.ABC):
  """A way of fitting a linear classifier; subclasses are its hyperparameters.

  Hyperparameters of `None` have defaults that depend on the problem's size and
  on the noise, never on the data.
  """

  name: ClassVar[str]

  @abc.abstractmethod
  def plan_releases(
    self, size: examples_lib.ProblemSize
  ) -> tuple[budget_lib.PlannedRelease, ...]:
    """Returns the releases that `fit` will make.

    Args:
      size: Of the problem.
    """

  @abc.abstractmethod
  def resolve(
    self,
    size: examples_lib.ProblemSize,
    noise_multipliers: Mapping[str, float],
  ) -> Method:
    """Returns the method with every default filled in.

    Args:
      size: Of the problem.
      noise_multipliers: Of the planned releases, by name.
    """

  @abc.abstractmethod
  def fit(
    self,
    examples: examples_lib.ClippedExamples,
    releases: noise.Releases,
    rng: np.random.Generator,
  ) -> np.ndarray:
    """Returns the classifier's weights `[num_classes, dim]`.

    Args:
      examples: The data.
      releases: Makes the planned releases.
      rng: Source of all randomness but the noise.
    """

  @classmethod
  def hyperparameter_names(cls) -> list[str]:
    """Returns the names of all hyperparameters."""
    return [field.name for field in dataclasses.fields(cls)]

  def hyperparameters(self) -> dict[str, Any]:
    """Returns them as JSON values by name."""
    return {
      name: _to_json(value) for name, value in dataclasses.asdict(self).items()
    }


def check_positive(name: str, value: float) -> None:
  """Raises ValueError unless value is a positive finite number."""
  if not checks.is_number(value) or value <= 0:
    raise ValueError(f"{name} must be positive, found {value!r}.")


def check_positive_or_none(name: str, value: float | None) -> None:
  """Raises ValueError unless value is `None` or a positive finite number."""
  if value is not None:
    check_positive(name, value)


def check_bound_or_none(name: str, value: float | None) -> None:
  """Raises ValueError unless value is `None` or as `examples.check_bound`."""
  if value is not None:
    examples_lib.check_bound(name, value)


def check_share(name: str, value: float) -> None:
  """Raises ValueError unless value is a number in (0, 1)."""
  if not checks.is_number(value) or not 0 < value < 1:
    raise ValueError(f"{name} must be in (0, 1), found {value!r}.")


def check_not_negative(name: str, value: float) -> None:
  """Raises ValueError unless value is a finite number of at least 0."""
  if not checks.is_number(value) or value < 0:
    raise ValueError(f"{name} must be at least 0, found {value!r}.")


def check_choice(name: str, value: str, choices: tuple[str, ...]) -> None:
  """Raises ValueError unless value is one of the choices."""
  if value not in choices:
    raise ValueError(f"{name} must be one of {list(choices)}, found {value!r}.")


def _to_json(value: Any) -> Any:
  """Python's number for NumPy's, of which JSON knows none."""
  if isinstance(value, bool) or not isinstance(value, numbers.Real):
    return value
  return int(value) if isinstance(value, numbers.Integral) else float(value)
