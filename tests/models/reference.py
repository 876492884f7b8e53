"""What the tests of backbones have in common."""

import numpy as np
import pytest
import tensorflow as tf

from tff_fedemb.models import backbones
from tff_fedemb.models import freezing
from tff_fedemb.models import group_norm

_CONVOLUTIONS = (tf.keras.layers.Conv2D, tf.keras.layers.DepthwiseConv2D)
_NORMALIZATIONS = (
  tf.keras.layers.BatchNormalization,
  tf.keras.layers.GroupNormalization,
)


def _convolutions(model):
  return [layer for layer in model.layers if isinstance(layer, _CONVOLUTIONS)]


def _normalizations(model):
  return [layer for layer in model.layers if isinstance(layer, _NORMALIZATIONS)]


def _count(layers):
  return sum(
    int(np.prod(variable.shape))
    for layer in layers
    for variable in layer.trainable_variables
  )


def count_by_kind(model):
  """Numbers of trainable parameters."""
  return {
    "convolution": _count(_convolutions(model)),
    "normalization": _count(_normalizations(model)),
    "embedding": _count([model.layers[-1]]),
  }


def kernel_shapes(model):
  """Shapes of the convolutions' weights by layer, in order."""
  return [
    (layer.name, [tuple(v.shape) for v in layer.weights])
    for layer in _convolutions(model)
  ]


def copy_convolutions(source, target):
  """Copies kernels and biases by the names of the layers."""
  for layer in _convolutions(source):
    target.get_layer(layer.name).set_weights(layer.get_weights())


def normalize_by_batch(monkeypatch):
  """Lets backbones created from now on have batch normalisation."""
  monkeypatch.setattr(
    group_norm,
    "GroupNormalization",
    lambda groups, name, epsilon: tf.keras.layers.BatchNormalization(
      name=name, epsilon=epsilon
    ),
  )


def assert_same_function(backbone, keras_model, preprocess):
  """Compares features on random images with random weights."""
  random = np.random.default_rng(0)
  copy_convolutions(keras_model, backbone)
  pairs = zip(
    _normalizations(keras_model), _normalizations(backbone), strict=True
  )
  for theirs, ours in pairs:
    weights = [random.uniform(0.5, 1.5, w.shape) for w in ours.get_weights()]
    theirs.set_weights(weights)
    ours.set_weights(weights)
  features = tf.keras.Model(backbone.input, backbone.layers[-2].output)
  images = random.uniform(0, 255, (2, *backbone.input_shape[1:]))
  images = images.astype(np.float32)
  expected = keras_model(preprocess(images.copy()), training=False).numpy()
  assert expected.std() > 1e-3
  np.testing.assert_allclose(
    features(images, training=False),
    expected,
    rtol=1e-3,
    atol=1e-4 * np.abs(expected).max(),
  )


def check_embeds_one_by_one(backbone):
  """No image has a part in another's embedding; every weight has a gradient."""
  shape = backbone.input_shape[1:]
  images = np.random.default_rng(0).uniform(0, 255, (3, *shape))
  images = tf.constant(images, tf.float32)
  with tf.GradientTape() as tape:
    together = backbone(images, training=True)
    # A projection: embeddings of one norm would have no gradient.
    loss = tf.reduce_sum(
      together * tf.random.stateless_normal(together.shape, (1, 2))
    )
  gradients = tape.gradient(loss, backbone.trainable_variables)
  for variable, gradient in zip(
    backbone.trainable_variables, gradients, strict=True
  ):
    assert np.all(np.isfinite(gradient)), variable.name
    assert np.any(gradient != 0.0), variable.name
  alone = backbone(images[1:2])
  np.testing.assert_allclose(together[1:2], alone, atol=1e-4)
  # Different images, different embeddings, at the smallest maps too.
  assert np.abs(together[0] - together[1]).max() > 1e-3


def _num_parameters(variables):
  return sum(int(np.prod(variable.shape)) for variable in variables)


def check_freezing(name, backbone, num_trainable):
  """Freezes a backbone in each way, and counts what is trainable.

  Args:
    name: Name of the backbone.
    backbone: The backbone, fully trainable; and again at the end.
    num_trainable: For each choice how many weights are trainable, or `None` for
      one that makes no sense.
  """
  middle = backbones.BACKBONES[name].middle
  # Back to all at the end: a choice leaves no trace of the one before.
  choices = zip(freezing.TRAINABLE, num_trainable, strict=True)
  for trainable, expected in [*choices, ("all", num_trainable[0])]:
    if expected is None:
      with pytest.raises(ValueError, match="trainable must be one of"):
        freezing.freeze(backbone, trainable, middle=middle)
      continue
    freezing.freeze(backbone, trainable, middle=middle)
    if trainable == "outer":
      _check_middle(backbone)
    num_frozen = num_trainable[0] - expected
    assert _num_parameters(backbone.trainable_variables) == expected
    assert _num_parameters(backbone.non_trainable_variables) == num_frozen


def _check_middle(backbone):
  """The last convolution of a block is frozen at 1/8 and 1/16 of the side."""
  side = backbone.input_shape[1]
  for layer in backbone.layers:
    if layer.name.endswith(("_project", "_3_conv")):
      is_middle = layer.output_shape[1] in (side // 8, side // 16)
      assert layer.trainable == (not is_middle), layer.name
