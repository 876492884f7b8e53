"""Computation of a client in a round, as `local_training` says.

All randomness is stateless and derived from a seed, so that the same client in
the same round computes the same update on every runtime and after a resume.
"""

from collections.abc import Callable, Sequence
import functools
import types
from typing import Any, NamedTuple

import tensorflow as tf
import tensorflow_federated as tff

from tff_fedemb.algorithms import local_training
from tff_fedemb.data import augmentation as augmentation_lib
from tff_fedemb.data import encoded_images
from tff_fedemb.data import pipelines
from tff_fedemb.models import heads

_fold_in = tf.random.experimental.stateless_fold_in


class LocalExamples(NamedTuple):
  """Examples that a client trains on.

  Attributes:
    images: `[n, height, width, channels]`, or encoded images, string `[n]`.
    labels: `[n]`.
    num_skipped: Examples that were left out because they cannot be decoded.
  """

  images: tf.Tensor
  labels: tf.Tensor
  num_skipped: tf.Tensor


def gather_examples(
  dataset: tf.data.Dataset,
  *,
  config: local_training.ClientTraining,
  seed: int,
  round_num: tf.Tensor,
) -> LocalExamples:
  """Reads a client's data set, which may be empty, into tensors.

  The whole of a client's data is held at once, in the data set's own type
  (`uint8` images are not widened, encoded ones not decoded), because the head's
  size is known only when every label has been seen.

  Args:
    dataset: Batches `OrderedDict(x=[b, height, width, channels], y=[b])`, or
      `x=string [b]` where the configuration decodes.
    config: Hyperparameters.
    seed, round_num: See `client_seed`; they say which examples a client uses
      that may not use all.
  """
  limit = config.max_examples_per_client
  # No more than that of a client is read, or in memory, however much it has.
  examples = pipelines.gather(dataset, max_elements=2 * limit)
  if limit:
    chosen = _choose(examples["y"], limit, seed=seed, round_num=round_num)
    examples = tf.nest.map_structure(
      lambda part: tf.gather(part, chosen), examples
    )
  images, labels = examples["x"], examples["y"]
  num_skipped = tf.constant(0, tf.int64)
  if config.decode_images is not None and config.skip_unreadable:
    rows = encoded_images.readable_rows(images, config.decode_images)
    num_skipped = tf.size(labels, tf.int64) - tf.size(rows, tf.int64)
    images, labels = tf.gather(images, rows), tf.gather(labels, rows)
  if config.turned_classes:
    images, labels = augmentation_lib.add_turned_classes(images, labels)
  return LocalExamples(images, labels, num_skipped)


def client_seed(
  seed: int, round_num: tf.Tensor, labels: tf.Tensor
) -> tf.Tensor:
  """Derives the seed of a client in a round, int64 `[2]`.

  Clients have no number of their own inside a federated computation, so the
  seed depends on the labels they hold. That makes it a function of private
  data, like everything else that the clipped update is computed from.

  Args:
    seed: Seed of the run.
    round_num: The round, int32 scalar.
    labels: The client's labels `[n]`.
  """
  fingerprint = tf.strings.to_hash_bucket_fast(
    tf.io.serialize_tensor(labels), 2**31 - 1
  )
  of_round = [tf.constant(seed, tf.int64), tf.cast(round_num, tf.int64)]
  return _fold_in(tf.stack(of_round), fingerprint)


def _choose(
  labels: tf.Tensor, limit: int, *, seed: int, round_num: tf.Tensor
) -> tf.Tensor:
  """Rows that a client uses in a round, in order: all if it may."""
  number = tf.size(labels)
  order = _shuffle(number, client_seed(seed, round_num, labels))
  return tf.sort(order[: tf.minimum(number, limit)])


def _shuffle(number: tf.Tensor, seed: tf.Tensor) -> tf.Tensor:
  """A random order of so many rows."""
  # `index_shuffle` would take longer than a step of a small model.
  return tf.random.experimental.stateless_shuffle(tf.range(number), seed)


