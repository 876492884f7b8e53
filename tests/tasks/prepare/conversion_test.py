"""Tests of the conversion; the reference is what TFF's own functions write."""

import collections
import json
import os
import tarfile

import pytest
from tensorflow_federated.python.simulation.datasets import gldv2
from tensorflow_federated.python.simulation.datasets import (
  inaturalist as tff_inaturalist,
)

from tasks.prepare import conversion
from tasks.prepare import downloads
from tasks.prepare import gld
from tasks.prepare import image_search
from tasks.prepare import inaturalist
from tasks.prepare import output as output_lib
from tests.tasks.prepare import made_up
from tff_fedemb import errors
from tff_fedemb.data import tfrecord_writing

_Usage = collections.namedtuple("_Usage", ["free"])


class _KilledError(Exception):
  pass


def _prepare_gld(
  source, output, *, variant="gld160k", dry_run=False, **options
):
  results = [
    conversion.Preparation(job, output, **options).run(dry_run=dry_run)
    for job in gld.create_jobs(source, variant, known_md5={})
  ]
  return results == [True]


def _prepare_inaturalist(source, output, variant="user_120k", known_md5=None):
  (job,) = inaturalist.create_jobs(
    source, variant, known_md5=known_md5 or made_up.md5_of(source)
  )
  return conversion.Preparation(job, output).run()


@pytest.fixture(autouse=True)
def _fast(monkeypatch):
  """Leaves out what only a power cut would show."""
  monkeypatch.setattr(os, "fsync", lambda file: None)
  monkeypatch.setattr(os, "sync", lambda: None)


@pytest.fixture
def source(tmp_path):
  made_up.write_gld(tmp_path / "source")
  return tmp_path / "source"


@pytest.fixture
def output(tmp_path):
  return tmp_path / "output"


@pytest.mark.parametrize("variant", ["gld160k", "gld23k"])
def test_gld_is_what_tff_writes(tmp_path, output, variant):
  tables = made_up.write_gld(tmp_path / "source", variant=variant)
  assert _prepare_gld(tmp_path / "source", output, variant=variant)
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


@pytest.mark.parametrize("archived", [True, False])
@pytest.mark.parametrize("variant", ["user_120k", "geo_1k"])
def test_inaturalist_is_what_tff_writes(tmp_path, output, archived, variant):
  source = tmp_path / "source"
  tables = made_up.write_inaturalist(source, archived=archived)
  assert _prepare_inaturalist(source, output, variant)
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


def _raise_at(call, function):
  """A function that is killed at a call, before (even) or after it (odd)."""
  calls = 0

  def wrapped(*args, **kwargs):
    nonlocal calls
    calls += 1
    if calls == call // 2 + 1 and call % 2 == 0:
      raise _KilledError
    result = function(*args, **kwargs)
    if calls == call // 2 + 1:
      raise _KilledError
    return result

  return wrapped


