"""Tests of files that appear whole or not at all."""

import fcntl
import os

import pytest

from tff_fedemb import whole_files


def test_a_file_replaces_another_when_it_is_complete(tmp_path):
  path = tmp_path / "a"
  path.write_text("old")
  with whole_files.replacing(path) as partial:
    assert not partial.exists()
    partial.write_text("new")
    assert path.read_text() == "old"
  assert path.read_text() == "new"
  assert os.listdir(tmp_path) == ["a"]


@pytest.mark.parametrize("error", [KeyboardInterrupt, OSError])
def test_an_interruption_leaves_what_was_there(tmp_path, error):
  (tmp_path / "a").write_text("old")
  with pytest.raises(error), whole_files.replacing(tmp_path / "a") as partial:
    partial.write_text("half")
    raise error
  assert os.listdir(tmp_path) == ["a"]
  assert (tmp_path / "a").read_text() == "old"


def test_another_program_has_to_wait_for_a_locked_file(tmp_path):
  path = tmp_path / "index"
  lock = tmp_path / ".index.lock"
  with (
    whole_files.locked(path),
    lock.open() as other,
    pytest.raises(BlockingIOError),
  ):
    fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
  with lock.open() as other:
    fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
