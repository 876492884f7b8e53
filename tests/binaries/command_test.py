"""Tests of the one command for all programs."""

import importlib
import sys

import pytest

from binaries import command


def _call(monkeypatch, *arguments):
  monkeypatch.setattr(sys, "argv", ["tff-fedemb", *arguments])
  command.main()


def test_help_names_every_program(monkeypatch, capsys):
  _call(monkeypatch)
  shown = capsys.readouterr().out
  for name in command.PROGRAMS:
    assert f"  {name} " in shown
    module = importlib.import_module(
      f"binaries.{command.SHORT.get(name, name)}"
    )
    assert callable(module.main)


def test_runs_a_program_by_either_spelling(monkeypatch, capsys):
  shown = []
  for name in ("plot_privacy", "plot-privacy"):
    with pytest.raises(SystemExit) as ended:
      _call(monkeypatch, name, "--helpshort")
    assert ended.value.code == 0
    shown.append(capsys.readouterr().out)
  assert shown[0] == shown[1]
  assert "python -m binaries.plot_privacy" in shown[0]


def test_an_unknown_program_is_one_line(monkeypatch, capsys):
  with pytest.raises(SystemExit) as ended:
    _call(monkeypatch, "trian")
  assert ended.value.code == 1
  assert capsys.readouterr().err.startswith("error: program must be one of")
