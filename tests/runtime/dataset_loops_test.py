"""Reductions of data sets that are loops give what reductions give.

The expected results have been worked out by hand; TFF's own algorithms, which
train by a reduction, are compared with TFF's runtime in `parity_test`.
"""

import contextlib

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from tff_fedemb.runtime import computation_graph
from tff_fedemb.runtime import graph_session

_ZERO = np.int64(0)


def _add_and_write(number):
  """Two states, one of them text."""
  return tf.data.Dataset.range(number).reduce(
    (_ZERO, ""), lambda s, x: (s[0] + x, s[1] + tf.strings.as_string(x))
  )


def _collect(number):
  """A state that grows, inside of a function that has something else to do."""

  @tf.function
  def collect(number):
    numbers = (
      tf.data.Dataset.range(number)
      .batch(2)
      .reduce(
        tf.zeros([0], tf.int64), lambda state, x: tf.concat([state, x], 0)
      )
    )
    return -numbers

  return collect(number)


def _capture(number):
  """A variable that the steps change."""
  variable = tf.Variable(_ZERO)

  @tf.function
  def train():
    with tf.control_dependencies([variable.assign(1)]):
      steps = tf.data.Dataset.range(number).reduce(
        _ZERO, lambda s, x: s + tf.cast(variable.assign_add(x) > 0, tf.int64)
      )
    return steps, variable.read_value()

  return train()


def _nest(number):
  """A reduction within another's function, and one in a data set's."""

  def add_up(dataset):
    return dataset.reduce(_ZERO, tf.add)

  sums = tf.data.Dataset.range(number).map(
    lambda x: add_up(tf.data.Dataset.range(x))
  )
  return sums.window(2).reduce(_ZERO, lambda s, w: 10 * s + add_up(w))


def _import(computation):
  graph = computation_graph.import_computation(
    "work", tff.tensorflow.computation(computation, np.int64)
  )
  graph_def = graph.graph.as_graph_def()
  nodes = [*graph_def.node]
  for function in graph_def.library.function:
    nodes.extend(function.node_def)
  assert "ReduceDataset" not in {node.op for node in nodes}
  return contextlib.closing(graph_session.SessionPool([graph], num_threads=1))


@pytest.mark.parametrize(
  ("computation", "of_five", "of_none"),
  [
    (_add_and_write, [10, b"01234"], [0, b""]),
    (_collect, [[0, -1, -2, -3, -4]], [[]]),
    (_capture, [5, 11], [0, 1]),
    # Sums 0, 0, 1, 3, 6; of two each 0, 4, 6.
    (_nest, [46], [0]),
  ],
)
def test_results(computation, of_five, of_none):
  with _import(computation) as session:
    # Again: a run leaves nothing to the next one.
    for number, expected in ((5, of_five), (0, of_none), (5, of_five)):
      results = [np.asarray(leaf).tolist() for leaf in session([number])]
      assert results == expected


def test_element_that_cannot_be_read():
  def divide(number):
    dataset = tf.data.Dataset.range(number).map(
      lambda x: tf.debugging.check_numerics(
        1.0 / tf.cast(x - 3, tf.float32), ""
      )
    )
    return dataset.reduce(0.0, tf.add)

  with _import(divide) as session:
    assert session([3]) == [pytest.approx(-1 / 3 - 1 / 2 - 1)]
    with pytest.raises(tf.errors.InvalidArgumentError, match="Inf"):
      session([4])
