"""Tests of how a preparation goes on, ends, and refuses what is bad."""

import contextlib
import itertools
import json
import os
import shutil

import pytest

from tasks.prepare import photo_jobs
from tests.data import photo_files
from tests.tasks.prepare import made_up
from tff_fedemb import errors
from tff_fedemb.data import tfrecord_files


class _KilledError(Exception):
  pass


@contextlib.contextmanager
def _killed(monkeypatch, owner, name, call):
  """Runs something that is killed before or after a call of a function.

  Even numbers are before calls, odd ones after them.
  """
  function, calls = getattr(owner, name), itertools.count()

  def wrapped(*args, **kwargs):
    number = next(calls)
    if 2 * number == call:
      raise _KilledError
    result = function(*args, **kwargs)
    if 2 * number + 1 == call:
      raise _KilledError
    return result

  with monkeypatch.context() as patch:
    patch.setattr(owner, name, wrapped)
    with pytest.raises(_KilledError):
      yield


def _read_report(output):
  return json.loads((output / "gld160k/preparation.json").read_text())


@pytest.fixture
def reference(source, tmp_path):
  """The result of an undisturbed run."""
  made_up.prepare_gld(source, tmp_path / "reference")
  return made_up.read_files(tmp_path / "reference")


class TestKilled:
  """A program that was killed goes on, and makes the same files."""

  @pytest.mark.parametrize(
    ("name", "call"),
    [*(("write_records", call) for call in range(6))]
    + [("serialize_image", call) for call in (3, 7)],
  )
  def test_gld(self, source, output, reference, monkeypatch, name, call):
    with _killed(monkeypatch, tfrecord_files, name, call):
      made_up.prepare_gld(source, output)
    assert os.listdir(output) == ["gld160k.partial"]
    # A program that is killed, rather than raises, leaves these behind.
    work = output / "gld160k.partial"
    (work / "data" / "train" / ".17.partial").write_bytes(b"half")
    (work / ".identity.json.partial").write_text('{"task": "g')
    (work / "left_out.jsonl").write_text('\n{"train/17": [["ab')
    assert made_up.prepare_gld(source, output)
    assert made_up.read_files(output) == reference

  def test_finished_work_is_not_done_again(self, source, output, monkeypatch):
    write = tfrecord_files.write_records
    with _killed(monkeypatch, tfrecord_files, "write_records", 3):
      made_up.prepare_gld(source, output)
    before = made_up.read_files(output)
    made_up.prepare_gld(source, output, dry_run=True)
    assert made_up.read_files(output) == before
    written = []
    monkeypatch.setattr(
      tfrecord_files,
      "write_records",
      lambda path, records: (written.append(path.name), write(path, records)),
    )
    monkeypatch.setattr(photo_jobs, "compute_md5", None)
    assert made_up.prepare_gld(source, output)
    assert written == ["test.tfRecord"]

  def test_before_the_last_step(self, source, output, monkeypatch, capsys):
    # Files of unknown origin are removed first.
    with _killed(monkeypatch, shutil, "rmtree", 2):
      made_up.prepare_gld(source, output)
    assert not made_up.prepare_gld(source, output)
    assert capsys.readouterr().out.endswith(
      f"{output}/gld160k is complete (0 bad examples were left out). Nothing"
      " to do; to include what has come since, remove it.\n"
    )
    assert os.listdir(output) == ["gld160k"]
    # Finished output is left alone.
    before = made_up.read_files(output)
    assert not made_up.prepare_gld(source, output)
    assert made_up.read_files(output) == before


@pytest.mark.parametrize(
  ("state", "message"),
  [
    ("finished", r"/gld160k must be prepared .* 'test.csv': "),
    ("begun", r"/gld160k.partial must be prepared by this program from {"),
    ("unknown", r"found {'task': None"),
  ],
)
def test_output_of_another_table_is_refused(
  source, output, monkeypatch, state, message
):
  if state == "finished":
    made_up.prepare_gld(source, output)
  elif state == "begun":
    with _killed(monkeypatch, tfrecord_files, "write_records", 1):
      made_up.prepare_gld(source, output)
  else:
    (output / "gld160k" / "train").mkdir(parents=True)
  before = made_up.read_files(output)
  made_up.write_table(source / "test.csv", ("image_id", "class"), [("cd4", 1)])
  with pytest.raises(errors.DataError, match=message):
    made_up.prepare_gld(source, output)
  assert made_up.read_files(output) == before


