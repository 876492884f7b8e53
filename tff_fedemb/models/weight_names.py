"""Names of a model's weights in files."""

from __future__ import annotations

import collections
from collections.abc import Iterator
import re

from etils import epy

with epy.lazy_imports():
  import tensorflow as tf


def last_part(name: str) -> str:
  """Returns the weight's own name, "kernel" of "block_3/kernel:0".

  Args:
    name: Name of a Keras variable, with or without its layer and its ":0".

  Returns:
    What is after the last slash.
  """
  return name.removesuffix(":0").rpartition("/")[2]


def snake_case(class_name: str) -> str:
  """Returns the name that Keras gives to layers of a class.

  Args:
    class_name: For example "LayerNormalization".

  Returns:
    For example "layer_normalization".
  """
  name = re.sub("(.)([A-Z][a-z0-9]+)", r"\1_\2", class_name)
  return re.sub("([a-z])([A-Z])", r"\1_\2", name).lower()


def portable_weights(
  backbone: tf.keras.Model,
) -> list[tuple[str, tf.Variable]]:
  """Names the variables of a model, the same way in every process.

  Keras numbers unnamed layers by how many it has made in this process. Here
  they are numbered from the first one of the model.

  Args:
    backbone: A Keras model.

  Returns:
    Names, each different, and variables, in the order of `backbone.weights`.
  """
  names = {}
  for layer, portable in _portable_layers(backbone):
    for weight in layer.weights:
      names[id(weight)] = f"{portable}/{last_part(weight.name)}"
  counts: collections.Counter[str] = collections.Counter()
  found = []
  for weight in backbone.weights:
    name = names.get(id(weight), last_part(weight.name))
    number = counts[name]
    counts[name] += 1
    found.append((f"{name}_{number}" if number else name, weight))
  return found


def _portable_layers(
  backbone: tf.keras.Model,
) -> Iterator[tuple[tf.keras.layers.Layer, str]]:
  """Yields layers with names that are numbered from the start of the model.

  Only names that Keras made up are replaced; yours stay.
  """
  counts: collections.Counter[str] = collections.Counter()
  for layer in backbone.layers:
    kind = snake_case(type(layer).__name__)
    kind = f"private{kind}" if kind.startswith("_") else kind
    name = layer.name
    if re.fullmatch(rf"{kind}(_\d+)?", name):
      name = f"{kind}_{counts[kind]}" if counts[kind] else kind
      counts[kind] += 1
    yield layer, name
