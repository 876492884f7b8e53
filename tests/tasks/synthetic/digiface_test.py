"""Tests of the zips of faces against `zipfile` and Pillow."""

import io
import itertools
import os
import shutil
import zipfile

import numpy as np
from PIL import Image
import pytest

from tasks.synthetic import digiface
from tasks.synthetic import faces
from tff_fedemb import errors

_NUM_USERS = 17
_IMAGES = 3
_SEED = 3
_MANY, _FEW = 9, 8


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
    assert list(_read(paths[0])) == [
      f"{subject}/{image}.png"
      for subject, image in itertools.product(range(_MANY), range(_IMAGES))
    ]
    assert list(_read(paths[1])) == [
      f"{subject}/{image}.png"
      for subject, image in itertools.product(
        range(100_000, 100_000 + _FEW), range(5)
      )
    ]

  def test_images_are_png_of_the_real_size(self, paths):
    for path in paths:
      for content in _read(path).values():
        with Image.open(io.BytesIO(content)) as image:
          assert (image.format, image.mode) == ("PNG", "RGB")
          assert image.size == (112, 112)
          assert np.asarray(image).std() > 10

  def test_a_subject_is_the_person_drawn(self, paths):
    generator = np.random.default_rng(np.random.SeedSequence([_SEED, 100_002]))
    person = faces.create_person(generator)
    images = faces.draw_images(person, generator, 5)
    contents = _read(paths[1])
    for number, image in enumerate(images):
      np.testing.assert_array_equal(
        Image.open(io.BytesIO(contents[f"100002/{number}.png"])), image
      )

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
      faces, "draw_images", lambda *_: np.zeros((2, 1, 1, 3), np.uint8)
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
    other = digiface.write_digiface(
      tmp_path / "other", num_users=1, seed=_SEED + 1, images_per_user=_IMAGES
    )
    assert not set(_read(other[0]).values()) & set(_read(paths[0]).values())


class TestExistingFiles:
  @pytest.mark.parametrize("name", ["subjects_0-1999_72_imgs.zip", "17"])
  def test_files_from_elsewhere_are_refused(self, tmp_path, name):
    if name.endswith(".zip"):
      with zipfile.ZipFile(tmp_path / name, "w") as archive:
        archive.writestr("0/0.png", b"real")
    else:
      (tmp_path / name).mkdir()
    with pytest.raises(errors.DataError, match="from elsewhere"):
      digiface.write_digiface(tmp_path, num_users=1)
    assert os.listdir(tmp_path) == [name]

  def test_a_missing_zip_is_written_again(self, paths, tmp_path):
    again = [shutil.copy(path, tmp_path) for path in paths]
    os.unlink(again[1])
    assert again == digiface.write_digiface(
      tmp_path, num_users=_NUM_USERS, seed=_SEED, images_per_user=_IMAGES
    )
    for path, other in zip(paths, again, strict=True):
      with open(path, "rb") as file, open(other, "rb") as other_file:
        assert file.read() == other_file.read()


@pytest.mark.parametrize(
  "arguments",
  [
    {"num_users": 0},
    {"num_users": 100_001},
    {"seed": -1},
    {"images_per_user": 1},
  ],
)
def test_arguments_out_of_range(tmp_path, arguments):
  (name,) = arguments
  with pytest.raises(errors.FieldError, match=f"{name} must be a"):
    digiface.write_digiface(tmp_path / "new", **arguments)
  assert not os.listdir(tmp_path)


class TestContactSheet:
  def test_one_row_a_person(self, paths, tmp_path):
    sheet = tmp_path / "sheet.png"
    digiface.contact_sheet(
      os.path.dirname(paths[0]), sheet, num_users=4, num_images=3, side=112
    )
    with Image.open(sheet) as picture:
      assert picture.size == (3 * 114, 4 * 114)
      pixels = np.asarray(picture.convert("RGB")).astype(int)
    # The zip with 5 images each is the one shown.
    contents = _read(paths[1])
    for row, column in itertools.product(range(4), range(3)):
      image = np.asarray(
        Image.open(io.BytesIO(contents[f"{100_000 + row}/{column}.png"]))
      )
      shown = pixels[row * 114 + 1 :, column * 114 + 1 :][:112, :112]
      # The picture has 256 colours.
      assert np.abs(shown - image).mean() < 12
    assert np.all(pixels[0] > 240)

  def test_no_zip(self, tmp_path):
    with pytest.raises(FileNotFoundError, match="must hold subjects_"):
      digiface.contact_sheet(tmp_path, tmp_path / "sheet.png")
    assert not os.listdir(tmp_path)
