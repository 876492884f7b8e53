"""Models, as the programs that embed images load them.

They load models that a run exported, and models of others with one input of
images: a SavedModel, a Keras file, a model of `tf.keras.applications`. They
also load .tflite and .onnx files that `binaries.export` wrote.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
import dataclasses
import functools
import hashlib
import inspect
import json
import os
import pathlib
import sys
from typing import Any
import zipfile

from etils import epy
import numpy as np

from tff_fedemb import checks
from tff_fedemb import errors
from tff_fedemb.phones import tflite
from tff_fedemb.records import model_card
from tff_fedemb.serving import onnx_files

with epy.lazy_imports():
  import h5py
  import keras
  import tensorflow as tf
  from tf_keras.src.saving import serialization_lib

  from tff_fedemb.models import pretrained

PREPROCESS = ("unit", "tf", "caffe", "torch")
# Those that subtract a mean colour.
_OF_COLOURS = ("caffe", "torch")

# Classes that embed images with a converted file, by its suffix.
CONVERTED: Mapping[str, Any] = {
  tflite.SUFFIX: tflite.Embedder,
  onnx_files.SUFFIX: onnx_files.Embedder,
}

_SIGNATURE = "serving_default"
_EMBEDDINGS = "embeddings"
# Weights of an application that come from no file.
_NO_FILE = {"none": None, "imagenet": "imagenet"}
_KERAS_SUFFIXES = (".keras", ".h5", ".hdf5")


@dataclasses.dataclass(frozen=True)
class Model:
  """A model that maps images to embeddings.

  Call it to embed a batch. It is pickled as the way to load it, so that each
  process has a model of its own.

  Attributes:
    image_shape: Height, width and channels, or the shape of another example.
    embed: Maps uint8 images `[batch, height, width, channels]` to float32
      embeddings `[batch, dim]`.
    load_again: Loads the model in another process, where it is unpickled.
    card: The model's card; `None` for models of earlier versions or from
      elsewhere.
  """

  image_shape: tuple[int, ...]
  embed: Callable[[np.ndarray], np.ndarray]
  load_again: Callable[[], Model]
  card: model_card.ModelCard | None = None

  def __call__(self, images: np.ndarray) -> np.ndarray:
    return self.embed(images)

  def __reduce__(self):
    return self.load_again, ()


@dataclasses.dataclass(frozen=True)
class _Function:
  """A function of a model, with names for its inputs and outputs.

  Attributes:
    inputs: Shapes and types of the inputs, by name.
    outputs: Shapes and types of the outputs, by name.
    call: Maps the one input to the outputs.
    owner: Owner of the variables, which live as long as it does.
  """

  inputs: Mapping[str, Any]
  outputs: Mapping[str, Any]
  call: Callable[[tf.Tensor], Any]
  owner: Any

  def takes_images(self) -> bool:
    """Whether the only input is a batch of grey or colour images.

    Returns:
      True for shapes `[None, height, width, channels]` of 1, 3 or an unknown
      number of channels, and numbers of any type.
    """
    if len(self.inputs) != 1:
      return False
    (spec,) = self.inputs.values()
    if spec.shape.rank != 4 or spec.shape[0] is not None:
      return False
    is_number = spec.dtype.is_floating or spec.dtype.is_integer
    return spec.shape[3] in (None, 1, 3) and is_number


def load(
  path: str,
  *,
  layer: str | None = None,
  image_size: int | None = None,
  preprocess: str | None = None,
  of_images: bool = True,
) -> Model:
  """Loads a model from a SavedModel's directory, a Keras or a converted file.

  Args:
    path: Directory, or file that ends with .keras, .h5, .hdf5, .tflite or
      .onnx.
    layer: Layer of a Keras model, or output of a SavedModel, that gives the
      embedding: its mean over all axes but the first and the last.
    image_size: Side of the images in pixels, if the model leaves it open.
    preprocess: Preparation of pixels: `None`, in [0, 255]; "unit", in [0, 1];
      or a mode of Keras' `preprocess_input`.
    of_images: Whether the model must take images; otherwise the model of a run
      may take vectors or sequences.

  Returns:
    The model, with the card that is in its directory or beside its file.

  Raises:
    errors.DataError: If its card is damaged.
    errors.FieldError: If there is no model, it is damaged, or it is no function
      of images to embeddings.
  """
  checks.check_not_forked()
  options = dict(layer=layer, image_size=image_size, preprocess=preprocess)
  load_again = functools.partial(
    _load_once, os.path.abspath(path), of_images=of_images, **options
  )
  suffix = pathlib.Path(path).suffix
  if suffix in CONVERTED:
    if any(options.values()):
      must = f"be no {suffix} file with layer, image_size or preprocess"
      raise errors.FieldError("saved_model", must, path)
    return _load_converted(path, load_again)
  must = "be the directory of a SavedModel, or a Keras file"
  if not os.path.exists(path):
    raise errors.FieldError("saved_model", must, path)
  with errors.as_field_error("saved_model", must, path):
    if suffix in _KERAS_SUFFIXES:
      function = _open_keras(_load_keras(path), layer)
    else:
      function = _open_saved_model(path, layer)
  if not of_images and not function.takes_images():
    # A run has exported a model of vectors or sequences.
    (spec,) = function.inputs.values()

    def embed(batch: np.ndarray) -> np.ndarray:
      return function.call(tf.constant(batch))[_EMBEDDINGS].numpy()

    return Model(tuple(spec.shape[1:]), embed, load_again)
  model = _create(
    function,
    path,
    load_again,
    prepare=lambda images: _prepare(images, preprocess),
    layer=layer,
    image_size=image_size,
  )
  card = model_card.read(pathlib.Path(path) / model_card.PATH)
  return dataclasses.replace(model, card=card)


@functools.cache
def _load_once(path: str, **options: Any) -> Model:
  """Loads a model once in each process that unpickles it.

  Args:
    path: Absolute path of the model.
    **options: Options of `load`.
  """
  return load(path, **options)


@functools.cache
def load_application(
  name: str,
  image_size: int,
  weights: str,
  *,
  layer: str | None = None,
  seed: int = 0,
) -> Model:
  """Creates a model without its classifier, and loads its weights.

  The `preprocess_input` of its module makes images ready.

  Args:
    name: Name of the function in `tf.keras.applications`.
    image_size: Side of the images in pixels.
    weights: "imagenet", which Keras downloads; "none", random; or a file, as
      in `pretrained.load_pretrained`.
    layer: See `load`; `None` for the mean of the last maps.
    seed: Seed of random weights.

  Returns:
    The model, without a card. The same arguments give the same object.

  Raises:
    errors.FieldError: If there is no such model, size, file or layer.
  """
  functions: dict[str, Any] = dict(
    inspect.getmembers(tf.keras.applications, callable)
  )
  checks.check_choice("application", name, functions)
  create = functions[name]
  tf.keras.utils.set_random_seed(seed)
  must = f"be made with image_size {image_size} and weights {weights}"
  # Keras has no error of its own for a size that is too small, or no network.
  with errors.as_field_error("application", must, name):
    model = create(
      include_top=False,
      weights=_NO_FILE.get(weights),
      input_shape=(image_size, image_size, 3),
      pooling="avg",
    )
  if weights not in _NO_FILE:
    try:
      pretrained.load_pretrained(model, weights)
    except errors.FieldError as error:
      raise error.renamed("weights") from error
  return _create(
    _open_keras(model, layer),
    model.name,
    functools.partial(
      load_application, name, image_size, weights, layer=layer, seed=seed
    ),
    prepare=sys.modules[create.__module__].preprocess_input,
  )


def _create(
  function: _Function,
  name: str,
  load_again: Callable[[], Model],
  *,
  prepare: Callable[[tf.Tensor], tf.Tensor],
  layer: str | None = None,
  image_size: int | None = None,
) -> Model:
  """Makes a model of a function, if its input is images.

  Args:
    function: A function of one batch.
    name: Name of the model in errors.
    load_again: See `Model`.
    prepare: Maps float32 pixels in [0, 255] to what the function takes.
    layer: Output that gives the embedding; None for the only one, or for one
      that is called "embeddings".
    image_size: Side of the images, if and only if the function leaves it open.

  Returns:
    The model, whose `embed` takes means over all axes between the first and the
    last.

  Raises:
    errors.FieldError: If inputs, output or image size do not suit.
  """
  if not function.takes_images():
    must = "have one input, images [None, height, width, 1 or 3 channels]"
    found = f"{name} from {_describe(function.inputs)}"
    raise errors.FieldError("saved_model", must, found)
  (spec,) = function.inputs.values()
  outputs = function.outputs
  output = _EMBEDDINGS
  if layer is not None and layer in outputs:
    output = layer
  if len(outputs) == 1:
    (output,) = outputs
  result = outputs.get(output)
  if result is None or (result.shape.rank or 0) < 2:
    must = f"be an output of {name} to embeddings [batch, ..., dim]"
    found = f"{layer or 'nothing'} for {_describe(outputs)}"
    raise errors.FieldError("layer", must, found)
  sides = spec.shape[1:3].as_list()
  if (None in sides) != (image_size is not None):
    must = "leave the size of images open if, and only if, image_size is given"
    found = f"{name} with images of {sides}"
    raise errors.FieldError("saved_model", must, found)
  if image_size is not None:
    sides = [side or image_size for side in sides]
  height, width = sides
  shape = (height, width, spec.shape[3] or 3)

  def embed(images: np.ndarray) -> np.ndarray:
    pixels = prepare(tf.constant(images, tf.float32))
    values = _by_name(function.call(tf.cast(pixels, spec.dtype)))[output]
    means = tf.reduce_mean(values, range(1, values.shape.rank - 1))
    return tf.cast(means, tf.float32).numpy()

  if image_size is not None:
    must = f"suit the layers of {name}"
    picture = np.random.default_rng(0).integers(0, 256, (1, *shape), np.uint8)
    with errors.as_field_error("image_size", must, image_size):
      embeddings = embed(picture)
    # On some processors, images that are too small give empty maps and no
    # error.
    if not np.all(np.isfinite(embeddings)):
      found = f"{image_size}, which gives embeddings that are not finite"
      raise errors.FieldError("image_size", must, found)
  return Model(shape, embed, load_again)


def _prepare(images: tf.Tensor, preprocess: str | None) -> tf.Tensor:
  """Prepares pixels in [0, 255], as `load` says.

  Args:
    images: float32 `[batch, height, width, channels]`.
    preprocess: None, "unit" or a mode of Keras' `preprocess_input`.
  """
  if preprocess is None:
    return images
  if preprocess == "unit":
    return images / 255.0
  if preprocess in _OF_COLOURS and images.shape[-1] != 3:
    must = "be unit or tf for a model of grey images"
    raise errors.FieldError("preprocess", must, preprocess)
  return tf.keras.applications.imagenet_utils.preprocess_input(
    images, mode=preprocess
  )


def _by_name(values: Any) -> dict[str, Any]:
  """Names values that have no names by their numbers.

  Args:
    values: A mapping, which is copied, or nested values.

  Returns:
    Values by name; nested ones as "0", "1" and so on.
  """
  if isinstance(values, Mapping):
    return dict(values)
  return {str(i): value for i, value in enumerate(tf.nest.flatten(values))}


def _is_keras_3(path: str) -> bool:
  """Whether Keras 3 wrote a file, which Keras 2 cannot load.

  Args:
    path: A .keras archive or an HDF5 file.

  Returns:
    False also if the file is neither.
  """
  if zipfile.is_zipfile(path):
    with zipfile.ZipFile(path) as archive:
      version = json.loads(archive.read("metadata.json"))["keras_version"]
  elif h5py.is_hdf5(path):
    with h5py.File(path) as file:
      version = file.attrs.get("keras_version", "2")
  else:
    return False
  return tf.compat.as_str(version).startswith("3")


def _load_keras(path: str) -> Any:
  """Loads a model of Keras 2 or 3, without any code of the file's own.

  Args:
    path: The file, or the directory of a SavedModel of Keras 2.

  Raises:
    ValueError: If the model needs code of the file, for example in a Lambda
      layer.
  """
  if _is_keras_3(path):
    return keras.saving.load_model(path, compile=False, safe_mode=True)
  # Outside this scope, Keras would run the code in a Lambda layer of an HDF5
  # file.
  with serialization_lib.SafeModeScope(True):
    return tf.keras.models.load_model(path, compile=False)


def _open_keras(model: Any, layer: str | None) -> _Function:
  """Opens a model of Keras 2 or 3 up to a layer, or as a whole.

  Args:
    model: The model.
    layer: Name of the layer; None for the model's own outputs.

  Raises:
    errors.FieldError: If there is no such layer.
  """
  is_keras_2 = isinstance(model, tf.keras.Model)
  if layer is not None:
    checks.check_choice("layer", layer, [each.name for each in model.layers])
    create = tf.keras.Model if is_keras_2 else keras.Model
    model = create(model.inputs, model.get_layer(layer).output)
  elif not is_keras_2 and isinstance(model, keras.Sequential):
    # Sequential models of Keras 3 have no names for their outputs.
    model = keras.Model(model.inputs, model.outputs)
  run = tf.function(functools.partial(model, training=False))
  names = model.output_names or ()
  # A subclassed model that was never called has neither names nor inputs.
  inputs = {x.name: tf.TensorSpec(x.shape, x.dtype) for x in model.inputs or ()}
  outputs = {}
  for name, tensor in zip(names, model.outputs or (), strict=True):
    outputs[name] = tf.TensorSpec(tensor.shape, tensor.dtype)

  def call(images: tf.Tensor) -> dict[str, tf.Tensor]:
    return dict(zip(names, tf.nest.flatten(run(images)), strict=True))

  return _Function(inputs, outputs, call, model)


def _open_saved_model(path: str, layer: str | None) -> _Function:
  """Opens an output of a SavedModel, or a layer of a Keras model in it.

  Args:
    path: Directory of the SavedModel.
    layer: Name of an output or of a layer; None for the whole model.

  Raises:
    errors.FieldError: If there is no such output or layer.
  """
  module = tf.saved_model.load(path)
  function = _open_signature(module, path)
  if layer is None or layer in function.outputs:
    return function
  if os.path.exists(os.path.join(path, "keras_metadata.pb")):
    return _open_keras(_load_keras(path), layer)
  must = f"be an output of {path}, one of {', '.join(sorted(function.outputs))}"
  raise errors.FieldError("layer", must, repr(layer))


def _open_signature(module: Any, path: str) -> _Function:
  """Opens the default or only signature, or else the call of the model.

  Args:
    module: A SavedModel, as TensorFlow loads it.
    path: Its directory, for the error.

  Returns:
    The function. Without a signature, it is the first traced call that takes
    images and is not for training.

  Raises:
    errors.FieldError: If there are several signatures and none is the default
      one, or there is nothing to call.
  """
  signatures = dict(module.signatures)
  if _SIGNATURE in signatures or len(signatures) == 1:
    signature = signatures.get(_SIGNATURE, next(iter(signatures.values())))
    inputs = signature.structured_input_signature[1]
    outputs = signature.structured_outputs

    def call(images: tf.Tensor) -> Any:
      return signature(**dict.fromkeys(inputs, images))

    return _Function(inputs, outputs, call, module)
  if signatures or not callable(module):
    must = f"have a signature {_SIGNATURE!r}, or one alone, or be callable"
    found = f"{path} with signatures {sorted(signatures)}"
    raise errors.FieldError("saved_model", must, found)
  functions = [_Function({}, {}, module, module)]
  for traced in module.__call__.concrete_functions:
    arguments = _by_name(traced.structured_input_signature)
    # Arguments that are no tensors are options, and one that is true is
    # `training`.
    if True not in arguments.values():
      inputs = {k: v for k, v in arguments.items() if hasattr(v, "shape")}
      outputs = _by_name(traced.structured_outputs)
      functions.append(_Function(inputs, outputs, traced, module))
  for function in functions:
    if function.takes_images():
      return function
  return functions[-1]


def _load_converted(path: str, load_again: Callable[[], Model]) -> Model:
  """Loads a .tflite or .onnx file, and the card beside it or in it.

  Args:
    path: The file.
    load_again: See `Model`.

  Raises:
    errors.DataError: If the card is damaged.
    errors.FieldError: If the file is damaged, or a .tflite file has no card
      beside it.
  """
  suffix = pathlib.Path(path).suffix
  card = model_card.read(card_path(path))
  digest = ((card and card.conversion) or {}).get("sha256")
  must = f"be a SavedModel or a {suffix} file that binaries.export wrote"
  with errors.as_field_error("saved_model", must, path):
    content = pathlib.Path(path).read_bytes()
    # TensorFlow Lite checks nothing: a damaged file can end the process.
    if digest is None and suffix == tflite.SUFFIX:
      raise ValueError("its card, the .json file beside it, is missing")
    if digest not in (None, hashlib.sha256(content).hexdigest()):
      raise ValueError("it is damaged: its digest is not that in its card")
    embedder = CONVERTED[suffix](content)
  card = card or getattr(embedder, "card", None)
  return Model(embedder.image_shape, embedder.embed, load_again, card)


def card_path(path: str | pathlib.Path) -> pathlib.Path:
  """Returns the path of a converted file's card, which is beside it.

  Args:
    path: The converted file, which need not exist.

  Returns:
    The same path with the suffix .json.
  """
  return pathlib.Path(path).with_suffix(".json")


def digest(path: str) -> str:
  """Computes a digest of a model, whatever the card beside it says.

  For a directory, the graph, the variables and the assets count; the card in
  `assets.extra` does not.

  Args:
    path: See `load`.

  Returns:
    SHA-256 in hexadecimal digits.

  Raises:
    OSError: If a file cannot be read.
  """
  root = pathlib.Path(path)
  found = hashlib.sha256()
  files = [root]
  if root.is_dir():
    kept = ("saved_model.pb", "variables/*", "assets/*")
    files = sorted(file for some in kept for file in root.glob(some))
  for file in files:
    found.update(hashlib.sha256(file.read_bytes()).digest())
  return found.hexdigest()


def _describe(specs: Mapping[str, Any]) -> str:
  """Lists names, types and shapes of inputs or outputs.

  Args:
    specs: Specifications by name.

  Returns:
    A text for an error.
  """
  texts = [f"{name} {x.dtype.name} {x.shape}" for name, x in specs.items()]
  return ", ".join(sorted(texts)) or "nothing"