class TestBadImages:
  def test_damaged_ones_are_all_named(self, source, output):
    images = {"cd1": b"no image", "ef5": b"", "ab3": b"\xff\xd8\xff"}
    made_up.write_gld(source, images=images)
    with pytest.raises(errors.DataError) as caught:
      made_up.prepare_gld(source, output)
    message = str(caught.value)
    assert "3 bad examples" in message
    for image in ("train/9: image cd1", "test.tfRecord: image ef5"):
      assert f"{image}: cannot be decoded" in message
    # They may be left out after all, and what is finished stays.
    assert made_up.prepare_gld(source, output, "skip")

  def test_missing_ones_are_named_or_listed(self, source, output, capsys):
    """One image of user 17 is missing; of one of user 9, half is."""
    jpeg = photo_files.encode("cd1")
    made_up.write_gld(source, images={"cd1": jpeg[: len(jpeg) // 2]})
    contents = {f"a/{i}.jpg": photo_files.encode(i) for i in ("cd4", "ab0")}
    made_up.write_tar(source / "images_007.tar", contents)
    made_up.write_md5(source / "images_007.tar")
    with pytest.raises(errors.DataError, match="1 bad example: image ef2: not"):
      made_up.prepare_gld(source, output)
    assert made_up.prepare_gld(source, output, "skip")
    assert "2 bad examples left out" in capsys.readouterr().out
    report = _read_report(output)
    assert report["left_out"] == [
      "train/17: image ef2: not found in any archive",
      "train/9: image cd1: cannot be decoded",
    ]
    assert report["num_left_out"] == report["num_users"] == 2
    assert report["num_images"] == len(made_up.GLD_TRAIN) + 2 - 2
    labels = {
      name: [label for _, label in records]
      for name, records in made_up.read_records(output / "gld160k").items()
    }
    assert labels == {
      "test.tfRecord": [0, 1],
      "train/17": [2, 2],
      "train/9": [2],
    }
    with pytest.raises(errors.DataError, match="2 bad examples"):
      made_up.prepare_gld(source, output)
    capsys.readouterr()
    assert not made_up.prepare_gld(source, output, "skip")
    assert "(2 bad examples were left out)" in capsys.readouterr().out

  @pytest.mark.parametrize("policy", ["fail", "skip"])
  def test_no_images_at_all(self, source, output, policy):
    for name in made_up.GLD_TARS:
      (source / name).unlink()
    with pytest.raises(errors.FieldError, match="found none of 6 in"):
      made_up.prepare_gld(source, output, policy)

  def test_user_or_test_set_without_images(self, source, output):
    made_up.write_gld(source, images={"cd1": b"", "ab0": b""})
    assert made_up.prepare_gld(source, output, "skip")
    train = output / "gld160k" / "train"
    # Damage to their images does not decide who has a place.
    assert sorted(os.listdir(train)) == ["17", "9"]
    assert not (train / "9").read_bytes()
    report = _read_report(output)
    assert report["num_users"] == 2
    assert report["num_users_without_images"] == 1
    assert report["num_left_out"] == 3
    made_up.write_gld(source, images={"cd4": b"", "ef5": b""})
    with pytest.raises(errors.DataError, match="must have images"):
      made_up.prepare_gld(source, output / "other", "skip")

  def test_image_that_turns_up_before_the_end(
    self, source, output, reference, monkeypatch
  ):
    tar = source / "images_000.tar"
    tar.rename(source / "elsewhere")
    with _killed(monkeypatch, tfrecord_files, "write_records", 3):
      made_up.prepare_gld(source, output, "skip")
    (source / "elsewhere").rename(tar)
    assert made_up.prepare_gld(source, output, "skip")
    assert made_up.read_files(output) == reference


def test_disk_that_is_needed(source, output, monkeypatch, capsys):
  ids = [row[-2] for row in (*made_up.GLD_TRAIN, *made_up.GLD_TEST)]
  needed = sum(len(photo_files.encode(i)) + 80 for i in ids) + 3 * 4096
  wanted = f"{needed / 1000:.1f}kB"
  usage = shutil.disk_usage(source)._replace(free=10_000)
  with monkeypatch.context() as patch:
    patch.setattr(shutil, "disk_usage", lambda path: usage)
    with pytest.raises(
      errors.FieldError,
      match=f"^output_dir must have {wanted} free, found 10.0kB in {output}/a",
    ):
      made_up.prepare_gld(source, output / "a" / "b")
  made_up.prepare_gld(source, output, dry_run=True)
  assert f"Disk: {wanted} needed, " in capsys.readouterr().out
  assert not output.exists()
  made_up.prepare_gld(source, output)
  files = made_up.read_files(output)
  del files["gld160k/preparation.json"]
  written = sum(map(len, files.values()))
  # Three files, each of which may fill up to a block of 4,096 bytes.
  assert written <= needed <= written + 3 * 4096 + 7 * 80
