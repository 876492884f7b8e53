"""Tests of loading pretrained weights, from every kind of file."""

import functools
import os

from etils import epy
import h5py
import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from tff_fedemb import errors
from tff_fedemb.models import backbones
from tff_fedemb.models import pretrained
from tff_fedemb.models import starts
from tff_fedemb.records import export

# Importing it takes two seconds, which not every process of the tests needs.
with epy.lazy_imports():
  import keras

_SHAPE = (32, 32, 3)


def _randomize(model, seed):
  random = np.random.default_rng(seed)
  model.set_weights(
    [random.normal(size=weight.shape) for weight in model.get_weights()]
  )


def _create(name, seed):
  backbone = backbones.create_backbone(name, _SHAPE, embedding_dim=8)
  _randomize(backbone, seed)
  return backbone


def _assert_same_weights(found, expected):
  np.testing.assert_equal(found.get_weights(), expected.get_weights())


def _save_keras_saved_model(model, path):
  model.save(path, save_format="tf")


def _save_object_checkpoint(model, path):
  optimizer = tf.keras.optimizers.Adam()
  optimizer.build(model.trainable_variables)
  tf.train.Checkpoint(model=model, optimizer=optimizer).write(path)


def _save_checkpoint_of_names(variables, path):
  names = [variable.name.removesuffix(":0") for variable in variables]
  tf.raw_ops.SaveV2(
    prefix=os.fspath(path),
    tensor_names=names,
    shape_and_slices=[""] * len(names),
    tensors=[variable.read_value() for variable in variables],
  )


def _save_other_names(model, path):
  module = tf.Module()
  module.weights = [
    tf.Variable(value, name=f"weight_{index}")
    for index, value in enumerate(model.get_weights())
  ]
  tf.saved_model.save(module, path)


# How to write a file, its name, what to load, what it is told to be.
_FORMATS = [
  (export.export_backbone, "exported", "exported", "SavedModel"),
  (_save_keras_saved_model, "keras_model", "keras_model", "SavedModel"),
  # Taken in order.
  (_save_other_names, "other", "other", "SavedModel"),
  ("save_weights", "model.h5", "model.h5", "Keras HDF5 file"),
  ("save_weights", "m.weights.h5", "m.weights.h5", "Keras HDF5 file"),
  ("save", "whole.h5", "whole.h5", "Keras HDF5 file"),
  ("save", "model.keras", "model.keras", "Keras file"),
  ("save_weights", "ckpt", "ckpt.index", "TensorFlow checkpoint"),
  (_save_object_checkpoint, "ckpt-1", "ckpt-1", "TensorFlow checkpoint"),
  (
    lambda model, path: _save_checkpoint_of_names(model.variables, path),
    *("names", "names", "TensorFlow checkpoint"),
  ),
]


@pytest.fixture(scope="module")
def backbones_of():
  """Three backbones of a name, the last made after a computation is traced."""

  @functools.cache
  def create(name):
    made = [_create(name, seed) for seed in (1, 2)]

    # Keras disowns layers made before others are made inside of a computation.
    @tff.tensorflow.computation
    def trace():
      variables = backbones.create_backbone(name, _SHAPE).trainable_variables
      return [tf.identity(variable) for variable in variables]

    assert trace.type_signature.result
    return [*made, _create(name, 2)]

  return create


def _write(source, save, path):
  if isinstance(save, str):
    getattr(source, save)(path)
  else:
    save(source, path)


@pytest.mark.filterwarnings("ignore:You are saving your model")
@pytest.mark.parametrize(
  ("name", "save", "written", "path", "kind"),
  [
    *[("lenet", *each) for each in _FORMATS],
    # Those without the names of layers.
    *[
      pytest.param("resnet_small", *_FORMATS[i], marks=pytest.mark.slow)
      for i in (4, 6)
    ],
  ],
)
def test_loads_every_format(
  name, save, written, path, kind, backbones_of, tmp_path
):
  source, *targets = backbones_of(name)
  # With an optimizer, whose slots are of the same shapes as the weights.
  source.compile("adam", "mse")
  source.optimizer.build(source.trainable_variables)
  _write(source, save, tmp_path / written)
  for target in targets:
    _randomize(target, seed=2)
    report = pretrained.load_pretrained(target, tmp_path / path)
    _assert_same_weights(target, source)
  num_layers = sum(bool(layer.weights) for layer in source.layers)
  assert report == pretrained.PretrainedReport(
    kind,
    source.count_params(),
    0,
    f"Loaded {source.count_params():,} weights of {num_layers} layers from"
    f" {tmp_path / path} ({kind}).",
  )


