"""Tests of the zips of people against `zipfile` and Pillow."""

import io
import itertools
import os
import zipfile

import numpy as np
from PIL import Image
import pytest

from tasks.synthetic import digiface
from tasks.synthetic import textures
from tff_fedemb import errors

_NUM_USERS = 17
_IMAGES = 3
_SEED = 3


@pytest.fixture(scope="module")
def paths(tmp_path_factory):
  directory = tmp_path_factory.mktemp("digiface")
  return digiface.write_digiface(
    directory, num_users=_NUM_USERS, seed=_SEED, images_per_user=_IMAGES
  )


def _read(path):
  with zipfile.ZipFile(path) as archive:
    assert archive.testzip() is None
    return {name: archive.read(name) for name in archive.namelist()}


class TestFormat:
  def test_names_are_those_of_the_real_data(self, paths):
    assert [os.path.basename(path) for path in paths] == [
      "subjects_0-8_3_imgs.zip",
      "subjects_100000-100007_5_imgs.zip",
    ]
    for path, first, num, num_images in (
      (paths[0], 0, 9, _IMAGES),
      (paths[1], 100_000, 8, 5),
    ):
      assert list(_read(path)) == [
        f"{first + subject}/{image}.png"
        for subject, image in itertools.product(range(num), range(num_images))
      ]

  def test_a_subject_is_the_person_drawn(self, paths):
    contents = _read(paths[1])
    for number in range(5):
      image = textures.draw(
        (112, 112, 3), seed=_SEED, class_id=100_002, user=number, index=number
      )
      written = Image.open(io.BytesIO(contents[f"100002/{number}.png"]))
      assert (written.format, written.mode) == ("PNG", "RGB")
      np.testing.assert_array_equal(written, image)

  @pytest.mark.parametrize(
    ("num_users", "names"),
    [
      (1, ["subjects_0-0_72_imgs.zip"]),
      (15, ["subjects_0-14_72_imgs.zip"]),
      (16, ["subjects_0-7_72_imgs.zip", "subjects_100000-100007_5_imgs.zip"]),
      (100, ["subjects_0-74_72_imgs.zip", "subjects_100000-100024_5_imgs.zip"]),
    ],
  )
  def test_parts(self, tmp_path, monkeypatch, num_users, names):
    # The pictures would take nearly all of the time.
    monkeypatch.setattr(
      textures, "draw", lambda *_, **__: np.zeros((1, 1, 3), np.uint8)
    )
    paths = digiface.write_digiface(tmp_path, num_users=num_users)
    assert [os.path.basename(path) for path in paths] == names
    assert sorted(os.listdir(tmp_path)) == sorted(names)
    subjects = {name.split("/")[0] for path in paths for name in _read(path)}
    assert len(subjects) == num_users

  def test_people_are_the_same_whatever_their_number(self, paths, tmp_path):
    fewer = digiface.write_digiface(
      tmp_path, num_users=2, seed=_SEED, images_per_user=_IMAGES
    )
    contents = _read(fewer[0])
    assert len(contents) == 2 * _IMAGES
    assert contents.items() <= _read(paths[0]).items()


@pytest.mark.parametrize("name", ["subjects_0-1999_72_imgs.zip", "17"])
def test_other_subjects_are_refused(tmp_path, name):
  if name.endswith(".zip"):
    with zipfile.ZipFile(tmp_path / name, "w") as archive:
      archive.writestr("0/0.png", b"real")
  else:
    (tmp_path / name).mkdir()
  with pytest.raises(errors.DataError, match="from elsewhere"):
    digiface.write_digiface(tmp_path, num_users=1)
  assert os.listdir(tmp_path) == [name]
