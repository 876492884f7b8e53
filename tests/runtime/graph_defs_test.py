"""Tests of changes to graphs, on graphs of a few nodes."""

import pytest
import tensorflow as tf

from tff_fedemb.runtime import graph_defs


def _names(graph_def):
  return {node.name for node in graph_def.node}


@pytest.fixture(name="graph_def")
def _graph_def():
  with tf.Graph().as_default() as graph:
    given = tf.compat.v1.placeholder(tf.float32, [], "given")
    variable = tf.raw_ops.VarHandleOp(
      dtype=tf.float32, shape=[], shared_name="v", name="variable"
    )
    start = tf.constant(3.0, name="start")
    tf.raw_ops.AssignVariableOp(resource=variable, value=start, name="begin")
    value = tf.raw_ops.ReadVariableOp(
      resource=variable, dtype=tf.float32, name="read"
    )
    tf.add(value, tf.identity(given, name="same"), name="sum")
    tf.constant(1.0, name="other")
  return graph.as_graph_def()


def test_waits_for_variables(graph_def):
  graph_defs.initialize_first(graph_def, "begin")
  waiting = {n.name for n in graph_def.node if "^begin" in n.input}
  # The sum waits with what it reads.
  assert waiting == {"read", "other"}
  with tf.Graph().as_default() as graph:
    tf.graph_util.import_graph_def(graph_def, name="")
  with tf.compat.v1.Session(graph=graph) as session:
    assert session.run("sum:0", {"given:0": 4.0}) == 7.0


def test_extracts_what_is_needed(graph_def):
  assert _names(graph_defs.extract(graph_def, ["sum:0"])) == {
    *("sum", "read", "variable", "same", "given")
  }
  graph_defs.initialize_first(graph_def, "begin")
  found = _names(graph_defs.extract(graph_def, ["sum:0"]))
  assert found == _names(graph_def) - {"other"}


def test_sets_a_constant():
  with tf.Graph().as_default() as graph:
    token = tf.compat.v1.placeholder(tf.string, [], "token")
    tf.strings.length(token, name="length")
  graph_def = graph.as_graph_def()
  graph_defs.set_constant(graph_def, "token", "four")
  graph_defs.set_constant(graph_def, "", "nobody")
  with tf.Graph().as_default() as graph:
    tf.graph_util.import_graph_def(graph_def, name="")
  with tf.compat.v1.Session(graph=graph) as session:
    assert session.run("length:0") == 4