class TestKilled:
  """A program that was killed goes on, and makes the same files."""

  @pytest.mark.parametrize(
    ("module", "name", "call"),
    [(image_search, "list_tar", call) for call in range(4)]
    + [(downloads, "compute_md5", call) for call in range(4)]
    + [(tfrecord_writing, "write_records", call) for call in range(6)]
    + [(tfrecord_writing, "serialize_image", call) for call in (3, 7)],
  )
  def test_gld(self, source, output, tmp_path, monkeypatch, module, name, call):
    _prepare_gld(source, tmp_path / "reference")
    with monkeypatch.context() as patch:
      patch.setattr(module, name, _raise_at(call, getattr(module, name)))
      with pytest.raises(_KilledError):
        _prepare_gld(source, output)
    assert os.listdir(output) == ["gld160k.partial"]
    # What a program that is killed, rather than raises, leaves behind.
    train = output / "gld160k.partial" / "data" / "train"
    (train / "17.partial").write_bytes(b"half")
    assert _prepare_gld(source, output)
    assert made_up.read_files(output) == made_up.read_files(
      tmp_path / "reference"
    )

  @pytest.mark.parametrize("call", range(12))
  def test_while_it_unpacks(self, output, tmp_path, monkeypatch, call):
    source = tmp_path / "source"
    made_up.write_inaturalist(source, archived=True)
    _prepare_inaturalist(source, tmp_path / "reference")
    with monkeypatch.context() as patch:
      # All that it takes to unpack: two archives of four and two images.
      for owner, name in (
        (image_search.tarfile.TarFile, "extractfile"),
        (image_search.shutil, "rmtree"),
      ):
        patch.setattr(owner, name, _raise_at(call, getattr(owner, name)))
      with pytest.raises(_KilledError):
        _prepare_inaturalist(source, output)
    for image in output.rglob("*.jpg"):
      if image.parent.name.startswith("."):
        image.write_bytes(b"half of an image")
    assert _prepare_inaturalist(source, output)
    assert made_up.read_files(output) == made_up.read_files(
      tmp_path / "reference"
    )

  def test_finished_work_is_not_done_again(self, source, output, monkeypatch):
    write = tfrecord_writing.write_records
    with monkeypatch.context() as patch:
      patch.setattr(tfrecord_writing, "write_records", _raise_at(3, write))
      with pytest.raises(_KilledError):
        _prepare_gld(source, output)
    written = []
    monkeypatch.setattr(
      tfrecord_writing,
      "write_records",
      lambda path, records: (written.append(path.name), write(path, records)),
    )
    monkeypatch.setattr(downloads, "compute_md5", None)
    assert _prepare_gld(source, output)
    assert written == ["test.tfRecord"]

  def test_archive_that_is_another_when_it_goes_on(
    self, source, output, tmp_path, monkeypatch
  ):
    _prepare_gld(source, tmp_path / "reference")
    with monkeypatch.context() as patch:
      write = tfrecord_writing.write_records
      patch.setattr(tfrecord_writing, "write_records", _raise_at(1, write))
      with pytest.raises(_KilledError):
        _prepare_gld(source, output)
    # The same images, at other places.
    ids = reversed(made_up.GLD_TARS["images_000.tar"])
    contents = {f"{i}.jpg": made_up.create_jpeg(i) for i in ("aaa", *ids)}
    made_up.write_tar(source / "images_000.tar", contents)
    made_up.write_md5(source / "images_000.tar")
    assert _prepare_gld(source, output)
    assert made_up.read_files(output) == made_up.read_files(
      tmp_path / "reference"
    )

  def test_before_the_last_step(self, source, output, monkeypatch, capsys):
    with monkeypatch.context() as patch:
      patch.setattr(conversion.shutil, "rmtree", _raise_at(0, None))
      with pytest.raises(_KilledError):
        _prepare_gld(source, output)
    assert not _prepare_gld(source, output)
    assert "Nothing to do" in capsys.readouterr().out
    assert os.listdir(output) == ["gld160k"]


def test_finished_output_is_left_alone(source, output, capsys):
  _prepare_gld(source, output)
  before = made_up.read_files(output)
  capsys.readouterr()
  assert not _prepare_gld(source, output)
  assert capsys.readouterr().out == (
    f"{output}/gld160k is complete (0 bad examples were left out). Nothing to"
    " do.\n"
  )
  assert made_up.read_files(output) == before


