"""Names in a SavedModel that reveal nothing but its network.

TensorFlow and Keras number the functions, gradients and layers of a process,
and write the numbers into the names of a file. So the file reveals how much ran
before it: a tuning that releases the best of its trials would reveal which
trial that was. Here each node, argument, function and gradient gets a new name
from its kind and its place.
"""

from __future__ import annotations

import collections
from collections.abc import Iterable, Iterator, MutableMapping
import copy
import re
from typing import Any

from tensorflow.core.framework import function_pb2
from tensorflow.core.framework import node_def_pb2
from tensorflow.core.protobuf import meta_graph_pb2

_GRADIENT = "_gradient_op_type"
_USER_NAME = "_user_specified_name"
# Keras gives both halves of a recurrent layer the same random name.
_IMPLEMENTS = "api_implements"
_COUNTED = re.compile(rb"(\w+)-\d+")
# Attributes of nodes that describe the devices and threads of the process.
_OF_PROCESS = ("config_proto",)


class Renaming:
  """Renames everything in the graph of a SavedModel, in place.

  Two processes that export the same network with the same weights then write
  the same graph, whatever they did before.
  """

  def __init__(self, meta: meta_graph_pb2.MetaGraphDef, *, keep: str):
    """Indexes the functions and gradients.

    Args:
      meta: Graph, functions and objects of a SavedModel of TensorFlow 2.
      keep: Name of the arguments that keep their names.
    """
    self._meta = meta
    self._keep = keep
    library = meta.graph_def.library
    self._library = {each.signature.name: each for each in library.function}
    self._gradients = {
      each.registered_op_type.encode(): each.gradient_func
      for each in library.registered_gradients
    }
    self._new_functions: dict[str, str] = {}
    self._new_gradients: dict[bytes, bytes] = {}
    self._new_interfaces: dict[bytes, bytes] = {}
    # New names of nodes by old ones, by function.
    self._nodes: dict[str, dict[str, str]] = {}

  def apply(self) -> None:
    """Renames everything, and drops functions that nothing refers to.

    Raises:
      ValueError: If the graph has a structure that TensorFlow 2 does not write.
    """
    meta = self._meta
    nodes = _rename_nodes(meta.graph_def.node, {})
    self._visit(meta.graph_def.node)
    for each in meta.object_graph_def.nodes:
      names = list(each.function.concrete_functions)
      names.append(each.bare_concrete_function.concrete_function_name)
      for name in filter(None, names):
        self._visit_function(name)
    self._rename_references(nodes)
    self._rename_objects()
    self._replace_library()

  def _visit(self, nodes: Iterable[node_def_pb2.NodeDef]) -> None:
    """Renames functions and gradients in the order in which they are used.

    Attributes that describe the devices and threads of this process, and debug
    information, are removed from the nodes.

    Args:
      nodes: Nodes of the graph or of one function, changed in place.
    """
    for node in nodes:
      for name in _OF_PROCESS:
        node.attr.pop(name, None)
      node.ClearField("experimental_debug_info")
      for used in _functions_of(node.attr):
        self._visit_function(used.name)
        used.name = self._new_functions.get(used.name, used.name)
      if _GRADIENT in node.attr:
        value = node.attr[_GRADIENT]
        self._visit_function(self._gradients.get(value.s, ""))
        value.s = _number(value.s, self._new_gradients)

  def _visit_function(self, name: str) -> None:
    """Renames a function and what it uses, unless that is done.

    The number in the new name counts the functions that were reached before it,
    so it depends on the graph alone.

    Args:
      name: The function's old name; a name that the library does not have is
        ignored.
    """
    if name in self._new_functions or name not in self._library:
      return
    number = len(self._new_functions)
    self._new_functions[name] = f"__inference_function_{number}"
    function = self._library[name]
    self._nodes[name] = _rename_function(function, self._keep)
    if _IMPLEMENTS in function.attr:
      value = function.attr[_IMPLEMENTS]
      value.s = self._new_interfaces.setdefault(
        value.s, b"interface_%d" % len(self._new_interfaces)
      )
    self._visit(function.node_def)

  def _rename_references(self, nodes: dict[str, str]) -> None:
    """Renames references to nodes outside of functions.

    These are in the signatures, the saver, the collections and the assets.

    Args:
      nodes: New names of the graph's nodes by the old ones.
    """
    meta = self._meta
    for signature in meta.signature_def.values():
      for tensors in (signature.inputs, signature.outputs):
        for tensor in tensors.values():
          tensor.name = _refer(tensor.name, nodes)
    saver = meta.saver_def
    for part in ("filename_tensor", "save_tensor", "restore_op"):
      field = f"{part}_name"
      setattr(saver, field, _refer(getattr(saver, field), nodes))
    for collection in meta.collection_def.values():
      values = collection.node_list.value
      values[:] = [_refer(value, nodes) for value in values]
    for asset in meta.asset_file_def:
      asset.tensor_info.name = _refer(asset.tensor_info.name, nodes)

  def _rename_objects(self) -> None:
    """Renames references to functions, and puts captured tensors in order."""
    graph = self._meta.object_graph_def
    new = self._new_functions
    for each in graph.nodes:
      names = each.function.concrete_functions
      if names:
        names[:] = [new[name] for name in names]
      if each.HasField("bare_concrete_function"):
        bare = each.bare_concrete_function
        bare.concrete_function_name = new[bare.concrete_function_name]
    moved = self._sort_captured()
    _rename_keys(graph.concrete_functions, new)
    for function in graph.concrete_functions.values():
      inputs = function.bound_inputs
      inputs[:] = [moved.get(place, place) for place in inputs]

  def _sort_captured(self) -> dict[int, int]:
    """Renames captured tensors and sorts them; returns new places by old ones.

    They come last, each once for every gradient that looks at it. A single one
    of equal tensors stays.

    Returns:
      The new index of each captured tensor in the object graph, by its old
      index.

    Raises:
      ValueError: If a captured tensor comes before another object.
    """
    objects = self._meta.object_graph_def.nodes
    captured = {}
    keys = {}
    for place, each in enumerate(objects):
      if not each.HasField("captured_tensor"):
        continue
      tensor = each.captured_tensor
      function = tensor.concrete_function
      tensor.name = _refer(tensor.name, self._nodes[function])
      tensor.concrete_function = self._new_functions[function]
      key = (tensor.concrete_function, tensor.name)
      keys[place] = key
      captured[key] = copy.deepcopy(each)
    first = len(objects) - len(keys)
    if min(keys, default=first) < first:
      raise ValueError("captured tensors must come after all other objects")
    del objects[first:]
    order = sorted(captured)
    objects.extend(captured[key] for key in order)
    return {place: first + order.index(key) for place, key in keys.items()}

  def _replace_library(self) -> None:
    """Keeps the functions and gradients that are used, in the order of use.

    Raises:
      ValueError: If the library has gradients that are not registered by name,
        which TensorFlow 2 does not write.
    """
    library = self._meta.graph_def.library
    new = self._new_functions
    if library.gradient:
      raise ValueError("gradients of functions must be registered by a name")
    functions = []
    for name in new:
      function = copy.deepcopy(self._library[name])
      function.signature.name = new[name]
      functions.append(function)
    gradients = []
    for kind, name in self._gradients.items():
      if name in new:
        gradients.append((self._new_gradients[kind], new[name]))
    library.Clear()
    library.function.extend(functions)
    for kind, name in sorted(gradients):
      library.registered_gradients.add(
        gradient_func=name, registered_op_type=kind.decode()
      )


