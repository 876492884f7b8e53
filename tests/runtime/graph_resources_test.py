"""Tests that clients and rounds share no resource, beside TFF's own runtime.

Clients are the numbers they are called. Each puts its own into a resource and
returns what it finds there, or the server does so with their sum; the sums of
what is found have been worked out by hand for resources that start empty.
"""

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from tests.runtime import builders
from tff_fedemb import errors
from tff_fedemb import runtime

# So many in the first that several share a call.
_ROUNDS = ([str(n) for n in range(1, 13)], ["5"], ["4", "6"])
_CLIENT, _SERVER = "client", "server"
_OPTIONS = [
  {"concurrent_clients": 1, "on_client_error": "skip"},
  {"concurrent_clients": 2, "on_client_error": "fail"},
]


def _use_mutable_table(number):
  table = tf.lookup.experimental.MutableHashTable(tf.int64, tf.int64, -1)
  with tf.control_dependencies([table.insert(number, number)]):
    return table.size()


def _use_static_table(number):
  key = tf.constant(0, tf.int64)
  table = tf.lookup.StaticHashTable(
    tf.lookup.KeyValueTensorInitializer([key], [number]), -1
  )
  # In a data set, as clients do that number their classes.
  found = tf.data.Dataset.range(1).map(table.lookup)
  return found.reduce(tf.constant(0, tf.int64), tf.add)


def _use_queue(number):
  queue = tf.queue.FIFOQueue(100, [tf.int64], [[]])
  with tf.control_dependencies([queue.enqueue(number)]):
    return tf.cast(queue.size(), tf.int64)


def _use_variable(number):
  # It has no initial value, so that nothing but this sets it.
  variable = tf.raw_ops.VarHandleOp(dtype=tf.int64, shape=[], shared_name="v")
  was_there = tf.raw_ops.VarIsInitializedOp(resource=variable)
  with tf.control_dependencies([was_there]):
    assignment = tf.raw_ops.AssignVariableOp(resource=variable, value=number)
  with tf.control_dependencies([assignment]):
    return tf.cast(was_there, tf.int64) + 1


def _name_twice(number):
  sizes = []
  for key in (number, number + 1):
    with tf.control_dependencies(sizes):
      table = tf.raw_ops.MutableHashTableV2(
        key_dtype=tf.int64, value_dtype=tf.int64, shared_name="both"
      )
      insertion = tf.raw_ops.LookupTableInsertV2(
        table_handle=table, keys=key, values=key
      )
    with tf.control_dependencies([insertion]):
      sizes.append(tf.raw_ops.LookupTableSizeV2(table_handle=table))
  return sizes[-1]


def _make_in_data_set(number):
  return (
    tf.data.Dataset.range(3)
    .map(lambda row: _use_mutable_table(row + number))
    .reduce(number, tf.add)
  )


# Numbers that clients find in each round, and the server by its end.
_ONES = {_CLIENT: [12, 1, 2], _SERVER: [1, 2, 3]}
_EXPECTED = {
  _use_mutable_table: _ONES,
  _use_static_table: {_CLIENT: [78, 5, 10], _SERVER: [78, 83, 93]},
  _use_queue: _ONES,
  _use_variable: _ONES,
  _name_twice: {_CLIENT: [24, 2, 4], _SERVER: [2, 4, 6]},
  _make_in_data_set: {_CLIENT: [150, 11, 22], _SERVER: [84, 95, 111]},
}


def _build_process(use, place):
  """A process whose clients, or whose server, use a resource."""

  @tff.tensorflow.computation(np.str_)
  def work(client_id):
    number = tf.strings.to_number(client_id, tf.int64)
    return use(number) if place == _CLIENT else number

  @tff.tensorflow.computation(np.int64, np.int64)
  def update(state, total):
    return state + (use(total) if place == _SERVER else 0)

  def next_round(state, client_ids):
    total = tff.federated_sum(tff.federated_map(work, client_ids))
    return tff.federated_map(update, (state, total)), total

  return builders.build_process(lambda: np.int64(0), next_round)


def _run(started, process, place):
  """Returns what the rounds find; nobody may be skipped."""
  state, found = started.initialize(process), []
  for client_ids in _ROUNDS:
    state, total = started.next(state, client_ids)
    assert not started.skipped_clients
    found.append(total if place == _CLIENT else started.structured_state(state))
  return found


@pytest.mark.parametrize("place", [_CLIENT, _SERVER])
@pytest.mark.parametrize("use", _EXPECTED)
def test_has_resources_of_its_own(use, place, reference):
  process = _build_process(use, place)
  expected = _EXPECTED[use][place]
  assert _run(reference, process, place) == expected
  for options in _OPTIONS:
    with runtime.create_runtime("in_process", **options) as started:
      assert _run(started, process, place) == expected, options


def _call_python(number):
  return tf.ensure_shape(tf.py_function(lambda n: n, [number], tf.int64), [])


@pytest.mark.parametrize("name", ["in_process", "tff"])
def test_what_calls_python_is_refused(name):
  with (
    runtime.create_runtime(name) as started,
    pytest.raises(
      errors.FieldError,
      match=r"process must be made of TensorFlow's own .*, found EagerPyFunc\.",
    ),
  ):
    started.initialize(_build_process(_call_python, _CLIENT))
