"""Tests of reading and writing TFF's sqlite format."""

import pytest
import tensorflow as tf
import tensorflow_federated as tff

from tff_fedemb import errors
from tff_fedemb.data import sqlite_examples

_USERS = {"ann": [b"a0", b"a1"], "bob": [b"b0"], "cyd": [b"c0", b"c1", b"c2"]}
_TRAIN = [("train", *user) for user in _USERS.items()]


@pytest.fixture(name="path")
def _path(tmp_path):
  # In a URI, a part of this would mean something else.
  path = tmp_path / "50% of it? no#1" / "data.sqlite"
  sqlite_examples.write_examples(
    path, [*_TRAIN, ("test", "dan", [b"d0"]), ("test", "eve", [])]
  )
  return path


def test_virtual_client_holds_its_users_examples(path):
  examples = sqlite_examples.SqliteExamples(path, "train")
  ((merged,),) = examples.create_dataset(tf.constant("cyd\nann"))
  assert merged.numpy().tolist() == _USERS["ann"] + _USERS["cyd"]
  # This user is in another split.
  assert not list(examples.create_dataset(tf.constant("dan")))
  assert examples.user_ids == ["ann", "bob", "cyd"]
  assert examples.read_serialized() == [
    example for examples in _USERS.values() for example in examples
  ]
  assert list(examples.read_batches("Reading")) == [examples.read_serialized()]
  # A user without examples stays.
  examples = sqlite_examples.SqliteExamples(path, "test")
  assert examples.user_ids == ["dan", "eve"]
  assert examples.read_serialized() == [b"d0"]


def test_tff_reads_what_we_write(path):
  data = tff.simulation.datasets.SqlClientData(str(path), "train")
  assert data.client_ids == ["ann", "bob", "cyd"]
  dataset = data.create_tf_dataset_for_client("cyd")
  assert list(dataset.as_numpy_iterator()) == [b"c0", b"c1", b"c2"]


def test_other_files_are_refused(tmp_path, path):
  other = tmp_path / "other.sqlite"
  other.write_text("no database, but long enough to be one" * 100)
  with pytest.raises(errors.DataError, match="must be a sqlite"):
    sqlite_examples.SqliteExamples(other, "train")
  with pytest.raises(errors.DataError, match="must be a sqlite"):
    sqlite_examples.SqliteExamples(tmp_path / "missing.sqlite", "train")
  with pytest.raises(errors.DataError, match="no example in split"):
    sqlite_examples.SqliteExamples(path, "validation")
  assert not (tmp_path / "missing.sqlite").exists()
  path.write_bytes(path.read_bytes()[:-3000])
  with pytest.raises(errors.DataError, match="truncated"):
    sqlite_examples.SqliteExamples(path, "train")


def test_a_full_disk_is_told_in_one_line(tmp_path, monkeypatch):
  schema = f"PRAGMA max_page_count = 3; {sqlite_examples._SCHEMA}"
  monkeypatch.setattr(sqlite_examples, "_SCHEMA", schema)
  path = tmp_path / "data.sqlite"
  with pytest.raises(
    errors.StorageError, match=r"data\.sqlite cannot be written"
  ):
    sqlite_examples.write_examples(path, [("train", "ann", [bytes(100_000)])])
  assert not list(tmp_path.iterdir())
