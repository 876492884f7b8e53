"""What is measured: client work of a given size, and how it is aggregated."""

import collections
from collections.abc import Callable
from collections.abc import Mapping
import dataclasses
import functools
import types

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from benchmarks import photos as photos_lib
from benchmarks import training_groups
from tasks import task as task_lib
from tff_fedemb.aggregators import mechanism
from tff_fedemb.aggregators import registry
from tff_fedemb.algorithms import composition
from tff_fedemb.algorithms import fedemb
from tff_fedemb.algorithms import local_training
from tff_fedemb.data import pipelines
from tff_fedemb.models import backbones
from tff_fedemb.models import heads
from tff_fedemb.models import lenet

NUM_CLASSES = 36
EMBEDDING_DIM = 128
CLIENT_LEARNING_RATE = 0.05
HEAD_LR_SCALE = 10.0
SERVER_LEARNING_RATE = 1.0
SERVER_MOMENTUM = 0.9
CLIP_NORM = 1.0
NOISE_MULTIPLIER = 0.1


def create_dense_25m(image_shape: tuple[int, int, int]) -> tf.keras.Model:
  """Creates a backbone of 25 million parameters whose step is cheap.

  What is left is what a framework does with the weights, which is what the
  cases with this model are to show.

  Args:
    image_shape: Height, width and channels of an image.

  Returns:
    A Keras model from images to embeddings `[batch, EMBEDDING_DIM]`.
  """
  layers = tf.keras.layers
  hidden = [layers.Dense(2048, activation="relu") for _ in range(6)]
  return tf.keras.Sequential(
    [
      layers.InputLayer(input_shape=image_shape),
      layers.Rescaling(1.0 / 255.0),
      layers.Flatten(),
      *hidden,
      layers.Dense(1024, activation="relu"),
      layers.Dense(EMBEDDING_DIM),
    ]
  )


@dataclasses.dataclass(frozen=True)
class Case:
  """Work of one size.

  Attributes:
    num_clients: Clients of a round.
    steps: Batches that each client trains on.
    batch_size: Images of a batch.
    create_backbone: Makes the backbone from the shape of an image.
    aggregator: Its name in the registry.
    image_shape: Height, width and channels of what the backbone is given.
    photos: What clients read from files; `None` for random pixels, which are
      made where they are used.
  """

  num_clients: int
  steps: int
  batch_size: int
  create_backbone: Callable[[tuple[int, int, int]], tf.keras.Model] = (
    lenet.create_lenet
  )
  aggregator: str = "gaussian"
  image_shape: tuple[int, int, int] = (28, 28, 1)
  photos: photos_lib.Photos | None = None

  def client_ids(self, round_num: int) -> list[str]:
    """The clients of a round, other ones than of the round before."""
    first = round_num * self.num_clients
    numbers = list(range(first, first + self.num_clients))
    if self.photos is not None:
      numbers = [number % self.photos.num_users for number in numbers]
    return [str(number) for number in numbers]

  def create_task(self, directory: str) -> task_lib.Task | None:
    """Writes the photos, if there are any, and creates the task on them."""
    if self.photos is None:
      return None
    return photos_lib.create_task(
      directory,
      self.photos,
      images_per_user=self.steps * self.batch_size,
      num_classes=NUM_CLASSES,
      side=self.image_shape[0],
    )


def _backbone(name: str) -> Callable[[tuple[int, int, int]], tf.keras.Model]:
  return functools.partial(
    backbones.create_backbone, name, embedding_dim=EMBEDDING_DIM
  )


def _photo_case(*, is_decoded: bool) -> Case:
  # Two rounds' users of photos as large as the smaller ones of Google
  # Landmarks.
  photos = photos_lib.Photos(8, (450, 600), is_decoded=is_decoded)
  return Case(
    4,
    2,
    16,
    _backbone("mobilenet_v2"),
    image_shape=(224, 224, 3),
    photos=photos,
  )


CASES: Mapping[str, Case] = types.MappingProxyType(
  {
    "lenet_10x20x20": Case(10, 20, 20),
    "lenet_50x10x16": Case(50, 10, 16),
    "dense25m_4x1x16_gaussian": Case(4, 1, 16, create_dense_25m),
    "dense25m_4x1x16_tree": Case(4, 1, 16, create_dense_25m, "tree"),
    "dense25m_4x1x16_blt": Case(4, 1, 16, create_dense_25m, "blt"),
    **{
      f"lenet_{num_clients}x2x16_growth": Case(num_clients, 2, 16)
      for num_clients in training_groups.GROWTH_CLIENTS
    },
    "resnet50_4x2x16_112": Case(
      4, 2, 16, _backbone("resnet50"), image_shape=(112, 112, 3)
    ),
    "mobilenet_v2_4x2x16_224": Case(
      4, 2, 16, _backbone("mobilenet_v2"), image_shape=(224, 224, 3)
    ),
    "mobilenet_v2_gld_encoded": _photo_case(is_decoded=False),
    "mobilenet_v2_gld_decoded": _photo_case(is_decoded=True),
    training_groups.LONG_RUN: Case(
      4,
      1,
      8,
      _backbone("mobilenet_v2_small"),
      image_shape=(32, 32, 3),
      photos=photos_lib.Photos(40, (60, 80)),
    ),
  }
)


def create_examples(
  client_id: tf.Tensor, case: Case
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


def _create_dataset(client_id: tf.Tensor, case: Case) -> tf.data.Dataset:
  images, labels = create_examples(client_id, case)
  return tf.data.Dataset.from_tensors(
    collections.OrderedDict(x=images, y=labels)
  ).with_options(pipelines.build_options())


def _create_aggregator(
  case: Case,
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
  case: Case, task: task_lib.Task | None = None
) -> tff.learning.templates.LearningProcess:
  """Builds DP-FedEmb on a case, from client ids.

  Args:
    case: What is measured.
    task: What its `create_task` returned.

  Returns:
    The process.
  """
  process = fedemb.build_fedemb(
    lambda: case.create_backbone(case.image_shape),
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
    return _create_dataset(client_id, case)

  return tff.simulation.compose_dataset_computation_with_learning_process(
    task.build_dataset_computation() if task else random_data, process
  )
