"""Tests of what is kept, refused, complete, and of contact sheets."""

import io

import numpy as np
from PIL import Image
import pytest

from tasks.synthetic import store
from tff_fedemb import errors


class TestIsMade:
  def test_nothing_is_there(self, tmp_path):
    assert not store.is_made(tmp_path / "x", {"seed": 1}, {})

  def test_same_parameters_keep_it(self, tmp_path, capsys):
    assert store.is_made(tmp_path, {"seed": 1}, {"seed": 1})
    assert "there already" in capsys.readouterr().out

  @pytest.mark.parametrize(
    ("found", "expected"),
    [
      ({"seed": 2, "num_users": 3}, "made with seed=1, found seed=2, num_u"),
      ({}, "made with seed=1, found something from elsewhere; nothing was"),
    ],
  )
  def test_anything_else_is_refused(self, tmp_path, found, expected):
    with pytest.raises(errors.DataError, match=expected):
      store.is_made(tmp_path, {"seed": 1}, found)


def test_directory_is_created_but_replaces_no_file(tmp_path):
  path = tmp_path / "new" / "newer"
  assert store.create_dir(str(path)) == path
  assert path.is_dir()
  (tmp_path / "file").write_text("")
  with pytest.raises(NotADirectoryError, match="must be a directory"):
    store.create_dir(tmp_path / "file")


@pytest.mark.parametrize("error", [KeyboardInterrupt, OSError])
def test_what_is_not_complete_leaves_nothing(tmp_path, error):
  with pytest.raises(error), store.partial_dir(tmp_path) as partial:
    (partial / "file").write_text("half")
    raise error
  assert not list(tmp_path.iterdir())


def test_what_is_complete_gets_its_name(tmp_path, capsys):
  with store.partial_dir(tmp_path) as partial:
    (partial / "file").write_text("whole")
    store.move(partial / "file", tmp_path / "x")
  assert [path.name for path in tmp_path.iterdir()] == ["x"]
  assert capsys.readouterr().out == f"Wrote {tmp_path}/x\n"


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
