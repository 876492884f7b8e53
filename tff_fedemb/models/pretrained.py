"""Starts a backbone from weights that were trained before, elsewhere.

Training on public data first costs no privacy (Xu et al. 2023). The weights
must come from public data: this module cannot check it, and weights trained on
the users' own data would make the stated epsilon false.

No model is built and no code of a file is run. Weights are matched by the names
of a layer and of its weight, "block_3_expand/kernel". There are three other
cases:

- A .keras or .weights.h5 file, of Keras 2 or 3, numbers layers by their class.
  Keras loads it into a backbone with the same layers. For another backbone the
  description in a .keras file gives the names.
- A file in which no name is known, whose weights have the same shapes in the
  same order, is taken in order.
- A file without an embedding layer is taken for one of an image classifier,
  such as those of `tf.keras.applications`, and may have layers of its own. The
  embedding layer is left as initialised. Batch normalisation becomes group
  normalisation, or stays as it is (`pretrained_normalization`).

Kernels for colour images are summed over the colours for grey images. The maps
are those of the same image in three equal channels; for ResNet, which subtracts
a mean colour, only nearly.
"""

import collections
from collections.abc import Callable, Iterable, Mapping, Sequence
import dataclasses
import io
import json
import os
import pathlib
from typing import Any
import zipfile
import zlib

from google.protobuf import message
import h5py
import numpy as np
import tensorflow as tf
from tensorflow.core.protobuf import trackable_object_graph_pb2

from tff_fedemb import errors
from tff_fedemb.models import backbones
from tff_fedemb.models import pretrained_normalization
from tff_fedemb.models import weight_names

# Errors that the libraries raise for damaged files.
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
OBJECT_GRAPH = "_CHECKPOINTABLE_OBJECT_GRAPH"
_KEY_END = "/.ATTRIBUTES/VARIABLE_VALUE"
# Weights of each class of layers in Keras' order, each with the option of the
# layer that must be on for the weight to exist; None if it always does.
_SCALES: dict[str, str | None] = {"gamma": "scale", "beta": "center"}
_BIASED: dict[str, str | None] = {"kernel": None, "bias": "use_bias"}
_WEIGHTS_OF: dict[str, dict[str, str | None]] = {
  "BatchNormalization": _SCALES
  | dict.fromkeys(pretrained_normalization.OF_BATCHES[2:]),
  "Conv2D": _BIASED,
  "Dense": _BIASED,
  "DepthwiseConv2D": {"depthwise_kernel": None, "bias": "use_bias"},
  "GroupNormalization": _SCALES,
  "LayerNormalization": _SCALES,
}

# Root of the layers in older files; newer ones call it "layers".
_EARLIER_ROOT = "_layer_checkpoint_dependencies"

Weights = dict[str, np.ndarray]


@dataclasses.dataclass(frozen=True)
class PretrainedReport:
  """The weights that were loaded into a backbone.

  Attributes:
    kind: Kind of the file, such as "SavedModel" or "Keras HDF5 file".
    num_loaded: Scalar weights loaded.
    num_initialized: Scalar weights left as initialised.
    text: All of it in one line.
  """

  kind: str
  num_loaded: int
  num_initialized: int
  text: str


