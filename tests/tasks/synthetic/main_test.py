"""Tests of the command line: what it writes, and mistakes."""

import os

import pytest

from tasks.synthetic import __main__ as command_line


def _call_main(*arguments):
  """Returns the message with which the program ends, None after success.

  Python prints a message on standard error and exits with status 1.
  """
  try:
    command_line.main(arguments)
  except SystemExit as error:
    assert isinstance(error.code, str)
    return error.code
  return None


def test_writes_and_refuses(tmp_path):
  arguments = (f"--output_dir={tmp_path}/data", "--seed=3")
  assert not _call_main(*arguments, "--num_users=1")
  assert "emnist_all.sqlite" in os.listdir(tmp_path / "data")
  message = _call_main(*arguments, "--num_users=2")
  assert "num_users=2, seed=3" in message and "num_users=1, seed=3" in message


@pytest.mark.parametrize(
  ("arguments", "expected"),
  [
    (["--num_users=0"], "num_users must be an integer of at least 1, found 0"),
    (["--seed=x"], "argument --seed: invalid int value: 'x'"),
    (["--task=mnist"], "--task: invalid choice: 'mnist' (choose from 'digi"),
    (["--output_dir="], "--output_dir must name a directory"),
    (["--output_dir=/dev/null"], "--output_dir=/dev/null cannot be w"),
    (["--output_dir=/dev/null/x"], "--output_dir=/dev/null/x cannot be"),
  ],
)
def test_mistakes_get_one_line(tmp_path, arguments, expected):
  message = _call_main(f"--output_dir={tmp_path}/new", *arguments)
  assert expected in message
  assert "\n" not in message
  assert not (tmp_path / "new").exists()
