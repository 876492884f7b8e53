"""Users who are numbers, with data that are drawn where they are needed.

Nothing is stored for a user, so ten million of them start as fast as a
thousand. Held-out images are of users who never train: their numbers come last.
"""

import collections
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from tasks import task_config
from tff_fedemb.data import population
from tff_fedemb.spec import task as task_lib

_FIRST_HELD_OUT = 2**40
# Users whose images are counted at once.
_COUNTED = 500_000

# Maps users, int64 `[k]`, to the numbers of their images, int32 `[k]`.
_Count = Callable[[tf.Tensor], tf.Tensor]
# Maps users and these numbers to images `[n, ...]` and labels, int64 `[n]`.
_Draw = Callable[[tf.Tensor, tf.Tensor], tuple[tf.Tensor, tf.Tensor]]


def _parse(client_id: tf.Tensor) -> tf.Tensor:
  """Returns the users that a virtual client merges, int64 `[k]`.

  Args:
    client_id: Identifier of the virtual client, string `[]`.
  """
  names = tf.raw_ops.StringSplit(
    input=client_id[tf.newaxis], delimiter=population.SEPARATOR
  )
  return tf.strings.to_number(names.values, tf.int64)


def held_out(split: str, number: int) -> tf.Tensor:
  """Returns the users who are kept for a split and never train.

  Their numbers begin at 2 ** 40, after those of any population.

  Args:
    split: One of `task.EVALUATION_SPLITS`.
    number: Number of users of each split.

  Returns:
    Their numbers, int64 `[number]`.
  """
  first = number * task_lib.EVALUATION_SPLITS.index(split)
  return tf.range(number, dtype=tf.int64) + (_FIRST_HELD_OUT + first)


def create_task(
  config: task_config.PopulationConfig,
  *,
  count: _Count,
  draw: _Draw,
  num_held_out: int,
  **facts: Any,
) -> task_lib.Task:
  """Creates a task whose images are drawn in the client's own computation.

  Args:
    config: The size of the population, and the maximum number of images.
    count: Counts the images of users, with TensorFlow operations only.
    draw: Draws so many images of users, user by user, with TensorFlow
      operations only.
    num_held_out: Number of images of each held-out split.
    **facts: Other fields of the task.

  Returns:
    The task. Evaluations are not of users who train. Images to train on are
    counted by `count`, without drawing them.
  """

  def count_images_of(users: tf.Tensor) -> tf.Tensor:
    return tf.minimum(count(users), config.max_images_per_user)

  def create_client_dataset(client_id: tf.Tensor) -> tf.data.Dataset:
    # Pinned to the CPU: a GPU rounds differently, and the work is small.
    with tf.device("/CPU:0"):
      users = _parse(client_id)
      images, labels = draw(users, count_images_of(users))
    # Batches are of unknown size to TensorFlow, as in other tasks.
    return tf.data.Dataset.from_tensors(
      collections.OrderedDict(x=images, y=labels)
    )

  def count_images(split: str) -> int:
    if split != "train":
      return num_held_out
    number = 0
    for users in tf.data.Dataset.range(config.num_users).batch(_COUNTED):
      number += int(tf.reduce_sum(count_images_of(users)))
    return number

  return task_lib.Task(
    train_users=population.Population(config.num_users),
    create_client_dataset=create_client_dataset,
    count_images=count_images,
    evaluation_on_training_users=False,
    **facts,
  )
