"""Tests of files of features: what is written, read and refused."""

import os

import numpy as np
import pytest
import tensorflow as tf

from tff_fedemb import errors
from tff_fedemb.features import feature_files

_USERS = np.array(["anna", "bjørn", "anna", "c"])
_EXAMPLE = {"repr": [1.0], "label": [1]}
_of_both_suffixes = pytest.mark.parametrize("suffix", [".npz", ".tfrecord"])
_of_both_ways = pytest.mark.parametrize("save", [np.savez, np.savez_compressed])


def _create(dtype=np.float32, users=_USERS):
  # Values that float32 and float64 both hold exactly.
  features = np.arange(12).reshape(4, 3) / 8 - 0.5
  return feature_files.FeatureSet(
    features.astype(dtype), np.array([2, 0, 1, 2]), users
  )


def _assert_equal(found, expected):
  np.testing.assert_array_equal(found.features, expected.features)
  np.testing.assert_array_equal(found.labels, expected.labels)
  assert found.labels.dtype == np.int64
  np.testing.assert_array_equal(found.users, expected.users)


def _check_refused(path, message=""):
  with pytest.raises(errors.DataError, match=message) as error:
    feature_files.read_features(path)
  assert str(error.value).startswith(f"{path}")
  assert "\n" not in str(error.value)


def _write_examples(path, examples):
  """Writes a TFRecord of (name, values) pairs."""
  kinds = {float: "float_list", int: "int64_list", bytes: "bytes_list"}
  with tf.io.TFRecordWriter(os.fspath(path)) as writer:
    for example in examples:
      message = tf.train.Example()
      for name, values in example.items():
        feature = message.features.feature[name]
        getattr(feature, kinds[type(values[0])]).value.extend(values)
      writer.write(message.SerializeToString())
  return path


@pytest.mark.parametrize("users", [_USERS, None], ids=["users", "no_users"])
@pytest.mark.parametrize("suffix", [".npz", ".tfrecord", ".NPZ"])
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_what_is_written_is_read(tmp_path, monkeypatch, suffix, users, dtype):
  # TFRecords are read in two batches.
  monkeypatch.setattr(feature_files, "_PARSING_BATCH", 3)
  path = tmp_path / f"file{suffix}"
  written = _create(dtype, users)
  feature_files.write_features(path, written)
  found = feature_files.read_features(os.fspath(path))
  _assert_equal(found, written)
  assert found.features.dtype == (
    np.float32 if suffix == ".tfrecord" else dtype
  )
  assert os.listdir(tmp_path) == [path.name]


def test_tfrecord_is_of_examples(tmp_path):
  path = os.fspath(tmp_path / "file.tfrecord")
  feature_files.write_features(path, _create())
  records = list(tf.data.TFRecordDataset(path).as_numpy_iterator())
  feature = tf.train.Example.FromString(records[1]).features.feature
  assert len(records) == 4
  assert sorted(feature) == ["label", "repr", "user"]
  assert list(feature["repr"].float_list.value) == [-0.125, 0, 0.125]
  assert list(feature["label"].int64_list.value) == [0]
  assert feature["user"].bytes_list.value[0].decode() == "bjørn"


@_of_both_suffixes
def test_failed_write_leaves_what_was_there(tmp_path, monkeypatch, suffix):
  path = tmp_path / f"file{suffix}"
  path.write_text("precious")

  def fail(*args):
    del args
    raise OSError(28, "No space left on device")

  monkeypatch.setattr(os, "fsync", fail)
  with pytest.raises(OSError, match="No space left"):
    feature_files.write_features(path, _create())
  assert path.read_text() == "precious"
  assert os.listdir(tmp_path) == [path.name]


def test_plain_member_is_mapped_and_not_copied(tmp_path):
  path = tmp_path / "file.npz"
  feature_files.write_features(path, _create())
  found = feature_files.read_features(path)
  assert isinstance(found.features, np.memmap)
  assert not found.features.flags.writeable
  # A change of the file shows: it is the file.
  content = path.read_bytes()
  old = np.float32(-0.375).tobytes()
  assert content.count(old) == 1
  with path.open("rb+") as file:
    file.seek(content.index(old))
    file.write(np.float32(9).tobytes())
  assert found.features[0, 1] == 9


@pytest.mark.parametrize(
  "names", [("repr", "label", "user"), ("features", "labels", "users")]
)
@_of_both_ways
@pytest.mark.parametrize("order", ["C", "F"])
def test_however_it_was_saved(tmp_path, save, names, order):
  expected = _create()
  values = (
    np.asarray(expected.features, order=order),
    expected.labels.astype(np.uint8),
    np.char.encode(expected.users, "utf-8"),
  )
  arrays = dict(zip(names, values, strict=True))
  save(tmp_path / "file.npz", **arrays, other=np.zeros(2))
  found = feature_files.read_features(tmp_path / "file.npz")
  _assert_equal(found, expected)
  assert isinstance(found.features, np.memmap) == (save is np.savez)


