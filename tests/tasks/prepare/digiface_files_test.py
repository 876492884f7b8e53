"""Tests of how DigiFace's files are found and read."""

import errno
import os
import pathlib
import shutil
import zipfile

import pytest

from tasks.prepare import digiface_files
from tasks.prepare import output
from tests.tasks import faces
from tff_fedemb import errors


def _sources(folder):
  return [
    s for part in digiface_files.find_sources(folder).values() for s in part
  ]


@pytest.mark.parametrize("layout", sorted(faces.LAYOUTS))
def test_every_layout_gives_the_same_images(tmp_path, layout):
  contents = faces.create_contents()
  faces.LAYOUTS[layout](tmp_path, contents)
  sources = _sources(tmp_path)
  read = digiface_files.create_reader(sources)
  found = {
    subject: list(map(read, names))
    for source in sources
    for subject, names in digiface_files.list_subjects(source).items()
  }
  assert found == contents


def test_images_are_told_from_other_files_and_sorted_by_number(tmp_path):
  path = tmp_path / "subjects_0-1999_72_imgs.zip"
  with zipfile.ZipFile(path, "w") as archive:
    for name in ("10.PNG", "9.png", "._9.png", "notes.txt"):
      archive.writestr(f"17/{name}", b"12")
    archive.writestr("readme.txt", b"of no subject")
  (source,) = _sources(tmp_path)
  assert {
    subject: list(sizes.items())
    for subject, sizes in digiface_files.list_subjects(source).items()
  } == {17: [(f"{path.name}/17/9.png", 2), (f"{path.name}/17/10.PNG", 2)]}


class TestFingerprint:
  def _compute(self, folder):
    return list(map(digiface_files.fingerprint, _sources(folder)))

  @pytest.mark.parametrize("layout", ["zips", "mixture"])
  def test_stays_when_the_data_move_and_changes_with_a_file(
    self, tmp_path, layout
  ):
    data = tmp_path / "data"
    faces.LAYOUTS[layout](data, faces.create_contents())
    before = self._compute(data)
    shutil.move(data, tmp_path / "elsewhere")
    assert self._compute(tmp_path / "elsewhere") == before
    shutil.rmtree(tmp_path / "elsewhere")
    damage = {"4/1.png": b"?", "100001/1.png": b"?"}
    faces.LAYOUTS[layout](data, faces.create_contents(), damage=damage)
    assert not set(self._compute(data)) & set(before[:1])

  def test_two_parts_of_a_folder_have_their_own(self, tmp_path):
    faces.write_folders(tmp_path, faces.create_contents(), [0, 100_000])
    first = self._compute(tmp_path)
    assert len(set(first)) == 2
    (tmp_path / "100000" / "9.png").write_bytes(b"new")
    second = self._compute(tmp_path)
    assert second[0] == first[0] and second[1] != first[1]


@pytest.mark.parametrize("size", [0, 60, -10])
def test_zip_that_was_cut_off(tmp_path, size):
  path = faces.write_zip(tmp_path / faces.MANY, faces.create_contents(), [0])
  path.write_bytes(path.read_bytes()[:size])
  with pytest.raises(errors.DataError, match="must be a whole zip archive"):
    digiface_files.list_subjects(*_sources(tmp_path))


@pytest.mark.parametrize("kind", ["zip", "folder"])
def test_source_without_identities(tmp_path, kind):
  path = tmp_path / faces.MANY.removesuffix(".zip")
  if kind == "zip":
    path = path.with_name(faces.MANY)
    with zipfile.ZipFile(path, "w") as archive:
      archive.writestr("readme.txt", "none")
  else:
    path.mkdir()
    (path / "readme.txt").write_text("none")
  with pytest.raises(errors.DataError) as caught:
    digiface_files.list_subjects(*_sources(tmp_path))
  assert str(caught.value).startswith(f"{path} must hold <subject id>/<k>.png")


@pytest.mark.parametrize("write", [faces.write_zip, faces.write_folders])
def test_subjects_must_be_those_of_the_name(tmp_path, write):
  name = "subjects_0-5_3_imgs" + ".zip" * (write is faces.write_zip)
  write(tmp_path / name, faces.create_contents(), range(8))
  with pytest.raises(
    errors.DataError, match="subjects 0 to 5, as its name says, found 6"
  ):
    digiface_files.list_subjects(*_sources(tmp_path))


@pytest.mark.parametrize(
  ("code", "error"),
  [
    (errno.EIO, errors.DataError),
    # A place before the start of the file.
    (errno.EINVAL, output.BadImageError),
  ],
)
def test_damage_of_disk_and_of_zip_are_told_apart(
  tmp_path, monkeypatch, code, error
):
  path = faces.write_zip(tmp_path / faces.MANY, faces.create_contents(), [0])
  faces.write_folders(tmp_path, faces.create_contents(), [1])

  def fail(*_):
    raise OSError(code, os.strerror(code))

  monkeypatch.setattr(zipfile.ZipFile, "read", fail)
  monkeypatch.setattr(pathlib.Path, "read_bytes", fail)
  read = digiface_files.create_reader(_sources(tmp_path))
  for name, place in (
    (f"{path.name}/0/1.png", path),
    ("1/1.png", tmp_path / "1" / "1.png"),
  ):
    with pytest.raises(error, match=os.strerror(code)) as caught:
      read(name)
    if error is errors.DataError:
      assert str(caught.value).startswith(f"{place} must be a file that can be")
