"""What the tests of the aggregators share."""

from collections.abc import Callable, Iterator
import functools

import pytest

from tests.mechanisms import released


@pytest.fixture(scope="module")
def create_aggregation() -> Iterator[Callable[..., released.Aggregation]]:
  """Creates a `released.Aggregation`, each once in a module."""
  created = []

  @functools.cache
  def create(name, **options):
    created.append(released.Aggregation(name, **options))
    return created[-1]

  yield create
  for aggregation in created:
    aggregation.close()