class TestAnotherTable:
  def _change_table(self, source):
    made_up.write_table(
      source / "test.csv", ("image_id", "class"), [("cd4", 1)]
    )

  def test_finished(self, source, output):
    _prepare_gld(source, output)
    before = made_up.read_files(output)
    self._change_table(source)
    with pytest.raises(errors.DataError, match=r"test\.csv \(MD5"):
      _prepare_gld(source, output)
    assert made_up.read_files(output) == before

  def test_begun(self, source, output, monkeypatch):
    with monkeypatch.context() as patch:
      patch.setattr(tfrecord_writing, "write_records", _raise_at(1, print))
      with pytest.raises(_KilledError):
        _prepare_gld(source, output)
    self._change_table(source)
    with pytest.raises(errors.DataError, match="was begun from"):
      _prepare_gld(source, output)

  def test_folder_of_unknown_origin(self, source, output):
    (output / "gld160k" / "train").mkdir(parents=True)
    with pytest.raises(errors.DataError, match="prepared by this"):
      _prepare_gld(source, output)

  def test_variants_lie_beside_each_other(self, source, output):
    made_up.write_gld(source, variant="gld23k")
    assert _prepare_gld(source, output)
    assert _prepare_gld(source, output, variant="gld23k")
    assert sorted(os.listdir(output)) == ["gld160k", "gld23k"]
    jobs = gld.create_jobs(source, known_md5={})
    assert [job.variant for job in jobs] == ["gld23k", "gld160k"]


class TestChecksums:
  def test_tars_that_differ_are_all_named(self, source, output):
    for name in made_up.GLD_TARS:
      (source / f"md5.{name[:-4]}.txt").write_text("0" * 32)
    with pytest.raises(errors.DataError) as caught:
      _prepare_gld(source, output)
    message = str(caught.value)
    assert f"{source}/images_000.tar must have MD5 {'0' * 32}" in message
    assert f"{source}/images_007.tar must have MD5 {'0' * 32}" in message
    assert not (output / "gld160k").exists()

  def test_tar_that_is_fetched_again(self, source, output):
    path = source / "images_007.tar"
    whole = path.read_bytes()
    damaged = bytearray(whole)
    damaged[700] ^= 1
    path.write_bytes(damaged)
    with pytest.raises(errors.DataError, match="images_007"):
      _prepare_gld(source, output)
    path.write_bytes(whole)
    assert _prepare_gld(source, output)

  def test_tar_without_checksum_is_told(self, source, output, capsys):
    (source / "md5.images_007.txt").unlink()
    assert _prepare_gld(source, output)
    told = capsys.readouterr().out
    assert "1 of 2 archives have one; none: images_007.tar." in told

  @pytest.mark.parametrize("text", ["", "abc", "<html>"])
  def test_checksum_file_that_is_none(self, source, output, text):
    (source / "md5.images_000.txt").write_text(text)
    with pytest.raises(errors.DataError, match=r"md5\.images_000"):
      _prepare_gld(source, output)

  def test_compressed_archive(self, tmp_path, output):
    source = tmp_path / "source"
    made_up.write_inaturalist(source, archived=True)
    right = made_up.md5_of(source)
    wrong = right | {"train_val_images.tar.gz": "0" * 32}
    with pytest.raises(errors.DataError, match="train_val_images"):
      _prepare_inaturalist(source, output, known_md5=wrong)
    assert _prepare_inaturalist(source, output, known_md5=right)

  def test_table(self, tmp_path):
    source = tmp_path / "source"
    made_up.write_inaturalist(source, archived=True)
    with pytest.raises(
      errors.DataError,
      match=r"iNaturalist_train\.csv must have MD5 63d5a4",
    ):
      inaturalist.create_jobs(source)


class TestDamagedArchives:
  @pytest.mark.parametrize("size", [0, 700, 1024, 3000, -1024, -10_240])
  def test_tar_that_was_cut_off(self, source, output, size):
    path = source / "images_007.tar"
    content = path.read_bytes()
    if size == -1024:  # Right after the last image.
      size = len(content.rstrip(b"\0")) // 512 * 512 + 512
    path.write_bytes(content[:size])
    (source / "md5.images_007.txt").unlink()
    with pytest.raises(errors.DataError) as caught:
      _prepare_gld(source, output)
    assert f"{path} must be a whole tar archive" in str(caught.value)

  @pytest.mark.parametrize("size", [0, 5, 2000, -4])
  def test_compressed_tar_that_was_cut_off(
    self, tmp_path, output, monkeypatch, size
  ):
    # As in a large archive, its end is not read along with its images.
    monkeypatch.setattr(image_search, "_CHUNK", 512)
    source = tmp_path / "source"
    made_up.write_inaturalist(source, archived=True)
    path = source / "train_val_images.tar.gz"
    path.write_bytes(path.read_bytes()[:size])
    with pytest.raises(errors.DataError) as caught:
      _prepare_inaturalist(source, output)
    assert f"{path} must be a whole tar archive" in str(caught.value)


