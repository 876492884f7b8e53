"""Tests of what becomes of a pretrained network's batch normalisation."""

import functools

import h5py
import numpy as np
import pytest
import tensorflow as tf

from examples import frozen_start
from tasks.synthetic import characters
from tff_fedemb.evaluation import verification
from tff_fedemb.models import backbones
from tff_fedemb.models import mobilenet_v2
from tff_fedemb.models import pretrained
from tff_fedemb.models import resnet

_SHAPE = (32, 32, 3)


@pytest.mark.slow
def test_mobilenet_v2_of_keras(tmp_path):
  """Both have the same maps where an image's statistics are those of all."""
  # Random kernels make some maps of four pixels nearly constant, and dividing
  # by their deviation amplifies rounding: one seed in twelve gave 0.035 below.
  tf.keras.utils.set_random_seed(0)
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
  for name, tolerance in (
    ("Conv1_relu", 1e-4),
    ("block_5_add", 1e-4),
    ("block_12_add", 0.02),
  ):
    found, expected = (
      tf.keras.Model(model.input, model.get_layer(name).output)(pixels)
      for model, pixels in ((backbone, image), (keras_model, image / 127.5 - 1))
    )
    np.testing.assert_allclose(found, expected, atol=tolerance)
  assert report.num_initialized == 1280 * 8 + 8
  assert " weights of 104 layers from " in report.text
  assert report.text.endswith(
    "; 10,248 weights are not in it and stay as initialised (embedding);"
    " left out of it: predictions."
  )


# Keras' network, its treatment of pixels, ours, and a shape: odd and even sides
# of maps are padded in different ways.
_MOBILENET = (
  functools.partial(tf.keras.applications.MobileNetV2, alpha=0.35),
  tf.keras.applications.mobilenet_v2.preprocess_input,
  functools.partial(mobilenet_v2.create_mobilenet_v2, width_multiplier=0.35),
  (45, 64),
)
_RESNET = (
  tf.keras.applications.ResNet50,
  tf.keras.applications.resnet50.preprocess_input,
  resnet.create_resnet50,
  (33, 48),
)


@pytest.mark.slow
@pytest.mark.parametrize(
  ("network", "channels"),
  # ResNet's grey images lack the mean of its mean colour.
  [(_MOBILENET, 3), (_MOBILENET, 1), (_RESNET, 3)],
  ids=["mobilenet_v2", "mobilenet_v2_grey", "resnet50"],
)
def test_frozen_statistics_lose_nothing(network, channels, tmp_path):
  """Embeddings are those of Keras' network, also while it is trained."""
  create_theirs, preprocess, create, sides = network
  keras_model = create_theirs(
    input_shape=(*sides, 3), weights=None, include_top=False, pooling="avg"
  )
  random = np.random.default_rng(1)
  for layer in keras_model.layers:
    if isinstance(layer, tf.keras.layers.BatchNormalization):
      weights = random.uniform(0.5, 1.5, [4, *layer.gamma.shape])
      layer.set_weights(weights)
  keras_model.save_weights(tmp_path / "imagenet.h5")
  backbone = create((*sides, channels), embedding_dim=8, norm="frozen")
  report = pretrained.load_pretrained(backbone, tmp_path / "imagenet.h5")
  assert "; 10,248 weights" in report.text or "; 16,392 weights" in report.text
  images = random.uniform(0, 255, [2, *sides, channels]).astype(np.float32)
  in_colour = np.broadcast_to(images, [2, *sides, 3]).copy()
  expected = keras_model(preprocess(in_colour))
  assert np.std(expected) > 1e-3
  features = tf.keras.Model(backbone.input, backbone.layers[-2].output)
  before = [w.numpy() for w in backbone.non_trainable_variables]
  found = features(images, training=True)
  tolerance = 1e-5 * np.abs(expected).max()
  np.testing.assert_allclose(found, expected, atol=tolerance)
  for variable, value in zip(
    backbone.non_trainable_variables, before, strict=True
  ):
    np.testing.assert_array_equal(variable, value)


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
      80,
      5,
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
  images, labels = _draw_characters(range(num_classes), scale)
  trained = frozen_start.pretrain(backbone, images, labels, epochs=epochs)
  trained.save_weights(tmp_path / "trained.h5")
  images, labels = _draw_characters(range(5000, 5040), scale)

  def measure_recall():
    embeddings = backbone.predict(images, verbose=0)
    return verification.evaluate_pairs(embeddings, labels).recall_at_far[0.1]

  frozen = create((28 * scale, 28 * scale, 1), embedding_dim=64, norm="frozen")
  pretrained.load_pretrained(frozen, tmp_path / "trained.h5")
  np.testing.assert_allclose(
    frozen.predict(images, verbose=0),
    trained.predict(images, verbose=0),
    atol=1e-4,
  )
  pretrained.load_pretrained(backbone, tmp_path / "trained.h5")
  mapped = measure_recall()
  for layer in backbone.layers:
    if isinstance(layer, tf.keras.layers.GroupNormalization):
      ones = np.ones(layer.gamma.shape)
      layer.set_weights([ones, 0 * ones])
  # Seen: 0.56 against 0.31, and 0.68 against 0.42.
  assert mapped > measure_recall() + 0.05
