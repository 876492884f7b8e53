"""Fixtures that the tests of runtimes share."""

from collections.abc import Iterator

import pytest

from tests.runtime import builders
from tff_fedemb import runtime
from tff_fedemb.runtime import base


@pytest.fixture(scope="module")
def process():
  return builders.build_private_means()


@pytest.fixture(scope="module")
def skipping(process):
  """A runtime that skips clients, and the initial state of its process."""
  with runtime.create_runtime(
    concurrent_clients=3, on_client_error="skip"
  ) as started:
    yield started, started.initialize(process)


@pytest.fixture(name="reference", scope="module")
def _reference() -> Iterator[base.Runtime]:
  """TFF's own runtime."""
  with runtime.create_runtime("tff") as started:
    yield started
