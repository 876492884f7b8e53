"""A task: users with images, held-out classes, and a backbone.

As in TFF's baseline tasks, a task is validated when its data are read.
"""

from __future__ import annotations

import abc
from collections.abc import Callable, Mapping, Sequence
import dataclasses
import functools
import importlib
import importlib.util
from typing import Any, ClassVar

from etils import epy
import numpy as np

from tff_fedemb import checks
from tff_fedemb import config
from tff_fedemb import errors
from tff_fedemb import registry
from tff_fedemb.data import bad_examples as bad_examples_lib
from tff_fedemb.data import population

with epy.lazy_imports():
  import tensorflow as tf
  import tensorflow_federated as tff

  from tff_fedemb.algorithms import learning_process
  from tff_fedemb.data import encoded_images
  from tff_fedemb.data import pipelines
  from tff_fedemb.evaluation import embedding

EVALUATION_SPLITS = ("validation", "test")


def find_none(client_id: str) -> list[str]:
  """Finds no bad example, in data that are made up.

  Args:
    client_id: Identifier of a virtual client; unused.

  Returns:
    An empty list.
  """
  del client_id
  return []


def check_somebody_trains(selection_users: int, num_users: int) -> None:
  """Refuses to leave all users out of training.

  Args:
    selection_users: Number of users who do not train.
    num_users: Number of all users.

  Raises:
    errors.FieldError: If nobody would be left to train.
  """
  if selection_users >= num_users:
    raise errors.FieldError(
      "selection_users",
      f"be less than the number of users, {num_users:,}",
      selection_users,
    )


