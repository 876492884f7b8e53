"""Calls the program that accounts, and reads what it writes."""

import json

import pytest

from tests.binaries import programs


def call(tmp_path, *arguments):
  """Returns how `account` ended, and the values that it wrote if it did."""
  output = tmp_path / "output.json"
  output.unlink(missing_ok=True)
  ended = programs.call("account", *arguments, f"--output_json={output}")
  values = None
  if output.exists():
    # Infinity is "inf", as JSON has none.
    values = json.loads(output.read_text(), parse_constant=pytest.fail)
  return ended, values


def check_refused(ended, values, message):
  """Checks that it ended with one line, and wrote nothing."""
  programs.check_refused(ended, "")
  assert values is None
  assert not ended.output
  assert message in ended.errors
