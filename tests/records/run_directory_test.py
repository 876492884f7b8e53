"""Tests of run directories: ownership, locks, refusals."""

import json
import os

import pytest

from tff_fedemb import errors
from tff_fedemb.records import run_directory


def test_same_settings_open_it_again(tmp_path):
  path = tmp_path / "runs" / "one"
  first = run_directory.RunDirectory(path, {"rounds": 3, "clip_norm": 1.0})
  first.write_json("summary.json", {"x": 1})
  first.close()
  again = run_directory.RunDirectory(path, {"clip_norm": 1.0, "rounds": 3})
  assert again.read_json("summary.json") == {"x": 1}
  assert again.read_json("missing.json") is None
  again.close()
  assert json.loads((path / "run.json").read_text()) == {
    "clip_norm": 1.0,
    "rounds": 3,
  }


@pytest.mark.parametrize(
  ("now", "message"),
  [
    ({"rounds": 4}, r"rounds=3 \(now 4\)\."),
    ({"rounds": 3, "a": {"bands": 2}}, r"a\.bands=None \(now 2\)\."),
    ({"a": 1, "b": 2, "c": 3, "d": 4}, r"c=None \(now 3\), \.\.\."),
  ],
)
def test_other_settings_are_refused_and_nothing_changes(tmp_path, now, message):
  run_directory.RunDirectory(tmp_path, {"rounds": 3}).close()
  # None is as if the setting did not exist.
  settings = {"rounds": 3, "a": {"bands": None}}
  run_directory.RunDirectory(tmp_path, settings).close()
  before = (tmp_path / "run.json").read_bytes()
  with pytest.raises(errors.FieldError, match=message):
    run_directory.RunDirectory(tmp_path, now)
  assert (tmp_path / "run.json").read_bytes() == before


def test_a_run_killed_while_it_was_made_can_start_again(tmp_path):
  for name in (".lock", ".1.partial.run.json"):
    (tmp_path / name).write_text("{")
  run_directory.RunDirectory(tmp_path, {"rounds": 3}).close()
  assert json.loads((tmp_path / "run.json").read_text()) == {"rounds": 3}


@pytest.mark.parametrize(
  ("name", "message"),
  [
    ("", "other files"),
    ("thesis.tex", "must be a directory"),
    ("thesis.tex/below", "must be a directory"),
  ],
)
def test_other_peoples_files_are_refused(tmp_path, name, message):
  (tmp_path / "thesis.tex").write_text("years of work")
  with pytest.raises(errors.FieldError, match=message):
    run_directory.RunDirectory(tmp_path / name, {})
  assert os.listdir(tmp_path) == ["thesis.tex"]


def test_a_second_program_is_turned_away(tmp_path):
  directory = run_directory.RunDirectory(tmp_path / "r", {})
  with pytest.raises(errors.FieldError, match="run_dir must not be in use"):
    run_directory.RunDirectory(tmp_path / "r", {})
  directory.close()
