"""Fixtures of the tests of preparation."""

import pytest

from tasks.prepare import photo_jobs
from tests.tasks.prepare import made_up


@pytest.fixture(autouse=True)
def _made_up(monkeypatch):
  """Leaves out the publishers' checksums."""
  monkeypatch.setattr(photo_jobs, "KNOWN_MD5", {})


@pytest.fixture
def source(tmp_path):
  """A folder of what a user downloads of GLD."""
  made_up.write_gld(tmp_path / "source")
  return tmp_path / "source"


@pytest.fixture
def output(tmp_path):
  """The folder of the result, not there yet."""
  return tmp_path / "output"