@pytest.fixture(scope="module")
def small_mobilenet():
  return _create("mobilenet_v2_small", seed=1)


def _create_network(library, last, dim):
  """A network of Keras 2 or 3 with such a last layer."""
  layers = library.layers
  x = inputs = library.Input(_SHAPE)
  for number in (1, 2):
    x = layers.Conv2D(4, 3, use_bias=False, name=f"conv{number}")(x)
    x = layers.BatchNormalization(scale=False, name=f"bn_conv{number}")(x)
  x = layers.DepthwiseConv2D(3, name="depthwise")(x)
  x = layers.GlobalAveragePooling2D()(x)
  return library.Model(inputs, layers.Dense(dim, name=last)(x))


@pytest.mark.parametrize("suffix", ["keras", "weights.h5", "h5", "exported"])
def test_keras_3(suffix, tmp_path):
  model = _create_network(keras, "predictions", 3)
  random = np.random.default_rng(1)
  weights = [random.normal(size=w.shape) for w in model.weights]
  model.set_weights(weights)
  path = tmp_path / f"model.{suffix}"
  writers = {"weights.h5": model.save_weights, "exported": model.export}
  writers.get(suffix, model.save)(path)
  same = _create_network(tf.keras, "predictions", 3)
  assert pretrained.load_pretrained(same, path).num_initialized == 0
  pixels = random.uniform(0, 1, [2, *_SHAPE]).astype(np.float32)
  np.testing.assert_allclose(same(pixels), model(pixels), rtol=1e-4, atol=1e-4)
  backbone = _create_network(tf.keras, "embedding", 5)
  if suffix == "weights.h5":
    # As many weights, and no names.
    with pytest.raises(
      errors.FieldError, match=r"fit backbone|read as a Keras"
    ):
      pretrained.load_pretrained(backbone, path)
    return
  report = pretrained.load_pretrained(backbone, path)
  assert report.num_initialized == 4 * 5 + 5
  for found, expected in zip(backbone.weights, weights[:-2], strict=False):
    np.testing.assert_array_equal(found, np.float32(expected))


def _check_is_refused(backbone, path, message):
  before = backbone.get_weights()
  with pytest.raises(errors.FieldError) as error:
    pretrained.load_pretrained(backbone, path)
  text = str(error.value)
  assert text.startswith("pretrained_backbone must ")
  assert f"found {path}" in text and message in text, text
  assert "\n" not in text
  np.testing.assert_equal(backbone.get_weights(), before)


def _weights_of(backbone):
  weights = {}
  for name, variable in pretrained.layer_weights(backbone).items():
    weights[name] = variable.numpy()
  return weights


@pytest.mark.parametrize(
  ("edit", "message"),
  [
    (
      {"embedding/kernel": np.zeros([256, 9])},
      "with embedding/kernel of [256, 9] where [256, 8] is needed",
    ),
    (
      "block_3_expand/kernel",
      "without block_3_expand/kernel of [1, 1, 16, 96]",
    ),
    ("Conv1_norm/gamma", "without Conv1_norm/gamma of [16]"),
    (
      {"more/kernel": np.zeros([2])},
      "with more/kernel of [2], which it has no use for",
    ),
    (
      {"Conv1/kernel": np.full([3, 3, 3, 16], np.inf)},
      "with Conv1/kernel that is not all finite numbers",
    ),
    (
      "names",
      "with a0/x of [3, 3, 3, 17] where Conv1/kernel of [3, 3, 3, 16] is"
      " needed",
    ),
  ],
)
def test_misfits(edit, message, small_mobilenet, tmp_path):
  weights = _weights_of(small_mobilenet)
  if edit == "names":
    weights = {f"a{i}/x": value for i, value in enumerate(weights.values())}
    weights["a0/x"] = np.zeros([3, 3, 3, 17])
  elif isinstance(edit, str):
    del weights[edit]
  else:
    weights |= edit
  path = tmp_path / "model.h5"
  _write_hdf5(path, weights)
  _check_is_refused(small_mobilenet, path, message)


@pytest.mark.parametrize(
  ("name", "shape"), [("block_9_expand/kernel", [1, 1, 4, 8]), ("Conv1/b", [2])]
)
def test_a_classifier_has_no_more_than_a_head(
  name, shape, small_mobilenet, tmp_path
):
  weights = _weights_of(small_mobilenet)
  for each in ("embedding/kernel", "embedding/bias"):
    del weights[each]
  weights["predictions/kernel"] = np.zeros([256, 3])
  path = tmp_path / "model.h5"
  _write_hdf5(path, weights)
  loaded = pretrained.load_pretrained(small_mobilenet, path)
  assert loaded.text.endswith("; left out of it: predictions.")
  # A deeper network has all layers of this one, and some between them.
  weights[name] = np.zeros(shape)
  _write_hdf5(path, weights)
  _check_is_refused(small_mobilenet, path, f"with {name} of {shape}, which it")


