"""Tests of loading pretrained weights, from every kind of file."""

import os

import h5py
import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from tff_fedemb import errors
from tff_fedemb.models import backbones
from tff_fedemb.models import mobilenet_v2
from tff_fedemb.models import pretrained
from tff_fedemb.models import starts
from tff_fedemb.program import export

_SHAPE = (32, 32, 3)
_CONVOLUTIONS = (tf.keras.layers.Conv2D, tf.keras.layers.DepthwiseConv2D)


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


def _save_checkpoint_of_names(model, path):
  names = [variable.name.removesuffix(":0") for variable in model.variables]
  tf.raw_ops.SaveV2(
    prefix=os.fspath(path),
    tensor_names=names,
    shape_and_slices=[""] * len(names),
    tensors=[variable.read_value() for variable in model.variables],
  )


# How to write a file, its name, what to load, what it is told to be.
_FORMATS = [
  (export.export_backbone, "exported", "exported", "SavedModel"),
  (_save_keras_saved_model, "keras_model", "keras_model", "SavedModel"),
  ("save_weights", "model.h5", "model.h5", "Keras HDF5 file"),
  ("save", "whole.h5", "whole.h5", "Keras HDF5 file"),
  ("save_weights", "ckpt", "ckpt.index", "TensorFlow checkpoint"),
  (_save_object_checkpoint, "ckpt-1", "ckpt-1", "TensorFlow checkpoint"),
  (_save_checkpoint_of_names, "names", "names", "TensorFlow checkpoint"),
]


@pytest.fixture(scope="module")
def lenets():
  """Three backbones, the last made after a computation is traced."""
  made = [_create("lenet", seed) for seed in (1, 2)]

  # Keras disowns layers made before others are made inside of a computation.
  @tff.tensorflow.computation
  def trace():
    variables = backbones.create_backbone("lenet", _SHAPE).trainable_variables
    return [tf.identity(variable) for variable in variables]

  assert trace.type_signature.result
  return [*made, _create("lenet", 2)]


def _write(source, save, path):
  if isinstance(save, str):
    getattr(source, save)(path)
  else:
    save(source, path)


@pytest.mark.filterwarnings("ignore:You are saving your model")
@pytest.mark.parametrize(("save", "written", "path", "kind"), _FORMATS)
def test_loads_every_format(save, written, path, kind, lenets, tmp_path):
  source, *targets = lenets
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


def test_mobilenet_v2_of_keras(tmp_path):
  """Both have the same maps where an image's statistics are those of all."""
  keras_model = tf.keras.applications.MobileNetV2(
    _SHAPE, weights=None, include_top=False, alpha=0.35
  )
  backbone = mobilenet_v2.create_mobilenet_v2(
    _SHAPE, embedding_dim=8, width_multiplier=0.35
  )
  random = np.random.default_rng(1)
  for layer in keras_model.layers:
    if isinstance(layer, tf.keras.layers.BatchNormalization):
      gamma, beta = random.uniform(0.5, 2, [2, *layer.gamma.shape])
      layer.set_weights([gamma - 2 * (gamma < 0.8), beta, beta, beta])
      # After a step on one image, moving statistics are those of the image.
      layer.momentum, layer.fused = 0.0, False
  image = random.uniform(0, 255, [1, *_SHAPE])
  keras_model(image / 127.5 - 1, training=True)
  path = tmp_path / "imagenet.h5"
  keras_model.save_weights(path)
  with h5py.File(path, "a") as file:
    layers = file.attrs["layer_names"].tolist()
    file.attrs["layer_names"] = [*layers, "predictions"]
    group = file.create_group("predictions")
    group.attrs["weight_names"] = ["predictions/kernel:0"]
    group["predictions/kernel:0"] = np.zeros([1280, 10])
  before = backbone.layers[-1].get_weights()
  report = pretrained.load_pretrained(backbone, path)
  np.testing.assert_array_equal(backbone.layers[-1].kernel, before[0])
  # Later maps are one pixel, of variance 0.
  for name in ("Conv1_relu", "block_5_add", "block_12_add"):
    found, expected = (
      tf.keras.Model(model.input, model.get_layer(name).output)(pixels)
      for model, pixels in ((backbone, image), (keras_model, image / 127.5 - 1))
    )
    np.testing.assert_allclose(found, expected, atol=0.02)
  assert report.num_initialized == 1280 * 8 + 8
  assert " weights of 104 layers from " in report.text
  assert report.text.endswith(
    "; 10,248 weights are not in it and stay as initialised (embedding)."
  )


def _check_is_refused(backbone, path, message):
  before = backbone.get_weights()
  with pytest.raises(errors.FieldError) as error:
    pretrained.load_pretrained(backbone, path)
  text = str(error.value)
  assert text.startswith("pretrained_backbone must ")
  assert f"found {path}" in text and message in text, text
  assert "\n" not in text
  np.testing.assert_equal(backbone.get_weights(), before)


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
    (
      {"more/kernel": np.zeros([2])},
      "with more/kernel of [2], which it has no use for",
    ),
    (
      {"Conv1/kernel": np.full([3, 3, 3, 16], np.inf)},
      "with Conv1/kernel that is not all finite numbers",
    ),
  ],
)
def test_misfits(edit, message, small_mobilenet, tmp_path):
  weights = {
    name: variable.numpy()
    for name, variable in pretrained.layer_weights(small_mobilenet).items()
  }
  if isinstance(edit, str):
    del weights[edit]
  else:
    weights |= edit
  path = tmp_path / "model.h5"
  _write_hdf5(path, weights)
  _check_is_refused(small_mobilenet, path, message)


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
    ("text.h5", "which cannot be read as a Keras HDF5 file"),
    ("no_weights.h5", "a Keras HDF5 file without weights of named"),
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
  for name in ("notes.txt", "text.h5"):
    (directory / name).write_text("not a model\n")
  with h5py.File(directory / "no_weights.h5", "w") as file:
    file["something"] = [1.0, 2.0]
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
