"""Tests of run directories: ownership, locks, refusals."""

import json
import os

import pytest

from tff_fedemb import errors
from tff_fedemb.program import run_directory


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


def test_other_settings_are_refused_and_nothing_changes(tmp_path):
  run_directory.RunDirectory(tmp_path / "r", {"rounds": 3}).close()
  before = {p: p.read_bytes() for p in (tmp_path / "r").glob("*.json")}
  with pytest.raises(errors.FieldError, match=r"rounds=3 \(now 4\)"):
    run_directory.RunDirectory(tmp_path / "r", {"rounds": 4})
  after = {p: p.read_bytes() for p in (tmp_path / "r").glob("*.json")}
  assert after == before


def test_a_setting_that_did_not_exist_yet_was_not_given(tmp_path):
  run_directory.RunDirectory(tmp_path, {"rounds": 3}).close()
  settings = {"rounds": 3, "num_bands": None}
  run_directory.RunDirectory(tmp_path, settings).close()
  with pytest.raises(errors.FieldError, match=r"num_bands=None \(now 2\)\."):
    run_directory.RunDirectory(tmp_path, {"rounds": 3, "num_bands": 2})


def test_a_run_killed_while_it_was_made_can_start_again(tmp_path):
  for name in (".lock", ".run.json.partial"):
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


def test_interrupted_json_leaves_the_old_one(tmp_path):
  directory = run_directory.RunDirectory(tmp_path / "r", {})
  directory.write_json("a.json", [1])
  with pytest.raises(ValueError, match="not JSON compliant"):
    directory.write_json("a.json", [float("nan")])
  assert directory.read_json("a.json") == [1]
  directory.close()
