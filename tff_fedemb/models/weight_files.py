"""Reads the weights in a file, whatever wrote it, by name and in order.

Names are a layer's and a weight's own, "block_3_expand/kernel". No model is
built and no code of a file is run.
"""

import collections
from collections.abc import Callable
import io
import json
import os
import pathlib
import re
from typing import Any
import zipfile
import zlib

from google.protobuf import message
import h5py
import numpy as np
import tensorflow as tf
from tensorflow.core.protobuf import trackable_object_graph_pb2

from tff_fedemb import errors

# What can be wrong with the bytes of a file, as the libraries say it.
_DAMAGES = (
  EOFError,
  LookupError,
  OSError,
  RuntimeError,
  TypeError,
  ValueError,
  message.DecodeError,
  tf.errors.OpError,
  zipfile.BadZipFile,
  zlib.error,
)
_OBJECT_GRAPH = "_CHECKPOINTABLE_OBJECT_GRAPH"
_KEY_END = "/.ATTRIBUTES/VARIABLE_VALUE"

Weights = dict[str, np.ndarray]


def layer_weights(backbone: tf.keras.Model) -> dict[str, tf.Variable]:
  """The variables of a flat model by the names that files know them by."""
  return {
    # Graphs make a variable's own name unique, not its layer's.
    f"{layer.name}/{_last_part(variable.name)}": variable
    for layer in backbone.layers
    for variable in layer.weights
  }


def read_weights(
  path: str | os.PathLike[str], backbone: tf.keras.Model
) -> tuple[str, Weights]:
  """Reads the weights of a model, not those of its optimizer.

  Args:
    path: As in `pretrained.load_pretrained`.
    backbone: Flat model that says what the weights are called in files that
      number them only (.weights.h5).

  Returns:
    The kind of file, and the weights in its order.

  Raises:
    errors.DataError: If the file is missing, damaged or of another kind; says
      which and why.
  """
  path = pathlib.Path(path)
  kind, read = _find_reader(path, backbone)
  try:
    weights = read()
  except _DAMAGES as error:
    raise errors.DataError(
      f"{path}, which cannot be read as a {kind} ({errors.first_line(error)})"
    ) from error
  if not weights:
    raise errors.DataError(f"{path}, a {kind} without weights")
  return kind, weights


def _last_part(name: str) -> str:
  return name.removesuffix(":0").rpartition("/")[2]


def _find_reader(
  path: pathlib.Path, backbone: tf.keras.Model
) -> tuple[str, Callable[[], Weights]]:
  """What a path holds, and what reads it."""
  prefix = path.with_suffix("") if path.suffix == ".index" else path
  read: Callable[[pathlib.Path, Any], Weights]
  if path.is_dir():
    if not (path / "saved_model.pb").is_file():
      raise errors.DataError(f"{path}, a directory without saved_model.pb")
    kind, read = "SavedModel", _read_checkpoint
    prefix = path / "variables" / "variables"
  elif pathlib.Path(f"{prefix}.index").is_file():
    kind, read = "TensorFlow checkpoint", _read_checkpoint
  elif not path.is_file():
    raise errors.DataError(f"{path}, which does not exist")
  elif path.suffix in (".h5", ".hdf5"):
    kind, read = "Keras HDF5 file", _read_hdf5
  elif path.suffix == ".keras":
    kind, read = "Keras file", _read_keras
  else:
    raise errors.DataError(
      f"{path}, which is none of these: a SavedModel's directory, a .h5, .hdf5"
      " or .keras file, the .index of a TensorFlow checkpoint"
    )
  return kind, lambda: read(prefix, backbone)


def _add(weights: Weights, name: str, value) -> None:
  """Adds a weight by the last two parts of its name."""
  name = "/".join(name.removesuffix(":0").split("/")[-2:])
  if name in weights:
    raise ValueError(f"holds {name} more than once")
  weights[name] = np.asarray(value)


