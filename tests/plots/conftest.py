"""Fixture of all tests of pictures."""

import warnings

import pytest


@pytest.fixture(autouse=True)
def _warnings_are_flaws():
  # For example that a letter is missing, or that a panel has no room.
  with warnings.catch_warnings():
    warnings.simplefilter("error", UserWarning)
    warnings.simplefilter("error", RuntimeWarning)
    yield
