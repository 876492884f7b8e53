"""Tests of the task of symbols: users who are numbers, and their images."""

import numpy as np
import pytest
import tensorflow as tf

from tasks import omniglot
from tasks import symbols
from tasks import task_config
from tasks.synthetic import characters
from tasks.synthetic import strokes
from tests.tasks import clients


def _create(**options):
  return symbols.create_symbols_task(task_config.PopulationConfig(**options))


@pytest.fixture(name="task", scope="module")
def _task():
  return _create(num_users=8, population_seed=3, max_images_per_user=8)


def test_each_user_has_one_class_of_their_own(task):
  assert task.one_class_per_user
  assert not task.evaluation_on_training_users
  assert task.num_train_classes == 8
  for user in clients.user_ids(task):
    images, labels = clients.read_client(task, user)
    assert 4 <= len(labels) <= 8
    assert set(labels) == {int(user)}
    assert (images.shape[1:], images.dtype) == ((28, 28, 1), np.uint8)


def test_what_is_counted_is_what_is_read(task):
  clients.check_counts(task)


def test_ten_million_users_are_there_at_once():
  task = _create(num_users=10_000_000, population_seed=3)
  assert task.num_train_classes == len(task.train_users) == 10_000_000
  _, labels = clients.read_client(task, "9999999")
  assert set(labels) == {9_999_999}


def test_held_out_symbols_are_of_nobody_who_trains(task):
  validation = task.load_images("validation")
  assert validation.images.shape == (10_000, 28, 28, 1)
  np.testing.assert_array_equal(
    validation.labels, np.repeat(np.arange(1_000), 10)
  )
  first = strokes.Symbols(3).draw(
    tf.constant([2**40], tf.int64), tf.constant([10])
  )
  np.testing.assert_array_equal(validation.images[:10], first)
  test = task.load_images("test")
  assert not np.array_equal(test.images[:10], validation.images[:10])


@pytest.mark.slow
def test_omniglot_is_the_test_set_where_it_is_given(tmp_path):
  characters.write_characters(tmp_path / "data", num_users=60, seed=2)
  options = {
    "data_dir": str(tmp_path / "data"),
    "cache_dir": str(tmp_path / "cache"),
  }
  task = _create(num_users=2, **options)
  real = omniglot.create_omniglot_task(task_config.TaskConfig(**options))
  found, expected = task.load_images("test"), real.load_images("test")
  np.testing.assert_array_equal(found.images, expected.images)
  np.testing.assert_array_equal(found.labels, expected.labels)
  clients.check_counts(task)
  assert "Omniglot" in task.split_description
