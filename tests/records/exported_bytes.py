"""Networks whose layers have no names, and the bytes of their exports.

As a program it exports one of them, after it has built some others.
"""

import os
import pathlib
import sys

import numpy as np
import tensorflow as tf

from tff_fedemb.models import blocks
from tff_fedemb.records import export


def _set_weights(backbone: tf.keras.Model) -> tf.keras.Model:
  generator = np.random.default_rng(0)
  weights = []
  for weight in backbone.get_weights():
    weights.append(0.1 * np.abs(generator.normal(size=weight.shape)))
  backbone.set_weights(weights)
  return backbone


def create_small() -> tf.keras.Model:
  """Creates a network with the same weights each time."""
  keras = tf.keras.layers
  return _set_weights(
    tf.keras.Sequential(
      [
        keras.InputLayer(input_shape=(8, 8, 1)),
        keras.Conv2D(8, 3),
        blocks.GroupNormalization(2),
        keras.Conv2D(8, 3, activation="relu"),
        keras.MaxPool2D(2),
        keras.Flatten(),
        keras.Dense(4),
        keras.Dense(3, name="embedding"),
      ]
    )
  )


class _Loop(tf.keras.layers.Layer):
  """A layer with a function, a loop, a branch and a custom gradient."""

  def __init__(self, **options):
    super().__init__(**options)
    self._inner = tf.keras.layers.Dense(5)

  @tf.function
  def call(self, inputs):
    @tf.custom_gradient
    def double(x):
      return 2.0 * x, lambda upstream: 2.0 * upstream * x

    outputs = double(self._inner(inputs))
    if tf.reduce_sum(outputs) > 0:
      outputs += 1.0
    for _ in tf.range(2):
      outputs *= 1.5
    return outputs


def create_odd() -> tf.keras.Model:
  """Creates a network of everything that TensorFlow names in an odd way."""
  keras = tf.keras.layers
  images = tf.keras.Input((8, 8, 1))
  x = keras.BatchNormalization()(keras.Conv2D(4, 3)(images))
  x = x / 255.0 + tf.reduce_mean(x, axis=[1, 2], keepdims=True)
  x = keras.Dropout(0.5)(keras.SeparableConv2D(3, 3)(x))
  # Recurrent layers have a random name.
  x = keras.GRU(6, return_sequences=True)(keras.Reshape((-1, 3))(x))
  x = _Loop()(keras.Bidirectional(keras.LSTM(6))(x))
  return _set_weights(
    tf.keras.Model(images, keras.Dense(7, name="embedding")(x))
  )


def read(path: str | os.PathLike[str]) -> dict[str, bytes]:
  """Returns the contents of all files of a directory, by their names in it."""
  contents = {}
  for file in sorted(pathlib.Path(path).rglob("*")):
    if file.is_file():
      contents[file.relative_to(path).as_posix()] = file.read_bytes()
  return contents


if __name__ == "__main__":
  for _ in range(int(sys.argv[2])):
    create_small()
    create_odd()
  export.export_backbone(create_odd(), sys.argv[1])
