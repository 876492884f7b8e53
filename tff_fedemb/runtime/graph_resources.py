"""Gives each run of a graph resources of its own, as TFF does.

A session keeps tables, queues and variables by their names for all its runs: a
client would find what another client left, or the server what it left in the
round before. Then one client's data would change another's update, and a bound
on one update would not bound a client's influence. Variables and tables
are made anonymous here: each run of their node, also in a loop over clients,
makes one that ends with the run. A graph with anything else that a session
might keep needs a session for each run, as in TFF.
"""

from collections.abc import Iterable
import re
from typing import Any

import tensorflow as tf

# TensorFlow has no public way to look up an operation by its name.
from tensorflow.python.framework import op_def_registry
import tensorflow_federated as tff

from tff_fedemb import errors

# Operations that call Python functions: other processes lack the functions, and
# no graph keeps those that TFF has traced.
_CALLS_PYTHON = ("EagerPyFunc", "PyFunc", "PyFuncStateless")
# With this name TensorFlow makes an anonymous variable.
_NO_NAME = b"cd2c89b7-88b7-44c8-ad83-06c2a9158347"
_ANONYMOUS = {
  "HashTableV2": "AnonymousHashTable",
  "MutableDenseHashTableV2": "AnonymousMutableDenseHashTable",
  "MutableHashTableOfTensorsV2": "AnonymousMutableHashTableOfTensors",
  "MutableHashTableV2": "AnonymousMutableHashTable",
}
# Attributes of operations whose resources a session keeps by name.
_NAMES = frozenset({"container", "shared_name", "use_node_name_sharing"})
# Operations that TensorFlow calls stateful, but that keep nothing for the next
# run except their place in a stream of random numbers.
_KEEPS_NOTHING = re.compile(
  # They make a resource that ends with the run.
  r"Anonymous\w+|Dummy\w+|StackV2|TensorArrayV3"
  # They call functions, which are checked as well.
  r"|Case|If|StatefulPartitionedCall|While"
  # They draw random numbers.
  r"|CudnnRNN\w*|Multinomial|NonDeterministicInts|ParameterizedTruncatedNormal"
  r"|Random\w+|SampleDistortedBoundingBox\w*|StatelessRandomGetAlg"
  r"|TruncatedNormal|(All|FixedUnigram|LogUniform|Uniform)CandidateSampler"
  # They read, check or print.
  r"|\w+Dataset(V\d)?|Assert|CheckNumerics(V2)?|Print(V2)?|RestoreV2|Timestamp"
  # They are marked stateful only to keep optimizers away.
  r"|DeepCopy|DeviceIndex|Empty|GuaranteeConst"
)
_HANDLES = (tf.resource.as_datatype_enum, tf.variant.as_datatype_enum)


def _keeps_something(op_def: Any) -> bool:
  """Whether a session might keep state of an operation between runs.

  Args:
    op_def: Definition of the operation, an `OpDef`.

  Returns:
    True if it makes a resource with a name, or is stateful and not in the list
    of those that keep nothing.
  """
  if not _NAMES.isdisjoint(attr.name for attr in op_def.attr):
    return True
  return (
    op_def.is_stateful
    # The resource or data set that it takes was made by another operation.
    and not any(each.type in _HANDLES for each in op_def.input_arg)
    and not _KEEPS_NOTHING.fullmatch(op_def.name)
  )


def _find_kept(nodes: Iterable[Any], functions: frozenset[str]) -> list[Any]:
  """Finds the nodes whose state a session might keep between runs.

  Args:
    nodes: Nodes of the graph or of one function.
    functions: Names of the graph's functions; a node may call one by its name,
      and its body is checked on its own.
  """
  return [
    node
    for node in nodes
    if node.op not in functions
    and _keeps_something(op_def_registry.get(node.op))
  ]


def check_without_python(computation: tff.Computation) -> None:
  """Refuses a computation that calls Python functions.

  Args:
    computation: Any part of a process.

  Raises:
    errors.FieldError: If it calls one; the error names the operation.
  """
  proto = tff.framework.serialize_computation(computation)
  content = proto.SerializeToString()
  for op in _CALLS_PYTHON:
    # The field `op` of a graph's node, wherever in the computation that is.
    if bytes([0x12, len(op)]) + op.encode() in content:
      raise errors.FieldError(
        "process",
        "be made of TensorFlow's own operations, as those that call Python"
        " (tf.py_function, tf.numpy_function, Dataset.from_generator) run on no"
        " runtime",
        op,
      )


def separate(graph_def: Any) -> bool:
  """Makes each run of a graph create its own resources, if it can.

  Only resources of the graph itself can become anonymous. In the body of a
  function, each call would make another resource.

  Args:
    graph_def: The graph, changed in place.

  Returns:
    Whether each run needs a session of its own, because a session might keep
    something else from one run for the next.
  """
  library = graph_def.library.function
  functions = frozenset(function.signature.name for function in library)
  for function in library:
    # Each call of a function would make another resource.
    if _find_kept(function.node_def, functions):
      return True
  kept = _find_kept(graph_def.node, functions)
  names = set()
  for node in kept:
    if node.op not in ("VarHandleOp", *_ANONYMOUS):
      return True
    # TFF has named all resources that had no name.
    names.add((node.attr["container"].s, node.attr["shared_name"].s))
  if len(names) < len(kept):
    return True
  for node in kept:
    if node.op == "VarHandleOp":
      node.attr["shared_name"].s = _NO_NAME
    else:
      node.op = _ANONYMOUS[node.op]
      for attribute in _NAMES:
        node.attr.pop(attribute, None)
  return False
