"""What a task is: users with images, held-out classes, and a backbone.

Validated when it is built, in the manner of TFF's baseline tasks.
"""

from collections.abc import Callable
import dataclasses
import os

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from tff_fedemb.algorithms import composition
from tff_fedemb.data import pipelines
from tff_fedemb.data import population
from tff_fedemb.evaluation import embedding

EVALUATION_SPLITS = ("validation", "test")


@dataclasses.dataclass(frozen=True)
class Task:
  """Data, classes and default backbone of a benchmark.

  Attributes:
    name: Name in the registry.
    user_meaning: What a user is, in a few words: the unit of privacy.
    train_users: The users who may take part in training.
    create_client_dataset: From a virtual client's identifier (string scalar
      tensor) to its training data, batches `OrderedDict(x=uint8 [b, height,
      width, channels], y=int64 [b])`, in TensorFlow operations only.
    image_shape: Height, width and channels.
    num_train_classes: Training labels are in [0, num_train_classes).
    load_images: From a name in `EVALUATION_SPLITS` to all images of that
      split; their classes are none of the training classes.
    split_description: Which classes or users are held out, in a sentence.
    default_backbone: Name in the registry of backbones.
    one_class_per_user: Whether a user's images are all of one class, so that a
      client of a single user has nothing to tell apart.
    evaluation_on_training_users: Whether the held-out images are of the users
      who train, so that evaluations are outside the guarantee; true unless
      the task knows better.
  """

  name: str
  user_meaning: str
  train_users: population.Population
  create_client_dataset: Callable[[tf.Tensor], tf.data.Dataset]
  image_shape: tuple[int, int, int]
  num_train_classes: int
  load_images: Callable[[str], embedding.LabelledImages]
  split_description: str
  default_backbone: str = "lenet"
  one_class_per_user: bool = False
  evaluation_on_training_users: bool = True

  def __post_init__(self):
    if len(self.image_shape) != 3 or min(self.image_shape) < 1:
      raise ValueError(
          "image_shape must be three positive numbers, found"
          f" {self.image_shape}."
      )
    if self.num_train_classes < 1:
      raise ValueError(
          "num_train_classes must be at least 1, found"
          f" {self.num_train_classes}."
      )
    with tf.Graph().as_default():
      spec = self.create_client_dataset(
          tf.compat.v1.placeholder(tf.string, [])
      ).element_spec
    expected = {
        "x": tf.TensorSpec([None, *self.image_shape], tf.uint8),
        "y": tf.TensorSpec([None], tf.int64),
    }
    if spec != expected:
      raise ValueError(
          f"create_client_dataset must yield {expected}, found {spec}."
      )

  @property
  def example_type(self) -> tff.types.SequenceType:
    """Type of a client's data set, for the algorithms."""
    return composition.build_example_type(self.image_shape)

  def build_dataset_computation(self) -> tff.Computation:
    """Builds the computation from a virtual client's identifier to its data."""

    options = pipelines.build_options()

    @tff.tensorflow.computation(tff.types.TensorType(np.str_))
    def client_dataset(client_id):
      return self.create_client_dataset(client_id).with_options(options)

    return client_dataset


@dataclasses.dataclass(frozen=True)
class TaskConfig:
  """Where a task finds its data.

  Attributes:
    data_dir: Where the data are, or `None` for the publisher's default.
    cache_dir: Where converted copies of the data may be kept.
  """

  data_dir: str | None = None
  cache_dir: str | None = None


def default_cache_dir() -> str:
  """Where converted copies of data sets are kept unless told otherwise."""
  base = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
  return os.path.join(base, "tff_fedemb")
