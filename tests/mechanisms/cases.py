"""What the test file of a mechanism says for the tests that all have to pass.

`mechanisms_test` and `registry_test` run them for what is in the registry: the
test file of a mechanism has its `CASES`, and tests of what is its alone.
"""

from collections.abc import Sequence
import dataclasses
import importlib
from typing import Any

import pytest

from tff_fedemb.mechanisms import mechanism
from tff_fedemb.mechanisms import registry
from tff_fedemb.mechanisms import strategy as strategy_lib

SCHEDULE = mechanism.Schedule(rounds=20, min_separation=5, max_participations=3)

_Options = dict[str, Any]


class Slow(dict):
  """Options of a case for which `make test` has no time."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Cases:
  """The cases of a mechanism; each case has options of its own.

  Attributes:
    options: A value for every option of its own.
    searchable: Those that tuning may search.
    strategy: What ties its noise together with these options and `SCHEDULE`.
    clipping: Cases of what is released without noise.
    noisy: Cases of the law of the noise; none if there is no noise.
    once: Cases of all else that has noise.
    mistakes: Wrong options, and what the error says.
  """

  options: _Options = dataclasses.field(default_factory=dict)
  searchable: frozenset[str] = frozenset()
  strategy: strategy_lib.Strategy | None = None
  clipping: Sequence[_Options] = ({},)
  noisy: Sequence[_Options] = ({},)
  once: Sequence[_Options] = ({},)
  mistakes: Sequence[tuple[_Options, str]] = ()


def of(name: str) -> Cases:
  """The cases of a mechanism of the registry."""
  module = registry.AGGREGATORS[name].__module__.rpartition(".")[2]
  return importlib.import_module(f"tests.mechanisms.{module}_test").CASES


def adapts(name: str) -> bool:
  """Whether a mechanism's clip norm changes."""
  return registry.AGGREGATORS[name].next_clip_norm_fn is not None


def params(attribute: str, *, correlated: bool = False) -> list[Any]:
  """What a test is parametrized with: mechanism, options, and more.

  Args:
    attribute: One of those of `Cases` that are sequences.
    correlated: Whether to leave out mechanisms of independent noise.
  """
  found = []
  for name, known in registry.AGGREGATORS.items():
    if correlated and known.strategy_class is None:
      continue
    for case in getattr(of(name), attribute):
      options, *more = case if isinstance(case, tuple) else (case,)
      found.append(
        pytest.param(
          *(name, options, *more),
          id="-".join([name, *map(str, options.values())]),
          marks=[pytest.mark.slow] * isinstance(options, Slow),
        )
      )
  return found
