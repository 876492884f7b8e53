"""The bare Keras model trains on the images of the case, by plain SGD."""

import numpy as np
import tensorflow as tf

from benchmarks import cases
from benchmarks import keras_step

_SHAPE = (2, 2, 1)
_CASE = cases.Case(
  num_clients=2,
  steps=3,
  batch_size=5,
  create_backbone=lambda shape: tf.keras.Sequential(
    [
      tf.keras.layers.InputLayer(input_shape=shape),
      tf.keras.layers.Rescaling(1.0 / 255.0),
      tf.keras.layers.Flatten(),
    ]
  ),
  image_shape=_SHAPE,
)


def test_trains_on_every_batch_of_every_client():
  client_ids = ["3", "4"]
  step = keras_step.KerasStep(_CASE)
  dense = step.model.layers[-1]
  kernel, bias = (v.numpy().astype(np.float64) for v in dense.weights)
  # The gradient of softmax regression, by hand.
  for client_id in client_ids:
    images, labels = cases.create_examples(tf.constant(client_id), _CASE)
    assert images.shape == (15, *_SHAPE)
    for start in (0, 5, 10):
      x = images[start : start + 5].numpy().reshape(5, -1) / 255.0
      y = np.eye(cases.NUM_CLASSES)[labels[start : start + 5]]
      logits = np.exp(x @ kernel + bias)
      error = (logits / logits.sum(axis=1, keepdims=True) - y) / 5
      kernel = kernel - cases.CLIENT_LEARNING_RATE * x.T @ error
      bias = bias - cases.CLIENT_LEARNING_RATE * error.sum(axis=0)
  step.run_round(client_ids)
  np.testing.assert_allclose(dense.kernel, kernel, rtol=1e-4, atol=1e-6)
  np.testing.assert_allclose(dense.bias, bias, rtol=1e-4, atol=1e-6)
