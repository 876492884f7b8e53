"""Tests of how downloads of Google Landmarks v2 are found."""

import hashlib
import shutil
import zipfile

import pytest

from tasks.prepare import gld
from tasks.prepare import photo_jobs
from tests.tasks.prepare import made_up
from tff_fedemb import errors

_NAMES = ("federated_train.csv", "test.csv")


def _zip_tables(folder, *names):
  path = folder / "landmarks-user-160k.zip"
  with zipfile.ZipFile(path, "w") as archive:
    archive.writestr("__MACOSX/landmarks-user-160k/._test.csv", "")
    for name in names:
      archive.write(folder / name, f"landmarks-user-160k/{name}")
  return path


def _create_job(source, variant="gld160k"):
  (job,) = gld.create_jobs(source, variant)
  return job


def test_zip_goes_before_a_test_table_of_the_images(source, monkeypatch):
  expected = _create_job(source).files
  path = _zip_tables(source, *_NAMES)
  # The publishers of the images have a table of this name as well.
  table = (source / "test.csv").read_text()
  (source / "test.csv").write_text("id,url\n0,x\n")
  assert _create_job(source).files == expected
  # An unpacked folder goes before the archive.
  folder = source / "landmarks-user-160k"
  folder.mkdir()
  (folder / "test.csv").write_text(table)
  (source / "federated_train.csv").rename(folder / "federated_train.csv")
  assert _create_job(source).files == expected
  shutil.rmtree(folder)
  monkeypatch.setitem(photo_jobs.KNOWN_MD5, path.name, "53c36bd7")
  with pytest.raises(errors.DataError, match="must have MD5 53c36bd7"):
    _create_job(source)


def test_bad_zip(source):
  (source / "landmarks-user-160k.zip").write_text("<html>")
  with pytest.raises(errors.DataError, match="must be a whole zip archive"):
    _create_job(source)
  _zip_tables(source, "test.csv")
  with pytest.raises(errors.DataError, match=r"train\.csv must be a CSV"):
    _create_job(source)


def test_archives_in_a_folder(source):
  (source / "train").mkdir()
  (source / "images_007.tar").rename(source / "train" / "images_007.tar")
  (source / "images_1.tar").write_text("of another name")
  sums = source / "train" / "md5.images_007.txt"
  (source / sums.name).rename(sums)
  sums.write_text(sums.read_text().upper())
  expected = {
    path: hashlib.md5(path.read_bytes()).hexdigest()
    for path in (source / "images_000.tar", source / "train" / "images_007.tar")
  }
  job = _create_job(source)
  assert job.archives == expected
  assert "2 of 500 found, missing images_001.tar" in job.notes[1]


def test_no_tables(tmp_path):
  with pytest.raises(errors.FieldError) as caught:
    gld.create_jobs(tmp_path)
  assert "mini_gld_train_split.csv" in str(caught.value)
  assert "landmarks-user-160k.zip" in str(caught.value)
  with pytest.raises(errors.FieldError, match="mini_gld_test"):
    gld.create_jobs(tmp_path, "gld23k")


def test_both_variants(source):
  made_up.write_gld(source, variant="gld23k")
  assert [j.variant for j in gld.create_jobs(source)] == ["gld23k", "gld160k"]
