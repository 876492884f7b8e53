"""Tests of what the convolutional backbones share."""

import numpy as np
import pytest
import tensorflow as tf

from tff_fedemb.models import blocks


@pytest.mark.parametrize(
  ("num_channels", "expected"),
  [
    (7, 1),
    (8, 1),
    (16, 2),
    (24, 3),
    (40, 5),
    (144, 18),
    (256, 32),
    (320, 32),
    (2048, 32),
    # 37 groups of 8 would be too many, and 32 do not divide it.
    (296, 8),
    (1009, 1),
  ],
)
def test_num_groups(num_channels, expected):
  assert blocks.num_groups(num_channels) == expected


def test_normalizes_each_group_of_each_image():
  images = np.random.default_rng(0).normal(3.0, 5.0, (2, 3, 5, 16))
  inputs = tf.keras.layers.Input((3, 5, 16))
  outputs = blocks.normalize(inputs, name="norm", epsilon=1e-5)
  found = tf.keras.Model(inputs, outputs)(images.astype(np.float32))
  groups = images.reshape(2, 15, 2, 8)
  mean = groups.mean(axis=(1, 3), keepdims=True)
  deviation = np.sqrt(groups.var(axis=(1, 3), keepdims=True) + 1e-5)
  expected = ((groups - mean) / deviation).reshape(images.shape)
  np.testing.assert_allclose(found, expected, atol=1e-4)
