"""A TFF computation as a plain function of flat lists of NumPy arrays.

After compilation each part of a round is one TensorFlow graph with a binding
that says which tensors are its arguments and results. TFF has no public
executor for such a graph outside its C++ runtime, but it makes the graph and
the bindings public (`tff.framework.serialize_computation`), which is all that
this module reads; no private module is imported.

Between rounds a state stays a flat list of its leaves, so that a model of
hundreds of tensors is not taken apart and put together again for every
computation of a round; `flatten` and `unflatten` convert TFF's structures.
"""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff
import tree

from tff_fedemb.runtime import dataset_loops
from tff_fedemb.runtime import graph_resources
from tff_fedemb.runtime import graph_session


def _tensor_names(binding: Any, *, role: str) -> list[str]:
  """Lists a binding's tensors, in the order of the type's leaves.

  Args:
    binding: A `TensorFlow.Binding` of TFF's `computation.proto`.
    role: What the binding is for, in the error.

  Returns:
    Names such as `arg:0`; none for an empty structure.

  Raises:
    TypeError: If the binding has a dataset.
  """
  kind = binding.WhichOneof("binding")
  if kind is None:
    return []
  if kind == "tensor":
    return [binding.tensor.tensor_name]
  if kind == "struct":
    names = []
    for element in binding.struct.element:
      names.extend(_tensor_names(element, role=role))
    return names
  raise TypeError(
    f"{role} must consist of tensors, found a {kind}: datasets have to be"
    " made inside of the computation."
  )


def _node_of(tensor: str) -> str:
  """Returns the node of a tensor or of a control input, by their names."""
  return tensor.removeprefix("^").partition(":")[0]


def _find_ancestors(graph_def: Any, names: Iterable[str]) -> set[str]:
  """Finds all nodes that some nodes depend on, these included.

  Args:
    graph_def: Graph of the nodes; bodies of functions are not searched.
    names: Names of nodes.

  Returns:
    Names of these nodes and of all their direct and indirect inputs.
  """
  nodes = {node.name: node for node in graph_def.node}
  found: set[str] = set()
  waiting = list(names)
  while waiting:
    name = waiting.pop()
    if name not in found:
      found.add(name)
      waiting.extend(map(_node_of, nodes[name].input))
  return found


def _extract(graph_def: Any, tensors: Iterable[str]) -> Any:
  """Returns the part of a graph that makes some tensors.

  No node of it is bound to the device of another, which may be missing.

  Args:
    graph_def: The graph; its functions stay in the part.
    tensors: Names of the tensors.

  Returns:
    A new `GraphDef`.
  """
  needed = _find_ancestors(graph_def, map(_node_of, tensors))
  part = tf.compat.v1.GraphDef(
    library=graph_def.library, versions=graph_def.versions
  )
  part.node.extend(node for node in graph_def.node if node.name in needed)
  for node in part.node:
    node.attr.pop("_class", None)
  return part


def _initialize_first(graph_def: Any, initialize_op: str) -> None:
  """Makes nodes that may read variables wait for their initialization.

  Args:
    graph_def: The graph, changed in place.
    initialize_op: Name of the operation that initializes the variables.
  """
  free = _find_ancestors(graph_def, [initialize_op])
  for node in graph_def.node:
    # A node that only passes an argument on has nothing to wait for.
    if node.op == "Placeholder" or (
      node.op == "Identity" and _node_of(node.input[0]) in free
    ):
      free.add(node.name)
  for node in graph_def.node:
    # A node that depends on another node waits together with that one.
    if node.name not in free and free.issuperset(map(_node_of, node.input)):
      node.input.append(f"^{initialize_op}")


def import_computation(
  name: str, computation: tff.Computation, *, device: str = ""
) -> graph_session.RunnableGraph:
  """Returns the graph of a computation.

  Whenever it is run it has resources of its own, see `graph_resources`.

  Args:
    name: Name of the part of a round, for messages.
    computation: A compiled computation, nothing but TensorFlow.
    device: Device of the operations that the computation does not place, as far
      as the device can, say '/device:GPU:1'. Empty leaves it to TensorFlow,
      which takes the first GPU if there is one.

  Returns:
    The graph. Its arguments and results are the leaves of the computation's
    parameter and result, in the order of their types.

  Raises:
    TypeError: If the computation is not plain TensorFlow, or takes or returns a
      dataset.
  """
  proto = tff.framework.serialize_computation(computation)
  kind = proto.WhichOneof("computation")
  if kind != "tensorflow":
    raise TypeError(f"{name} must be a TensorFlow computation, found {kind}.")
  graph_def = tf.compat.v1.GraphDef()
  proto.tensorflow.graph_def.Unpack(graph_def)
  needs_own_session = graph_resources.separate(graph_def)
  dataset_loops.replace_reductions(graph_def)
  # Loops and functions run on the device of the operation that calls them. So
  # functions that only data sets call stay on the CPU: a GPU would get one
  # example at a time.
  for node in graph_def.node:
    node.device = node.device or device
    if node.name == _node_of(proto.tensorflow.session_token_tensor_name):
      # TFF's runtime tells its sessions apart by this token; nothing here reads
      # it.
      node.op = "Const"
      node.attr.pop("shape", None)
      node.attr["value"].tensor.CopyFrom(tf.make_tensor_proto(""))
  if proto.tensorflow.initialize_op:
    _initialize_first(graph_def, proto.tensorflow.initialize_op)
  arguments = _tensor_names(
    proto.tensorflow.parameter, role=f"the parameter of {name}"
  )
  results = _tensor_names(proto.tensorflow.result, role=f"the result of {name}")
  return graph_session.import_graph(
    # TFF leaves much in a graph that its results do not need.
    _extract(graph_def, [*arguments, *results]),
    arguments,
    results,
    needs_own_session,
  )


