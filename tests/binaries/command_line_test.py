"""Tests of how programs end."""

import errno
import json
import pathlib
import subprocess
import sys

from absl.testing import flagsaver
import pytest

from binaries import command_line
from tff_fedemb import errors

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


def test_keras_may_be_imported_by_a_program():
  main = "lambda: print(type(__import__('tensorflow').keras.Input([1])))"
  with _start(main) as process:
    output, _ = process.communicate()
  assert "KerasTensor" in output


def test_another_broken_pipe_is_told():
  main = "lambda: (_ for _ in ()).throw(BrokenPipeError('another pipe'))"
  with _start(main) as process:
    _, error = process.communicate()
  assert process.returncode == 1
  assert "another pipe" in error


@pytest.mark.parametrize(
  ("error", "field", "line"),
  [
    (errors.FieldError("v", "be 1", 2), "v", "--v must be 1, found 2."),
    (errors.FieldError("x y", "be 1", 2), "x y", "x y must be 1, found 2."),
    (errors.DataError("a.txt is\ncut."), None, "a.txt is cut."),
    (errors.DivergedError("it diverged."), None, "it diverged."),
    (
      OSError(errno.ENOSPC, "No space left on device"),
      None,
      "a file cannot be written: No space left on device.",
    ),
    (
      OSError(errno.EFBIG, "File too large", "a.png"),
      None,
      "a.png cannot be written: File too large.",
    ),
  ],
)
def test_mistakes_are_one_line_and_told_by_type(
  tmp_path, capsys, monkeypatch, error, field, line
):
  def fail():
    raise error

  path = tmp_path / "error.json"
  monkeypatch.setattr(sys, "argv", ["program", f"--error_json={path}"])
  with flagsaver.flagsaver(), pytest.raises(SystemExit) as ended:
    command_line.run(fail)
  assert ended.value.code == 1
  assert capsys.readouterr().err == f"error: {line}\n"
  of_disk = isinstance(error, OSError)
  assert json.loads(path.read_text()) == {
    "type": "StorageError" if of_disk else type(error).__name__,
    "field": field,
    "message": line,
  }


@pytest.mark.parametrize(
  ("arguments", "line"),
  [
    (["plan"], "arguments must be one of run, report, and flags"),
    (["run", "report"], "arguments must be one of run, report"),
  ],
)
def test_unknown_commands(capsys, monkeypatch, arguments, line):
  monkeypatch.setattr(sys, "argv", ["program", *arguments])
  with flagsaver.flagsaver(), pytest.raises(SystemExit):
    command_line.run(print, commands=("run", "report"))
  assert capsys.readouterr().err.startswith(f"error: {line}")
