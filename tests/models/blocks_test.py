"""Tests of what the convolutional backbones share; normalisation is Keras'."""

import numpy as np
import pytest
import tensorflow as tf

from tff_fedemb.models import blocks

_SHAPE = (3, 5, 7, 32)


@pytest.mark.parametrize(
  ("num_channels", "expected"),
  [
    (7, 1),
    (40, 5),
    (2048, 32),
    # 37 groups of 8 would be too many, and 32 do not divide it.
    (296, 8),
    (1009, 1),
  ],
)
def test_groups_are_of_eight_channels_at_least(num_channels, expected):
  inputs = tf.keras.layers.Input((3, 5, num_channels))
  outputs = blocks.normalize(inputs, name="norm", epsilon=1e-5)
  layer = tf.keras.Model(inputs, outputs).layers[-1]
  assert (layer.groups, layer.epsilon) == (expected, 1e-5)


def _create(layer_class, groups, channels):
  layer = layer_class(groups, epsilon=1e-3)
  layer.build([None, None, None, channels])
  layer.gamma.assign(tf.linspace(0.5, 2.0, channels))
  layer.beta.assign(tf.linspace(-1.0, 1.0, channels))
  return layer


def _gradients(layer, maps, weights):
  with tf.GradientTape() as tape:
    tape.watch(maps)
    outputs = layer(maps)
    total = tf.reduce_sum(outputs * weights)
  return outputs, *tape.gradient(total, [maps, layer.gamma, layer.beta])


@pytest.mark.parametrize("groups", [1, 4, 32])
@pytest.mark.parametrize("shape", [_SHAPE, (2, 1, 1, 64)])
def test_values_and_gradients_are_those_of_keras(groups, shape):
  generator = np.random.default_rng(groups)
  maps = tf.constant(generator.normal(1.0, 2.0, shape), tf.float32)
  weights = tf.constant(generator.normal(size=shape), tf.float32)
  expected, found = (
    _gradients(_create(layer_class, groups, shape[-1]), maps, weights)
    for layer_class in (
      tf.keras.layers.GroupNormalization,
      blocks.GroupNormalization,
    )
  )
  for one, other in zip(found, expected, strict=True):
    np.testing.assert_allclose(
      one, other, rtol=1e-4, atol=1e-5 * np.abs(other).max()
    )


@pytest.mark.parametrize("shape", [[None, None, 7, 8], [None, 8]])
def test_unknown_sides_are_refused(shape):
  layer = blocks.GroupNormalization(2)
  with pytest.raises(ValueError, match="inputs must be"):
    layer(tf.keras.layers.Input(shape[1:]))
