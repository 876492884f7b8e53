"""Tests of the backbones of pooled convolutions, against plain operations.

`backbones_test` has what all backbones have in common.
"""

import numpy as np
import pytest
import tensorflow as tf

from tff_fedemb.models import pooled


def _standardize(images):
  mean = images.mean(axis=(1, 2, 3), keepdims=True)
  deviation = images.std(axis=(1, 2, 3), keepdims=True)
  return ((images - mean) / deviation).astype(np.float32)


def _check(backbone, images, features, tolerance):
  """Compares with features before the embedding layer."""
  kernel, bias = backbone.get_weights()[-2:]
  expected = tf.reshape(features, [len(images), -1]) @ kernel + bias
  # Keras adds 0.001 to the variance of pixels in [0, 1].
  found = backbone(images.astype(np.float32))
  cosines = tf.reduce_sum(
    tf.math.l2_normalize(found, 1) * tf.math.l2_normalize(expected, 1), axis=1
  )
  np.testing.assert_allclose(cosines, 1.0, atol=tolerance)


@pytest.fixture(name="images")
def _images():
  tf.keras.utils.set_random_seed(1)
  return np.random.default_rng(0).uniform(0, 255, (2, 28, 28, 1))


@pytest.mark.parametrize(
  ("create", "activate"),
  [
    (pooled.create_convnet, tf.nn.relu),
    (pooled.create_convnet_tanh, tf.math.tanh),
  ],
)
def test_convnet_is_three_convolutions(create, activate, images):
  """Pooling comes last here, as it is written."""
  backbone = create((28, 28, 1), embedding_dim=6)
  weights, x = backbone.get_weights()[:-2], _standardize(images)
  for filters, offset in zip(weights[::2], weights[1::2], strict=True):
    x = tf.nn.conv2d(x, filters, 1, "SAME")
    x = tf.nn.max_pool2d(activate(x + offset), 2, 2, "VALID")
  assert x.shape == (2, 3, 3, 64)
  _check(backbone, images, x, 1e-4)


def test_strided_is_three_convolutions_without_pooling(images):
  backbone = pooled.create_strided((28, 28, 1), embedding_dim=6)
  weights, x = backbone.get_weights()[:-2], _standardize(images)
  for filters, offset in zip(weights[::2], weights[1::2], strict=True):
    x = tf.nn.relu(tf.nn.conv2d(x, filters, 2, "SAME") + offset)
  assert x.shape == (2, 4, 4, 48)
  _check(backbone, images, x, 1e-4)
  # With 64 dimensions there are few weights.
  small = pooled.create_strided((28, 28, 1), embedding_dim=64)
  assert small.count_params() == 62_560


def test_conv4_is_four_convolutions_with_group_normalisation(images):
  backbone = pooled.create_conv4((28, 28, 1), embedding_dim=6)
  # Scale and offset of the normalisation as after some training.
  weights = backbone.get_weights()
  rng = np.random.default_rng(1)
  for layer in range(4):
    for place in (3 * layer + 1, 3 * layer + 2):
      weights[place] = rng.uniform(0.5, 1.5, weights[place].shape)
  backbone.set_weights(weights)
  x = _standardize(images)
  for layer, num_groups in enumerate((4, 8, 12, 16)):
    kernel, scale, offset = weights[3 * layer : 3 * layer + 3]
    x = tf.nn.conv2d(x, kernel, 1, "SAME")
    x = tf.nn.max_pool2d(x, 2, 2, "SAME").numpy()
    groups = x.reshape([*x.shape[:3], num_groups, -1])
    mean, variance = (
      f(groups, axis=(1, 2, 4), keepdims=True) for f in (np.mean, np.var)
    )
    x = ((groups - mean) / np.sqrt(variance + 1e-3)).reshape(x.shape)
    x = np.maximum(x * scale + offset, 0.0).astype(np.float32)
  assert x.shape == (2, 2, 2, 128)
  _check(backbone, images, x, 1e-3)


def test_conv4_48_embeds_an_image_of_any_size_as_one_of_48_pixels():
  small = np.random.default_rng(0).integers(0, 256, [2, 48, 48, 3])
  of_48 = pooled.create_conv4((48, 48, 3), embedding_dim=6)
  expected = of_48(small.astype(np.float32))
  # The mean of four equal pixels is one of them.
  large = small.repeat(2, axis=1).repeat(2, axis=2)
  for images in (small, large):
    backbone = pooled.create_conv4_48(images.shape[1:], embedding_dim=6)
    backbone.set_weights(of_48.get_weights())
    found = backbone(images.astype(np.float32))
    np.testing.assert_allclose(found, expected, atol=1e-4)
  # Also one that pooling would leave nothing of.
  low = pooled.create_conv4_48((15, 40, 3), embedding_dim=6)
  assert low.count_params() == of_48.count_params()


@pytest.mark.parametrize("size", [(96, 96), (64, 50), (224, 49)])
def test_conv4_48_sees_the_means_of_areas(size):
  images = np.random.default_rng(0).uniform(0, 255, [2, *size, 3])
  images = images.astype(np.float32)
  backbone = pooled.create_conv4_48((*size, 3))
  found = backbone.layers[0](images)
  expected = tf.image.resize(images, (48, 48), "area")
  np.testing.assert_allclose(found, expected, atol=1e-3)
  # Keras clones and saves the layer by its options.
  same = tf.keras.models.clone_model(backbone)
  np.testing.assert_array_equal(same.layers[0](images), found)
