"""Tests of photos in archives; the reference is what TFF's functions write."""

import hashlib
import os
import tarfile

import pytest
from tensorflow_federated.python.simulation.datasets import gldv2
from tensorflow_federated.python.simulation.datasets import (
  inaturalist as tff_inaturalist,
)

from tasks.prepare import inaturalist
from tasks.prepare import output as output_lib
from tasks.prepare import photo_jobs
from tests.data import photo_files
from tests.tasks.prepare import made_up
from tff_fedemb import errors

_KNOWN = photo_jobs.KNOWN_MD5
_TRAIN = "user_id,geo,image_id,class\n7,x,b,1\n3,y,a,0\nNA,x,c,1\n7,y,a,1\n"
_TEST = "class,image_id\n4,d\n"


@pytest.mark.parametrize("variant", ["gld160k", "gld23k"])
def test_gld_is_what_tff_writes(tmp_path, output, variant):
  tables = made_up.write_gld(tmp_path / "source", variant=variant)
  assert made_up.prepare_gld(tmp_path / "source", output, variant=variant)
  images = tmp_path / "unpacked"
  images.mkdir()
  for ids in made_up.GLD_TARS.values():
    for image_id in ids:
      content = photo_files.encode(image_id)
      (images / f"{image_id}.jpg").write_bytes(content)
  reference = tmp_path / "reference"
  train, test = map(os.fspath, tables)
  gldv2._create_train_data_files(f"{reference}/train", str(images), train)
  gldv2._create_test_data_file(str(reference), str(images), test)
  records = made_up.read_records(output / variant)
  assert records == made_up.read_records(reference)
  assert {name: len(r) for name, r in records.items()} == {
    "test.tfRecord": 2,
    "train/17": 3,
    "train/9": 2,
  }
  assert os.listdir(output) == [variant]


@pytest.mark.parametrize("variant", ["user_120k", "geo_1k"])
def test_inaturalist_is_what_tff_writes(tmp_path, output, variant):
  source = tmp_path / "source"
  tables = made_up.write_inaturalist(source)
  assert made_up.prepare_inaturalist(source, output, variant)
  paths = tff_inaturalist._generate_image_map(str(source))
  split = tff_inaturalist.INaturalistSplit[variant.upper()]
  train, test = map(os.fspath, tables)
  tff_inaturalist._create_train_data_files(
    paths, str(tmp_path / "reference"), split, train
  )
  tff_inaturalist._create_test_data_file(
    paths, str(tmp_path / "reference"), split, test
  )
  records = made_up.read_records(output / variant)
  assert records == made_up.read_records(tmp_path / "reference" / variant)
  assert len(records) == 3
  assert os.listdir(output) == [variant]


def test_tar_that_is_unpacked(source, output):
  made_up.prepare_gld(source, output)
  elsewhere = source.parent / "elsewhere"
  with tarfile.open(source / "images_007.tar") as archive:
    archive.extractall(elsewhere)
  # Another disk has them; the second link leads to them again.
  (source / "train").symlink_to(elsewhere)
  (elsewhere / "loop").symlink_to(elsewhere)
  (source / "images_007.tar").unlink()
  assert made_up.prepare_gld(source, source / "output")
  assert made_up.read_files(source / "output") == made_up.read_files(output)


class TestChecksums:
  def test_tars_that_differ_are_all_named(self, source, output):
    notes = [source / f"md5.{name[:-4]}.txt" for name in made_up.GLD_TARS]
    right = [note.read_text() for note in notes]
    for note in notes:
      note.write_text("0" * 32)
    with pytest.raises(errors.DataError) as caught:
      made_up.prepare_gld(source, output)
    for name in made_up.GLD_TARS:
      assert f"{source / name} must have MD5 {'0' * 32}" in str(caught.value)
    assert not (output / "gld160k").exists()
    for note, text in zip(notes, right, strict=True):
      note.write_text(text)
    assert made_up.prepare_gld(source, output)

  def test_tar_without_checksum_is_told(self, source, output, capsys):
    (source / "md5.images_007.txt").unlink()
    assert made_up.prepare_gld(source, output)
    told = capsys.readouterr().out
    assert "Without a checksum: images_007.tar." in told

  def test_of_a_table(self, tmp_path, monkeypatch):
    made_up.write_inaturalist(tmp_path / "source")
    monkeypatch.setattr(photo_jobs, "KNOWN_MD5", _KNOWN)
    with pytest.raises(errors.DataError, match=r"csv must have MD5 63d5"):
      inaturalist.create_jobs(tmp_path / "source")


@pytest.mark.parametrize("size", [0, 700, 3000, None])
def test_tar_that_was_cut_off(source, output, size):
  path = source / "images_007.tar"
  content = path.read_bytes()
  if size is None:  # Right after the last image.
    size = len(content.rstrip(b"\0")) // 512 * 512 + 512
  path.write_bytes(content[:size])
  with pytest.raises(
    errors.DataError, match=f"{path.name} must be a whole tar"
  ):
    made_up.prepare_gld(source, output)


def _read_tables(tmp_path, train=_TRAIN, **options):
  content = train if isinstance(train, bytes) else train.encode()
  (tmp_path / "train.csv").write_bytes(content)
  (tmp_path / "test.csv").write_text(_TEST)
  return photo_jobs.read_tables(
    tmp_path / "train.csv",
    tmp_path / "test.csv",
    **{"user_column": "user_id", **options},
  )


def test_rows_keep_their_order(tmp_path):
  files, md5 = _read_tables(tmp_path)
  assert list(files.items()) == [
    # Image c is of no user.
    ("train/7", [output_lib.Row("b", 1), output_lib.Row("a", 1)]),
    ("train/3", [output_lib.Row("a", 0)]),
    ("test.tfRecord", [output_lib.Row("d", 4)]),
  ]
  assert list(md5.items()) == [
    ("test.csv", hashlib.md5(_TEST.encode()).hexdigest()),
    ("train.csv", hashlib.md5(_TRAIN.encode()).hexdigest()),
  ]
  files, _ = _read_tables(tmp_path, user_column="geo")
  assert list(files) == ["train/x", "train/y", "test.tfRecord"]


@pytest.mark.parametrize(
  ("rows", "message"),
  [
    (b"", "must be a CSV file in UTF-8.* No columns"),
    (b"id,class\n1,2\n", "found 1 rows of id, class"),
    ("", "must have rows, .* found 0 rows of user_id, image_id, class"),
    ("1,a,x", "in row 1, .* found .*'x'"),
    ("1,a,0\n1,a,-1", "in row 2, .* found .*'-1'"),
    ("1,a,9223372036854775808", "in row 1"),
    ("1,a", "in row 1, .* found"),
    ('"1,a,3\n"2,b,3', "a quotation mark in row 2 that does not enclose"),
    ("1,,3", "in row 1, .* found"),
    ("NA,a,3", "must have users in column"),
    ("../1,a,3", "name files"),
    ("..,a,3", "name files"),
    ("1.partial,a,3", "name files"),
    (b"user_id,image_id,class\n\xff,a,3", "CSV file in UTF-8"),
  ],
)
def test_bad_table_is_named(tmp_path, rows, message):
  header = "user_id,image_id,class\n"
  content = rows if isinstance(rows, bytes) else header + rows
  with pytest.raises(errors.DataError, match=message) as caught:
    _read_tables(tmp_path, content)
  assert str(tmp_path / "train.csv") in str(caught.value)
