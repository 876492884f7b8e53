"""Tests of the task of one's own photos."""

import zlib

import numpy as np
import pytest

from tasks import photos
from tasks import registry
from tasks import task as task_lib
from tests.data import photo_files
from tests.tasks import clients
from tff_fedemb import errors

_SIDE = 8
_CLASSES = tuple("abcdefghij")


@pytest.fixture(name="root")
def _root(tmp_path):
  return tmp_path / "data"


@pytest.fixture(name="create")
def _create(tmp_path):
  return clients.creator(photos.create_photos_task, tmp_path, image_size=_SIDE)


def _write(root, user, label, names=("1.jpg", "2.jpg"), form="JPEG"):
  folder = root / user / label
  folder.mkdir(parents=True, exist_ok=True)
  for name in names:
    seed = zlib.crc32(f"{user}/{label}/{name}".encode())
    (folder / name).write_bytes(photo_files.encode(seed, form))
  return folder


def _write_all(root, num_users=6):
  for user in range(num_users):
    for label in _CLASSES:
      _write(root, f"user{user}", label)


def _names(task, client_id="0"):
  return clients.read_client(task, client_id)


def test_classes_are_held_out(root, create):
  _write_all(root)
  task = create()
  assert len(task.train_users) == 6
  assert task.num_train_classes == 6
  assert task.evaluation_on_training_users and task.held_out_classes_are_new
  assert not task.one_class_per_user
  contents, labels = _names(task, "0\n3")
  assert sorted(labels) == sorted([*range(6)] * 4)
  assert task.decode_images(contents).shape == (24, _SIDE, _SIDE, 3)
  held_out = [task.load_images(split) for split in ("validation", "test")]
  assert [np.unique(images.labels).size for images in held_out] == [2, 2]
  assert held_out[0].images[:].shape == (24, _SIDE, _SIDE, 3)
  # From the index, and the same.
  again = create()
  assert again.split_description == task.split_description
  np.testing.assert_array_equal(_names(again, "0\n3")[1], labels)


def test_users_are_held_out(root, create):
  _write_all(root)
  task = create(hold_out="users", color_mode="grayscale")
  assert len(task.train_users) == 4
  assert task.num_train_classes == len(_CLASSES)
  assert not task.evaluation_on_training_users
  assert not task.held_out_classes_are_new
  assert task.load_images("test").images[:2].shape == (2, _SIDE, _SIDE, 1)


def test_other_tasks_refuse_its_options():
  with pytest.raises(errors.FieldError, match="hold_out must be given for"):
    registry.create_task("emnist", task_lib.TaskConfig(hold_out="users"))
