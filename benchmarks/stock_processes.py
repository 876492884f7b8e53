"""Federated averaging as TFF has it, of models that its tutorials train.

Nothing here is this project's: models, data sets and algorithm are what a user
of TFF brings along. The data are random numbers that a client's id draws.
"""

import collections

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from benchmarks import cases

CLIENT_LEARNING_RATE = 0.05
_NUM_FEATURES = 13
_NUM_PIXELS = 28 * 28
_NUM_DIGITS = 10
_EPOCHS = 5
_NUM_WORDS = 1000
_SENTENCE_LENGTH = 20
_INPUT_SPECS = {
  cases.LINEAR: collections.OrderedDict(
    x=tf.TensorSpec([None, _NUM_FEATURES]), y=tf.TensorSpec([None, 1])
  ),
  cases.SOFTMAX: collections.OrderedDict(
    x=tf.TensorSpec([None, _NUM_PIXELS]), y=tf.TensorSpec([None, 1], tf.int32)
  ),
  cases.GRU: collections.OrderedDict(
    x=tf.TensorSpec([None, _SENTENCE_LENGTH], tf.int32),
    y=tf.TensorSpec([None, _SENTENCE_LENGTH], tf.int32),
  ),
}


def create_rows(number: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
  """Makes the three to six rows of a client for linear regression.

  Args:
    number: The client, scalar int32.

  Returns:
    Features `[n, 13]` and targets `[n, 1]`, float32.
  """
  rows = tf.random.stateless_normal([6, _NUM_FEATURES], [number, 0])
  x = rows[: 3 + number % 4]
  return x, tf.reduce_sum(x, axis=1, keepdims=True)


def _create_digits(number: tf.Tensor, num_images: int) -> tf.data.Dataset:
  def flatten(example):
    return collections.OrderedDict(
      x=tf.reshape(example["pixels"], [-1, _NUM_PIXELS]),
      y=tf.reshape(example["label"], [-1, 1]),
    )

  images = tf.random.stateless_uniform([num_images, 28, 28], [number, 0])
  labels = tf.random.stateless_uniform(
    [num_images], [number, 1], 0, _NUM_DIGITS, tf.int32
  )
  dataset = tf.data.Dataset.from_tensor_slices(
    collections.OrderedDict(pixels=images, label=labels)
  )
  return dataset.repeat(_EPOCHS).shuffle(100, seed=1).batch(20).map(flatten)


def _create_sentences(number: tf.Tensor, case: cases.Case) -> tf.data.Dataset:
  def split(words):
    return collections.OrderedDict(x=words[:, :-1], y=words[:, 1:])

  num_sentences = case.steps * case.batch_size
  words = tf.random.stateless_uniform(
    [num_sentences, _SENTENCE_LENGTH + 1], [number, 0], 0, _NUM_WORDS, tf.int32
  )
  dataset = tf.data.Dataset.from_tensor_slices(words).shuffle(100, seed=1)
  return dataset.batch(case.batch_size).map(split)


def _create_dataset(number: tf.Tensor, case: cases.Case) -> tf.data.Dataset:
  if case.backbone == cases.LINEAR:
    examples = collections.OrderedDict(
      zip("xy", create_rows(number), strict=True)
    )
    return tf.data.Dataset.from_tensor_slices(examples).batch(case.batch_size)
  if case.backbone == cases.SOFTMAX:
    return _create_digits(number, case.steps * case.batch_size // _EPOCHS)
  return _create_sentences(number, case)


def _create_model(name: str) -> tff.learning.models.VariableModel:
  keras = tf.keras.layers
  losses = tf.keras.losses
  layers: list[tf.keras.layers.Layer]
  if name == cases.LINEAR:
    layers = [keras.Dense(1, kernel_initializer="zeros")]
    loss, metric = losses.MeanSquaredError(), tf.keras.metrics.MeanSquaredError
  else:
    loss = losses.SparseCategoricalCrossentropy(from_logits=True)
    metric = tf.keras.metrics.SparseCategoricalAccuracy
    layers = [keras.Dense(_NUM_DIGITS, kernel_initializer="zeros")]
  if name == cases.GRU:
    layers = [
      keras.Embedding(_NUM_WORDS, 32),
      keras.GRU(64, return_sequences=True),
      keras.Dense(_NUM_WORDS),
    ]
  spec = _INPUT_SPECS[name]
  inputs = keras.InputLayer(spec["x"].shape[1:], dtype=spec["x"].dtype)
  return tff.learning.models.from_keras_model(
    tf.keras.Sequential([inputs, *layers]), loss, spec, metrics=[metric()]
  )


def build_process(case: cases.Case) -> tff.learning.templates.LearningProcess:
  """Builds weighted federated averaging, from client ids.

  Args:
    case: Its backbone is one of `cases.STOCK`.
  """

  @tff.tensorflow.computation(np.str_)
  def create_dataset(client_id):
    return _create_dataset(tf.strings.to_number(client_id, tf.int32), case)

  return tff.simulation.compose_dataset_computation_with_learning_process(
    create_dataset,
    tff.learning.algorithms.build_weighted_fed_avg(
      lambda: _create_model(case.backbone),
      tff.learning.optimizers.build_sgdm(CLIENT_LEARNING_RATE),
    ),
  )
