"""Tests of folders that are whole or not at all."""

import pytest

from tasks.synthetic import store
from tff_fedemb import errors


def _write_file(folder):
  (folder / "a").write_text("content")


def _write(directory, write=_write_file, seed=1):
  given = store.Config(num_users=3, seed=seed)
  return store.write_data(directory, given, write, name="data")


@pytest.mark.parametrize("exists", [False, True])
def test_a_folder_is_written_once(tmp_path, capsys, exists):
  directory = tmp_path / "new" / "newer"
  if exists:
    directory.mkdir(parents=True)
  assert _write(str(directory)) == directory
  assert capsys.readouterr().out == f"Wrote {directory}\n"
  assert [path.name for path in directory.parent.iterdir()] == ["newer"]
  assert (directory / "a").read_text() == "content"
  assert _write(directory, None) == directory
  assert f"{directory} is there already" in capsys.readouterr().out
  with pytest.raises(errors.DataError, match=r"seed=2, found .*, seed=1"):
    _write(directory, seed=2)


def test_what_comes_from_elsewhere_is_refused(tmp_path):
  (tmp_path / "b").write_text("of another kind")
  with pytest.raises(errors.DataError, match="found something from elsewhere"):
    _write(tmp_path)
  assert list(tmp_path.iterdir()) == [tmp_path / "b"]


@pytest.mark.parametrize("error", [KeyboardInterrupt, OSError])
def test_an_interruption_leaves_nothing(tmp_path, error):
  def write(folder):
    _write_file(folder)
    raise error

  with pytest.raises(error):
    _write(tmp_path / "x", write)
  assert list(tmp_path.rglob("*")) == [tmp_path / "x"]
  _write(tmp_path / "x")