class Batches:
  """The batches of a client's examples, in an order of their own each epoch."""

  def __init__(
    self,
    examples: LocalExamples,
    *,
    config: local_training.ClientTraining,
    seed: tf.Tensor,
  ):
    self._examples, self._config, self._seed = examples, config, seed
    self._augmentation_seed = _fold_in(seed, 1 << 30)
    self.num_examples = tf.shape(examples.labels)[0]
    self.steps_per_epoch = (
      self.num_examples + config.batch_size - 1
    ) // config.batch_size

  def order_before_epochs(self, step: int | tf.Tensor) -> tf.Tensor:
    """The order of a step before all epochs, from epochs of its own."""
    return self.order(-1 - step // self.steps_per_epoch)

  def before_epochs(self, step: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Images and labels of a step before all epochs."""
    return self.batch(step, self.order_before_epochs(step))

  def order(self, epoch: int | tf.Tensor) -> tf.Tensor:
    """The order of the examples in an epoch."""
    return _shuffle(self.num_examples, _fold_in(self._seed, epoch))

  def places(self, epoch: int | tf.Tensor) -> tf.Tensor:
    """The steps of an epoch as rows, `[steps, batch_size]`; -1 is no row."""
    size = self._config.batch_size
    order = self.order(epoch)
    empty = self.steps_per_epoch * size - self.num_examples
    return tf.reshape(
      tf.pad(order, [[0, empty]], constant_values=-1), [-1, size]
    )

  def places_before_epochs(self, num_steps: int) -> tf.Tensor:
    """The same, of the steps before all epochs."""
    per_epoch = tf.maximum(self.steps_per_epoch, 1)
    steps = [
      self.places(-1 - step // per_epoch)[step % per_epoch :][:1]
      for step in range(num_steps)
    ]
    return tf.concat(steps, 0)

  def rows(self, step: tf.Tensor, order: tf.Tensor) -> tf.Tensor:
    """The examples of a step, counted over all epochs."""
    start = (step % self.steps_per_epoch) * self._config.batch_size
    return order[start : start + self._config.batch_size]

  def labels(self, rows: tf.Tensor) -> tf.Tensor:
    """Labels of examples."""
    return tf.gather(self._examples.labels, rows)

  def batch(
    self, step: tf.Tensor, order: tf.Tensor
  ) -> tuple[tf.Tensor, tf.Tensor]:
    """Images and labels of a step, counted over all epochs."""
    rows = self.rows(step, order)
    images = tf.gather(self._examples.images, rows)
    if self._config.decode_images is not None:
      images = self._config.decode_images(images)
    images = tf.cast(images, tf.float32)
    labels = self.labels(rows)
    if self._config.two_views:
      images = tf.concat([images, images], axis=0)
      count = tf.size(rows)
      labels = tf.roll(tf.range(2 * count), count, axis=0)
    augment = augmentation_lib.AUGMENTATIONS[self._config.augmentation]
    if augment is not None:
      images = augment(images, _fold_in(self._augmentation_seed, step))
    return images, labels


def _start_optimizer(
  config: local_training.ClientTraining,
  specs: Sequence[Any],
  rate_factor: float | tf.Tensor,
  *,
  rate_scale: float = 1.0,
):
  """Builds a client optimizer and its first state; specs are of the weights."""
  optimizer = config.build_optimizer(rate_scale)
  state = optimizer.initialize(tuple(specs))
  hparams = optimizer.get_hparams(state)
  key = tff.learning.optimizers.LEARNING_RATE_KEY
  hparams[key] = hparams[key] * rate_factor
  return optimizer, optimizer.set_hparams(state, hparams)


def _convert_loops(function: Callable[..., Any]):
  """Makes operations of a function's own loops; to read all takes seconds."""

  @tf.autograph.experimental.do_not_convert
  @functools.wraps(function)
  def converted(*arguments, **options):
    convert = tf.autograph.to_graph(function, recursive=False)
    return convert(*arguments, **options)

  return converted


@_convert_loops
def _imprint(
  backbone: tf.keras.Model,
  rows: tf.Tensor,
  batches: Batches,
  num_steps: tf.Tensor,
):
  """Returns rows, each the mean direction of its class in some batches."""
  num_steps = tf.where(batches.num_examples > 0, num_steps, 0)
  sums = tf.zeros_like(rows)
  for step in tf.range(num_steps):
    images, labels = batches.before_epochs(step)
    embeddings = tf.math.l2_normalize(backbone(images, training=False), axis=1)
    sums += tf.math.unsorted_segment_sum(embeddings, labels, tf.shape(rows)[0])
  norms = tf.norm(sums, axis=1, keepdims=True)
  return tf.where(norms > 0, tf.math.divide_no_nan(sums, norms), rows)


def _apply_head(
  head: heads.Head,
  head_weights: heads.Weights,
  embeddings: tf.Tensor,
  labels: tf.Tensor,
):
  """Returns the mean loss, the sum of losses, and the number correct."""
  logits = head.logits(head_weights, embeddings, labels=labels)
  losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits)
  num_correct = tf.math.count_nonzero(
    tf.equal(tf.argmax(logits, axis=1), tf.cast(labels, tf.int64))
  )
  return tf.reduce_mean(losses), tf.reduce_sum(losses), num_correct


def _differentiate(
  backbone: tf.keras.Model,
  head: heads.Head,
  head_weights: heads.Weights,
  batch: tuple[tf.Tensor, tf.Tensor],
):
  """Returns gradients (backbone's, head's), sum of losses, number correct."""
  images, labels = batch
  weights = (tuple(backbone.trainable_variables), tuple(head_weights))
  with tf.GradientTape(watch_accessed_variables=False) as tape:
    tape.watch(weights)
    embeddings = backbone(images, training=True)
    loss, *sums = _apply_head(head, head_weights, embeddings, labels)
  return *tape.gradient(loss, weights), *sums


@_convert_loops
def _embed_first(
  backbone: tf.keras.Model, batches: Batches, num_steps: tf.Tensor
):
  """Embeds the examples of the first steps before all epochs, each once.

  Returns:
    Embeddings `[n, dim]`, and the row of each example among them.
  """
  order = batches.order(-1)
  num_steps = tf.minimum(num_steps, batches.steps_per_epoch)
  found = tf.TensorArray(
    tf.float32,
    size=num_steps,
    infer_shape=False,
    element_shape=[None, backbone.output_shape[-1]],
  )
  for step in tf.range(num_steps):
    images, _ = batches.batch(step, order)
    found = found.write(step, backbone(images, training=False))
  return found.concat(), tf.math.invert_permutation(order)


@_convert_loops
def _train_head_alone(
  backbone: tf.keras.Model,
  head: heads.Head,
  head_weights: heads.Weights,
  batches: Batches,
  optimizer: tff.learning.optimizers.Optimizer,
  state: Any,
  config: local_training.ClientTraining,
):
  """Trains the head under the backbone as it is; returns its state, weights.

  The backbone does not change: an image that does not either is embedded once.
  """
  num_steps = tf.where(batches.num_examples > 0, config.head_warmup_steps, 0)
  keeps = config.augmentation == "none" and not config.two_views
  if keeps:
    embedded, place = _embed_first(backbone, batches, num_steps)
  for step in tf.range(num_steps):
    if keeps:
      rows = batches.rows(step, batches.order_before_epochs(step))
      labels = batches.labels(rows)
      embeddings = tf.gather(embedded, tf.gather(place, rows))
    else:
      images, labels = batches.before_epochs(step)
      embeddings = backbone(images, training=False)
    with tf.GradientTape(watch_accessed_variables=False) as tape:
      tape.watch(head_weights)
      loss, _, _ = _apply_head(head, head_weights, embeddings, labels)
    state, head_weights = optimizer.next(
      state, head_weights, tape.gradient(loss, head_weights)
    )
  return state, head_weights


@_convert_loops
def _train_epochs(
  backbone: tf.keras.Model,
  head: heads.Head,
  head_weights: heads.Weights,
  batches: Batches,
  optimizers: tuple[Any, Any],
  states: tuple[Any, Any],
  config: local_training.ClientTraining,
):
  """Trains both; returns the head, the sum of losses and the number correct."""
  backbone_optimizer, head_optimizer = optimizers
  backbone_state, head_state = states
  variables = tuple(backbone.trainable_variables)
  loss_sum = tf.constant(0.0)
  num_correct = tf.constant(0, tf.int64)
  order = batches.order(0)
  for step in tf.range(batches.steps_per_epoch * config.epochs):
    if config.epochs > 1 and tf.equal(step % batches.steps_per_epoch, 0):
      order = batches.order(step // batches.steps_per_epoch)
    of_backbone, of_head, loss, correct = _differentiate(
      backbone, head, head_weights, batches.batch(step, order)
    )
    backbone_state, new_values = backbone_optimizer.next(
      backbone_state,
      tuple(variable.read_value() for variable in variables),
      of_backbone,
    )
    for variable, value in zip(variables, new_values, strict=True):
      variable.assign(value)
    if not config.freeze_head:
      head_state, head_weights = head_optimizer.next(
        head_state, head_weights, of_head
      )
    loss_sum += loss
    num_correct += correct
  return head_weights, loss_sum, num_correct


def train_locally(
  backbone: tf.keras.Model,
  head: heads.Head,
  head_weights: heads.Weights,
  examples: LocalExamples,
  *,
  config: local_training.ClientTraining,
  learning_rate_factor: tf.Tensor,
  seed: tf.Tensor,
) -> tuple[heads.Weights, dict[str, tf.Tensor]]:
  """Trains a backbone, in place, and a head on one client's examples.

  To be called inside a `tf.function`. While TFF traces, `==` on tensors
  compares identity: comparisons here are spelled `tf.equal`.

  Args:
    backbone: Its trainable variables are updated.
    head: How to apply the head's weights.
    head_weights: First weights of the head.
    examples: Images and labels; labels are rows of the head, in [0, K).
    config: Hyperparameters.
    learning_rate_factor: Multiplies both learning rates, float32 scalar.
    seed: `[2]`, of the order of the examples.

  Returns:
    The trained head, and sums over the examples of the local epochs:
    `loss_sum`, `num_correct` and `num_examples`.
  """
  batches = Batches(examples, config=config, seed=seed)
  variables = tuple(backbone.trainable_variables)
  head_optimizer, head_state = _start_optimizer(
    config,
    # A `tf.TensorSpec` cannot hold a shape that only the client knows.
    [
      types.SimpleNamespace(shape=tf.shape(weight), dtype=weight.dtype)
      for weight in head_weights
    ],
    learning_rate_factor,
    rate_scale=config.head_lr_scale if head.is_trained else 0.0,
  )
  backbone_optimizer, backbone_state = _start_optimizer(
    config, variables, learning_rate_factor
  )
  if config.head_imprint_steps:
    rows, *others = head_weights
    rows = _imprint(backbone, rows, batches, config.head_imprint_steps)
    head_weights = (rows, *others)
  if config.head_warmup_steps and head.is_trained:
    head_state, head_weights = _train_head_alone(
      backbone,
      head,
      head_weights,
      batches,
      head_optimizer,
      head_state,
      config,
    )
  head_weights, loss_sum, num_correct = _train_epochs(
    backbone,
    head,
    head_weights,
    batches,
    (backbone_optimizer, head_optimizer),
    (backbone_state, head_state),
    config,
  )
  views = config.epochs * (2 if config.two_views else 1)
  return head_weights, {
    "loss_sum": loss_sum,
    "num_correct": num_correct,
    "num_examples": tf.cast(batches.num_examples, tf.int64) * views,
  }
