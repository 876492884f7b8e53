"""Composes a client update, an aggregator and a server optimizer.

A TFF learning process has four parts: distributor, client work, aggregator and
finalizer. All algorithms share them, around a function that trains one client.
"""

import collections
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff


class ClientUpdate(NamedTuple):
  """Update that a client sends back; integers are int64 scalars.

  Attributes:
    delta: Initial minus trained weights, one tensor per trainable weight.
    num_examples: Number of examples that it trained on, in all local epochs.
    num_classes: Number of classes that it holds.
    loss_sum: Sum of the losses of these examples, float32; 0 by default.
    num_correct: Number of examples that it classified correctly.
    num_skipped_examples: Number of examples left out as unreadable.
  """

  delta: tuple[tf.Tensor, ...]
  num_examples: tf.Tensor
  num_classes: tf.Tensor
  loss_sum: tf.Tensor | float = 0.0
  num_correct: tf.Tensor | int = 0
  num_skipped_examples: tf.Tensor | int = 0


ClientUpdateFn = Callable[
  [tff.learning.models.ModelWeights, tf.data.Dataset, tf.Tensor], ClientUpdate
]
WrapFn = Callable[[ClientUpdateFn], ClientUpdateFn]


def build_example_type(
  image_shape: tuple[int, ...], image_dtype: tf.DType = tf.uint8
) -> tff.types.SequenceType:
  """Type of a client's data: batches of images `x` and labels `y`.

  Args:
    image_shape: Shape of an image; `()` if it is one encoded string.
    image_dtype: Type of its numbers, or `tf.string`.

  Returns:
    Type of a sequence of `OrderedDict(x=[None, *image_shape], y=int64 [None])`.
  """
  dtype = np.str_ if image_dtype == tf.string else image_dtype.as_numpy_dtype
  images = (dtype, [None, *image_shape])
  labels = (np.int64, [None])
  return tff.types.SequenceType(collections.OrderedDict(x=images, y=labels))


def reject_non_finite(
  update: ClientUpdate,
) -> tuple[tuple[tf.Tensor, ...], collections.OrderedDict[str, tf.Tensor]]:
  """Replaces an update whose L2 norm is not finite by zeros.

  Args:
    update: The client's update.

  Returns:
    The delta, finite or all zeros, and the client's summands of the metrics, by
    name. Loss, correct and trained examples of a rejected client count as 0.
  """
  # Clipping divides by the norm: one that overflows would turn a finite update
  # into NaNs, and lose the whole round.
  is_finite = tf.math.is_finite(tf.linalg.global_norm(update.delta))
  # An elementwise choice would hold two more copies of the model.
  delta = tf.cond(
    is_finite,
    lambda: update.delta,
    lambda: tuple(tf.zeros_like(tensor) for tensor in update.delta),
  )
  accepted = tf.cast(is_finite, tf.int64)
  return delta, collections.OrderedDict(
    loss_sum=tf.where(is_finite, update.loss_sum, 0.0),
    num_correct=update.num_correct * accepted,
    num_examples=update.num_examples * accepted,
    num_classes=tf.cast(update.num_classes, tf.int64),
    num_clients=tf.constant(1, tf.int64),
    num_rejected_clients=1 - accepted,
    num_skipped_examples=tf.cast(update.num_skipped_examples, tf.int64),
  )


def _finalize_metrics(
  sums: Mapping[str, tf.Tensor],
) -> collections.OrderedDict[str, tf.Tensor]:
  """Means from the sums over clients; 0 if there is nothing to average."""
  floats = {name: tf.cast(total, tf.float32) for name, total in sums.items()}
  divide = tf.math.divide_no_nan
  return collections.OrderedDict(
    loss=divide(floats["loss_sum"], floats["num_examples"]),
    accuracy=divide(floats["num_correct"], floats["num_examples"]),
    num_examples=sums["num_examples"],
    classes_per_client=divide(floats["num_classes"], floats["num_clients"]),
    num_clients=sums["num_clients"],
    num_rejected_clients=sums["num_rejected_clients"],
    num_skipped_examples=sums["num_skipped_examples"],
  )


def _build_client_work(
  client_update_fn: ClientUpdateFn,
  weights_type: tff.Type,
  example_type: tff.types.SequenceType,
) -> tff.learning.templates.ClientWorkProcess:
  """Builds the work of clients and its metrics; the state counts rounds.

  Every client has weight 1: the aggregator ignores the number of examples.
  """

  @tff.tensorflow.computation(np.int32, weights_type, example_type)
  def client_update(
    round_num: tf.Tensor,
    weights: tff.learning.models.ModelWeights,
    dataset: tf.data.Dataset,
  ):
    update = client_update_fn(weights, dataset, round_num)
    delta, sums = reject_non_finite(update)
    weight = tf.constant(1.0)
    return tff.learning.templates.ClientResult(delta, weight), sums

  finalize_metrics = tff.tensorflow.computation(
    _finalize_metrics, client_update.type_signature.result[1]
  )
  count_round = tff.tensorflow.computation(lambda number: number + 1, np.int32)

  @tff.federated_computation
  def initialize():
    return tff.federated_value(0, tff.SERVER)

  @tff.federated_computation(
    tff.types.FederatedType(np.int32, tff.SERVER),
    tff.types.FederatedType(weights_type, tff.CLIENTS),
    tff.types.FederatedType(example_type, tff.CLIENTS),
  )
  def train(round_num: Any, weights: Any, client_data: Any):
    received = (tff.federated_broadcast(round_num), weights, client_data)
    result, sums = tff.federated_map(client_update, received)
    metrics = tff.federated_map(finalize_metrics, tff.federated_sum(sums))
    next_round = tff.federated_map(count_round, round_num)
    return tff.templates.MeasuredProcessOutput(next_round, result, metrics)

  return tff.learning.templates.ClientWorkProcess(initialize, train)


