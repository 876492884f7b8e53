"""Gives each run of a graph resources of its own, as TFF does.

A session keeps tables, queues and variables by their names, for all that it
runs: one client would find what another has left, or the server what it left
in the round before. Then one client's data would change another's update, and
no bound on the latter would bound what the former changes. Variables and tables
are made anonymous here: each run of their node, also in a loop over clients,
makes one that ends with the run. A process with anything else that a session
might keep is refused.
"""

from collections.abc import Iterable
import re
from typing import Any

import tensorflow as tf

# TensorFlow has no public way from the name of an operation to what it is.
from tensorflow.python.framework import op_def_registry

from tff_fedemb import errors

# The name by which TensorFlow knows a variable that is to have none.
_NO_NAME = b"cd2c89b7-88b7-44c8-ad83-06c2a9158347"
_ANONYMOUS = {
  "HashTableV2": "AnonymousHashTable",
  "MutableDenseHashTableV2": "AnonymousMutableDenseHashTable",
  "MutableHashTableOfTensorsV2": "AnonymousMutableHashTableOfTensors",
  "MutableHashTableV2": "AnonymousMutableHashTable",
}
# Attributes of what a session keeps by a name.
_NAMES = frozenset({"container", "shared_name", "use_node_name_sharing"})
# Operations that TensorFlow calls stateful, and that keep nothing for the next
# run but their place in a stream of random numbers.
_KEEPS_NOTHING = re.compile(
  # They make what ends with the run.
  r"Anonymous\w+|Dummy\w+|StackV2|TensorArrayV3"
  # Their functions are looked at as well.
  r"|Case|If|StatefulPartitionedCall|While"
  # They draw random numbers.
  r"|CudnnRNN\w*|Multinomial|NonDeterministicInts|ParameterizedTruncatedNormal"
  r"|Random\w+|SampleDistortedBoundingBox\w*|StatelessRandomGetAlg"
  r"|TruncatedNormal|(All|FixedUnigram|LogUniform|Uniform)CandidateSampler"
  # They read, check or print.
  r"|\w+Dataset(V\d)?|Assert|CheckNumerics(V2)?|Print(V2)?|RestoreV2|Timestamp"
  # They are called stateful to be left alone by optimizers.
  r"|DeepCopy|DeviceIndex|Empty|GuaranteeConst"
)
_HANDLES = (tf.resource.as_datatype_enum, tf.variant.as_datatype_enum)


def _keeps_something(op_def: Any) -> bool:
  """Whether a session might keep something of an operation's for others."""
  if not _NAMES.isdisjoint(attr.name for attr in op_def.attr):
    return True
  return (
    op_def.is_stateful
    # An operation on a resource, or a data set, was given it by another.
    and not any(each.type in _HANDLES for each in op_def.input_arg)
    and not _KEEPS_NOTHING.fullmatch(op_def.name)
  )


def _find_kept(nodes: Iterable[Any], functions: frozenset[str]) -> list[Any]:
  """The nodes that a session might keep something of."""
  return [
    node
    for node in nodes
    if node.op not in functions
    and _keeps_something(op_def_registry.get(node.op))
  ]


def separate(graph_def: Any, name: str) -> None:
  """Has each run of a graph make its own resources.

  Args:
    graph_def: Is changed.
    name: Name of the part of a round, for messages.

  Raises:
    errors.FieldError: If there is something that a session would keep from one
      run for the next, or might.
  """
  library = graph_def.library.function
  functions = frozenset(function.signature.name for function in library)
  # Each call of a function would make another one.
  kept = [
    node
    for function in library
    for node in _find_kept(function.node_def, functions)
  ]
  found: set[tuple[bytes, bytes]] = set()
  for node in _find_kept(graph_def.node, functions):
    key = (node.attr["container"].s, node.attr["shared_name"].s)
    # TFF has given a name to all that had none.
    if node.op in ("VarHandleOp", *_ANONYMOUS) and key not in found:
      found.add(key)
      if node.op == "VarHandleOp":
        node.attr["shared_name"].s = _NO_NAME
      else:
        node.op = _ANONYMOUS[node.op]
        for attribute in _NAMES:
          node.attr.pop(attribute, None)
    else:
      kept.append(node)
  if kept:
    raise errors.FieldError(
      "runtime",
      "be tff for a process with resources that clients or rounds would share"
      " here",
      f"{kept[0].op} {kept[0].name!r} in {name!r}",
    )