def load_pretrained(
  backbone: tf.keras.Model, path: str | os.PathLike[str]
) -> PretrainedReport:
  """Sets a backbone's weights from a file; see the module for the cases.

  Everything must fit: same shapes, nothing missing and nothing left over, but
  for the files of image classifiers. Optimizers and metrics in a file are
  ignored. Frozen weights are loaded, too, and stay frozen.

  Args:
    backbone: A flat Keras model (its layers hold no models), from this library
      or not. It is unchanged if anything fails.
    path: A SavedModel's directory (of `export.export_backbone` or any other);
      a Keras file .h5, .hdf5 or .keras; a TensorFlow checkpoint, with or
      without its .index.

  Returns:
    Which weights were loaded, and which stay as initialised.

  Raises:
    errors.FieldError: If the file is missing, damaged, of another kind, or does
      not fit; names the first weight that does not, with its shapes.
  """
  try:
    kind, weights = _read_weights(pathlib.Path(path), backbone)
  except errors.DataError as error:
    raise errors.FieldError(
      "pretrained_backbone",
      "be a SavedModel's directory, a Keras file or a TensorFlow checkpoint",
      error,
    ) from error
  variables = layer_weights(backbone)
  if len(variables) != len(backbone.weights):
    raise errors.FieldError(
      "pretrained_backbone",
      f"not be given for backbone {backbone.name}, where a layer has several"
      " weights of one name",
      path,
    )
  values, left_out = _match(backbone, variables, weights, os.fspath(path))
  # Assigned last, so that a failure leaves the backbone unchanged.
  for name, value in values.items():
    variables[name].assign(value)
  num_loaded = sum(value.size for value in values.values())
  num_initialized = backbone.count_params() - num_loaded
  text = (
    f"Loaded {num_loaded:,} weights of {len(_layers(values))} layers from"
    f" {path} ({kind})"
  )
  if left := _layers(name for name in variables if name not in values):
    text += (
      f"; {num_initialized:,} weights are not in it and stay as initialised"
      f" ({', '.join(left)})"
    )
  if left_out:
    text += f"; left out of it: {', '.join(left_out)}"
  return PretrainedReport(kind, num_loaded, num_initialized, text + ".")


def _layers(names: Iterable[str]) -> list[str]:
  """Names of the layers of weights, each once, in order."""
  layers = [name.partition("/")[0] for name in names]
  return list(dict.fromkeys(layers))


def _match(
  backbone: tf.keras.Model,
  variables: dict[str, tf.Variable],
  weights: Weights,
  path: str,
) -> tuple[Weights, list[str]]:
  """Finds the values of a backbone's weights, float32, by their names there.

  Changes `weights`: normalisation is converted and colours are summed first.

  Returns:
    The values, and the layers of the file that an image classifier has beyond
    the backbone.

  Raises:
    errors.FieldError: If a weight is missing, unused, of another shape, or not
      finite.
  """

  def fail(found: str):
    raise errors.FieldError(
      "pretrained_backbone", f"fit backbone {backbone.name}", f"{path} {found}"
    )

  pretrained_normalization.convert_weights(weights, backbone)
  _sum_colours(variables, weights)
  names_in_file = _find_names(backbone, variables, weights)
  by_name = bool(names_in_file)
  if not by_name:
    names_in_file = dict(zip(variables, weights, strict=False))
  for name, name_in_file in names_in_file.items():
    found = list(weights[name_in_file].shape)
    needed = list(variables[name].shape)
    if found != needed:
      here = "" if by_name else f"{name} of "
      fail(f"with {name_in_file} of {found} where {here}{needed} is needed")
  missing = [name for name in variables if name not in names_in_file]
  embedding = [n for n in variables if n.startswith(f"{backbones.EMBEDDING}/")]
  is_classifier = by_name and missing == embedding
  if missing and not is_classifier:
    name = min(missing, key=embedding.__contains__)
    fail(f"without {name} of {list(variables[name].shape)}")
  used = set(names_in_file.values())
  unused = [name for name in weights if name not in used]
  used_layers = _layers(used)
  for name in unused:
    # A deeper network has the same layers, and convolutions between them.
    is_of_head = (
      weights[name].ndim < 3 and name.partition("/")[0] not in used_layers
    )
    if not (is_classifier and is_of_head):
      shape = list(weights[name].shape)
      fail(f"with {name} of {shape}, which it has no use for")
  values = {}
  for name, name_in_file in names_in_file.items():
    value = weights[name_in_file]
    if value.dtype.kind not in "fiu" or not np.all(np.isfinite(value)):
      fail(f"with {name} that is not all finite numbers")
    values[name] = value.astype(np.float32)
  return values, _layers(unused)


def _sum_colours(variables: Mapping[str, Any], weights: Weights) -> None:
  """Sums kernels of colour images, in place, where a backbone has grey ones."""
  for name, variable in variables.items():
    value = weights.get(name)
    if value is None:
      continue
    if variable.shape == (*value.shape[:2], 1, *value.shape[3:]):
      weights[name] = value.sum(axis=2, keepdims=True, dtype=np.float32)


