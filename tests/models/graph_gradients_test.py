"""Tests of gradients written out by hand, and of what they keep in memory."""

import gc
import weakref

import numpy as np
import tensorflow as tf

from tff_fedemb.models import graph_gradients


@graph_gradients.custom_gradient
def _square(x):
  """A square whose derivative is 3 x, as no operation has it."""
  return x * x, lambda upstream: upstream * 3.0 * x


def _differentiate(x):
  with tf.GradientTape() as tape:
    tape.watch(x)
    y = _square(_square(x))
  return y, tape.gradient(y, x)


def test_gradient_is_the_one_that_is_given():
  """With a tape, in a function, and by a graph's own differentiation."""
  x = tf.constant([1.0, -2.0])
  expected = [1.0, 16.0], [9.0, 3.0 * 4.0 * 3.0 * -2.0]
  for function in (_differentiate, tf.function(_differentiate)):
    np.testing.assert_array_equal(function(x), expected)
  traced = tf.function(lambda x: _square(_square(x)))
  with tf.GradientTape() as tape:
    tape.watch(x)
    y = traced(x)
  np.testing.assert_array_equal(tape.gradient(y, x), expected[1])
  with tf.Graph().as_default(), tf.compat.v1.Session() as session:
    x = tf.constant([1.0, -2.0])
    y = _square(_square(x))
    found = session.run([y, *tf.gradients(y, x)])
  np.testing.assert_array_equal(found, expected)


def test_a_graph_ends_with_its_last_user():
  with tf.Graph().as_default() as graph:
    _differentiate(tf.constant(1.0))
  end = weakref.ref(graph)
  del graph
  gc.collect()
  assert end() is None