def test_weights_of_one_name_are_refused(tmp_path):
  inputs = tf.keras.Input((4, 3))
  attention = tf.keras.layers.MultiHeadAttention(1, 2, name="attention")
  x = tf.keras.layers.Flatten()(attention(inputs, inputs))
  x = tf.keras.layers.Dense(2, name="embedding")(x)
  backbone = tf.keras.Model(inputs, x, name="own")
  # Those that have names of their own would fit.
  weights = pretrained.layer_weights(backbone)
  assert len(weights) < len(backbone.weights)
  _write_hdf5(tmp_path / "m.h5", {k: v.numpy() for k, v in weights.items()})
  _check_is_refused(backbone, tmp_path / "m.h5", "several weights of one name")


def _write_hdf5(path, weights):
  layers = {}
  for name, value in weights.items():
    layer, weight = name.split("/")
    layers.setdefault(layer, {})[f"{layer}/{weight}:0"] = value
  with h5py.File(path, "w") as file:
    file.attrs["layer_names"] = list(layers)
    for layer, values in layers.items():
      group = file.create_group(layer)
      group.attrs["weight_names"] = list(values)
      for name, value in values.items():
        group[name] = value


@pytest.mark.parametrize(
  ("name", "message"),
  [
    ("nothing.h5", "which does not exist"),
    ("empty", "a directory without saved_model.pb"),
    ("notes.txt", "which is none of these"),
    ("text.keras", "which cannot be read as a Keras file"),
    ("no_weights.h5", "a Keras HDF5 file without weights"),
    ("other_names", "weights by name alone, none of this backbone's"),
    ("cut_data", "which cannot be read as a SavedModel"),
  ],
)
def test_damaged_files_are_named(name, message, damaged):
  backbone, directory = damaged
  _check_is_refused(backbone, directory / name, message)


@pytest.fixture(scope="module")
def damaged(tmp_path_factory):
  backbone = backbones.create_backbone("lenet", _SHAPE, embedding_dim=8)
  directory = tmp_path_factory.mktemp("damaged")
  (directory / "empty").mkdir()
  for name in ("notes.txt", "text.keras"):
    (directory / name).write_text("not a model\n")
  with h5py.File(directory / "no_weights.h5", "w") as file:
    file["something"] = [1.0, 2.0]
  # As many, of the same shapes: their order is not known.
  _save_checkpoint_of_names(
    [tf.Variable(v, name=f"w{i}") for i, v in enumerate(backbone.weights)],
    directory / "other_names",
  )
  export.export_backbone(backbone, directory / "cut_data")
  path = directory / "cut_data/variables/variables.data-00000-of-00001"
  path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
  return backbone, directory


def test_the_weights_that_are_shipped_fit_colour_and_grey_images():
  assert starts.PATH.stat().st_size <= 1_000_000
  grey = np.random.default_rng(0).uniform(0, 255, (3, 48, 48, 1)).astype("f")
  found = []
  for images in (grey, np.repeat(grey, 3, axis=-1)):
    backbone = backbones.create_backbone(
      starts.BACKBONE, images.shape[1:], embedding_dim=starts.EMBEDDING_DIM
    )
    loaded = pretrained.load_pretrained(backbone, starts.PATH)
    assert loaded.num_initialized == 0
    found.append(backbone(images).numpy())
  np.testing.assert_allclose(*found, rtol=1e-3, atol=1e-3)


def test_half_precision_comes_back(tmp_path):
  backbone = backbones.create_backbone("convnet", (8, 8, 1), embedding_dim=4)
  export.export_backbone(backbone, tmp_path / "model")
  pretrained.write_half(tmp_path / "model", tmp_path / "half.h5")
  other = backbones.create_backbone("convnet", (8, 8, 1), embedding_dim=4)
  assert pretrained.load_pretrained(other, tmp_path / "half.h5").num_loaded
  for value, expected in zip(
    other.get_weights(), backbone.get_weights(), strict=True
  ):
    np.testing.assert_allclose(value, expected, rtol=1e-3, atol=1e-6)
  # A number that float16 does not have.
  kernel = backbone.layers[-1].kernel
  kernel.assign(1e7 * kernel)
  export.export_backbone(backbone, tmp_path / "large")
  pretrained.write_half(tmp_path / "large", tmp_path / "half.h5")
  pretrained.load_pretrained(other, tmp_path / "half.h5")
  np.testing.assert_array_equal(other.layers[-1].kernel, kernel)
