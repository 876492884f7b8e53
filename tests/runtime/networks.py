"""Small networks for TFF's own algorithms."""

import collections

import tensorflow as tf
import tensorflow_federated as tff

NUM_FEATURES = 3


def create_model():
  """A network that has weights of both kinds, trainable or not."""
  inputs = tf.keras.Input([NUM_FEATURES])
  hidden = tf.keras.layers.Dense(
    4,
    activation="tanh",
    kernel_initializer=tf.keras.initializers.GlorotUniform(seed=1),
  )(inputs)
  hidden = tf.keras.layers.BatchNormalization()(hidden)
  outputs = tf.keras.layers.Dense(
    1, kernel_initializer=tf.keras.initializers.GlorotUniform(seed=2)
  )(hidden)
  return tff.learning.models.from_keras_model(
    tf.keras.Model(inputs, outputs),
    loss=tf.keras.losses.MeanSquaredError(),
    metrics=[tf.keras.metrics.MeanAbsoluteError()],
    input_spec=collections.OrderedDict(
      x=tf.TensorSpec([None, NUM_FEATURES]), y=tf.TensorSpec([None, 1])
    ),
  )


def create_reconstructed_model():
  """A network whose last layer is each client's own."""
  layers = [
    tf.keras.layers.Dense(
      width, kernel_initializer=tf.keras.initializers.GlorotUniform(seed=seed)
    )
    for seed, width in enumerate((4, 1))
  ]
  inputs = tf.keras.Input([NUM_FEATURES])
  return tff.learning.models.ReconstructionModel.from_keras_model_and_layers(
    keras_model=tf.keras.Model(inputs, layers[1](layers[0](inputs))),
    global_layers=layers[:1],
    local_layers=layers[1:],
    input_spec=create_model().input_spec,
  )
