"""Tests of how downloads of Google Landmarks v2 are found."""

import hashlib
import zipfile

import pytest

from tasks.prepare import gld
from tests.tasks.prepare import made_up
from tff_fedemb import errors


def _zip_tables(folder, *names):
  path = folder / "landmarks-user-160k.zip"
  with zipfile.ZipFile(path, "w") as archive:
    archive.writestr("__MACOSX/landmarks-user-160k/._test.csv", "")
    for name in names:
      archive.write(folder / name, f"landmarks-user-160k/{name}")
  return path


@pytest.fixture
def source(tmp_path):
  made_up.write_gld(tmp_path)
  return tmp_path


def test_zip_goes_before_a_test_table_of_the_images(source):
  expected = gld.create_job(source, "gld160k").tables
  path = _zip_tables(source, "federated_train.csv", "test.csv")
  # The publishers of the images have a table of this name as well.
  (source / "test.csv").write_text("id,url\n0,x\n")
  known_md5 = {path.name: hashlib.md5(path.read_bytes()).hexdigest()}
  job = gld.create_job(source, "gld160k", known_md5=known_md5)
  assert job.tables == expected
  with pytest.raises(errors.DataError, match="must have MD5 53c36bd7"):
    gld.create_job(source, "gld160k")


def test_unpacked_zip_goes_before_it(source):
  expected = gld.create_job(source, "gld160k").tables
  (source / "landmarks-user-160k.zip").write_text("not looked at")
  folder = source / "landmarks-user-160k"
  folder.mkdir()
  for name in ("federated_train.csv", "test.csv"):
    (source / name).rename(folder / name)
  assert gld.create_job(source, "gld160k").tables == expected


@pytest.mark.parametrize("text", ["", "<html>"])
def test_zip_that_is_none(source, text):
  (source / "landmarks-user-160k.zip").write_text(text)
  with pytest.raises(errors.DataError, match="must be a zip archive"):
    gld.create_job(source, "gld160k", known_md5={})


def test_zip_without_a_table(source):
  _zip_tables(source, "test.csv")
  with pytest.raises(errors.DataError, match=r"found no federated_train\.csv"):
    gld.create_job(source, "gld160k", known_md5={})


def test_archives_in_a_folder(source):
  (source / "train").mkdir()
  (source / "images_007.tar").rename(source / "train" / "images_007.tar")
  (source / "images_1.tar").write_text("of another name")
  (source / "md5sum" / "train").mkdir(parents=True)
  sums = source / "md5.images_007.txt"
  md5 = sums.read_text().split()[0]
  sums.rename(source / "md5sum" / "train" / sums.name)
  job = gld.create_job(source, "gld160k")
  assert {
    str(archive.path.relative_to(source)): archive.md5
    for archive in job.archives
  } == {
    "images_000.tar": (
      hashlib.md5((source / "images_000.tar").read_bytes()).hexdigest()
    ),
    "train/images_007.tar": md5,
  }
  assert "2 of 500 found, missing images_001.tar" in job.notes[1]


def test_no_tables(tmp_path):
  assert gld.create_job(tmp_path, "gld23k") is None
  with pytest.raises(errors.FieldError) as caught:
    gld.create_jobs(tmp_path)
  assert "mini_gld_train_split.csv" in str(caught.value)
  assert "landmarks-user-160k.zip" in str(caught.value)
  with pytest.raises(errors.FieldError, match="mini_gld_test"):
    gld.create_jobs(tmp_path, "gld23k")


def test_table_of_another_checksum(tmp_path):
  made_up.write_gld(tmp_path, variant="gld23k")
  with pytest.raises(
    errors.DataError,
    match=r"mini_gld_train_split\.csv must have MD5 9fd62cf7",
  ):
    gld.create_jobs(tmp_path)
