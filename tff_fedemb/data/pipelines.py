"""What the input pipelines of clients have in common."""

from typing import Any

import tensorflow as tf


def build_options() -> tf.data.Options:
  """Builds the options of a pipeline that lives for one client.

  Tuning and rewriting it would cost more than they gain.
  """
  options = tf.data.Options()
  options.autotune.enabled = False
  options.experimental_optimization.apply_default_optimizations = False
  return options


def gather(dataset: tf.data.Dataset, *, max_elements: int = 0) -> Any:
  """Reads a data set to its end, in TensorFlow operations only.

  By no `reduce`, and a pipeline should have no `map` that it can do without:
  TensorFlow prepares their functions anew for every client, which takes as long
  as a step of training.

  Args:
    dataset: Batches of anything, `[b, ...]`.
    max_elements: Later elements are left out; 0 for no such limit.

  Returns:
    One batch `[n, ...]` of the elements, nested as those of the data set; of
    size 0 if there are none.
  """
  spec = dataset.element_spec
  none = tf.nest.map_structure(
    lambda s: tf.zeros([0, *s.shape[1:]], s.dtype), spec
  )
  elements = (
    # More than memory holds, and few enough for TensorFlow to multiply.
    dataset.rebatch(max_elements or tf.int32.max)
    .concatenate(tf.data.Dataset.from_tensors(none))
    .take(1)
    .get_single_element()
  )
  return tf.nest.map_structure(
    lambda tensor, s: tf.ensure_shape(tensor, [None, *s.shape[1:]]),
    elements,
    spec,
  )
