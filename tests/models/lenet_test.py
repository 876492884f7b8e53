"""Tests of the LeNet backbone."""

import numpy as np
import pytest
import tensorflow as tf

from tff_fedemb.models import backbones


def test_parameter_count_is_the_documented_one():
  backbone = backbones.create_backbone("lenet", (28, 28, 1))
  assert backbone.count_params() == 453_632
  assert not backbone.non_trainable_weights


@pytest.mark.parametrize("shape", [(28, 28, 1), (32, 40, 3), (5, 5, 1)])
def test_embeds_images_one_by_one(shape):
  backbone = backbones.create_backbone("lenet", shape, embedding_dim=16)
  images = np.random.default_rng(0).uniform(0, 255, (4, *shape))
  together = backbone(images.astype(np.float32))
  alone = backbone(images[2:3].astype(np.float32))
  assert together.shape == (4, 16)
  # An image's embedding does not depend on its batch.
  np.testing.assert_allclose(together[2:3], alone, atol=1e-4)


def test_every_parameter_gets_a_gradient():
  backbone = backbones.create_backbone("lenet", (28, 28, 1))
  with tf.GradientTape() as tape:
    images = tf.random.stateless_uniform([2, 28, 28, 1], (1, 2), 0, 255)
    output = backbone(images)
    loss = tf.reduce_sum(tf.square(output))
  for gradient in tape.gradient(loss, backbone.trainable_weights):
    assert gradient is not None


@pytest.mark.parametrize(
  ("name", "shape", "dim", "message"),
  [
    ("alexnet", (28, 28, 1), 128, "backbone must be one of"),
    ("lenet", (3, 28, 1), 128, "image_shape must be"),
    (
      "lenet",
      (28, 28, 1),
      0,
      "embedding_dim must be an integer of at least 1, found 0",
    ),
  ],
)
def test_mistakes_are_named(name, shape, dim, message):
  with pytest.raises(ValueError, match=message):
    backbones.create_backbone(name, shape, embedding_dim=dim)
