"""Tests of photos in archives; the reference is what TFF's functions write."""

import hashlib
import os
import re
import tarfile

import pytest
from tensorflow_federated.python.simulation.datasets import gldv2
from tensorflow_federated.python.simulation.datasets import (
  inaturalist as tff_inaturalist,
)

from tasks.prepare import inaturalist
from tasks.prepare import photo_jobs
from tests.tasks.prepare import made_up
from tff_fedemb import errors

_KNOWN = photo_jobs.KNOWN_MD5


def test_known_md5_are_md5():
  for md5 in _KNOWN.values():
    assert re.fullmatch("[0-9a-f]{32}", md5)


@pytest.mark.parametrize("variant", ["gld160k", "gld23k"])
def test_gld_is_what_tff_writes(tmp_path, output, variant):
  tables = made_up.write_gld(tmp_path / "source", variant=variant)
  assert made_up.prepare_gld(tmp_path / "source", output, variant=variant)
  images = tmp_path / "unpacked"
  images.mkdir()
  for ids in made_up.GLD_TARS.values():
    for image_id in ids:
      content = made_up.create_jpeg(image_id)
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


@pytest.mark.parametrize(
  ("archived", "variant"), [(True, "user_120k"), (False, "geo_1k")]
)
def test_inaturalist_is_what_tff_writes(tmp_path, output, archived, variant):
  source = tmp_path / "source"
  tables = made_up.write_inaturalist(source, archived=archived)
  assert made_up.prepare_inaturalist(source, output, variant)
  made_up.write_inaturalist(tmp_path / "unpacked", archived=False)
  paths = tff_inaturalist._generate_image_map(str(tmp_path / "unpacked"))
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
  with tarfile.open(source / "images_007.tar") as archive:
    archive.extractall(source / "train")
  (source / "images_007.tar").unlink()
  assert made_up.prepare_gld(source, source / "output")
  assert made_up.read_files(source / "output") == made_up.read_files(output)


def test_compressed_images_count_twice(tmp_path, output, capsys):
  made_up.write_inaturalist(tmp_path / "source", archived=True)
  made_up.prepare_inaturalist(tmp_path / "source", output, dry_run=True)
  told = capsys.readouterr().out
  # Six images of 300 kB, unpacked and written, in three files.
  assert "Disk: 3.61MB needed (estimated, with unpacked images)" in told
  assert (
    "Images: 0 found, 6 to be looked for in train_val_images.tar.gz,"
    " test2017.tar.gz." in told
  )
  assert not output.exists()


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
    assert "1 of 2 archives have one; none: images_007.tar." in told

  def test_of_compressed_archive_and_of_table(
    self, tmp_path, output, monkeypatch
  ):
    source, name = tmp_path / "source", "train_val_images.tar.gz"
    made_up.write_inaturalist(source, archived=True)
    right = hashlib.md5((source / name).read_bytes()).hexdigest()
    monkeypatch.setitem(photo_jobs.KNOWN_MD5, name, "0" * 32)
    with pytest.raises(errors.DataError, match=f"{name} must have MD5 000"):
      made_up.prepare_inaturalist(source, output)
    monkeypatch.setitem(photo_jobs.KNOWN_MD5, name, right)
    assert made_up.prepare_inaturalist(source, output)
    monkeypatch.setattr(photo_jobs, "KNOWN_MD5", _KNOWN)
    with pytest.raises(errors.DataError, match=r"csv must have MD5 63d5"):
      inaturalist.create_jobs(source)


@pytest.mark.parametrize(
  ("name", "size"),
  [("images_007.tar", size) for size in (0, 700, 3000, None)]
  + [("train_val_images.tar.gz", size) for size in (0, 5, 2000, -4)],
)
def test_tar_that_was_cut_off(source, output, monkeypatch, name, size):
  # As in a large archive, its end is not read along with its images.
  monkeypatch.setattr(photo_jobs, "_CHUNK", 512)
  prepare = made_up.prepare_gld
  if name.endswith(".gz"):
    source, prepare = source / "compressed", made_up.prepare_inaturalist
    made_up.write_inaturalist(source, archived=True)
  content = (source / name).read_bytes()
  if size is None:  # Right after the last image.
    size = len(content.rstrip(b"\0")) // 512 * 512 + 512
  (source / name).write_bytes(content[:size])
  with pytest.raises(errors.DataError, match=f"{name} must be a whole tar"):
    prepare(source, output)
