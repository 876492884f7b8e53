"""Tests of the index of TFRecord files."""

import os

import pytest

from tests.data import photo_files
from tff_fedemb import errors
from tff_fedemb.data import tfrecord_index

_WHOLE = photo_files.encode(0)


@pytest.fixture(name="paths")
def _paths(tmp_path):
  photo_files.write_users(tmp_path / "train", {"1": [3, 5], "2": [0, 1, 2]})
  return [tmp_path / "train" / "1", tmp_path / "train" / "2"]


def _open(paths, cache, **options):
  return tfrecord_index.open_index(paths, cache, name="photos", **options)


def _is_fine(index):
  return index["fault"].isna().tolist()


@pytest.mark.parametrize(
  ("record", "what"),
  [
    (b"\xff\xffno example", "not a tf.train.Example"),
    ((None, 3), "not a tf.train.Example with one image/encoded_jpeg"),
    ((_WHOLE, None), "not a tf.train.Example with one image/encoded_jpeg"),
    ((_WHOLE[:-9], 3), "not an image that can be decoded"),
    ((b"", 3), "not an image that can be decoded"),
  ],
)
def test_names_records_that_cannot_be_used(tmp_path, record, what):
  path = photo_files.write(tmp_path / "7", [(_WHOLE, 1), record, (_WHOLE, 2)])
  index = tfrecord_index.build_index([path])
  assert _is_fine(index) == [True, False, True]
  ((where, found),) = tfrecord_index.describe_faults(index, "train/7")
  assert where == "train/7 record 1"
  assert found.startswith(what)


def test_decodes_every_image_when_asked_once(tmp_path, monkeypatch):
  # The ends are those of a JPEG; images are decoded 64 at a time.
  broken = _WHOLE[:100] + _WHOLE[-2:]
  path = photo_files.write(tmp_path / "7", [(_WHOLE, 1)] * 70 + [(broken, 2)])
  cache = tmp_path / "cache"
  assert all(_is_fine(_open([path], cache)))
  for _ in range(2):
    index = _open([path], cache, decode_all=True)
    assert _is_fine(index) == [True] * 70 + [False]
    monkeypatch.setattr(tfrecord_index, "build_index", None)


@pytest.mark.parametrize(
  "damage",
  [
    lambda path, second: photo_files.cut(path, second + 5),
    lambda path, second: photo_files.cut(path, -1),
    lambda path, second: photo_files.flip(path, second + 100),
  ],
  ids=["in a header", "at the end", "content"],
)
def test_finds_damage(paths, damage, capfd):
  whole = tfrecord_index.build_index(paths)
  assert "deprecated" not in capfd.readouterr().err
  assert whole["label"].tolist() == [3, 5, 0, 1, 2]
  assert whole["file"].tolist() == [0, 0, 1, 1, 1]
  second, third = (whole["offset"][3:] - 12).tolist()
  damage(paths[1], second)
  index = tfrecord_index.build_index(paths)
  num_whole = int((index["file"] == 1).sum()) - 1
  assert num_whole in (1, 2)
  size = paths[1].stat().st_size
  assert tfrecord_index.describe_faults(index, "train/2") == [
    (
      "train/2",
      f"cut or damaged at byte {(second, third)[num_whole - 1]} of {size},"
      f" after {num_whole} whole records",
    )
  ]
  assert _is_fine(index) == [True] * (2 + num_whole) + [False]


class TestOpenIndex:
  def test_reads_them_again_when_something_changes(self, paths, tmp_path):
    cache = tmp_path / "cache"

    def read_labels(paths=paths):
      return _open(paths, cache)["label"].tolist()

    assert read_labels(paths[:1]) == [3, 5]
    assert read_labels() == [3, 5, 0, 1, 2]
    photo_files.write(paths[0], [(_WHOLE, 9)] * 4)
    assert read_labels() == [9, 9, 9, 9, 0, 1, 2]
    # A file of the same size and time counts as the same, one of another time
    # does not.
    facts = paths[0].stat()
    photo_files.write(paths[0], [(_WHOLE, 8)] * 4)
    os.utime(paths[0], ns=(facts.st_atime_ns, facts.st_mtime_ns))
    assert read_labels()[0] == 9
    os.utime(paths[0], ns=(0, 0))
    assert read_labels()[0] == 8
    assert len(list(cache.iterdir())) == 1
    other = photo_files.write_users(tmp_path / "other", {"1": [7]}) / "1"
    assert read_labels([other]) == [7]
    assert len(list(cache.iterdir())) == 2

  @pytest.mark.parametrize("content", [b"", b"no index", None])
  def test_a_damaged_index_is_made_anew(self, paths, tmp_path, content):
    cache = tmp_path / "cache"
    _open(paths, cache)
    (cached,) = cache.iterdir()
    cached.write_bytes(
      cached.read_bytes()[:300] if content is None else content
    )
    assert _open(paths, cache)["label"].tolist() == [3, 5, 0, 1, 2]

  def test_refuses_a_missing_file_and_a_cache_that_is_no_folder(
    self, paths, tmp_path
  ):
    with pytest.raises(
      errors.DataError, match=r"train/3 must be a file.*No such file"
    ):
      _open([*paths, tmp_path / "train" / "3"], tmp_path / "cache")
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(
      errors.FieldError, match=r"cache_dir must be writable.*file"
    ):
      _open(paths, tmp_path / "file" / "cache")


def test_refuses_records_of_a_file_that_became_shorter(paths):
  index = tfrecord_index.build_index(paths)
  photo_files.cut(paths[1])
  with pytest.raises(errors.DataError, match="found fewer bytes"):
    tfrecord_index.read_images(paths[1], index[4:])
  paths[1].unlink()
  with pytest.raises(errors.DataError, match="No such file"):
    tfrecord_index.read_images(paths[1], index[4:])
