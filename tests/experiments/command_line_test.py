"""Tests of how programs end."""

import pathlib
import subprocess
import sys

import pytest

_REPOSITORY = pathlib.Path(__file__).resolve().parents[2]


def _start(main):
  return subprocess.Popen(
    [
      sys.executable,
      "-c",
      f"from experiments import command_line\ncommand_line.run({main})",
    ],
    cwd=_REPOSITORY,
    stdout=subprocess.PIPE,
    stderr=subprocess.PIPE,
    text=True,
  )


@pytest.mark.parametrize(
  "main",
  ["lambda: print('x')", "lambda: [print('x' * 100) for _ in range(5_000)]"],
)
def test_a_reader_who_is_gone(main):
  with _start(main) as process:
    process.stdout.close()
    assert not process.stderr.read()
  assert process.returncode == 141


def test_another_broken_pipe_is_told():
  main = "lambda: (_ for _ in ()).throw(BrokenPipeError('another pipe'))"
  with _start(main) as process:
    _, error = process.communicate()
  assert process.returncode == 1
  assert "another pipe" in error
