"""Tests of the handwriting task: users who are numbers, and their images."""

import numpy as np
import pytest
import tensorflow as tf

from tasks import handwriting
from tasks import task_config
from tests.tasks import clients
from tff_fedemb.spec import task as task_lib


def _create(**options):
  return handwriting.create_handwriting_task(
    task_config.PopulationConfig(**options)
  )


@pytest.fixture(name="task", scope="module")
def _task():
  return _create(num_users=24, population_seed=3, max_images_per_user=40)


def test_users_write_digits_and_capitals(task):
  assert task.num_train_classes == 36
  assert not task.evaluation_on_training_users
  users = [clients.read_client(task, name) for name in clients.user_ids(task)]
  sizes = [len(labels) for _, labels in users]
  # At least 8, most as many as is allowed, some fewer.
  assert 8 <= min(sizes) < 40
  assert np.median(sizes) == max(sizes) == 40
  assert task.count_images("train") == sum(sizes)
  labels = np.concatenate([labels for _, labels in users])
  assert labels.dtype == np.int64
  assert set(labels) <= set(range(36))
  assert len(set(labels)) > 30
  # Ten of the 36 classes have two shares each: 20 / 46 of all.
  assert 0.3 < np.mean(labels < 10) < 0.55
  for images, labels in users:
    assert images.shape == (len(labels), 28, 28, 1)
    assert images.dtype == np.uint8
    # Paper is white and most of an image.
    assert np.median(images) == images.max() == 255
    assert images.min(axis=(1, 2)).max() < 150


# The smaller maximum is below the least number of images without one.
@pytest.mark.parametrize("maximum", [3, 32])
def test_many_images_are_cut_off_and_classes_are_repeated(maximum):
  most = _create(num_users=8, max_images_per_user=10_000)
  cut = _create(num_users=8, max_images_per_user=maximum)
  for user in clients.user_ids(most):
    images, labels = clients.read_client(most, user)
    first_images, first_labels = clients.read_client(cut, user)
    assert len(first_labels) == min(maximum, len(labels))
    np.testing.assert_array_equal(first_labels, labels[:maximum])
    np.testing.assert_array_equal(first_images, images[:maximum])
    assert len(np.unique(labels)) < min(36, len(labels))


def test_same_user_has_the_same_images_wherever_they_are(task):
  images, labels = clients.read_client(task, "7")
  with tf.Graph().as_default(), tf.compat.v1.Session() as session:
    client_id = tf.compat.v1.placeholder(tf.string, [])
    element = task.create_client_dataset(client_id).get_single_element()
    for name in ("7", "8\n7", "7"):
      found = session.run(element, {client_id: name})
      np.testing.assert_array_equal(found["x"][-len(labels) :], images)
      np.testing.assert_array_equal(found["y"][-len(labels) :], labels)
  # Another computation, of another population's size.
  larger = _create(
    num_users=10_000_000, population_seed=3, max_images_per_user=40
  )
  again, _ = clients.read_client(larger, "7")
  np.testing.assert_array_equal(again, images)
  other = _create(num_users=24, population_seed=4, max_images_per_user=40)
  assert not np.array_equal(clients.read_client(other, "7")[0][:8], images[:8])


def test_held_out_are_small_letters_of_writers_who_never_train(task):
  held_out = {
    split: task.load_images(split) for split in task_lib.EVALUATION_SPLITS
  }
  for split, found in held_out.items():
    assert task.count_images(split) == len(found.labels) == 20_000
    assert found.images.shape == (20_000, 28, 28, 1)
    assert set(found.labels) == set(range(36, 62)) == set(task.class_names)
  first, second = (found.images for found in held_out.values())
  assert not np.array_equal(first, second)
  # They are the same for any number of users.
  np.testing.assert_array_equal(
    _create(num_users=7, population_seed=3).load_images("test").images, second
  )


@pytest.mark.parametrize(
  ("name", "options", "message"),
  [
    ("handwriting", {"data_dir": "x"}, "data_dir must not be given"),
    ("handwriting", {"image_size": 32}, "image_size must be 28"),
    ("handwriting", {"task_variant": "x"}, "task_variant must be one of all"),
    ("symbols", {"image_size": 48}, "image_size must be 28"),
    ("symbols", {"task_variant": "x"}, "task_variant must be one of all"),
    ("emnist", {"num_users": 3}, "num_users must not be given with task emn"),
  ],
)
def test_mistakes_are_named(name, options, message):
  def create():
    task_lib.create_task(name, **options).create()

  text = clients.read_error(create)
  assert text.startswith(message)