class TestBadImages:
  def _write(self, source):
    """One image of user 17 is missing; of one of user 9, half is."""
    jpeg = made_up.create_jpeg("cd1")
    made_up.write_gld(source, images={"cd1": jpeg[: len(jpeg) // 2]})
    contents = {i: made_up.create_jpeg(i) for i in ("cd4", "ab0")}
    made_up.write_tar(
      source / "images_007.tar",
      {f"a/b/c/{i}.jpg": c for i, c in contents.items()},
    )
    made_up.write_md5(source / "images_007.tar")

  def test_missing_ones_are_named(self, source, output):
    self._write(source)
    with pytest.raises(
      errors.DataError, match=r"1 bad example: image ef2: not in"
    ):
      _prepare_gld(source, output)

  def test_damaged_ones_are_all_named(self, source, output):
    images = {"cd1": b"no image", "ef5": b"", "ab3": b"\xff\xd8\xff"}
    made_up.write_gld(source, images=images)
    with pytest.raises(errors.DataError) as caught:
      _prepare_gld(source, output)
    message = str(caught.value)
    assert "3 bad examples" in message
    for file, image_id in (
      ("train/9", "cd1"),
      ("test.tfRecord", "ef5"),
      ("train/17", "ab3"),
    ):
      assert f"{file}: image {image_id}: cannot be decoded" in message
    # They may be left out after all, and what is finished stays.
    assert _prepare_gld(source, output, on_bad_example="skip")

  def test_skipped_ones_are_listed(self, source, output, capsys):
    self._write(source)
    assert _prepare_gld(source, output, on_bad_example="skip")
    assert "2 bad examples left out" in capsys.readouterr().out
    report = json.loads((output / "gld160k/preparation.json").read_text())
    assert report["left_out"] == [
      "train/17: image ef2: not found in any archive",
      "train/9: image cd1: cannot be decoded",
    ]
    assert report["num_left_out"] == 2
    assert report["num_images"] == len(made_up.GLD_TRAIN) + 2 - 2
    assert report["num_users"] == 2
    labels = {
      name: [dict((k, i) for k, _, i in r)["class"][0] for r in records]
      for name, records in made_up.read_records(output / "gld160k").items()
    }
    assert labels == {
      "test.tfRecord": [0, 1],
      "train/17": [2, 2],
      "train/9": [2],
    }
    with pytest.raises(errors.DataError, match="2 bad examples"):
      _prepare_gld(source, output)
    capsys.readouterr()
    assert not _prepare_gld(source, output, on_bad_example="skip")
    told = capsys.readouterr().out
    assert "1 of them were not found in any archive" in told
    assert f"remove {output}/gld160k and run again" in told

  @pytest.mark.parametrize("on_bad_example", ["fail", "skip"])
  def test_no_images_at_all(self, source, output, on_bad_example):
    for name in made_up.GLD_TARS:
      (source / name).unlink()
    with pytest.raises(errors.FieldError, match="found none of 6 in"):
      _prepare_gld(source, output, on_bad_example=on_bad_example)

  def test_user_without_images_has_no_file(self, source, output):
    made_up.write_gld(source, images={"cd1": b"", "ab0": b""})
    assert _prepare_gld(source, output, on_bad_example="skip")
    assert os.listdir(output / "gld160k" / "train") == ["17"]
    report = json.loads((output / "gld160k/preparation.json").read_text())
    assert report["num_users_without_images"] == 1
    assert report["num_left_out"] == 3

  def test_test_set_without_images(self, source, output):
    made_up.write_gld(source, images={"cd4": b"", "ef5": b""})
    with pytest.raises(errors.DataError, match="must have images"):
      _prepare_gld(source, output, on_bad_example="skip")

  def test_image_that_turns_up_before_the_end(
    self, source, output, tmp_path, monkeypatch
  ):
    _prepare_gld(source, tmp_path / "reference")
    tar = source / "images_000.tar"
    tar.rename(source / "elsewhere")
    with monkeypatch.context() as patch:
      write = tfrecord_writing.write_records
      patch.setattr(tfrecord_writing, "write_records", _raise_at(3, write))
      with pytest.raises(_KilledError):
        _prepare_gld(source, output, on_bad_example="skip")
    (source / "elsewhere").rename(tar)
    assert _prepare_gld(source, output, on_bad_example="skip")
    assert made_up.read_files(output) == made_up.read_files(
      tmp_path / "reference"
    )


class TestDisk:
  def test_too_small(self, source, output):
    asked = []

    def disk_usage(path):
      asked.append(path)
      return _Usage(20_000)

    with pytest.raises(errors.FieldError) as caught:
      _prepare_gld(source, output / "a" / "b", disk_usage=disk_usage)
    ids = [row[1] for row in made_up.GLD_TRAIN]
    ids += [row[0] for row in made_up.GLD_TEST]
    sizes = [len(made_up.create_jpeg(image_id)) for image_id in ids]
    needed = sum(sizes) + 80 * len(ids) + 3 * 4096
    assert needed > 20_000
    assert str(caught.value) == (
      f"output_dir must have {needed / 1000:.1f} kB free, found 20.0 kB in"
      f" {output}/a/b."
    )
    assert set(asked) == {output / "a" / "b"}
    assert not list(output.rglob("*.tfRecord"))

  def test_need_is_what_is_written(self, source, output, capsys):
    _prepare_gld(source, output, dry_run=True)
    told = capsys.readouterr().out
    assert not output.exists()
    _prepare_gld(source, output)
    written = sum(
      len(content)
      for name, content in made_up.read_files(output).items()
      if not name.endswith(".json")
    )
    # Three files, each of which may fill up to a block of 4,096 bytes.
    assert "Disk: " in told
    needed = float(told.split("Disk: ")[1].split(" kB")[0]) * 1000
    assert written <= needed <= written + 3 * 4096 + 7 * 80

  def test_compressed_images_count_twice(self, tmp_path, output, capsys):
    made_up.write_inaturalist(tmp_path / "source", archived=True)
    (job,) = inaturalist.create_jobs(tmp_path / "source", known_md5={})
    conversion.Preparation(job, output).run(dry_run=True)
    told = capsys.readouterr().out
    # Six images of 300 kB, unpacked and written, in three files.
    assert "Disk: 3.6 MB needed (estimated, with unpacked images)" in told
    assert (
      "Images: 0 found, 6 to be looked for in train_val_images.tar.gz,"
      " test2017.tar.gz." in told
    )
    assert not output.exists()


def test_dry_run_in_the_middle_writes_nothing(source, output, monkeypatch):
  with monkeypatch.context() as patch:
    write = tfrecord_writing.write_records
    patch.setattr(tfrecord_writing, "write_records", _raise_at(1, write))
    with pytest.raises(_KilledError):
      _prepare_gld(source, output)
  before = made_up.read_files(output)
  _prepare_gld(source, output, dry_run=True)
  assert made_up.read_files(output) == before


def test_tar_that_is_unpacked(source, tmp_path):
  _prepare_gld(source, tmp_path / "reference")
  with tarfile.open(source / "images_007.tar") as archive:
    archive.extractall(source / "train")
  (source / "images_007.tar").unlink()
  assert _prepare_gld(source, source / "output")
  assert made_up.read_files(source / "output") == made_up.read_files(
    tmp_path / "reference"
  )


def test_second_program_is_refused(source, output):
  (job,) = gld.create_jobs(source, "gld160k", known_md5={})
  with (
    output_lib.Output(output, "gld160k", job.identity).open(),
    pytest.raises(errors.DataError, match="one program at a time"),
  ):
    _prepare_gld(source, output)
