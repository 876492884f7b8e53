"""A fixture of the tests of the trace."""

import pytest

from tests.data import traces


@pytest.fixture(name="trace")
def _trace(tmp_path):
  path = tmp_path / "trace"
  traces.write(path, traces.NUM_USERS, traces.ROUNDS)
  return path