@dataclasses.dataclass(frozen=True)
class Task:
  """Data, classes and default backbone of a benchmark.

  Attributes:
    name: Name in the registry.
    user_meaning: Meaning of a user, in a few words: the unit of privacy.
    train_users: The users who may take part in training.
    create_client_dataset: Maps a virtual client's identifier (string scalar
      tensor) to its training data, batches `OrderedDict(x=uint8 [b, height,
      width, channels], y=int64 [b])`, or `x=string [b]` if there is a
      `decode_images`; in TensorFlow operations only.
    image_shape: Height, width and channels.
    num_train_classes: Training labels are in [0, num_train_classes).
    load_images: Maps a name in `EVALUATION_SPLITS` to all images of that split.
    split_description: Classes or users that are held out, in a sentence.
    count_images: Maps "train" or a name in `EVALUATION_SPLITS` to the number of
      its images, none of which is decoded.
    default_backbone: Name in the registry of backbones.
    one_class_per_user: Whether a user's images are all of one class, so that a
      client of a single user has nothing to tell apart.
    evaluation_on_training_users: Whether the held-out images, or those for test
      where others are for validation, are of the users who train, so that
      evaluations are outside the guarantee; true unless the task knows better.
    held_out_classes_are_new: Whether no training image is of a held-out class.
    validates_on_test: Whether the images for validation are those for test, so
      that a run chooses nothing by them unless it is asked to.
    decode_images: Maps encoded images, string `[b]`, to uint8 `[b, height,
      width, channels]`, in TensorFlow operations only; `None` if the client
      data sets hold images as they are.
    bad_examples: Examples that were left out when the task was created.
    find_bad_examples: Maps a virtual client's identifier to a line for each
      example of its users that cannot be used; asked when a client failed.
    warnings: Warnings about the data, a line each.
    class_names: Names of held-out classes by label; others go by their label.
    selection_users: Users who do not train, whose images are for validation; 0
      if the task has others for it.

  Raises:
    ValueError: If `image_shape` is not one to three positive numbers, or the
      client data sets have other tensors than described.
    errors.FieldError: If `num_train_classes` is not positive.

  Examples:
    >>> images = np.zeros([24, 8, 8, 1], np.uint8)
    >>> labels, users = np.arange(24) % 4, np.arange(24) // 3
    >>> task = fe.ArrayTask(images, labels, users, test=(images, labels))
    >>> isinstance(task.create(), fe.Task)
    True
  """

  name: str
  user_meaning: str
  train_users: population.Population
  create_client_dataset: Callable[[tf.Tensor], tf.data.Dataset]
  image_shape: tuple[int, ...]
  num_train_classes: int
  load_images: Callable[[str], embedding.LabelledImages]
  split_description: str
  count_images: Callable[[str], int]
  default_backbone: str = "lenet"
  one_class_per_user: bool = False
  evaluation_on_training_users: bool = True
  held_out_classes_are_new: bool = True
  validates_on_test: bool = False
  decode_images: encoded_images.ImageDecoder | None = None
  bad_examples: bad_examples_lib.BadExamples = dataclasses.field(
    default_factory=bad_examples_lib.BadExamples
  )
  find_bad_examples: Callable[[str], list[str]] = find_none
  warnings: tuple[str, ...] = ()
  class_names: Mapping[int, str] = dataclasses.field(default_factory=dict)
  selection_users: int = 0

  def __post_init__(self):
    if not 1 <= len(self.image_shape) <= 3 or min(self.image_shape) < 1:
      raise ValueError(
        "image_shape must be one to three positive numbers, found"
        f" {self.image_shape}."
      )
    checks.check_integer("num_train_classes", self.num_train_classes, minimum=1)
    with tf.Graph().as_default():
      client_id = tf.compat.v1.placeholder(tf.string, [])
      spec = self.create_client_dataset(client_id).element_spec
    images = tf.TensorSpec([None], tf.string)
    if self.decode_images is None:
      images = tf.TensorSpec([None, *self.image_shape], self._dtype)
    expected = {"x": images, "y": tf.TensorSpec([None], tf.int64)}
    if spec != expected:
      raise ValueError(
        f"create_client_dataset must yield {expected}, found {spec}."
      )

  def describe(self) -> list[str]:
    """Returns lines about the users, classes and images, and warnings.

    Returns:
      A line about users, classes and split, then a line for each warning.
    """
    warnings = list(self.warnings)
    if self.num_train_classes == 1:
      warnings.append(
        "all training images are of one class, which leaves nothing to learn"
      )
    users = f"{len(self.train_users):,} users ({self.user_meaning})"
    lines = [
      f"{self.name}: {users}, {self.num_train_classes:,} training classes;"
      f" {self.split_description}."
    ]
    return lines + [f"warning: {warning}" for warning in warnings]

  def leave_out(self, selection_users: int) -> Task:
    """Returns the task in which some users validate and do not train.

    Privacy:
      The guarantee covers a choice by the images for validation for the users
      who train, and for none of the others.

    Args:
      selection_users: Number of these users, less than all. Their images are
        those that they would train on, and are held in memory, encoded if that
        is how clients hold them.

    Returns:
      The task of the users who are left.

    Raises:
      errors.FieldError: If nobody would be left to train.
    """
    check_somebody_trains(selection_users, len(self.train_users))
    train_users, left_out = self.train_users.leave_out(selection_users)
    read = functools.cache(lambda: self._read_users(left_out))

    def load_images(split: str) -> embedding.LabelledImages:
      return read() if split == "validation" else self.load_images(split)

    def count_images(split: str) -> int:
      number = len(read().labels)
      if split == "validation":
        return number
      return self.count_images(split) - (number if split == "train" else 0)

    users = f"{selection_users:,} users who do not train"
    return dataclasses.replace(
      self,
      train_users=train_users,
      load_images=load_images,
      count_images=count_images,
      selection_users=selection_users,
      validates_on_test=False,
      split_description=(
        f"{self.split_description}; instead, for validation: images of {users}"
      ),
      warnings=(
        *self.warnings,
        f"{users} are for validation: no guarantee covers them",
      ),
    )

  def _read_users(self, user_ids: Sequence[str]) -> embedding.LabelledImages:
    """Images that some users would train on; decoded when indexed.

    Args:
      user_ids: Users, all of whose examples are read into memory.

    Returns:
      The images with their training labels.
    """
    users = tf.data.Dataset.from_tensor_slices(list(user_ids))
    create = tf.autograph.experimental.do_not_convert(
      self.create_client_dataset
    )
    found = pipelines.gather(users.flat_map(create))
    images, labels = found["x"].numpy(), found["y"].numpy()
    if self.decode_images is not None:
      encoded = images
      images = encoded_images.EncodedImages(
        lambda rows: encoded[rows],
        lambda row: f"training image {row} of the users for validation",
        len(labels),
        self.image_shape,
      )
    return embedding.LabelledImages(images, labels)

  @property
  def validates_on_others(self) -> bool:
    """Whether no image for validation is of a user who trains."""
    return bool(self.selection_users) or not self.evaluation_on_training_users

  @property
  def has_images(self) -> bool:
    """Whether examples are images, rather than vectors or sequences."""
    return pipelines.is_image(self.image_shape)

  @property
  def _dtype(self) -> tf.DType:
    """Type of the examples' numbers: uint8 for images, else float32."""
    return tf.as_dtype(pipelines.dtype_of(self.image_shape))

  @property
  def example_type(self) -> tff.types.SequenceType:
    """Type of a client's data set, for the algorithms."""
    if self.decode_images is None:
      return learning_process.build_example_type(self.image_shape, self._dtype)
    return learning_process.build_example_type((), tf.string)

  def build_dataset_computation(
    self, max_examples_per_client: int = 0
  ) -> tff.Computation:
    """Builds the computation from a virtual client's identifier to its data.

    Args:
      max_examples_per_client: Maximum number of examples of a client, whose
        users come in turn; 0 for all.

    Returns:
      A TFF computation from a string to a data set of batches.
    """
    create = self.find_client_dataset(max_examples_per_client)
    return tff.tensorflow.computation(create, tff.types.TensorType(np.str_))

  def find_client_dataset(
    self, max_examples_per_client: int = 0
  ) -> Callable[[tf.Tensor], tf.data.Dataset]:
    """Returns the same as a function of TensorFlow.

    Args:
      max_examples_per_client: As in `build_dataset_computation`.

    Returns:
      A function from a string tensor `[]` to a data set of batches.
    """
    options = pipelines.build_options()
    create = self.create_client_dataset
    if max_examples_per_client:
      create = functools.partial(pipelines.interleave_users, create)
    return lambda client_id: create(client_id).with_options(options)


