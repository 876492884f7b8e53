"""TFF's structures of values to and from flat lists of their leaves.

A session takes and returns flat lists; between rounds the state stays one, so
that a model of hundreds of tensors is not taken apart and put together again
for every computation of a round.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff


def count_leaves(type_spec: tff.Type) -> int:
  """Returns the number of tensors in a type."""
  return tff.types.count(
    type_spec, lambda inner: isinstance(inner, tff.TensorType)
  )


def flatten(value: Any, type_spec: tff.Type, *, name: str) -> list[np.ndarray]:
  """Flattens a value to its leaves in the order of the type.

  Args:
    value: Nested containers of anything NumPy converts to an array.
    type_spec: The value's type: tensors and structures of them.
    name: What the value is, for messages.

  Returns:
    One array per tensor of the type.

  Raises:
    ValueError: If the value is not of that type.
  """
  if isinstance(type_spec, tff.FederatedType):
    type_spec = type_spec.member
  if isinstance(type_spec, tff.TensorType):
    return [_check_leaf(value, type_spec, name)]
  try:
    elements = tff.structure.from_container(value)
  except TypeError:
    raise ValueError(
      f"{name} must be a structure {type_spec}, found {type(value).__name__}."
    ) from None
  expected = tff.structure.name_list_with_nones(type_spec)
  found = tff.structure.name_list_with_nones(elements)
  is_named = None not in expected and None not in found
  if len(expected) != len(found) or (is_named and set(expected) != set(found)):
    raise ValueError(f"{name} must have elements {expected}, found {found}.")
  leaves = []
  # By name where there are names: TFF's order may not be the dictionary's.
  for index, element_name in enumerate(expected):
    element = getattr(elements, element_name) if is_named else elements[index]
    key = index if element_name is None else element_name
    leaves.extend(flatten(element, type_spec[index], name=f"{name}[{key}]"))
  return leaves


def _check_leaf(value: Any, type_spec: tff.TensorType, name: str) -> np.ndarray:
  """Converts one tensor's value."""
  is_string = type_spec.dtype.type is np.str_
  # TensorFlow's strings are NumPy objects.
  leaf = np.asarray(value, dtype=object if is_string else None)
  if not is_string and leaf.dtype != type_spec.dtype:
    raise ValueError(
      f"{name} must be of dtype {type_spec.dtype.name}, found"
      f" {leaf.dtype.name}."
    )
  shape = tf.TensorShape(type_spec.shape)
  if not shape.is_compatible_with(leaf.shape):
    raise ValueError(
      f"{name} must be of shape {shape.as_list()}, found {list(leaf.shape)}."
    )
  return leaf


def unflatten(leaves: Sequence[Any], type_spec: tff.Type) -> Any:
  """Puts leaves together again, in the Python containers that the type names.

  Args:
    leaves: One array per tensor of the type.
    type_spec: Tensors and structures of them.

  Returns:
    What TFF itself would return for a computation with such a result.
  """
  if isinstance(type_spec, tff.FederatedType):
    type_spec = type_spec.member
  return tff.types.type_to_py_container(
    _to_struct(iter(leaves), type_spec), type_spec
  )


def _to_struct(remaining, type_spec: tff.Type) -> Any:
  """Nests the leaves that an iterator yields."""
  if isinstance(type_spec, tff.TensorType):
    return next(remaining)
  return tff.structure.Struct(
    (name, _to_struct(remaining, element))
    for name, element in tff.structure.iter_elements(type_spec)
  )