def build_learning_process(
  create_weights_fn: Callable[[], tff.learning.models.ModelWeights],
  client_update_fn: ClientUpdateFn,
  *,
  example_type: tff.types.SequenceType,
  aggregator: tff.aggregators.UnweightedAggregationFactory,
  server_optimizer: tff.learning.optimizers.Optimizer,
) -> tff.learning.templates.LearningProcess:
  """Builds a learning process around a client's update.

  A client whose update has no finite L2 norm sends zeros instead (so that the
  divisor and the sensitivity stay what they are); the `client_work` metrics
  count such clients as `num_rejected_clients`.

  Args:
    create_weights_fn: Makes two tuples of freshly initialised variables; called
      while tracing.
    client_update_fn: Trains on one client's data; called while tracing, with
      the weights, the data set and the round number (int32 scalar, from 0).
    example_type: Type of a client's data set.
    aggregator: Turns the clients' deltas into the server's update.
    server_optimizer: Applies the update as if it were a gradient.

  Returns:
    A `tff.learning.templates.LearningProcess`. Its `client_work` metrics are
    the float32 means `loss`, `accuracy` (both without rejected clients) and
    `classes_per_client`, and the int64 counts `num_examples`, `num_clients`,
    `num_rejected_clients` and `num_skipped_examples`.
  """

  create_weights = tff.tensorflow.computation(create_weights_fn)
  weights_type = create_weights.type_signature.result
  weighted = tff.aggregators.as_weighted_aggregator(aggregator)
  templates = tff.learning.templates
  process = templates.compose_learning_process(
    create_weights,
    templates.build_broadcast_process(weights_type),
    _build_client_work(client_update_fn, weights_type, example_type),
    weighted.create(weights_type.trainable, tff.types.TensorType(np.float32)),
    templates.build_apply_optimizer_finalizer(server_optimizer, weights_type),
  )
  # Keras keeps the session of the last graph in which it made a model, if any,
  # and with it the graph.
  tf.compat.v1.keras.backend.set_session(None)
  return process


def create_unset_backbone(
  create_backbone_fn: Callable[[], tf.keras.Model],
) -> tf.keras.Model:
  """Creates a backbone whose weights a client is going to assign.

  Its weights are zeros. Variables are initialised anew for every client.
  Drawing random weights only to have them overwritten took a client of a model
  of 25 million parameters longer than a step of training.

  Args:
    create_backbone_fn: Makes a fresh Keras model.

  Returns:
    The model; variables that are no weights of a layer, such as the state of a
    random number generator, are initialised as usual.
  """

  def create_zeros(next_creator: Callable[..., Any], **arguments):
    """Creates a variable, one of zeros if it is a layer's weight."""
    shape, dtype = arguments["shape"], arguments["dtype"]
    # Keras passes these for a layer's weights. Other variables, say the state
    # of a random number generator, are left as they are.
    if callable(arguments["initial_value"]) and None not in (shape, dtype):
      # TensorFlow would fold zeros to a constant, and hold a model for ever.
      arguments["initial_value"] = lambda: tf.raw_ops.Empty(
        shape=shape, dtype=dtype, init=True
      )
    return next_creator(**arguments)

  with tf.variable_creator_scope(create_zeros):
    return create_backbone_fn()


def assign_weights(
  backbone: tf.keras.Model,
  trainable: Sequence[tf.Tensor],
  non_trainable: Sequence[tf.Tensor],
) -> None:
  """Sets a backbone's variables.

  Args:
    backbone: The model to change.
    trainable: Values in the order of its `trainable_variables`.
    non_trainable: Values in the order of its `non_trainable_variables`.

  Raises:
    ValueError: If there are not as many values as variables.
  """
  for variable, value in zip(
    [*backbone.trainable_variables, *backbone.non_trainable_variables],
    [*trainable, *non_trainable],
    strict=True,
  ):
    variable.assign(value)


def take_delta(
  initial: Sequence[tf.Tensor], variables: Sequence[tf.Variable]
) -> tuple[tf.Tensor, ...]:
  """Returns initial minus trained weights and resets the variables.

  Reset variables share the memory of the initial weights, so a client holds one
  model of its own, its delta, rather than two.

  Args:
    initial: Weights before training.
    variables: Variables that training has changed, in the same order.

  Returns:
    One tensor per variable, of its shape.

  Raises:
    ValueError: If the lengths differ.
  """
  delta = tuple(map(tf.subtract, initial, variables))
  for before, variable in zip(initial, variables, strict=True):
    variable.assign(before)
  return delta
