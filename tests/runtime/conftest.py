"""What the tests of the runtimes share."""

import pytest

from tff_fedemb import runtime


@pytest.fixture(scope="module")
def reference():
  """TFF's own runtime."""
  with runtime.create_runtime("tff") as started:
    yield started
