"""Tests of layers written out for TensorFlow Lite, against Keras."""

import re

import numpy as np
import pytest
import tensorflow as tf

from tff_fedemb import errors
from tff_fedemb.models import backbones
from tff_fedemb.phones import lite_layers

_BATCH = 5


def _differentiate(run, weights):
  with tf.GradientTape(watch_accessed_variables=False) as tape:
    tape.watch(weights)
    embeddings = run(weights)
    loss = tf.reduce_sum(tf.sin(embeddings))
  return embeddings, tape.gradient(loss, weights)


@pytest.mark.parametrize(
  ("name", "shape"),
  [
    ("convnet", (29, 31, 3)),
    ("convnet_tanh", (28, 28, 1)),
    # Padding of odd sides, at each depth.
    ("conv4", (29, 31, 3)),
    # Made larger, or smaller, first.
    ("conv4_48", (28, 28, 1)),
    pytest.param("conv4_48", (64, 64, 1), marks=pytest.mark.slow),
  ],
)
def test_values_and_gradients_are_those_of_keras(name, shape):
  tf.keras.utils.set_random_seed(1)
  backbone = backbones.create_backbone(name, shape, embedding_dim=8)
  images = tf.random.stateless_uniform([_BATCH, *shape], (1, 2), 0, 255)
  names = lite_layers.names_of(backbone, backbone.trainable_variables)
  expected, gradients = _differentiate(
    lambda _: backbone(images, training=True), backbone.trainable_variables
  )
  values = [tf.constant(v) for v in backbone.trainable_variables]

  def run(weights, *, is_trained=True):
    by_name = dict(zip(names, weights, strict=True))
    return lite_layers.run(backbone, by_name, images, is_trained=is_trained)

  found, found_gradients = _differentiate(run, values)
  np.testing.assert_allclose(found, expected, atol=1e-5)
  for one, other in zip(found_gradients, gradients, strict=True):
    largest = np.abs(other).max()
    np.testing.assert_allclose(one, other, atol=2e-5 * largest)
  np.testing.assert_allclose(run(values, is_trained=False), expected, atol=1e-5)


def test_names_do_not_depend_on_earlier_models():
  names = []
  for _ in range(2):
    backbone = tf.keras.Sequential(
      [_layers.Dense(3, input_shape=(4,)), _layers.Dense(2)]
    )
    names.append(lite_layers.names_of(backbone, backbone.weights))
  expected = ["dense_kernel", "dense_bias", "dense_1_kernel", "dense_1_bias"]
  assert names == [expected, expected]


def test_pooling_gives_the_gradient_to_the_first_of_equal_parts():
  x = tf.reshape(tf.constant([3.0, 3.0, 1.0, 3.0]), [1, 2, 2, 1])
  with tf.GradientTape() as tape:
    tape.watch(x)
    y = lite_layers.pool(x, keeps_last=False)
  assert y.numpy().ravel() == [3]
  assert tape.gradient(y, x).numpy().ravel().tolist() == [1, 0, 0, 0]


_layers = tf.keras.layers


@pytest.mark.parametrize(
  ("layer", "named"),
  [
    (_layers.Conv2D(2, 3, strides=2, padding="same"), "Conv2D with other"),
    (_layers.Conv2D(2, 4, padding="same"), "Conv2D with other"),
    (
      _layers.Conv2D(2, 3, padding="same", activation="elu"),
      "Conv2D, activation elu",
    ),
    (_layers.MaxPool2D(3), "MaxPooling2D of (3, 3)"),
    (_layers.BatchNormalization(), "BatchNormalization"),
  ],
)
def test_refuses_other_layers_by_name(layer, named):
  layer._name = "culprit"
  backbone = tf.keras.Sequential([_layers.InputLayer((28, 28, 1)), layer])
  names = lite_layers.names_of(backbone, backbone.weights)
  weights = dict(zip(names, backbone.weights, strict=True))
  with pytest.raises(
    errors.FieldError, match=f"layer 'culprit' .{re.escape(named)}"
  ):
    lite_layers.run(
      backbone, weights, tf.zeros([1, 28, 28, 1]), is_trained=True
    )


def test_refuses_what_is_no_chain():
  inputs = tf.keras.Input((28, 28, 1))
  embedding = _layers.Dense(3)(_layers.Flatten()(inputs))
  backbone = tf.keras.Model(inputs, embedding + 0.0 * embedding)
  names = lite_layers.names_of(backbone, backbone.weights)
  with pytest.raises(errors.FieldError, match="TFOpLambda"):
    lite_layers.run(
      backbone,
      dict(zip(names, backbone.weights, strict=True)),
      tf.zeros([1, 28, 28, 1]),
      is_trained=True,
    )