def _find_names(
  backbone: tf.keras.Model, variables: Mapping[str, Any], weights: Weights
) -> dict[str, str]:
  """Maps names of a backbone's weights to their names in a file."""
  same = {name: name for name in variables if name in weights}
  # SavedModels of this project number the layers that have no name.
  portable = {}
  others = weight_names.portable_weights(backbone)
  for name, (other, _) in zip(variables, others, strict=True):
    if other in weights:
      portable[name] = other
  return portable if len(portable) > len(same) else same


def layer_weights(backbone: tf.keras.Model) -> dict[str, tf.Variable]:
  """Returns the variables of a flat model, by their names in files.

  Args:
    backbone: The model; its layers hold no models.

  Returns:
    Variables by "layer/weight", in the order of the layers. Weights of one name
    in one layer overwrite each other.
  """
  variables = {}
  for layer in backbone.layers:
    for variable in layer.weights:
      # Graphs make a variable's own name unique, not its layer's.
      last = weight_names.last_part(variable.name)
      variables[f"{layer.name}/{last}"] = variable
  return variables


def _read_weights(
  path: pathlib.Path, backbone: tf.keras.Model
) -> tuple[str, Weights]:
  """The kind of a file, and its weights by name in its own order.

  Raises:
    errors.DataError: If it is missing, unknown, damaged or has no weights.
  """
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
  try:
    weights = read(prefix, backbone)
  except _DAMAGES as error:
    raise errors.DataError(
      f"{path}, which cannot be read as a {kind} ({errors.first_line(error)})"
    ) from error
  if not weights:
    raise errors.DataError(f"{path}, a {kind} without weights")
  for layer in backbone.layers:
    kernel = f"{layer.name}/kernel"
    if isinstance(layer, tf.keras.layers.DepthwiseConv2D) and kernel in weights:
      # Keras 3 calls the kernel of a depthwise convolution just that.
      weights[f"{layer.name}/depthwise_kernel"] = weights.pop(kernel)
  return kind, weights


def _add(weights: Weights, name: str, value: Any) -> None:
  """Adds a weight by the last two parts of its name, which must be new."""
  name = "/".join(name.removesuffix(":0").split("/")[-2:])
  if name in weights:
    raise ValueError(f"holds {name} more than once")
  weights[name] = np.asarray(value)


def _read_checkpoint(
  prefix: pathlib.Path, backbone: tf.keras.Model | None
) -> Weights:
  """Reads a TensorFlow checkpoint, also one in a SavedModel.

  Leaves out optimizers. A backbone of `None` takes any names.
  """
  reader = tf.train.load_checkpoint(os.fspath(prefix))
  keys = reader.get_variable_to_shape_map()
  names = {key: key for key in sorted(keys)}
  if OBJECT_GRAPH in keys:
    graph = trackable_object_graph_pb2.TrackableObjectGraph.FromString(
      reader.get_tensor(OBJECT_GRAPH)
    )
    attributes = []
    for node in graph.nodes:
      attributes += node.attributes
    # Keras 3 exports each weight twice. Every optimizer counts its iterations,
    # wherever it is kept.
    not_model = ["_all_variables/", "keras_api/", "save_counter/"]
    for attribute in attributes:
      for end in ("/_iterations/", "/iter/"):
        prefix_of_optimizer, found, _ = attribute.checkpoint_key.partition(end)
        if found:
          not_model.append(f"{prefix_of_optimizer}/")
    others = tuple(not_model)
    names = {}
    for attribute in attributes:
      key = attribute.checkpoint_key
      is_weight = key.endswith(_KEY_END) and ".OPTIMIZER_SLOT" not in key
      if is_weight and not key.startswith(others):
        names[key] = attribute.full_name
  elif backbone is not None:
    # Sorted names are not the order of the layers.
    last_parts = {"/".join(key.split("/")[-2:]) for key in keys}
    if last_parts.isdisjoint(layer_weights(backbone)):
      raise ValueError("has weights by name alone, none of this backbone's")
  weights: Weights = {}
  for key, name in names.items():
    _add(weights, name, reader.get_tensor(key))
  return weights


