"""Gradients written out by hand that end with the graph that they are for.

In a graph, `tf.custom_gradient` registers the gradient of each call for the
rest of the Python process, and the gradient holds the graph. A ResNet-50 calls
it 53 times in each graph of a learning process, and none of these graphs would
ever be freed.
"""

from collections.abc import Callable
import functools
from typing import Any
import weakref

import tensorflow as tf

# TensorFlow has no public way to take a gradient out of its registry.
from tensorflow.python.framework import ops


def custom_gradient(
  function: Callable[..., tuple[tf.Tensor, Callable[..., Any]]],
) -> Callable[..., tf.Tensor]:
  """Decorates a function with its gradient, as `tf.custom_gradient` does.

  Args:
    function: Maps tensors to a tensor, and to the function from the gradient by
      that tensor to those by the arguments. It uses no variables.

  Returns:
    The function of the tensors alone, whose derivatives are those given.
  """
  call = tf.custom_gradient(function)

  @functools.wraps(function)
  def call_and_release(*arguments: tf.Tensor) -> tf.Tensor:
    """Calls the function, and leaves its gradient to the graph, if any."""
    result = call(*arguments)
    if not tf.executing_eagerly():
      _leave_to_graph(result.op)
    return result

  return call_and_release


def _leave_to_graph(operation: tf.Operation) -> None:
  """Makes an operation hold its gradient in the registry's place."""
  name = operation.get_attr("_gradient_op_type").decode()
  entry = ops.gradient_registry._registry[name]
  gradient = entry["type"]
  operation._gradient_function = gradient
  held: Callable[[], Any] = weakref.ref(gradient)
  entry["type"] = lambda *arguments: held()(*arguments)