def _number(name: bytes, new: dict[bytes, bytes]) -> bytes:
  """Replaces the number that a process gave to a gradient.

  Args:
    name: Registered type of the gradient's operation, such as
      `b"CustomGradient-123"`.
    new: New names by old ones; gets the new name.

  Returns:
    The new name, which counts from 0; the old name if it has no number.
  """
  found = _COUNTED.fullmatch(name)
  if found is None:
    return name
  return new.setdefault(name, b"%s-%d" % (found[1], len(new)))


def _functions_of(attributes: Any) -> Iterator[Any]:
  """Yields the functions that a node calls, in the order of its attributes.

  Args:
    attributes: The map `attr` of a node or of a function's reference.

  Yields:
    References to functions, each followed by those within its own attributes.
  """
  for name in sorted(attributes):
    value = attributes[name]
    used = [value.func] if value.HasField("func") else value.list.func
    for function in used:
      yield function
      yield from _functions_of(function.attr)


def _refer(reference: str, names: dict[str, str]) -> str:
  """Renames the node in `^node`, `node:0` or `node:output:0`."""
  name, colon, rest = reference.removeprefix("^").partition(":")
  control = "^" if reference.startswith("^") else ""
  # An empty reference stays empty.
  new = names[name] if name else ""
  return f"{control}{new}{colon}{rest}"


