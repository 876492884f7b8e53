"""Backbones, data and processes for tests of algorithms and runtimes."""

import collections
import functools

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from tff_fedemb import runtime as runtimes
from tff_fedemb.algorithms import fedemb
from tff_fedemb.algorithms import learning_process
from tff_fedemb.algorithms import local_training
from tff_fedemb.algorithms import server_optimizers
from tff_fedemb.mechanisms import registry
from tff_fedemb.models import heads


def create_backbone(image_shape, dim=3, *, scale=1.0 / 255.0, use_bias=True):
  """A dense layer on scaled pixels, the same in every call."""
  return tf.keras.Sequential(
    [
      tf.keras.layers.InputLayer(input_shape=tuple(image_shape)),
      tf.keras.layers.Rescaling(scale),
      tf.keras.layers.Flatten(),
      tf.keras.layers.Dense(
        dim,
        use_bias=use_bias,
        kernel_initializer=tf.keras.initializers.GlorotUniform(seed=1),
        name="embedding",
      ),
    ]
  )


def create_aggregator(name, *, clients_per_round, **options):
  """TFF's factory of an aggregator of ours."""
  config = registry.AGGREGATORS[name](**options)
  return config.create(clients_per_round).factory


def build_process(
  shape, *, config=None, algorithm=fedemb.FedEmb, head=None, **options
):
  """A process with a linear head and half of the server's usual step.

  Args:
    shape: Shape of the images.
    config: Local training as it is asked for; `training` is the resolved one.
    algorithm: Class of the algorithm.
    head: In place of a linear one.
    **options: Options of `build`, or instead of what is said above.
  """
  local = config or local_training.LocalTraining()
  return algorithm(head=head or heads.LinearHead(), local=local).build(
    **{
      "create_backbone_fn": functools.partial(create_backbone, shape),
      "example_type": learning_process.build_example_type(shape),
      "server_optimizer": server_optimizers.SgdMomentum(
        learning_rate=0.5
      ).build(),
      **options,
    }
  )


def build_client_update(shape, **options):
  """Builds a function of weights, data set and round to a `ClientUpdate`.

  It runs without the process around it, which TFF takes a second to compile.

  Args:
    shape: Shape of the images.
    **options: As in `build_process`.
  """
  with pytest.MonkeyPatch.context() as patch:
    patch.setattr(
      learning_process, "build_learning_process", lambda _, update, **__: update
    )
    update = build_process(shape, aggregator=None, **options)

  def train(weights, dataset, round_num, non_trainable=()):
    parts = (tuple(map(tf.constant, w)) for w in (weights, non_trainable))
    return update(
      tff.learning.models.ModelWeights(*parts),
      dataset,
      tf.constant(round_num),
    )

  return train


def create_dataset(images, labels):
  """Examples as the learning processes take them, one by one."""
  return tf.data.Dataset.from_tensor_slices(
    collections.OrderedDict(x=images, y=labels)
  )


def draw_images(seed, shape):
  """Random images, uint8."""
  return tf.cast(
    tf.random.stateless_uniform(shape, seed, 0, 256, tf.int32), tf.uint8
  )


def create_examples(client_id, shape, number, num_classes):
  """Random images and labels of a client that is called a number."""
  seed = tf.stack([tf.strings.to_number(client_id, tf.int64), 7])
  labels = tf.random.stateless_uniform([number], seed, 0, num_classes, tf.int64)
  return draw_images(seed, [number, *shape]), labels


def compose(dataset_fn, process):
  """The process on client ids, which a function makes data sets of."""

  @tff.tensorflow.computation(np.str_)
  def dataset(client_id):
    return dataset_fn(client_id)

  return tff.simulation.compose_dataset_computation_with_learning_process(
    dataset, process
  )


def run_round(process, client_ids):
  """Returns trainable weights before and after a round, and its metrics."""
  with runtimes.create_runtime() as runtime:
    start = runtime.initialize(process)
    end, metrics = runtime.next(start, client_ids)
    before, after = (
      runtime.structured_state(state).global_model_weights.trainable
      for state in (start, end)
    )
  return before, after, metrics
