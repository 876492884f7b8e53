"""Runs the quick tests of the file that Bazel names."""

import sys

import pytest

if __name__ == "__main__":
  outcome = pytest.main(["-p", "no:cacheprovider", *sys.argv[1:]])
  # All tests of the file may be slow ones.
  nothing_to_run = pytest.ExitCode.NO_TESTS_COLLECTED
  sys.exit(0 if outcome == nothing_to_run else outcome)
