"""DP-FedEmb on a case: its model, its data and its learning process."""

import collections

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from benchmarks import cases
from tasks import task as task_lib
from tff_fedemb.aggregators import mechanism
from tff_fedemb.aggregators import registry
from tff_fedemb.algorithms import composition
from tff_fedemb.algorithms import fedemb
from tff_fedemb.algorithms import local_training
from tff_fedemb.data import pipelines
from tff_fedemb.models import backbones
from tff_fedemb.models import heads

NUM_CLASSES = 36
EMBEDDING_DIM = 128
CLIENT_LEARNING_RATE = 0.05
HEAD_LR_SCALE = 10.0
SERVER_LEARNING_RATE = 1.0
SERVER_MOMENTUM = 0.9
CLIP_NORM = 1.0
NOISE_MULTIPLIER = 0.1


def create_backbone(case: cases.Case) -> tf.keras.Model:
  """Creates the Keras model from images to `[batch, EMBEDDING_DIM]`."""
  if case.backbone != cases.DENSE:
    return backbones.create_backbone(
      case.backbone, case.image_shape, embedding_dim=EMBEDDING_DIM
    )
  layers = tf.keras.layers
  return tf.keras.Sequential(
    [
      layers.InputLayer(input_shape=case.image_shape),
      layers.Rescaling(1.0 / 255.0),
      layers.Flatten(),
      *(layers.Dense(2048, activation="relu") for _ in range(6)),
      layers.Dense(1024, activation="relu"),
      layers.Dense(EMBEDDING_DIM),
    ]
  )


def create_examples(
  client_id: tf.Tensor, case: cases.Case
) -> tuple[tf.Tensor, tf.Tensor]:
  """Makes a client's data: the same random images for the same id.

  Args:
    client_id: A number as a string, scalar.
    case: How many.

  Returns:
    Images `[n, height, width, channels]` uint8 and labels `[n]` int64.
  """
  num_examples = case.steps * case.batch_size
  seed = tf.stack([tf.strings.to_number(client_id, tf.int64), tf.int64.max])
  images = tf.random.stateless_uniform(
    [num_examples, *case.image_shape], seed, 0, 256, tf.int32
  )
  labels = tf.random.stateless_uniform(
    [num_examples], seed, 0, NUM_CLASSES, tf.int64
  )
  return tf.cast(images, tf.uint8), labels


def _create_aggregator(
  case: cases.Case,
) -> tff.aggregators.UnweightedAggregationFactory:
  config = registry.AGGREGATORS[case.aggregator](
    clients_per_round=case.num_clients,
    clip_norm=CLIP_NORM,
    noise_multiplier=NOISE_MULTIPLIER,
  )
  # What a BLT matrix is optimised for; its work is the same for any.
  schedule = mechanism.Schedule(rounds=100, min_separation=10)
  return config.create(schedule).factory


def build_process(
  case: cases.Case, task: task_lib.Task | None = None
) -> tff.learning.templates.LearningProcess:
  """Builds DP-FedEmb on a case, from client ids.

  Args:
    case: What is measured.
    task: The photos that it is trained on, if there are any.

  Returns:
    The process.
  """
  process = fedemb.build_fedemb(
    lambda: create_backbone(case),
    heads.LinearHead(),
    example_type=(
      task.example_type
      if task
      else composition.build_example_type(case.image_shape)
    ),
    aggregator=_create_aggregator(case),
    server_optimizer=tff.learning.optimizers.build_sgdm(
      SERVER_LEARNING_RATE, SERVER_MOMENTUM
    ),
    config=local_training.LocalTrainingConfig(
      client_learning_rate=CLIENT_LEARNING_RATE,
      head_lr_scale=HEAD_LR_SCALE,
      batch_size=case.batch_size,
      decode_images=task.decode_images if task else None,
    ),
  )

  @tff.tensorflow.computation(np.str_)
  def random_data(client_id):
    images, labels = create_examples(client_id, case)
    return tf.data.Dataset.from_tensors(
      collections.OrderedDict(x=images, y=labels)
    ).with_options(pipelines.build_options())

  return tff.simulation.compose_dataset_computation_with_learning_process(
    task.build_dataset_computation() if task else random_data, process
  )
