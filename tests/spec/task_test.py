"""Tests of what a task checks when it is built."""

import collections

import numpy as np
import pytest
import tensorflow as tf

from tff_fedemb.data import population
from tff_fedemb.spec import task as task_lib


def _create(**changes):
  def create_client_dataset(client_id):
    length = tf.cast(tf.strings.length(client_id), tf.uint8)
    images = tf.fill([3, 2, 2, 1], length)
    return tf.data.Dataset.from_tensor_slices(
      collections.OrderedDict(x=images, y=tf.constant([0, 1, 1], tf.int64))
    ).batch(2)

  options = {
    "name": "tiny",
    "user_meaning": "nobody",
    "train_users": population.Population(4),
    "create_client_dataset": create_client_dataset,
    "image_shape": (2, 2, 1),
    "num_train_classes": 2,
    "load_images": lambda split: None,
    "split_description": "none",
    "count_images": lambda split: 3,
    **changes,
  }
  return task_lib.Task(**options)


def test_dataset_computation_has_the_example_type_of_the_algorithms():
  computation = _create().build_dataset_computation()
  assert computation.type_signature.result == _create().example_type
  assert str(computation.type_signature.parameter) == "str"


def test_users_come_in_turn_where_a_client_uses_only_some_examples():
  batches = _create().build_dataset_computation(5)("a\nbcd")
  (found,) = [list(batch["x"].numpy()[:, 0, 0, 0]) for batch in batches]
  assert found in ([1, 3] * 3, [3, 1] * 3)


def test_encoded_images_are_strings_to_the_algorithms():
  task = _create(
    create_client_dataset=lambda client_id: tf.data.Dataset.from_tensor_slices(
      collections.OrderedDict(
        x=client_id[tf.newaxis], y=tf.zeros([1], tf.int64)
      )
    ).batch(1),
    decode_images=lambda contents: tf.zeros([1, 2, 2, 1], tf.uint8),
  )
  computation = task.build_dataset_computation()
  assert computation.type_signature.result == task.example_type
  assert "x=str[?]" in str(task.example_type)


def test_users_who_are_left_out_validate_in_place_of_the_test_images():
  task = _create(validates_on_test=True)
  assert not task.leave_out(1).validates_on_test


@pytest.mark.parametrize(
  ("changes", "message"),
  [
    ({"image_shape": (2, 0)}, "must be one to three positive numbers"),
    # Pixels are no sequence.
    ({"image_shape": (2, 2)}, "must yield .*float32.* found .*uint8"),
    ({"image_shape": (3, 3, 1)}, "create_client_dataset must yield"),
    ({"num_train_classes": 0}, "num_train_classes .* at least 1"),
    (
      {
        "create_client_dataset": lambda client_id: (
          tf.data.Dataset.from_tensor_slices(
            {"x": np.zeros([3, 2, 2, 1], "f4"), "y": [0, 1, 1]}
          ).batch(2)
        )
      },
      "create_client_dataset must yield",
    ),
  ],
)
def test_mistakes_are_named(changes, message):
  with pytest.raises(ValueError, match=message):
    _create(**changes)