@pytest.mark.parametrize(
  ("users", "expected"),
  [
    ({"user": ["a", "b"]}, ["a", "b"]),
    ({"user": ["a", "b"], "users": ["c", "d"]}, ["c", "d"]),
    ({"users": [10, 7]}, ["10", "7"]),
  ],
)
def test_users_by_either_name(tmp_path, users, expected):
  path = tmp_path / "file.npz"
  np.savez(path, features=np.ones([2, 3]), labels=np.array([0, 1]), **users)
  assert feature_files.read_features(path).users.tolist() == expected


@pytest.mark.parametrize(
  ("changes", "message"),
  [
    ({"repr": None}, r"must hold repr and label, .* found \['label'"),
    ({"label": None}, r"found \['repr', 'user'\]"),
    ({"repr": np.ones([4, 0])}, r"n and d at least 1, found"),
    ({"repr": np.full([4, 1], None)}, "repr.npy holds pickled objects"),
    ({"label": np.ones(4)}, r"labels must be integers \[4\].* float64"),
    ({"label": np.array([0, 1, -1, 0])}, "labels must be at least 0"),
    (
      {"label": np.array([0, 1, 2**63, 0], np.uint64)},
      r"below 2\^63, found 9223372036854775808",
    ),
    ({"user": np.ones(4)}, r"users must be strings or integers \[4\], .* flo"),
    ({"user": _USERS[:2]}, r"found <U5 \[2\]"),
    ({"user": np.array([b"\xff"] * 4)}, "can't decode byte"),
    ({"user": np.full(4, None)}, "user.npy holds pickled objects"),
  ],
)
@_of_both_ways
def test_other_arrays_are_refused(tmp_path, save, changes, message):
  arrays = {"repr": np.ones([4, 3]), "label": np.arange(4), "user": _USERS}
  arrays |= changes
  path = tmp_path / "file.npz"
  save(path, **{k: v for k, v in arrays.items() if v is not None})
  _check_refused(path, message)


@_of_both_ways
def test_damaged_npz_files_are_refused(tmp_path, save):
  path = tmp_path / "file.npz"
  save(path, repr=np.ones([50, 3]), label=np.arange(50))
  content = path.read_bytes()
  for damaged in (
    b"",
    b"no zip",
    content[: len(content) // 2],
    content[:-1],
    content[50:],
    content.replace(b"\x93NUMPY", b"\x93NUMBY"),
    content.replace(b"\x93NUMPY\x01", b"\x93NUMPY\x03"),
    content.replace(b"'shape': (50, 3)", b"'shape': (90, 3)"),
    content.replace(b"'shape': (50, 3)", b"'shape': (50, 3("),
    content.replace(b"PK\x03\x04", b"PK\x03\x05"),
  ):
    if damaged == content:
      continue  # What is compressed has no such bytes.
    path.write_bytes(damaged)
    _check_refused(path, "npz must be")


@pytest.mark.parametrize(
  ("examples", "message"),
  [
    ([], "must hold examples, found none"),
    ([{"label": [1]}], r"must hold repr and label, .* \['label'\]"),
    ([{"repr": [1], "label": [1]}], "must hold repr of floats"),
    ([{"repr": [1.0], "label": [1.0]}], "must be a TFRecord of"),
    ([{"repr": [1.0], "label": [1, 2]}], "must be a TFRecord of"),
    ([_EXAMPLE, {"repr": [1.0, 2.0]}], "must be a TFRecord of"),
    ([_EXAMPLE, {"repr": [1.0]}], "must be a TFRecord of"),
    ([_EXAMPLE | {"user": [b"a"]}, _EXAMPLE], "in all or none, user"),
    ([_EXAMPLE | {"user": [b"\xff"]}], "can't decode byte"),
    ([{"repr": [1.0], "label": [-1]}], "labels must be at least 0"),
  ],
)
def test_other_examples_are_refused(tmp_path, examples, message):
  path = tmp_path / "file.tfrecord"
  _check_refused(_write_examples(path, examples), message)


def test_damaged_tfrecord_files_are_refused(tmp_path):
  path = tmp_path / "file.tfrecord"
  feature_files.write_features(path, _create())
  content = path.read_bytes()
  flipped = bytearray(content)
  flipped[20] ^= 1
  text = b"no records, but long enough to be read as one"
  for damaged in (content[:-5], flipped, text):
    path.write_bytes(damaged)
    _check_refused(path, "tfrecord must be a TFRecord")


@pytest.mark.parametrize("name", ["file", "file.npy", "file.npz.gz"])
def test_other_suffixes_are_refused(tmp_path, name):
  message = r"path must end with .npz or .tfrecord"
  with pytest.raises(errors.FieldError, match=message):
    feature_files.read_features(tmp_path / name)
  with pytest.raises(errors.FieldError, match=message):
    feature_files.write_features(tmp_path / name, _create())
  assert not os.listdir(tmp_path)


def test_take():
  feature_set = feature_files.FeatureSet(
    np.arange(4).reshape(2, 2), np.array([5, 6]), np.array([7, 10])
  )
  taken = feature_set.take(np.array([1]))
  assert taken.features.tolist() == [[2, 3]]
  assert taken.labels.tolist() == [6]
  assert taken.users.tolist() == ["10"]
  assert _create(users=None).take(np.array([1])).users is None
