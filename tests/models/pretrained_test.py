"""Tests of loading pretrained weights, from every kind of file."""

import functools
import os

import h5py
import keras
import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from tasks.synthetic import characters
from tff_fedemb import errors
from tff_fedemb.evaluation import verification
from tff_fedemb.models import backbones
from tff_fedemb.models import mobilenet_v2
from tff_fedemb.models import pretrained
from tff_fedemb.models import resnet
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
  (_save_checkpoint_of_names, "names", "names", "TensorFlow checkpoint"),
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
    *[("resnet_small", *_FORMATS[i]) for i in (4, 6)],
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


@pytest.mark.parametrize(
  ("name", "channels"),
  # ResNet's grey images lack the mean of its mean colour.
  [("MobileNetV2", 3), ("MobileNetV2", 1), ("ResNet50", 3)],
)
def test_frozen_statistics_lose_nothing(name, channels, tmp_path):
  """Embeddings are those of Keras' network, also while it is trained."""
  shape = (64, 64, 3)
  options = {"alpha": 0.35} if name == "MobileNetV2" else {}
  keras_model = getattr(tf.keras.applications, name)(
    input_shape=shape, weights=None, include_top=False, pooling="avg", **options
  )
  random = np.random.default_rng(1)
  for layer in keras_model.layers:
    if isinstance(layer, tf.keras.layers.BatchNormalization):
      weights = random.uniform(0.5, 1.5, [4, *layer.gamma.shape])
      layer.set_weights(weights)
  keras_model.save_weights(tmp_path / "imagenet.h5")
  create = {
    "MobileNetV2": functools.partial(
      mobilenet_v2.create_mobilenet_v2, width_multiplier=0.35
    ),
    "ResNet50": resnet.create_resnet50,
  }[name]
  backbone = create((64, 64, channels), embedding_dim=8, norm="frozen")
  report = pretrained.load_pretrained(backbone, tmp_path / "imagenet.h5")
  assert "; 10,248 weights" in report.text or "; 16,392 weights" in report.text
  images = random.uniform(0, 255, [2, 64, 64, channels]).astype(np.float32)
  preprocess = {
    "MobileNetV2": tf.keras.applications.mobilenet_v2.preprocess_input,
    "ResNet50": tf.keras.applications.resnet50.preprocess_input,
  }[name]
  in_colour = np.broadcast_to(images, [2, 64, 64, 3]).copy()
  expected = keras_model(preprocess(in_colour))
  features = tf.keras.Model(backbone.input, backbone.layers[-2].output)
  before = [w.numpy() for w in backbone.non_trainable_variables]
  found = features(images, training=True)
  tolerance = 1e-5 * np.abs(expected).max()
  np.testing.assert_allclose(found, expected, atol=tolerance)
  for variable, value in zip(
    backbone.non_trainable_variables, before, strict=True
  ):
    np.testing.assert_array_equal(variable, value)


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


@pytest.mark.parametrize("suffix", ["keras", "weights.h5", "h5"])
def test_keras_3(suffix, tmp_path):
  model = _create_network(keras, "predictions", 3)
  random = np.random.default_rng(1)
  weights = [random.normal(size=w.shape) for w in model.weights]
  model.set_weights(weights)
  path = tmp_path / f"model.{suffix}"
  (model.save_weights if suffix == "weights.h5" else model.save)(path)
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


def _draw_characters(numbers, scale):
  """Images `[20 n, 28 scale, 28 scale, 1]` of n characters, and classes."""
  drawn = [characters.draw_images(1, number) for number in numbers]
  images = np.concatenate(drawn)[..., np.newaxis].astype(np.float32)
  images = images.repeat(scale, axis=1).repeat(scale, axis=2)
  return images, np.arange(len(drawn)).repeat(20)


@pytest.mark.slow
@pytest.mark.parametrize(
  ("create", "scale", "num_classes", "epochs"),
  [
    (functools.partial(backbones.create_backbone, "resnet_small"), 1, 60, 4),
    (
      functools.partial(
        mobilenet_v2.create_mobilenet_v2, width_multiplier=0.35
      ),
      2,
      150,
      10,
    ),
  ],
  ids=["resnet_small", "mobilenet_v2"],
)
def test_mapped_normalisation_recognises_more_than_none(
  create, scale, num_classes, epochs, tmp_path
):
  """Batch normalisation is trained on classes, recall is on others."""
  tf.keras.utils.set_random_seed(1)
  backbone = create((28 * scale, 28 * scale, 1), embedding_dim=64)
  layers = tf.keras.layers

  def replace(layer):
    if isinstance(layer, layers.GroupNormalization):
      return layers.BatchNormalization(
        momentum=0.9,
        epsilon=layer.epsilon,
        name=layer.name.replace("_norm", "_bn"),
      )
    return type(layer).from_config(layer.get_config())

  model = tf.keras.models.clone_model(backbone, clone_function=replace)
  model = tf.keras.Model(model.input, model.layers[-2].output)
  classifier = tf.keras.Sequential([model, layers.Dense(num_classes)])
  classifier.compile(
    tf.keras.optimizers.Adam(3e-3),
    tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True),
  )
  examples = _draw_characters(range(num_classes), scale)
  classifier.fit(*examples, batch_size=64, epochs=epochs, verbose=0)
  model.save_weights(tmp_path / "trained.h5")
  images, labels = _draw_characters(range(5000, 5040), scale)

  def measure_recall():
    embeddings = backbone.predict(images, verbose=0)
    return verification.evaluate_pairs(embeddings, labels).recall_at_far[0.1]

  pretrained.load_pretrained(backbone, tmp_path / "trained.h5")
  mapped = measure_recall()
  for layer in backbone.layers:
    if isinstance(layer, layers.GroupNormalization):
      ones = np.ones(layer.gamma.shape)
      layer.set_weights([ones, 0 * ones])
  # Seen: 0.56 against 0.31, and 0.81 against 0.71.
  assert mapped > measure_recall() + 0.05


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
  weights = {
    name: variable.numpy()
    for name, variable in pretrained.layer_weights(small_mobilenet).items()
  }
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
