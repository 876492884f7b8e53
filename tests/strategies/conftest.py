"""What the tests of sensitivities share: every way to take part."""

import pytest


def _all_participations(rounds, min_separation, most, first=0):
  yield []
  if most:
    for start in range(first, rounds):
      for rest in _all_participations(
        rounds, min_separation, most - 1, start + min_separation
      ):
        yield [start, *rest]


@pytest.fixture(scope="session")
def all_participations():
  """Yields lists of rounds; takes their number, separation and the most."""
  return _all_participations
