"""Parts of clients' input pipelines, in TensorFlow operations.

A pipeline is built inside each client's computation, from the identifier of its
virtual client alone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from etils import epy
import numpy as np

from tff_fedemb.data import population

with epy.lazy_imports():
  import tensorflow as tf

# Number of users whose files are open at once.
_OPEN_USERS = 64
_READING_BATCH = 64


def is_image(shape: Sequence[int]) -> bool:
  """Whether examples of a shape are images: those with three axes.

  Args:
    shape: `[height, width, channels]` of an image, `[size]` of a vector,
      `[time, channels]` of a sequence.
  """
  return len(shape) == 3


def dtype_of(shape: Sequence[int]) -> np.dtype:
  """Type of examples of a shape: uint8 for images, float32 for others.

  Args:
    shape: See `is_image`.
  """
  return np.dtype("uint8" if is_image(shape) else "float32")


def build_options() -> tf.data.Options:
  """Builds the options of a pipeline that lives for one client.

  Tuning and rewriting such a short-lived pipeline costs more than it gains.

  Returns:
    Options without autotuning and without default rewrites.
  """
  options = tf.data.Options()
  options.autotune.enabled = False
  options.experimental_optimization.apply_default_optimizations = False
  return options


def interleave_users(
  create_dataset: Callable[[tf.Tensor], tf.data.Dataset],
  client_id: tf.Tensor,
) -> tf.data.Dataset:
  """Reads an example of each user of a virtual client in turn.

  This takes longer than reading user by user, and is for clients that use only
  some of their examples. With more than 64 users, a further user begins when an
  earlier one has no example left.

  Args:
    create_dataset: Maps a virtual client's identifier to batches of examples.
    client_id: String scalar; the order of its users is drawn from it.

  Returns:
    Batches of up to 64 examples, nested as those of `create_dataset`.
  """
  users = tf.strings.split(client_id, population.SEPARATOR)
  seed = tf.strings.to_hash_bucket_fast(client_id, tf.int64.max)
  users = tf.random.experimental.stateless_shuffle(users, [seed, 0])

  @tf.autograph.experimental.do_not_convert
  def read_user(user: tf.Tensor) -> tf.data.Dataset:
    return create_dataset(user).unbatch()

  examples = tf.data.Dataset.from_tensor_slices(users).interleave(
    read_user, cycle_length=_OPEN_USERS, num_parallel_calls=None
  )
  return examples.batch(_READING_BATCH)


def gather(dataset: tf.data.Dataset, *, max_elements: int = 0) -> Any:
  """Reads a data set to its end, with TensorFlow operations only.

  It does not use `reduce`, and a pipeline should avoid `map`: TensorFlow
  prepares their functions anew for every client, which takes as long as a step
  of training.

  Args:
    dataset: Batches of any structure of tensors, `[b, ...]`.
    max_elements: Largest number of elements; later ones are left out. 0 for
      all.

  Returns:
    One batch `[n, ...]` of the elements, nested as those of the data set; of
    size 0 if there are none.
  """
  spec = dataset.element_spec
  none = tf.nest.map_structure(
    lambda s: tf.zeros([0] + s.shape[1:], s.dtype), spec
  )
  # More elements than fit into memory, but TensorFlow can still multiply it.
  batches = dataset.rebatch(max_elements or tf.int32.max)
  batches = batches.concatenate(tf.data.Dataset.from_tensors(none))
  return tf.nest.map_structure(
    lambda tensor, s: tf.ensure_shape(tensor, [None] + s.shape[1:]),
    batches.take(1).get_single_element(),
    spec,
  )
