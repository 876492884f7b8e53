"""Tests of the EMNIST task on a file of a few synthetic writers."""

import contextlib
import os
import pathlib
import re
import shutil
import sqlite3
import urllib.error

import numpy as np
import pytest
import tensorflow_federated as tff

from tasks import emnist
from tasks import task_config
from tasks.synthetic import emnist as synthetic
from tests.tasks import clients
from tff_fedemb.data import sqlite_examples
from tff_fedemb.data import tfrecord_files
from tff_fedemb.spec import task as task_lib

_NUM_USERS = 4
_FILE = "emnist_all.sqlite"
_ADVICE = "python -m tasks.synthetic --task=emnist --output_dir=DIR"


@pytest.fixture(scope="module")
def data_dir(tmp_path_factory):
  directory = tmp_path_factory.mktemp("emnist")
  synthetic.write_emnist(
    directory, num_users=_NUM_USERS, seed=2, examples_per_user=80
  )
  return directory


def _create(directory):
  return emnist.create_emnist_task(task_config.TaskConfig(os.fspath(directory)))


@pytest.fixture(scope="module")
def task(data_dir):
  return _create(data_dir)


@pytest.fixture(scope="module")
def published(data_dir):
  """The same file as TFF reads it, by split of the task."""
  train, test = tff.simulation.datasets.emnist.load_data(
    only_digits=False, cache_dir=os.fspath(data_dir)
  )
  return {"validation": train, "test": test}


def _read_published(data, user_id):
  batch = next(
    data.create_tf_dataset_for_client(user_id).batch(10_000).as_numpy_iterator()
  )
  images = np.round(np.float32(255) * batch["pixels"]).astype(np.uint8)
  return images[..., np.newaxis], batch["label"]


def test_users_train_on_their_digits_and_capitals(task, published):
  assert task.num_train_classes == 36
  assert clients.user_ids(task) == published["validation"].client_ids
  for user_id in clients.user_ids(task):
    images, labels = clients.read_client(task, user_id)
    expected_images, expected_labels = _read_published(
      published["validation"], user_id
    )
    keep = expected_labels < 36
    assert 0 < np.sum(keep) < len(keep)
    np.testing.assert_array_equal(labels, expected_labels[keep])
    np.testing.assert_array_equal(images, expected_images[keep])
    # Grey values are kept, not just black and white.
    assert len(np.unique(images)) > 50
  images, labels = clients.read_client(task, "nobody")
  assert images.shape == (0, 28, 28, 1)
  assert labels.shape == (0,)


@pytest.mark.parametrize("split", task_lib.EVALUATION_SPLITS)
def test_held_out_are_the_small_letters_of_all_users(task, published, split):
  held_out = task.load_images(split)
  users = [
    _read_published(published[split], user_id)
    for user_id in published[split].client_ids
  ]
  images = np.concatenate([images for images, _ in users])
  labels = np.concatenate([labels for _, labels in users])
  keep = labels >= 36
  np.testing.assert_array_equal(held_out.labels, labels[keep])
  np.testing.assert_array_equal(held_out.images, images[keep])
  assert held_out.labels.max() < 62


def test_pixels_may_be_bytes(task, data_dir, tmp_path):
  fields = {"num_users": _NUM_USERS, "seed": 2, "examples_per_user": 80}
  path = synthetic.write_emnist(tmp_path, compact=True, **fields)
  compact = _create(tmp_path)
  assert clients.user_ids(compact) == clients.user_ids(task)
  user = clients.user_ids(task)[1]
  for found, expected in zip(
    clients.read_client(compact, user),
    clients.read_client(task, user),
    strict=True,
  ):
    np.testing.assert_array_equal(found, expected)
  clients.check_counts(compact)
  np.testing.assert_array_equal(
    compact.load_images("test").images, task.load_images("test").images
  )
  assert os.path.getsize(path) < 0.3 * os.path.getsize(data_dir / _FILE)