@dataclasses.dataclass(frozen=True)
class TaskSource(config.Config, abc.ABC):
  """The source of a task: what a run names, and its JSON keeps.

  Attributes:
    chooses_settings: Whether a program chooses the settings that its user does
      not give, by counting users and classes.

  Examples:
    >>> isinstance(fe.create_task("emnist", data_dir="data"), fe.TaskSource)
    True
  """

  chooses_settings: ClassVar[bool] = False

  @property
  def num_train_users(self) -> int | None:
    """Number of users who train, if it is known before the data are read.

    `plan` accounts with it, without reading the data; None if it is unknown.
    """
    return None

  @property
  def skips_bad_examples(self) -> bool:
    """Whether examples that cannot be used are left out and counted."""
    return False

  @abc.abstractmethod
  def create(self) -> Task:
    """Reads the data and creates the task.

    Returns:
      The task, validated.

    Raises:
      errors.FieldError: If a value is unknown, or the data are missing.
      errors.DataError: If the data are damaged, and are not to be skipped.
    """


# Tasks of other packages register themselves here when they are imported.
SOURCES: registry.Registry[TaskSource] = registry.Registry(
  TaskSource, {}, kind="task"
)
# The package `tasks` is above this one: `load_tasks` imports it when needed.
_TASKS = "tasks.registry"


def create_task(name: str, **fields: Any) -> TaskSource:
  """Creates a task by name, for a `RunSpec`; no data are read yet.

  Args:
    name: Name of a task that comes along, such as "emnist", or `module:Class`.
    **fields: Fields of the task, for example `data_dir`.

  Returns:
    The source of the task; its `create` reads the data.

  Raises:
    errors.FieldError: If there is no such task or field, or a value is out of
      its range.

  Examples:
    >>> fe.create_task("handwriting", num_users=100).num_users
    100
  """
  load_tasks()
  return SOURCES.create(name, **fields)


def load_tasks() -> None:
  """Registers the tasks that come along, if they are installed.

  A program that uses the library without the package `tasks` has its own tasks
  alone.
  """
  if importlib.util.find_spec(_TASKS.partition(".")[0]) is not None:
    importlib.import_module(_TASKS)


@dataclasses.dataclass(frozen=True)
class RecordedTask(TaskSource):
  """Record of a task whose data lived in a program that has ended.

  Attributes:
    values: JSON values of the task, its kind included.
  """

  values: Any = None

  def to_json(self) -> dict[str, Any]:
    """The values as they were found.

    Returns:
      A copy of `values`.
    """
    return dict(self.values)

  def create(self) -> Task:
    """Refuses: nobody can make data of their digest.

    Raises:
      errors.FieldError: Always; give the arrays to `RunSpec.from_json`.
    """
    raise errors.FieldError(
      "task", "be given as arrays, which no file of a run has", "their digest"
    )
