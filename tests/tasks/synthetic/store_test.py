"""Tests of files that are whole or not at all, and of contact sheets."""

import io

import numpy as np
from PIL import Image
import pytest

from tasks.synthetic import store


def _write_files(partial, names):
  for name in names:
    (partial / name).write_text(name)


def _write(directory, write=_write_files):
  wanted = {"a": {"seed": 1}, "b": {"seed": 1}}
  return store.write_missing(directory, wanted, lambda _: {"seed": 1}, write)


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
