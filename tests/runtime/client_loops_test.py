"""Tests of loops over clients and updates, on numbers done by hand."""

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from tff_fedemb.runtime import client_loops
from tff_fedemb.runtime import computation_graph
from tff_fedemb.runtime import graph_session


@tff.tensorflow.computation(np.str_, np.float32)
def _work(client_id, factor):
  # A variable, which is to be what it is at first for every client.
  total = tf.Variable(factor)
  with tf.control_dependencies([total.assign_add(1.0)]):
    number = tf.strings.to_number(client_id)
    return number * total.read_value(), factor, client_id


@tff.tensorflow.computation(np.float32, np.float32)
def _accumulate(total, update):
  # The order makes a difference.
  return total * 2.0 + update


def _run(graph, *arguments):
  session = graph_session.GraphSession(graph)
  try:
    return session(*arguments)
  finally:
    session.close()


@pytest.mark.parametrize("client_ids", [["2", "3", "5"], ["7"]])
def test_clients_take_turns(client_ids):
  work = computation_graph.ComputationGraph("work", _work)
  loop = client_loops.loop_over_clients(work)
  results = _run(loop, [np.array(client_ids, object)], [np.float32(10.0)])
  numbers, factors, names = results
  np.testing.assert_array_equal(numbers, [11.0 * int(x) for x in client_ids])
  np.testing.assert_array_equal(factors, [10.0] * len(client_ids))
  assert names.tolist() == [name.encode() for name in client_ids]


@pytest.mark.parametrize(
  ("updates", "expected"), [([1.0, 3.0, 4.0], 22.0), ([], 1.0)]
)
def test_updates_are_added_one_after_the_other(updates, expected):
  accumulate = computation_graph.ComputationGraph("accumulate", _accumulate)
  loop = client_loops.loop_over_updates(accumulate)
  updates = np.array(updates, np.float32)
  assert _run(loop, [np.float32(1.0)], [updates]) == [expected]


@pytest.mark.parametrize(
  ("shape", "expected"),
  [([10], 16), ([400_000], 5), ([25_000_000], 1), ([None], 1)],
)
def test_calls_hold_a_few_updates(shape, expected):
  @tff.tensorflow.computation(tff.TensorType(np.float32, shape))
  def double(values):
    return 2.0 * values

  graph = computation_graph.ComputationGraph("work", double)
  assert client_loops.clients_per_call(graph) == expected
