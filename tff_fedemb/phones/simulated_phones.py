"""Simulation around phones that run a `client_file`.

It draws what a phone draws for itself, by the code of `fedemb`, and takes what
comes back into the learning process in place of a client's computation.
"""

from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from tff_fedemb.algorithms import fedemb
from tff_fedemb.algorithms import learning_process
from tff_fedemb.algorithms import local_steps
from tff_fedemb.phones import client_file


class Drawn(NamedTuple):
  """Start of a simulated client.

  Attributes:
    inputs: Inputs of the signature `train`, but for weights and learning rate.
    num_classes: Classes that it holds.
    num_skipped: Examples that it left out as unreadable.
  """

  inputs: dict[str, tf.Tensor]
  num_classes: tf.Tensor
  num_skipped: tf.Tensor


def draw(
  file: client_file.ClientFile,
  dataset: tf.data.Dataset,
  round_num: tf.Tensor,
) -> Drawn:
  """Draws the head and the order of a simulated client as `fedemb` does.

  Args:
    file: The client's file.
    dataset: The client's, as in `local_steps.gather_examples`.
    round_num: The round, int32 scalar, from 0.
  """
  config = file.config
  examples = local_steps.gather_examples(
    dataset, config=config, seed=file.seed, round_num=round_num
  )
  seed = local_steps.client_seed(file.seed, round_num, examples.labels)
  weights, rows, num_classes = fedemb.FedEmb(head=file.head).start_head(
    0, (), examples.labels, file.backbone.output_shape[-1], seed
  )
  images = examples.images
  if config.decode_images is not None:
    images = config.decode_images(images)
  batches = local_steps.Batches(examples, config=config, seed=seed)
  places = [batches.places(epoch) for epoch in range(config.epochs)]
  inputs = {
    "images": images,
    "labels": rows,
    "order": tf.concat(places, 0),
    **dict(zip(client_file.HEAD_NAMES, weights, strict=False)),
  }
  if file.warm_up_steps:
    inputs["warm_up"] = batches.places_before_epochs(file.warm_up_steps)
  return Drawn(inputs, num_classes, examples.num_skipped)


def encode_update(update: learning_process.ClientUpdate) -> bytes:
  """Makes one string of an update, the client data of `read_update`.

  Args:
    update: An update of NumPy arrays and numbers; no phone sends anything of it
      but the delta.
  """
  delta, *counts = update
  parts = [counts] + list(map(np.ravel, delta))
  return np.concatenate(parts).astype("<f4").tobytes()


@tff.tensorflow.computation(np.str_)
def update_dataset(update: tf.Tensor):
  """A client's data set that is the update which it has sent."""
  return tf.data.Dataset.from_tensors(update)


UPDATE_TYPE = update_dataset.type_signature.result


def read_update(
  weights: Any,
  dataset: tf.data.Dataset,
  round_num: tf.Tensor,
) -> learning_process.ClientUpdate:
  """The inverse of `encode_update`, in place of what a client computes.

  Args:
    weights: The model's, for their shapes.
    dataset: `update_dataset`.
    round_num: The round.
  """
  numbers = tf.io.decode_raw(dataset.get_single_element(), tf.float32)
  sizes = [weight.shape.num_elements() for weight in weights.trainable]
  parts = tf.split(numbers, [5] + sizes)
  counts = parts[0]
  delta = tuple(
    tf.reshape(part, weight.shape)
    for part, weight in zip(parts[1:], weights.trainable, strict=True)
  )
  integers = tf.unstack(tf.cast(counts, tf.int64))
  update = learning_process.ClientUpdate(delta, *integers)
  place = learning_process.ClientUpdate._fields.index("loss_sum") - 1
  return update._replace(loss_sum=counts[place])
