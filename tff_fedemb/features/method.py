"""The contract between a method and the classifier that runs it.

A method plans its releases, is told their noise, and makes them. It reads the
data from `examples`, and may publish only the results of `releases`.
"""

import abc
from collections.abc import Mapping
import dataclasses
from typing import Any, ClassVar, TypeVar

import numpy as np

from tff_fedemb import config
from tff_fedemb.features import budget as budget_lib
from tff_fedemb.features import examples as examples_lib
from tff_fedemb.features import noise

_MethodT = TypeVar("_MethodT", bound="Method")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Method(config.Config, abc.ABC):
  """A way of fitting a linear classifier; its fields are hyperparameters.

  Hyperparameters of `None` have defaults that depend on the problem's size and
  on the noise, never on the data.

  Attributes:
    protects_users: Whether it can be fitted as a federated computation.
  """

  protects_users: ClassVar[bool] = False

  @abc.abstractmethod
  def plan_releases(
    self,
    size: examples_lib.ProblemSize,
  ) -> tuple[budget_lib.PlannedRelease, ...]:
    """Returns the releases that `fit` will make.

    Args:
      size: Size of the problem.

    Returns:
      All kinds of release, with different names, and how often each is made.
    """

  @abc.abstractmethod
  def find_defaults(
    self,
    size: examples_lib.ProblemSize,
    noise_multipliers: Mapping[str, float],
  ) -> dict[str, Any]:
    """Returns the defaults of hyperparameters that may be `None`.

    Args:
      size: Size of the problem.
      noise_multipliers: Standard deviation of the noise over the sensitivity,
        by name of the release; 0 for none.

    Returns:
      A value for each, by name, whether or not it is `None`.
    """

  @abc.abstractmethod
  def fit(
    self,
    examples: examples_lib.ClippedExamples,
    releases: noise.Releases,
  ) -> np.ndarray:
    """Returns the classifier's weights.

    Args:
      examples: The data.
      releases: Makes the planned releases, each as often as planned.

    Returns:
      Float64 `[num_classes, dim]`.

    Raises:
      errors.FieldError: If the features are not finite, or a matrix is
        singular up to rounding.
    """

  def resolve(
    self: _MethodT,
    size: examples_lib.ProblemSize,
    noise_multipliers: Mapping[str, float],
  ) -> _MethodT:
    """Fills in the defaults of hyperparameters that are `None`.

    Args:
      size: See `find_defaults`.
      noise_multipliers: See `find_defaults`.

    Returns:
      A copy of the method that `fit` can use.

    Raises:
      errors.FieldError: If a default is out of its range.
    """
    found = self.find_defaults(size, noise_multipliers)
    missing = {x: y for x, y in found.items() if getattr(self, x) is None}
    return dataclasses.replace(self, **missing)
