"""Loops over the elements of a data set, in place of `tf.data.Dataset.reduce`.

TFF's own algorithms train by a reduction. TensorFlow optimizes its function and
prepares it anew whenever the reduction runs, so for every client, which takes
many times as long as a small model's training. The body of a loop is prepared
once, with the rest of the graph. The numbers are the same.
"""

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

_REDUCTION = "ReduceDataset"
_CALL = "StatefulPartitionedCall"
# Beginning of names that no function of a process has.
_NAME = "tff_fedemb_dataset_loop"


def _argument_spec(function: Any, index: int) -> tf.TensorSpec:
  """Type and shape of an argument of a function, as far as known.

  Args:
    function: A `FunctionDef`.
    index: Place of the argument.

  Returns:
    A `tf.TensorSpec`; its shape is unknown if the graph does not have it.
  """
  shapes = function.arg_attr[index].attr["_output_shapes"].list.shape
  return tf.TensorSpec(
    shapes[0] if shapes else None, function.signature.input_arg[index].type
  )


def _trace_loop(reduction: Any, function: Any) -> Any:
  """Traces a loop over a data set.

  Args:
    reduction: A node ReduceDataset.
    function: The definition of its function.

  Returns:
    A graph with one node, which calls the loop with the arguments of the
    reduction.
  """
  num_states = len(reduction.attr["Tstate"].list.type)
  num_captured = len(reduction.attr["Targuments"].list.type)
  specs = [
    _argument_spec(function, index)
    for index in range(len(function.signature.input_arg))
  ]
  num_elements = len(specs) - num_states - num_captured
  element_spec = tuple(specs[num_states : num_states + num_elements])
  output_shapes = reduction.attr["output_shapes"].list.shape
  output_types = reduction.attr["output_types"].list.type
  state_specs = list(map(tf.TensorSpec, output_shapes, output_types))
  loop = _build_loop(function.signature.name, element_spec, state_specs)
  graph = tf.Graph()
  with graph.as_default():
    dataset_spec = tf.TensorSpec([], tf.variant)
    captured_specs = specs[num_states + num_elements :]
    arguments = []
    for spec in [dataset_spec, *state_specs, *captured_specs]:
      arguments.append(tf.compat.v1.placeholder(spec.dtype, spec.shape))
    tf.function(loop, autograph=False)(*arguments)
  return graph.as_graph_def()


def _build_loop(
  name: str,
  element_spec: tuple[tf.TensorSpec, ...],
  state_specs: Sequence[tf.TensorSpec],
) -> Callable[..., Sequence[tf.Tensor]]:
  """Makes a function of a data set, states and captured tensors.

  Args:
    name: Name of the reduction's function.
    element_spec: The tensors of an element.
    state_specs: The tensors of the state.

  Returns:
    A function that maps a data set (a variant tensor), the initial states and
    the captured tensors to the final states.
  """
  num_states = len(state_specs)
  shapes = [spec.shape for spec in state_specs]

  def loop(dataset: tf.Tensor, *arguments: tf.Tensor) -> Sequence[tf.Tensor]:
    captured = arguments[num_states:]
    iterator = iter(tf.data.experimental.from_variant(dataset, element_spec))

    def step(element: Any, *states: tf.Tensor):
      results = tf.raw_ops.StatefulPartitionedCall(
        args=[*states, *element.get_value(), *captured],
        Tout=[spec.dtype for spec in state_specs],
        f=name,
      )
      # Like a reduction, read no element while the last one is in use.
      with tf.control_dependencies(results):
        following = iterator.get_next_as_optional()
      return following, *map(tf.ensure_shape, results, shapes)

    _, *results = tf.while_loop(
      lambda element, *_: element.has_value(),
      step,
      (
        iterator.get_next_as_optional(),
        *map(tf.ensure_shape, arguments[:num_states], shapes),
      ),
      parallel_iterations=1,
      name=_NAME,
    )
    return results

  loop.__name__ = _NAME
  return loop


def _replace(reduction: Any, library: Any) -> None:
  """Makes a reduction the call of a loop, which is added to a library.

  Args:
    reduction: A node ReduceDataset, changed in place.
    library: Function library of its graph, changed in place.
  """
  name = reduction.attr["f"].func.name
  (function,) = (f for f in library.function if f.signature.name == name)
  # With this mark, only the data set itself may optimize the function.
  function.attr.pop("_tf_data_function", None)
  loop = _trace_loop(reduction, function)
  library.MergeFrom(loop.library)
  (call,) = (node for node in loop.node if node.op == _CALL)
  reduction.op = call.op
  reduction.attr.clear()
  for key, value in call.attr.items():
    reduction.attr[key].CopyFrom(value)


def replace_reductions(graph_def: Any) -> None:
  """Replaces each reduction of a data set by a loop.

  Reductions in the bodies of functions are replaced too.

  Args:
    graph_def: The graph, changed in place.
  """
  for node in graph_def.node:
    if node.op == _REDUCTION:
      _replace(node, graph_def.library)
  for function in list(graph_def.library.function):
    for reduction in function.node_def:
      if reduction.op == _REDUCTION:
        _replace(reduction, graph_def.library)
        _rename_outputs(function, reduction.name)


def _rename_outputs(function: Any, name: str) -> None:
  """Has a function name the outputs of what was a reduction as a call's."""
  old, new = f"{name}:components:", f"{name}:output:"
  for node in function.node_def:
    for index, tensor in enumerate(node.input):
      if tensor.startswith(old):
        node.input[index] = new + tensor.removeprefix(old)
  for key, tensor in function.ret.items():
    if tensor.startswith(old):
      function.ret[key] = new + tensor.removeprefix(old)
