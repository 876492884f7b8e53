"""Tests of the EMNIST task on a file of a few synthetic writers."""

import contextlib
import os
import pathlib
import shutil
import sqlite3

import numpy as np
import pytest
import tensorflow_federated as tff

from tasks import emnist
from tasks import task_config
from tasks.synthetic import emnist as synthetic
from tests.tasks import clients
from tff_fedemb.data import sqlite_examples
from tff_fedemb.data import tfrecord_files
from tff_fedemb.run import task as task_lib

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
