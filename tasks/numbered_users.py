"""Users who are numbers, with data that are drawn where they are needed.

Nothing is stored for a user, so ten million of them start as fast as a
thousand. Held-out images are of users who never train: their numbers come last.
"""

from collections.abc import Callable

import tensorflow as tf

from tff_fedemb.data import population
from tff_fedemb.spec import task as task_lib

_FIRST_HELD_OUT = 2**40
# Users whose images are counted at once.
_COUNTED = 500_000


def parse(client_id: tf.Tensor) -> tf.Tensor:
  """The users that a virtual client merges: int64 `[k]`."""
  names = tf.raw_ops.StringSplit(
    input=client_id[tf.newaxis], delimiter=population.SEPARATOR
  )
  return tf.strings.to_number(names.values, tf.int64)


def held_out(split: str, number: int) -> tf.Tensor:
  """The users who are kept for a split, of as many each: int64 `[number]`."""
  first = number * task_lib.EVALUATION_SPLITS.index(split)
  return tf.range(number, dtype=tf.int64) + (_FIRST_HELD_OUT + first)


def count_images(
  count: Callable[[tf.Tensor], tf.Tensor], num_users: int
) -> int:
  """Counts all images for training, where `count` counts those of users."""
  return sum(
    int(tf.reduce_sum(count(users)))
    for users in tf.data.Dataset.range(num_users).batch(_COUNTED)
  )