def _rename_nodes(
  nodes: Iterable[node_def_pb2.NodeDef],
  names: dict[str, str],
) -> dict[str, str]:
  """Renames nodes by their operations; adds new names by the old ones.

  Args:
    nodes: Nodes, changed in place.
    names: New names of what else the nodes refer to, for example the arguments
      of their function; gets those of the nodes.

  Returns:
    `names`.
  """
  counts: collections.Counter[str] = collections.Counter()
  nodes = list(nodes)
  for node in nodes:
    kind = node.op.lstrip("_")
    names[node.name] = f"{kind}_{counts[kind]}"
    counts[kind] += 1
  for node in nodes:
    node.name = names[node.name]
    inputs = [_refer(each, names) for each in node.input]
    # Control inputs come last, in the order of their former names.
    control = [each for each in inputs if each.startswith("^")]
    first = len(inputs) - len(control)
    node.input[:] = inputs[:first] + sorted(control)
    if "_class" in node.attr:
      values = node.attr["_class"].list.s
      values[:] = [_colocate(value, names) for value in values]
    for name in ("shared_name", "debug_name"):
      if name in node.attr and node.attr[name].s:
        node.attr[name].s = node.name.encode()
    node.attr.pop(_USER_NAME, None)
  return names


def _colocate(value: bytes, names: dict[str, str]) -> bytes:
  """Renames the node in `loc:@node`."""
  place, at, name = value.decode().partition("@")
  return f"{place}{at}{names.get(name, name)}".encode()


def _rename_function(
  function: function_pb2.FunctionDef,
  keep: str,
) -> dict[str, str]:
  """Renames arguments, nodes and results; returns new names by the old ones.

  Args:
    function: Definition of the function, changed in place.
    keep: User-given name of the arguments that keep it, such as `images`.

  Returns:
    New names of the arguments and nodes by the old ones.
  """
  names = {}
  signature = function.signature
  for index, each in enumerate(signature.input_arg):
    attributes = function.arg_attr[index].attr
    called = attributes[_USER_NAME].s if _USER_NAME in attributes else b""
    new = keep if called == keep.encode() else f"input_{index}"
    if _USER_NAME in attributes:
      attributes[_USER_NAME].s = new.encode()
    names[each.name] = each.name = new
  _rename_nodes(function.node_def, names)
  returned = {}
  for index, each in enumerate(signature.output_arg):
    new = f"output_{index}"
    returned[new] = _refer(function.ret[each.name], names)
    each.name = new
  awaited = {}
  for key, value in function.control_ret.items():
    awaited[names[key]] = names[value]
  function.ret.clear()
  function.ret.update(returned)
  function.control_ret.clear()
  function.control_ret.update(awaited)
  signature.control_output[:] = sorted(function.control_ret)
  return names


def _rename_keys(
  values: MutableMapping[str, Any],
  names: dict[str, str],
) -> None:
  """Renames the keys of a map of messages; drops keys without a new name."""
  found = {}
  for key, value in values.items():
    if key in names:
      found[names[key]] = copy.deepcopy(value)
  values.clear()
  for key, value in found.items():
    values[key].CopyFrom(value)
