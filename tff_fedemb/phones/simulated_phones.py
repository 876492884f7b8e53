"""Simulation around phones that run a `client_file`.

It makes the draws of a phone, by the code of `fedemb`, and feeds the updates
that come back into the learning process in place of a client's computation.
"""

from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from tff_fedemb.algorithms import fedemb
from tff_fedemb.algorithms import learning_process
from tff_fedemb.algorithms import local_steps
from tff_fedemb.phones import client_file

# Numbers in an encoded update before its delta.
_NUM_COUNTS = len(learning_process.ClientUpdate._fields) - 1


class Drawn(NamedTuple):
  """Start of a simulated client.

  Attributes:
    inputs: Inputs of the signature `train`, but for weights and learning rate.
    num_classes: Number of classes of its examples.
    num_skipped: Number of examples that it left out as unreadable.
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
    file: The file that the client runs.
    dataset: The client's examples, as in `local_steps.gather_examples`.
    round_num: The round, int32 scalar, from 0.

  Returns:
    Tensors; the same for the same client, round and seed of the run.
  """
  config = file.config
  examples = local_steps.gather_examples(
    dataset, config=config, seed=file.seed, round_num=round_num
  )
  seed = local_steps.client_seed(file.seed, round_num, examples.labels)
  algorithm = fedemb.FedEmb(head=file.head)
  weights, rows, num_classes = algorithm.start_head(
    0, (), examples.labels, file.backbone.output_shape[-1], seed
  )
  images = examples.images
  if config.decode_images is not None:
    images = config.decode_images(images)
  batches = local_steps.Batches(examples, config=config, seed=seed)
  places = [batches.places(epoch) for epoch in range(config.epochs)]
  inputs = dict(zip(client_file.HEAD_NAMES, weights, strict=False))
  inputs["images"] = images
  inputs["labels"] = rows
  inputs["order"] = tf.concat(places, 0)
  if file.warm_up_steps:
    inputs["warm_up"] = batches.places_before_epochs(file.warm_up_steps)
  return Drawn(inputs, num_classes, examples.num_skipped)


def encode_update(update: learning_process.ClientUpdate) -> bytes:
  """Encodes an update, for a client's data of `update_dataset`.

  Args:
    update: An update of NumPy arrays and numbers. A phone would send the delta
      alone; the simulation knows the counts.

  Returns:
    All numbers as float32, the counts first.
  """
  delta, *counts = update
  parts = [np.array(counts, "<f4").data]
  for tensor in delta:
    parts.append(np.asarray(tensor, "<f4", order="C").data)
  # The only copy of the whole delta: it may be as large as the model.
  return b"".join(parts)


@tff.tensorflow.computation(np.str_)
def update_dataset(update: tf.Tensor) -> tf.data.Dataset:
  """Creates the data set of a client: the update that it has sent.

  Args:
    update: An encoded update, string `[]`.

  Returns:
    A data set with this one element.
  """
  return tf.data.Dataset.from_tensors(update)


UPDATE_TYPE = update_dataset.type_signature.result


def read_update(
  weights: Any,
  dataset: tf.data.Dataset,
  round_num: tf.Tensor,
) -> learning_process.ClientUpdate:
  """Decodes an update, the inverse of `encode_update`.

  It takes the place of a client's computation, and has its arguments.

  Args:
    weights: The model's `ModelWeights`, for their shapes.
    dataset: A data set of `update_dataset`.
    round_num: The round.

  Returns:
    Tensors of the update.
  """
  numbers = tf.io.decode_raw(dataset.get_single_element(), tf.float32)
  sizes = [weight.shape.num_elements() for weight in weights.trainable]
  counts, *parts = tf.split(numbers, [_NUM_COUNTS] + sizes)
  delta = []
  for part, weight in zip(parts, weights.trainable, strict=True):
    delta.append(tf.reshape(part, weight.shape))
  integers = tf.unstack(tf.cast(counts, tf.int64))
  update = learning_process.ClientUpdate(tuple(delta), *integers)
  place = learning_process.ClientUpdate._fields.index("loss_sum") - 1
  return update._replace(loss_sum=counts[place])