def write_half(saved_model: pathlib.Path, path: pathlib.Path) -> None:
  """Writes the weights of a SavedModel as float16, by the names of layers.

  Weights with a number that float16 does not have stay float32.

  Args:
    saved_model: A directory of `export.export_backbone`.
    path: The Keras file .h5 to write, compressed; an old one is overwritten.
  """
  weights = _read_checkpoint(saved_model / "variables" / "variables", None)
  with h5py.File(path, "w") as file:
    file.attrs["layer_names"] = layers = _layers(weights)
    for layer in layers:
      names = [n for n in weights if n.startswith(f"{layer}/")]
      file.create_group(layer).attrs["weight_names"] = names
      for name in names:
        value = weights[name]
        if np.abs(value).max(initial=0) <= np.finfo(np.float16).max:
          value = value.astype(np.float16)
        file[layer].create_dataset(name, data=value, compression="gzip")


def _read_hdf5(path: pathlib.Path, backbone: tf.keras.Model) -> Weights:
  """Reads weights that Keras wrote by layer name, or else by number."""
  with h5py.File(path) as file:
    group = file.get("model_weights", file)
    if "layer_names" not in group.attrs:
      return _read_numbered(file, path, backbone)
    weights = {}
    for layer in map(tf.compat.as_str, group.attrs["layer_names"]):
      names = group[layer].attrs["weight_names"]
      for name in map(tf.compat.as_str, names):
        last = weight_names.last_part(name)
        _add(weights, f"{layer}/{last}", group[layer][name])
    return weights


def _read_keras(path: pathlib.Path, backbone: tf.keras.Model) -> Weights:
  """Reads a .keras archive: a description and a file of weights."""
  with zipfile.ZipFile(path) as archive:
    content = archive.read("model.weights.h5")
    described = json.loads(archive.read("config.json"))["config"]
  with h5py.File(io.BytesIO(content)) as file:
    try:
      return _read_numbered(file, path, backbone)
    except ValueError:
      return _read_described(file, described["layers"])


def _read_described(
  file: h5py.File, layers: Sequence[Mapping[str, Any]]
) -> Weights:
  """Reads the weights of known classes of layers by a model's description."""
  root = file["layers" if "layers" in file else _EARLIER_ROOT]
  numbers: collections.Counter[str] = collections.Counter()
  weights: Weights = {}
  for layer in layers:
    kind, config = layer["class_name"], layer["config"]
    number = numbers[kind]
    numbers[kind] += 1
    group = weight_names.snake_case(kind) + (f"_{number}" if number else "")
    index = 0
    for name, option in _WEIGHTS_OF.get(kind, {}).items():
      if option is None or config.get(option, True):
        value = root[f"{group}/vars/{index}"]
        _add(weights, f"{config['name']}/{name}", value)
        index += 1
  return weights


def _read_numbered(
  file: h5py.File, path: pathlib.Path, backbone: tf.keras.Model
) -> Weights:
  """Reads weights such as `.../conv2d_3/vars/0`, of the fourth Conv2D.

  Only Keras knows which layer a number stands for, so it loads them into the
  model. It skips those that the model has no use for, so they are counted
  first.
  """
  found = []

  def visit(name: str, item: Any) -> None:
    *parents, container, _ = ["", *name.split("/")]
    if isinstance(item, h5py.Dataset) and container == "vars":
      found.append(not {"optimizer", "metrics"}.intersection(parents))

  file.visititems(visit)
  variables = layer_weights(backbone)
  if not any(found):
    return {}
  if sum(found) != len(variables):
    raise ValueError(f"{sum(found)} weights, where {len(variables)} are needed")
  before = backbone.get_weights()
  try:
    backbone.load_weights(path)
    return {name: variable.numpy() for name, variable in variables.items()}
  finally:
    backbone.set_weights(before)
