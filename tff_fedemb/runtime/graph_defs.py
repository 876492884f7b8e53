"""Changes to a `GraphDef` before it is imported."""

from collections.abc import Iterable
from typing import Any

import tensorflow as tf


def node_of(tensor: str) -> str:
  """The name of the node that a tensor, or a control input, comes from."""
  return tensor.removeprefix("^").partition(":")[0]


def _find_ancestors(graph_def: Any, names: Iterable[str]) -> set[str]:
  """Names of all that some nodes need, with their own."""
  nodes = {node.name: node for node in graph_def.node}
  found: set[str] = set()
  waiting = list(names)
  while waiting:
    name = waiting.pop()
    if name not in found:
      found.add(name)
      waiting.extend(map(node_of, nodes[name].input))
  return found


def extract(graph_def: Any, tensors: Iterable[str]) -> Any:
  """Returns the part of a graph that makes some tensors.

  No node of it is bound to the device of another, which may be missing.
  """
  needed = _find_ancestors(graph_def, map(node_of, tensors))
  part = tf.compat.v1.GraphDef(
    library=graph_def.library, versions=graph_def.versions
  )
  part.node.extend(node for node in graph_def.node if node.name in needed)
  for node in part.node:
    node.attr.pop("_class", None)
  return part


def initialize_first(graph_def: Any, initialize_op: str) -> None:
  """Has all that may read variables wait until they are initialized.

  Args:
    graph_def: Is changed.
    initialize_op: Name of the operation that initializes them.
  """
  free = _find_ancestors(graph_def, [initialize_op])
  for node in graph_def.node:
    # A node that only passes an argument on has nothing to wait for.
    if node.op == "Placeholder" or (
      node.op == "Identity" and node_of(node.input[0]) in free
    ):
      free.add(node.name)
  for node in graph_def.node:
    # A node that needs others than these waits with them.
    if node.name not in free and free.issuperset(map(node_of, node.input)):
      node.input.append(f"^{initialize_op}")


def set_constant(graph_def: Any, name: str, value: str) -> None:
  """Replaces a node by a constant, if there is such a node."""
  for node in graph_def.node:
    if node.name == name:
      node.Clear()
      node.name, node.op = name, "Const"
      node.attr["dtype"].type = tf.string.as_datatype_enum
      node.attr["value"].tensor.CopyFrom(tf.make_tensor_proto(value))
