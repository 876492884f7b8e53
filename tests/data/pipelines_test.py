"""Tests of what clients' input pipelines have in common."""

import collections

import numpy as np
import pytest
import tensorflow as tf

from tff_fedemb.data import pipelines


def _count(stop, batch_size):
  numbers = tf.range(stop)
  return tf.data.Dataset.from_tensor_slices(
    collections.OrderedDict(
      x=tf.stack([numbers, -numbers], axis=1), y=tf.strings.as_string(numbers)
    )
  ).batch(batch_size)


@pytest.mark.parametrize(
  ("stop", "max_elements", "expected"),
  [(7, 0, 7), (7, 5, 5), (7, 100, 7), (0, 0, 0), (0, 3, 0)],
)
def test_gathers_the_first_elements_of_all_batches(
  stop, max_elements, expected
):
  @tf.function
  def gather(stop):
    found = pipelines.gather(_count(stop, 3), max_elements=max_elements)
    assert found["x"].shape.as_list() == [None, 2]
    assert found["y"].shape.as_list() == [None]
    return found

  found = gather(tf.constant(stop))
  numbers = np.arange(expected)
  np.testing.assert_array_equal(found["x"], np.stack([numbers, -numbers], 1))
  assert found["y"].numpy().tolist() == [b"%d" % n for n in numbers]


def test_users_come_in_turn_and_no_more_is_read_than_is_asked_for():
  # How many examples each user has: the last one has no end.
  sizes = {"ann": 0, "bob": 2, "cyd": 9, "dan": -1}

  def create_dataset(user):
    size = tf.reduce_sum(
      [tf.where(tf.equal(user, name), size, 0) for name, size in sizes.items()]
    )
    return tf.data.Dataset.from_tensors(user).repeat(tf.cast(size, tf.int64))

  users = pipelines.interleave_users(
    lambda user: create_dataset(user).batch(4), tf.constant("\n".join(sizes))
  )
  found = pipelines.gather(users, max_elements=30).numpy().tolist()
  counts = collections.Counter(found)
  assert counts == {b"bob": 2, b"cyd": 9, b"dan": 19}
  assert set(found[:3]) == set(found[3:6]) == {b"bob", b"cyd", b"dan"}
