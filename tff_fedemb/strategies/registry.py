"""The registry of strategies."""

from collections.abc import Mapping
import dataclasses
from typing import Any

from tff_fedemb import errors
from tff_fedemb import registry
from tff_fedemb.strategies import banded
from tff_fedemb.strategies import blt
from tff_fedemb.strategies import strategy as strategy_lib
from tff_fedemb.strategies import tree

# A new strategy is one file and one line here.
STRATEGIES: registry.Registry[strategy_lib.Strategy] = registry.Registry(
  strategy_lib.Strategy,
  {
    banded.BandedToeplitzStrategy.name: banded.BandedToeplitzStrategy,
    blt.BltStrategy.name: blt.BltStrategy,
    tree.TreeStrategy.name: tree.TreeStrategy,
  },
)


def to_json(strategy: strategy_lib.Strategy) -> dict[str, Any]:
  """Returns the strategy as JSON values: its name and its parameters."""
  return {
    "name": STRATEGIES.name_of(strategy),
    **dataclasses.asdict(strategy),
  }


def from_json(values: Mapping[str, Any]) -> strategy_lib.Strategy:
  """Inverse of `to_json`.

  Args:
    values: 'name', of one of `STRATEGIES`, and the parameters.

  Raises:
    ValueError: If the name is unknown or the parameters are not those of the
      strategy.
  """
  parameters = dict(values)
  name = parameters.pop("name", None)
  if name not in STRATEGIES:
    raise errors.DataError(
      f"strategy must be one of {sorted(STRATEGIES)}, found {name!r}."
    )
  try:
    return STRATEGIES[name](**parameters)
  except TypeError as error:
    raise errors.DataError(
      f"parameters of strategy {name} must be those of"
      f" {STRATEGIES[name].__name__}, found {sorted(parameters)}."
    ) from error
