"""Tests of the verification of DigiFace's zips."""

import errno
import json
import os
import zipfile

import pytest

from tasks.prepare import digiface
from tff_fedemb import errors

_ZIPS = {
  "subjects_0-1999_72_imgs.zip": ("0/0.png", "0/1.png", "17/0.png"),
  "subjects_100000-133332_5_imgs.zip": ("100000/0.png", "100001/0.png"),
}


@pytest.fixture
def source(tmp_path):
  folder = tmp_path / "source"
  folder.mkdir()
  for name, members in _ZIPS.items():
    with zipfile.ZipFile(folder / name, "w") as archive:
      for member in members:
        archive.writestr(member, f"content of {member}, ".encode() * 3)
      archive.writestr("readme.txt", "of no subject")
  return folder


def _damage(source):
  path = source / "subjects_0-1999_72_imgs.zip"
  content = path.read_bytes()
  for member in (b"content of 0/1.png", b"content of 17/0.png"):
    content = content.replace(member, member.swapcase(), 1)
  path.write_bytes(content)


def test_published_zips_hold_all_identities():
  sizes = {72: 0, 5: 0}
  for first, last, num_images in digiface.PUBLISHED:
    sizes[num_images] += last - first + 1
  # "100 K": the names of the zips add up to one less.
  assert sizes == {72: 10_000, 5: 99_999}


def test_counts_and_missing_zips_are_told(source, capsys):
  assert digiface.verify(source) == 2
  told = capsys.readouterr().out
  assert (
    "Zips: 2 found, missing subjects_2000-3999_72_imgs.zip,"
    " subjects_4000-5999_72_imgs.zip," in told
  )
  num_bytes = len("content of 0/0.png, ") * 6 + len("content of 17/0.png, ") * 3
  assert (
    f"subjects_0-1999_72_imgs.zip: 2 subjects, 3 images, {num_bytes} B." in told
  )
  assert "Verified: 2 zips, 5 images, 0 damaged" in told
  assert "copy of at most about 10.3 kB" in told


def test_verified_zips_are_not_read_again(source, tmp_path, capsys):
  output = tmp_path / "output"
  assert digiface.verify(source, output) == 2
  assert digiface.verify(source, output) == 0
  assert "Nothing to do" in capsys.readouterr().out
  path = source / "subjects_0-1999_72_imgs.zip"
  with zipfile.ZipFile(path, "a") as archive:
    archive.writestr("18/0.png", b"new")
  assert digiface.verify(source, output) == 1
  zips = json.loads((output / "preparation.json").read_text())["zips"]
  assert {name: z["num_subjects"] for name, z in zips.items()} == {
    path.name: 3,
    "subjects_100000-133332_5_imgs.zip": 2,
  }


def test_damaged_images_are_all_named(source, tmp_path):
  _damage(source)
  for _ in range(2):  # The second time from the report of the first.
    with pytest.raises(errors.DataError) as caught:
      digiface.verify(source, tmp_path / "output")
    message = str(caught.value)
    assert "2 bad examples" in message
    assert "subjects_0-1999_72_imgs.zip/0/1.png: Bad CRC-32" in message
    assert "subjects_0-1999_72_imgs.zip/17/0.png: Bad CRC-32" in message


def test_damaged_images_are_listed(source, capsys):
  _damage(source)
  assert digiface.verify(source, on_bad_example="skip") == 2
  told = capsys.readouterr().out
  assert "subjects_0-1999_72_imgs.zip/0/1.png: Bad CRC-32" in told
  assert "2 damaged" in told


def test_disk_that_cannot_be_read(source, tmp_path, monkeypatch):
  def read(archive, name):
    raise OSError(errno.EIO, os.strerror(errno.EIO))

  monkeypatch.setattr(zipfile.ZipFile, "read", read)
  with pytest.raises(
    errors.DataError,
    match=r"subjects_0-1999_72_imgs\.zip must be a file that can be read",
  ):
    digiface.verify(source, tmp_path / "output", on_bad_example="skip")
  assert not list((tmp_path / "output").iterdir())


def test_images_are_those_that_the_task_reads(source, capsys):
  with zipfile.ZipFile(
    source / "subjects_100000-133332_5_imgs.zip", "a"
  ) as archive:
    archive.writestr("100002/0.PNG", b"an image")
    archive.writestr("100002/._0.png", b"none")
  digiface.verify(source)
  assert "3 subjects, 3 images" in capsys.readouterr().out


def test_dry_run_reads_and_writes_nothing(source, tmp_path, capsys):
  _damage(source)
  assert digiface.verify(source, tmp_path / "output", dry_run=True) == 0
  assert not (tmp_path / "output").exists()
  assert "Nothing needs converting" in capsys.readouterr().out


@pytest.mark.parametrize("size", [0, 60, -10])
def test_zip_that_was_cut_off(source, size):
  path = source / "subjects_0-1999_72_imgs.zip"
  path.write_bytes(path.read_bytes()[:size])
  with pytest.raises(errors.DataError, match="must be a whole zip"):
    digiface.verify(source)


def test_no_zips(tmp_path):
  with pytest.raises(errors.DataError, match="must hold some of"):
    digiface.verify(tmp_path)


def test_zip_without_images(source):
  path = source / "subjects_0-1999_72_imgs.zip"
  with zipfile.ZipFile(path, "w") as archive:
    archive.writestr("readme.txt", "x")
  with pytest.raises(errors.DataError, match="found no such file"):
    digiface.verify(source)


def test_report_of_another_task(source, tmp_path):
  (tmp_path / "preparation.json").write_text('{"task": "gld"}')
  with pytest.raises(errors.DataError, match="must be of task"):
    digiface.verify(source, tmp_path)