class TestMistakes:
  def _error(self, directory):
    text = clients.read_error(_create, directory)
    assert text.startswith("data_dir")
    assert _ADVICE in text
    return text

  @pytest.fixture
  def copy(self, data_dir, tmp_path):
    """A copy of the file, to be damaged."""
    return pathlib.Path(shutil.copy(data_dir / _FILE, tmp_path))

  def test_damaged_file(self, copy):
    content = copy.read_bytes()
    for damaged in (b"no database" * 1000, content[: len(content) // 3]):
      copy.write_bytes(damaged)
      assert os.fspath(copy) in self._error(copy.parent)

  @pytest.mark.parametrize(
    ("table", "split"),
    [("examples", "all_train"), ("client_metadata", "all_test")],
  )
  def test_split_that_is_missing(self, copy, split, table):
    with contextlib.closing(sqlite3.connect(copy)) as connection, connection:
      connection.execute(f"DELETE FROM {table} WHERE split_name = ?", (split,))
    assert f"in split {split!r}" in self._error(copy.parent)

  @pytest.mark.parametrize(
    ("features", "found"),
    [
      ({"pixels": np.ones([28, 28])}, "label"),
      ({"pixels": np.ones([32, 32]), "label": 3}, "pixels"),
      ({"pixels_uint8": b"\x00" * 783, "label": 3}, "783"),
      ({"pixels": np.ones([28, 28]), "label": 62}, "label 62"),
    ],
  )
  def test_wrong_features(self, tmp_path, features, found):
    path = tmp_path / _FILE
    example = tfrecord_files.serialize_example(features)
    sqlite_examples.write_examples(
      path, [(name, "ann", [example]) for name in ("all_train", "all_test")]
    )
    text = self._error(tmp_path)
    assert "pixels float32 [28, 28] and label int64 in [0, 62)" in text
    assert found in text.partition("found in ")[2]
    assert os.fspath(path) in text

  def test_wrong_features_further_on_are_found_when_they_are_read(
    self, tmp_path
  ):
    # It is no text, which TensorFlow's message quotes nevertheless.
    damaged = b"\xff\xfe"
    good = tfrecord_files.serialize_example(
      {"pixels": np.ones([28, 28]), "label": 40}
    )
    path = tmp_path / _FILE
    sqlite_examples.write_examples(
      path, [("all_train", "ann", [good]), ("all_test", "ann", [good, damaged])]
    )
    task = _create(tmp_path)
    assert task.load_images("validation").labels == [40]
    with pytest.raises(ValueError, match=re.escape(str(path))):
      task.load_images("test")


class TestDownload:
  @pytest.fixture(name="replace")
  def _replace(self, tmp_path, monkeypatch):
    """Replaces what TFF downloads to the home."""
    monkeypatch.setenv("HOME", os.fspath(tmp_path))

    def replace(write):
      monkeypatch.setattr(
        tff.simulation.datasets.emnist,
        "load_data",
        lambda only_digits, cache_dir: write(pathlib.Path(cache_dir) / _FILE),
      )

    return replace

  def test_file_is_downloaded_once(self, tmp_path, data_dir, replace):
    replace(lambda path: shutil.copy(data_dir / _FILE, path))
    task = emnist.create_emnist_task(task_config.TaskConfig())
    assert len(task.train_users) == _NUM_USERS
    assert [path.name for path in (tmp_path / ".tff").iterdir()] == [_FILE]
    replace(None)
    assert emnist.create_emnist_task(task_config.TaskConfig()).name == "emnist"

  @pytest.mark.parametrize(
    ("failure", "told"),
    [
      (urllib.error.URLError("no route to host"), "no route to host"),
      # A connection that is cut looks like the end of the file.
      (None, "truncated|malformed"),
    ],
  )
  def test_failed_download_leaves_nothing(
    self, tmp_path, data_dir, replace, failure, told
  ):
    def write_half(path):
      shutil.copy(data_dir / _FILE, path)
      os.truncate(path, path.stat().st_size // 2)
      if failure:
        raise failure

    replace(write_half)
    text = clients.read_error(
      emnist.create_emnist_task, task_config.TaskConfig()
    )
    assert text.startswith("data_dir must be given where")
    assert re.search(told, text) and _ADVICE in text
    assert not list((tmp_path / ".tff").iterdir())
