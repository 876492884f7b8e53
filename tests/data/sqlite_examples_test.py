"""Tests of reading and writing TFF's sqlite format."""

import threading

import pytest
import tensorflow as tf
import tensorflow_federated as tff

from tff_fedemb import errors
from tff_fedemb.data import sqlite_examples

_USERS = {"ann": [b"a0", b"a1"], "bob": [b"b0"], "cyd": [b"c0", b"c1", b"c2"]}
_TRAIN = [("train", *user) for user in _USERS.items()]


@pytest.fixture(name="path")
def _path(tmp_path):
  # Of an address, a part of this would mean something else.
  path = tmp_path / "50% of it? no#1" / "data.sqlite"
  sqlite_examples.write_examples(
    path, [*_TRAIN, ("test", "dan", [b"d0"]), ("test", "eve", [])]
  )
  return path


def test_virtual_client_holds_its_users_examples(path):
  examples = sqlite_examples.SqliteExamples(path, "train")
  ((merged,),) = examples.create_dataset(tf.constant("cyd\nann"))
  assert merged.numpy().tolist() == _USERS["ann"] + _USERS["cyd"]
  # Of another split.
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
  with pytest.raises(errors.DataError, match="no client in split"):
    sqlite_examples.SqliteExamples(path, "validation")
  assert not (tmp_path / "missing.sqlite").exists()
  path.write_bytes(path.read_bytes()[:-3000])
  with pytest.raises(errors.DataError, match="truncated"):
    sqlite_examples.SqliteExamples(path, "train")


def test_interrupted_or_killed_write_leaves_nothing(tmp_path):
  def users():
    yield "train", "ann", [b"a0"]
    raise RuntimeError("interrupted")

  path = tmp_path / "d.sqlite"
  with pytest.raises(RuntimeError, match="interrupted"):
    sqlite_examples.write_examples(path, users())
  assert not list(tmp_path.iterdir())
  for name in (".d.sqlite.partial", ".d.sqlite.partial-journal"):
    (tmp_path / name).write_bytes(b"half a database" * 1000)
  sqlite_examples.write_examples(path, _TRAIN)
  assert list(tmp_path.iterdir()) == [path]
  examples = sqlite_examples.SqliteExamples(path, "train")
  assert examples.user_ids == list(_USERS)


@pytest.mark.parametrize("is_interrupted", [False, True])
def test_one_program_writes_at_a_time(tmp_path, monkeypatch, is_interrupted):
  path = tmp_path / "d.sqlite"
  started, waiting = threading.Event(), threading.Event()
  errors = []
  flock = sqlite_examples.fcntl.flock

  def observe(descriptor, operation):
    if started.is_set():
      waiting.set()
    flock(descriptor, operation)

  monkeypatch.setattr(sqlite_examples.fcntl, "flock", observe)

  def first_users():
    yield "train", "first", [b"1"]
    started.set()
    assert waiting.wait(10)
    if is_interrupted:
      raise RuntimeError

  def write_first():
    try:
      sqlite_examples.write_examples(path, first_users())
    except RuntimeError as error:
      errors.append(error)

  first = threading.Thread(target=write_first)
  first.start()
  assert started.wait(10)
  sqlite_examples.write_examples(path, [("train", "second", [b"2"])])
  first.join()
  # The second writes only where the first has not.
  found = sqlite_examples.SqliteExamples(path, "train").user_ids
  assert found == ["second" if is_interrupted else "first"]
  assert len(errors) == is_interrupted
  assert list(tmp_path.iterdir()) == [path]
