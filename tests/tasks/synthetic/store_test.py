"""Tests of files that are whole or not at all, and of contact sheets."""

import io

import numpy as np
from PIL import Image
import pytest

from tasks.synthetic import store
from tff_fedemb import errors


def _write_files(partial, names):
  for name in names:
    (partial / name).write_text(name)


def _write(directory, write=_write_files, num_bytes=0):
  wanted = {"a": {"seed": 1}, "b": {"seed": 1}}
  return store.write_missing(
    directory, wanted, lambda _: {"seed": 1}, write, num_bytes=num_bytes
  )


def test_only_what_is_missing_is_written(tmp_path, capsys):
  directory = tmp_path / "new" / "newer"
  paths = [str(directory / "a"), str(directory / "b")]
  assert _write(str(directory)) == paths
  assert capsys.readouterr().out == "".join(f"Wrote {path}\n" for path in paths)
  (directory / "a").unlink()
  (directory / "b").write_text("kept")
  assert _write(directory) == paths
  assert [path.name for path in sorted(directory.iterdir())] == ["a", "b"]
  assert (directory / "b").read_text() == "kept"


@pytest.mark.parametrize("error", [KeyboardInterrupt, OSError])
def test_an_interruption_leaves_nothing(tmp_path, error):
  def write(partial, names):
    _write_files(partial, names[:1])
    raise error

  with pytest.raises(error):
    _write(tmp_path, write)
  assert not list(tmp_path.iterdir())


def test_much_is_said_before_and_too_much_refused(tmp_path, capsys):
  _write(tmp_path, num_bytes=60_000_000)
  said = capsys.readouterr().out.splitlines()[0]
  assert said.startswith(f"Writing about 60.0MB to {tmp_path}, which has ")
  # What is there already takes no room.
  _write(tmp_path, num_bytes=10**18)
  assert "about" not in capsys.readouterr().out
  with pytest.raises(errors.DataError, match=r"room for about 1\.00EB, f"):
    _write(tmp_path / "other", num_bytes=10**18)
  assert not list((tmp_path / "other").iterdir())


def test_progress_is_shown_of_what_takes_long(monkeypatch, capsys):
  now = iter(range(0, 1000, 2))
  monkeypatch.setattr("tqdm.std.time", lambda: next(now))
  assert list(store.progress(range(40), desc="d", unit="u")) == list(range(40))
  shown = capsys.readouterr().err
  assert "d:  " in shown and "s/u]" in shown and "<" in shown
  # One in twenty seconds, where nothing is overwritten.
  assert shown.count("\r") <= 6
  assert list(store.progress(range(2), desc="d", unit="u")) == [0, 1]
  assert not capsys.readouterr().err


def test_sheet_centres_images_in_cells(tmp_path):
  def encode(shape, level):
    buffer = io.BytesIO()
    Image.fromarray(np.full(shape, level, np.uint8)).save(buffer, "PNG")
    return buffer.getvalue()

  rows = [[encode((8, 4), 10), encode((20, 20), 90)], [encode((8, 8), 200)]]
  store.save_sheet(rows, tmp_path / "sheet.png", side=8)
  with Image.open(tmp_path / "sheet.png") as sheet:
    levels = np.asarray(sheet.convert("L"))
  assert levels.shape == (20, 20)
  expected = np.full((20, 20), 255)
  expected[1:9, 3:7], expected[1:9, 11:19], expected[11:19, 1:9] = 10, 90, 200
  np.testing.assert_array_equal(levels, expected)
