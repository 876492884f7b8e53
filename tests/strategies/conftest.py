"""What the tests of sensitivities share: every way to take part."""

from collections.abc import Callable
from collections.abc import Iterator

import pytest


def _all_participations(
  rounds: int, min_separation: int, most: int, first: int = 0
) -> Iterator[list[int]]:
  yield []
  if most:
    for start in range(first, rounds):
      for rest in _all_participations(
        rounds, min_separation, most - 1, start + min_separation
      ):
        yield [start, *rest]


@pytest.fixture(scope="session")
def all_participations() -> Callable[[int, int, int], Iterator[list[int]]]:
  """Yields lists of rounds; takes their number, separation and the most."""
  return _all_participations
