"""Tests of the command line: every benchmark, the contact sheet, mistakes."""

import os

import pytest

from tasks.synthetic import __main__ as command_line
from tests.binaries import programs


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


def test_writes_and_draws_and_refuses(tmp_path, capsys):
  sheet = tmp_path / "sheet.png"
  arguments = (f"--output_dir={tmp_path}/data", f"--contact_sheet={sheet}")
  assert not _call_main(*arguments, "--num_users=1", "--seed=3")
  assert "emnist_all.sqlite" in os.listdir(tmp_path / "data")
  assert f"Wrote {sheet}" in capsys.readouterr().out
  assert sheet.exists()
  message = _call_main(
    *arguments, "--num_users=1", "--seed=3", "--contact_sheet=/dev/null/x.png"
  )
  assert "--contact_sheet=/dev/null/x.png cannot be written" in message
  message = _call_main(*arguments, "--num_users=2", "--seed=3")
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
    (["--contact_sheet=x.jpg"], "--contact_sheet must name a .png file, found"),
  ],
)
def test_mistakes_get_one_line(tmp_path, arguments, expected):
  message = _call_main(f"--output_dir={tmp_path}/new", *arguments)
  assert expected in message
  assert "\n" not in message
  assert not (tmp_path / "new").exists()


def test_as_a_user_runs_it(tmp_path):
  ended = programs.start("tasks.synthetic", f"--output_dir={tmp_path}", "y")
  assert ended.status == 1
  assert "unrecognized arguments: y" in ended.errors
  assert ended.errors.count("\n") == 1