def add_to_graph(
  added: graph_session.RunnableGraph, arguments: Sequence[tf.Tensor]
) -> list[tf.Tensor]:
  """Adds a computation to the default graph; returns its results there.

  Args:
    added: The computation, as `import_computation` returns it: a loop would run
      side effects that its results do not need.
    arguments: Tensors of the default graph.

  Returns:
    The results, tensors of the default graph.

  Raises:
    ValueError: If there are more or fewer arguments than the computation has.
  """
  fed = {}
  for tensor, argument in zip(added.arguments, arguments, strict=True):
    # The identity makes the body of a loop capture tensors from outside.
    fed[tensor.name] = tf.identity(argument)
  names = [tensor.name for tensor in added.results]
  results = tf.graph_util.import_graph_def(
    added.graph.as_graph_def(),
    input_map=fed,
    return_elements=names,
  )
  return [
    fed.get(name, result) for name, result in zip(names, results, strict=True)
  ]


def leaf_types(type_spec: tff.Type) -> list[tff.TensorType]:
  """Returns the types of a type's tensors, in the order of its leaves.

  Args:
    type_spec: Tensors and structures of them, at the server or not.

  Returns:
    Types of the tensors; a server placement is dropped.
  """
  if isinstance(type_spec, tff.FederatedType):
    type_spec = type_spec.member
  return tff.structure.flatten(type_spec)


def flatten(structure: Any, type_spec: tff.Type) -> list[np.ndarray]:
  """Flattens a structure to its leaves, one array per tensor of the type.

  Args:
    structure: Nested containers of anything NumPy converts to an array.
    type_spec: The structure's type: tensors and structures of them.

  Returns:
    Leaves in the order of the type. A tensor without dimensions is a NumPy
    scalar, as sessions return it.

  Raises:
    ValueError: If the structure is not of that type.
  """
  types = leaf_types(type_spec)
  # Match by name where there are names: TFF's order may differ.
  places = unflatten(range(len(types)), type_spec)
  try:
    found = tree.flatten_up_to(places, structure, check_types=False)
  except TypeError as error:
    raise ValueError(str(error)) from error
  leaves = dict(zip(tree.flatten(places), found, strict=True))
  checked = []
  for place, leaf_type in enumerate(types):
    checked.append(_check_leaf(leaves[place], leaf_type))
  return checked


def _check_leaf(value: Any, type_spec: tff.TensorType) -> np.ndarray:
  """Converts one tensor's value.

  Args:
    value: Anything that NumPy makes an array of.
    type_spec: Type of the tensor; an unknown dimension fits any size.

  Returns:
    The array, or a NumPy scalar for a tensor without dimensions.

  Raises:
    ValueError: If dtype or shape differ; strings of any kind are taken.
  """
  is_string = type_spec.dtype.type is np.str_
  # TensorFlow's strings are NumPy objects.
  leaf = np.asarray(value, dtype=object if is_string else None)
  shape = tf.TensorShape(type_spec.shape)
  is_of_type = is_string or leaf.dtype == type_spec.dtype
  if not is_of_type or not shape.is_compatible_with(leaf.shape):
    raise ValueError(
      f"a tensor of the structure must be {type_spec}, found"
      f" {leaf.dtype.name}{list(leaf.shape)}."
    )
  # TensorFlow returns no array for a tensor without dimensions.
  return leaf if leaf.ndim else leaf[()]


def unflatten(leaves: Sequence[Any], type_spec: tff.Type) -> Any:
  """Returns what TFF itself would for a computation with these results.

  Args:
    leaves: One array per tensor of the type.
    type_spec: Tensors and structures of them.

  Returns:
    Nested Python containers, those that the type names: for example attrs
    classes or ordered dictionaries.
  """
  if isinstance(type_spec, tff.FederatedType):
    type_spec = type_spec.member
  nested = tff.structure.pack_sequence_as(type_spec, list(leaves))
  return tff.types.type_to_py_container(nested, type_spec)