def _read_checkpoint(prefix: pathlib.Path, backbone: tf.keras.Model) -> Weights:
  """Reads a TensorFlow checkpoint, also one in a SavedModel."""
  del backbone  # Its names are in the file.
  reader = tf.train.load_checkpoint(os.fspath(prefix))
  keys = reader.get_variable_to_shape_map()
  weights = {}
  if _OBJECT_GRAPH not in keys:
    for key in sorted(keys):
      _add(weights, key, reader.get_tensor(key))
    return weights
  graph = trackable_object_graph_pb2.TrackableObjectGraph.FromString(
    reader.get_tensor(_OBJECT_GRAPH)
  )
  attributes = [a for node in graph.nodes for a in node.attributes]
  # Every optimizer counts its iterations, wherever it is kept.
  not_model = tuple(
    a.checkpoint_key.split(end)[0] + "/"
    for a in attributes
    for end in ("/_iterations/", "/iter/")
    if end in a.checkpoint_key
  ) + ("keras_api/", "save_counter/")
  for attribute in attributes:
    key = attribute.checkpoint_key
    if (
      key.endswith(_KEY_END)
      and ".OPTIMIZER_SLOT" not in key
      and not key.startswith(not_model)
    ):
      _add(weights, attribute.full_name, reader.get_tensor(key))
  return weights


def _read_hdf5(path: pathlib.Path, backbone: tf.keras.Model) -> Weights:
  """Reads weights that Keras wrote by layer name, or numbered."""
  with h5py.File(path) as file:
    group = file.get("model_weights", file)
    if "layer_names" not in group.attrs:
      layers = [(type(layer).__name__, layer.name) for layer in backbone.layers]
      return _read_numbered(file, layers, backbone)
    weights = {}
    for layer in map(tf.compat.as_str, group.attrs["layer_names"]):
      names = group[layer].attrs["weight_names"]
      for name in map(tf.compat.as_str, names):
        _add(weights, f"{layer}/{_last_part(name)}", group[layer][name])
    return weights


def _read_keras(path: pathlib.Path, backbone: tf.keras.Model) -> Weights:
  """Reads a .keras archive: a description and a file of weights."""
  with zipfile.ZipFile(path) as archive:
    config = json.loads(archive.read("config.json"))
    content = archive.read("model.weights.h5")
  layers = [
    (layer["class_name"], layer["config"]["name"])
    for layer in config["config"]["layers"]
  ]
  with h5py.File(io.BytesIO(content)) as file:
    return _read_numbered(file, layers, backbone)


def _read_numbered(
  file: h5py.File, layers: list[tuple[str, str]], backbone: tf.keras.Model
) -> Weights:
  """Reads weights such as `.../conv2d_3/vars/0`, of the fourth Conv2D.

  `layers` are the classes and names of those in the file, in order.
  """
  layer_names = {}
  num_of_class = collections.Counter()
  for layer_class, name in layers:
    key = re.sub(
      "(?<=[a-z])(?=[A-Z])|(?<=.)(?=[A-Z][a-z])", "_", layer_class
    ).lower()
    number = num_of_class[key]
    layer_names[f"{key}_{number}" if number else key] = name
    num_of_class[key] += 1
  weight_names = {
    layer.name: [_last_part(v.name) for v in layer.weights]
    for layer in backbone.layers
  }
  positions = {key: position for position, key in enumerate(layer_names)}
  found = []

  def visit(path, item):
    parts = ["", "", *path.split("/")]
    key, container, number = parts[-3:]
    if (
      isinstance(item, h5py.Dataset)
      and container == "vars"
      and not {"optimizer", "metrics"}.intersection(parts[:-2])
    ):
      position = positions.get(key, len(positions))
      found.append((position, key, int(number), item))

  file.visititems(visit)
  weights = {}
  for _, key, number, item in sorted(found, key=lambda entry: entry[:3]):
    layer = layer_names.get(key, key)
    names = dict(enumerate(weight_names.get(layer, [])))
    _add(weights, f"{layer}/{names.get(number, number)}", item)
  return weights
