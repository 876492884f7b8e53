"""Tests of what all generators do alike: files kept, refused, shown."""

import itertools
import pathlib

import numpy as np
from PIL import Image
import pytest

from tasks.synthetic import registry
from tff_fedemb import errors

_NAMES = {
  "digiface": ["subjects_0-0_72_imgs.zip"],
  "emnist": ["emnist_all.sqlite"],
  "emnist_compact": ["emnist_all.sqlite"],
  "gld": ["gld160k", "gld23k"],
  "inaturalist": ["user_120k"],
  "omniglot": ["omniglot_background_28.npz"],
  "photos": [".generator.json", "person_0000"],
  "photos_match": [".generator.json", "gallery", "query"],
  "photos_writers": [".generator.json", "writer_0000"],
  "photos_writers_match": [".generator.json", "gallery", "query"],
}
# The directory itself is what these write, at once.
_WHOLE = [task for task in _NAMES if task.startswith("photos")]
# A cell is an image and a frame of a pixel on each side.
_SHEET_SIZES = {
  "digiface": (12 * 86, 86),
  "emnist": (62 * 30, 30),
  "emnist_compact": (62 * 30, 30),
  "gld": (12 * 72, 6 * 72),
  "inaturalist": (12 * 72, 6 * 72),
  "omniglot": (20 * 30, 30),
  "photos": (12 * 86, 86),
  "photos_match": (12 * 86, 2 * 86),
  "photos_writers": (12 * 86, 86),
  "photos_writers_match": (12 * 86, 2 * 86),
}


def _contents(folder):
  return {
    path.relative_to(folder): path.read_bytes()
    for path in sorted(pathlib.Path(folder).rglob("*"))
    if path.is_file()
  }


def _write(task, directory, **changes):
  arguments = dict(num_users=1, seed=3) | changes
  return registry.WRITERS[task](directory, **arguments)


@pytest.fixture(name="written", scope="module", params=sorted(_NAMES))
def _written(request, tmp_path_factory):
  directory = tmp_path_factory.mktemp(request.param)
  _write(request.param, directory)
  return request.param, directory


def test_every_generator_is_tested():
  assert set(_NAMES) == set(registry.WRITERS) == set(registry.CONTACT_SHEETS)


def test_the_seed_makes_the_bytes(written, tmp_path):
  task, directory = written
  assert sorted(path.name for path in directory.iterdir()) == _NAMES[task]
  _write(task, tmp_path / "same")
  assert _contents(tmp_path / "same") == _contents(directory)
  _write(task, tmp_path / "other", seed=4)
  other = _contents(tmp_path / "other")
  assert not set(other.values()) & set(_contents(directory).values())


def test_what_was_made_the_same_way_is_kept(written, capsys):
  task, directory = written
  before = {path: path.stat().st_mtime_ns for path in directory.rglob("*")}
  _write(task, directory)
  kept = 1 if task in _WHOLE else len(_NAMES[task])
  assert capsys.readouterr().out.count("there already") == kept
  for changes, expected in (
    ({"num_users": 2}, "num_users=2, seed=3"),
    ({"seed": 4}, "num_users=1, seed=4"),
  ):
    with pytest.raises(errors.DataError, match="nothing was chan") as error:
      _write(task, directory, **changes)
    assert expected in str(error.value)
    assert "num_users=1, seed=3" in str(error.value).split("found")[1]
  after = {path: path.stat().st_mtime_ns for path in directory.rglob("*")}
  assert after == before


@pytest.mark.parametrize("content", [None, b"", b"of another kind" * 100])
@pytest.mark.parametrize("task", _NAMES)
def test_what_comes_from_elsewhere_is_refused(task, content, tmp_path):
  path = tmp_path / _NAMES[task][-1]
  if content is None and task != "emnist":
    path.mkdir()
  else:
    path.write_bytes(content or b"")
  with pytest.raises(errors.DataError, match="from elsewhere; nothing"):
    _write(task, tmp_path)
  assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize(
  ("task", "arguments"),
  [
    *itertools.product(_NAMES, ({"num_users": 0}, {"seed": -1})),
    ("emnist", {"examples_per_user": 15}),
    ("digiface", {"images_per_user": 1}),
    ("digiface", {"num_users": 100_001}),
  ],
)
def test_arguments_out_of_range_are_refused(task, arguments, tmp_path):
  (name,) = arguments
  with pytest.raises(
    errors.FieldError, match=rf"{name} must be a.*\d, found -?\d"
  ):
    _write(task, tmp_path / "new", **arguments)
  assert not list(tmp_path.iterdir())


def test_contact_sheet_shows_what_was_drawn(written, tmp_path):
  task, directory = written
  registry.CONTACT_SHEETS[task](directory, tmp_path / "sheet.png")
  with Image.open(tmp_path / "sheet.png") as sheet:
    assert sheet.size == _SHEET_SIZES[task]
    levels = np.asarray(sheet.convert("L"))
  height = levels.shape[0] // (_SHEET_SIZES[task][1] // 30)
  for row in np.split(levels, range(height, len(levels), height)):
    assert row.std() > 20
