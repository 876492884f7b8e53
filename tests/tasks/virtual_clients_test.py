"""Tests that a virtual client is the union of its users, for every reader."""

import functools
import itertools
import os

import numpy as np
import pytest

from tasks import emnist
from tasks import gld
from tasks import handwriting
from tasks import omniglot
from tasks import photos
from tasks import symbols
from tasks import task_config
from tasks.synthetic import characters
from tasks.synthetic import emnist as synthetic
from tests.data import photo_files
from tests.tasks import clients
from tests.tasks import trees

_USERS = 8
# A user has at least so many images. Eight of the 12 classes train.
_IMAGES = 24


def _create_emnist(config, directory):
  # Three of five are digits and capitals.
  synthetic.write_emnist(directory, num_users=_USERS, examples_per_user=60)
  return emnist.create_emnist_task(config)


def _create_omniglot(config, directory):
  # Each is of its own alphabet; two are for test, and one for validation.
  characters.write_characters(directory, num_users=_USERS + 3)
  return omniglot.create_omniglot_task(config)


def _create_cut_gld(config, directory):
  folder = directory / "gld160k"
  labels = [i % 5 for i in range(_IMAGES + 1)]
  photo_files.write_users(
    folder / "train", {str(user): labels for user in range(_USERS)}
  )
  photo_files.cut(folder / "train/3", -20)
  photo_files.write(
    folder / "test.tfRecord", [(photo_files.encode(i), i) for i in range(10)]
  )
  return gld.create_gld_task(config)


def _create_photos(config, directory):
  for user, label, number in itertools.product(
    range(_USERS), range(12), range(_IMAGES // _USERS)
  ):
    trees.write(directory, f"u{user}/c{label:02}/{number}.jpg")
  return photos.create_photos_task(task_config.PhotosConfig(**vars(config)))


def _create_numbered(create_task, config, directory):
  del directory  # The task makes its images itself.
  changes = {"data_dir": None, "num_users": _USERS, "max_images_per_user": 40}
  return create_task(task_config.PopulationConfig(**vars(config) | changes))


_TASKS = {
  "emnist": _create_emnist,
  "omniglot": _create_omniglot,
  "gld, a file cut": _create_cut_gld,
  "photos": _create_photos,
  "handwriting": functools.partial(
    _create_numbered, handwriting.create_handwriting_task
  ),
  "symbols": functools.partial(_create_numbered, symbols.create_symbols_task),
}


# These read users in the order of their identifiers.
_SORTED = ("emnist", "omniglot", "photos")


@pytest.fixture(name="created", scope="module", params=_TASKS)
def _created(request, tmp_path_factory):
  """A task, and its name."""
  name, directory = request.param, tmp_path_factory.mktemp("data")
  config = task_config.TaskConfig(
    data_dir=os.fspath(directory),
    cache_dir=os.fspath(tmp_path_factory.mktemp("cache")),
    on_bad_example="skip" if "cut" in name else "fail",
  )
  return name, _TASKS[name](config, directory)


def test_a_virtual_client_is_the_union_of_its_users(created):
  name, task = created
  slots = [3, 0, 2]
  found = clients.read_client(task, task.train_users.client_id(slots))
  users = [
    clients.read_client(task, task.train_users.user_id(slot))
    for slot in (sorted(slots) if name in _SORTED else slots)
  ]
  for part, parts in zip(found, zip(*users, strict=True), strict=True):
    np.testing.assert_array_equal(part, np.concatenate(parts))
