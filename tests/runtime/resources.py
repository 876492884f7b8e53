"""Processes that keep something in a table or a queue, and what comes of them.

Clients are the numbers they are called. Each puts its own into a resource and
returns what it finds there, or the server does so with their sum; the sums of
what is found have been worked out by hand for resources that start empty.
"""

from collections.abc import Callable, Sequence

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from tff_fedemb.runtime import base

# So many in the first that several share a call.
ROUNDS = ([str(n) for n in range(1, 13)], ["5"], ["4", "6"])
CLIENT, SERVER = "client", "server"
OPTIONS = [
  {"concurrent_clients": 1, "on_client_error": "skip"},
  {"concurrent_clients": 2, "on_client_error": "fail"},
]


def use_mutable_table(number):
  table = tf.lookup.experimental.MutableHashTable(tf.int64, tf.int64, -1)
  with tf.control_dependencies([table.insert(number, number)]):
    return table.size()


def use_dense_table(number):
  table = tf.lookup.experimental.DenseHashTable(
    tf.int64, tf.int64, -1, empty_key=-1, deleted_key=-2
  )
  with tf.control_dependencies([table.insert(number, number)]):
    return table.size()


def use_static_table(number):
  key = tf.constant(0, tf.int64)
  table = tf.lookup.StaticHashTable(
    tf.lookup.KeyValueTensorInitializer([key], [number]), -1
  )
  return tf.ensure_shape(table.lookup(key), [])


def use_queue(number):
  queue = tf.queue.FIFOQueue(100, [tf.int64], [[]])
  with tf.control_dependencies([queue.enqueue(number)]):
    return tf.cast(queue.size(), tf.int64)


def use_variable(number):
  # It has no initial value, so that nothing but this sets it.
  variable = tf.raw_ops.VarHandleOp(dtype=tf.int64, shape=[], shared_name="v")
  was_there = tf.raw_ops.VarIsInitializedOp(resource=variable)
  with tf.control_dependencies([was_there]):
    assignment = tf.raw_ops.AssignVariableOp(resource=variable, value=number)
  with tf.control_dependencies([assignment]):
    return tf.cast(was_there, tf.int64) + 1


# Numbers that clients find in each round, and the server by its end.
_ONES = {CLIENT: [12, 1, 2], SERVER: [1, 2, 3]}
EXPECTED = {
  use_mutable_table: _ONES,
  use_dense_table: _ONES,
  use_static_table: {CLIENT: [78, 5, 10], SERVER: [78, 83, 93]},
  use_queue: _ONES,
  use_variable: _ONES,
}


def build_process(
  use: Callable[[tf.Tensor], tf.Tensor], place: str
) -> tff.templates.IterativeProcess:
  """A process whose clients, or whose server, use a resource.

  Args:
    use: Maps a number to what was found.
    place: `CLIENT` or `SERVER`.
  """

  @tff.tensorflow.computation(np.str_)
  def work(client_id):
    number = tf.strings.to_number(client_id, tf.int64)
    return use(number) if place == CLIENT else number

  @tff.tensorflow.computation(np.int64, np.int64)
  def update(state, total):
    return state + (use(total) if place == SERVER else 0)

  @tff.federated_computation
  def initialize():
    return tff.federated_value(np.int64(0), tff.SERVER)

  @tff.federated_computation(
    initialize.type_signature.result, tff.FederatedType(np.str_, tff.CLIENTS)
  )
  def next_round(state, client_ids):
    total = tff.federated_sum(tff.federated_map(work, client_ids))
    return tff.federated_map(update, (state, total)), total

  return tff.templates.IterativeProcess(initialize, next_round)


def run(
  started: base.Runtime,
  process: tff.templates.IterativeProcess,
  place: str,
) -> Sequence[int]:
  """Returns what the rounds find; nobody may be skipped."""
  state, found = started.initialize(process), []
  for client_ids in ROUNDS:
    state, total = started.next(state, client_ids)
    assert not started.skipped_clients
    found.append(total if place == CLIENT else started.structured_state(state))
  return found
