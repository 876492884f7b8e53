"""Computation of a client in a round, with the settings of `local_training`.

All randomness is stateless and derived from a seed, so that the same client in
the same round computes the same update on every runtime and after a resume.
"""

from collections.abc import Callable
import dataclasses
import functools
import types
from typing import Any, NamedTuple

import tensorflow as tf

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
    labels: Labels of the task, or rows of a head, `[n]`.
    num_skipped: Number of examples, int64 scalar, that were left out because
      they cannot be decoded.
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
      `x=string [b]` if the configuration decodes.
    config: Hyperparameters. With `max_examples_per_client`, at most twice as
      many examples are read, and that many of them drawn.
    seed, round_num: See `client_seed`; they decide which examples are drawn.

  Returns:
    The examples, in the data set's order, without those that cannot be decoded
    if the configuration skips them.
  """
  limit = config.max_examples_per_client
  # Limits how many examples of a large client are read into memory.
  examples = pipelines.gather(dataset, max_elements=2 * limit)
  images, labels = examples["x"], examples["y"]
  if limit:
    order = _shuffle(tf.size(labels), client_seed(seed, round_num, labels))
    rows = tf.sort(order[:limit])
    images = tf.gather(images, rows)
    labels = tf.gather(labels, rows)
  num_skipped = tf.constant(0, tf.int64)
  if config.decode_images is not None and config.skip_unreadable:
    rows = encoded_images.readable_rows(images, config.decode_images)
    num_examples = tf.size(labels, tf.int64)
    num_skipped = num_examples - tf.size(rows, tf.int64)
    images = tf.gather(images, rows)
    labels = tf.gather(labels, rows)
  if config.turned_classes:
    images, labels = augmentation_lib.add_turned_classes(images, labels)
  return LocalExamples(images, labels, num_skipped)


def client_seed(
  seed: int, round_num: tf.Tensor, labels: tf.Tensor
) -> tf.Tensor:
  """Derives the seed of a client in a round.

  Clients have no number of their own inside a federated computation, so the
  seed depends on the labels they hold. That makes it a function of private
  data, like everything else that the clipped update is computed from.

  Args:
    seed: Seed of the run.
    round_num: The round, int32 scalar.
    labels: The client's labels `[n]`, in order.

  Returns:
    A stateless seed, int64 `[2]`.
  """
  content = tf.io.serialize_tensor(labels)
  fingerprint = tf.strings.to_hash_bucket_fast(content, 2**31 - 1)
  of_run = tf.constant(seed, tf.int64)
  of_round = tf.stack([of_run, tf.cast(round_num, tf.int64)])
  return _fold_in(of_round, fingerprint)


def _shuffle(number: tf.Tensor, seed: tf.Tensor) -> tf.Tensor:
  """Returns a random order of the rows 0 to number - 1, int32 `[number]`."""
  # `index_shuffle` would take longer than a step of a small model.
  return tf.random.experimental.stateless_shuffle(tf.range(number), seed)


class Batches:
  """The batches of a client's examples, in a new order each epoch.

  Steps are counted over all epochs. Steps before epoch 0, which start the head,
  are counted separately, from 0; their epochs are -1, -2, and so on.

  Attributes:
    num_examples: Number of examples n, int32 scalar.
    steps_per_epoch: n / batch size, rounded up, int32 scalar; 0 without
      examples.
  """

  def __init__(
    self,
    examples: LocalExamples,
    *,
    config: local_training.ClientTraining,
    seed: tf.Tensor,
  ):
    """Counts the steps.

    Args:
      examples: Possibly none at all.
      config: Batch size, decoder and augmentation.
      seed: The client's seed, int64 `[2]`.
    """
    self._examples, self._config, self._seed = examples, config, seed
    self._augmentation_seed = _fold_in(seed, 1 << 30)
    self.num_examples = tf.shape(examples.labels)[0]
    self.steps_per_epoch = (
      self.num_examples + config.batch_size - 1
    ) // config.batch_size

  def order(self, epoch: int | tf.Tensor) -> tf.Tensor:
    """Draws the order of the examples in an epoch.

    Args:
      epoch: The epoch; negative before the local epochs.

    Returns:
      Rows of the examples, int32 `[n]`, each once.
    """
    return _shuffle(self.num_examples, _fold_in(self._seed, epoch))

  def order_before_epochs(self, step: tf.Tensor) -> tf.Tensor:
    """Draws the order of the examples at a step before epoch 0.

    Args:
      step: The step, from 0; there must be examples.

    Returns:
      Rows of the examples, int32 `[n]`, the same for all steps of an epoch.
    """
    return self.order(-1 - step // self.steps_per_epoch)

  def places(self, epoch: int | tf.Tensor) -> tf.Tensor:
    """Lays out an epoch as one row per step.

    Args:
      epoch: The epoch, as in `order`.

    Returns:
      Rows of the examples, int32 `[steps, batch_size]`. The last step is filled
      up with -1, which stands for no example.
    """
    size = self._config.batch_size
    empty = self.steps_per_epoch * size - self.num_examples
    padded = tf.pad(self.order(epoch), [[0, empty]], constant_values=-1)
    return tf.reshape(padded, [-1, size])

  def places_before_epochs(self, num_steps: int) -> tf.Tensor:
    """The steps before epoch 0, as `places`, `[num_steps, batch_size]`."""
    per_epoch = tf.maximum(self.steps_per_epoch, 1)
    steps = [
      self.places(-1 - step // per_epoch)[step % per_epoch :][:1]
      for step in range(num_steps)
    ]
    return tf.concat(steps, 0)

  def rows(self, step: tf.Tensor, order: tf.Tensor) -> tf.Tensor:
    """Picks the examples of a step.

    Args:
      step: The step, counted over all epochs.
      order: Order of the examples in the step's epoch, `[n]`.

    Returns:
      Rows of the examples, `[b]`; the last step of an epoch may have fewer than
      the batch size.
    """
    start = (step % self.steps_per_epoch) * self._config.batch_size
    return order[start : start + self._config.batch_size]

  def labels(self, rows: tf.Tensor) -> tf.Tensor:
    """Looks up labels of examples.

    Args:
      rows: Rows of the examples, `[b]`.

    Returns:
      Labels `[b]`.
    """
    return tf.gather(self._examples.labels, rows)

  def batch(
    self, step: tf.Tensor, order: tf.Tensor
  ) -> tuple[tf.Tensor, tf.Tensor]:
    """Decodes and augments the examples of a step.

    Args:
      step: The step, counted over all epochs; seeds the augmentation.
      order: Order of the examples in the step's epoch, `[n]`.

    Returns:
      Images, float32 `[b, height, width, channels]`, and labels `[b]`. With two
      views both are twice as long; the label of a view is then the row of the
      other view of the same image.
    """
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


def _convert_loops(function: Callable[..., Any]):
  """Has AutoGraph convert a function's own loops.

  Converting the functions that it calls as well would take seconds.
  """

  @tf.autograph.experimental.do_not_convert
  @functools.wraps(function)
  def converted(*arguments: Any):
    return tf.autograph.to_graph(function, recursive=False)(*arguments)

  return converted


@dataclasses.dataclass(frozen=True)
class _Client:
  """Trains a backbone, in place, and a head on the batches of a client."""

  backbone: tf.keras.Model
  head: heads.Head
  batches: Batches
  config: local_training.ClientTraining
  learning_rate_factor: tf.Tensor

  def embed_before_epochs(self, step: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Embeddings `[b, dim]` and labels `[b]` of a step before epoch 0."""
    order = self.batches.order_before_epochs(step)
    images, labels = self.batches.batch(step, order)
    return self.backbone(images, training=False), labels

  def score(
    self, weights: heads.Weights, embeddings: tf.Tensor, labels: tf.Tensor
  ) -> tuple[tf.Tensor, tf.Tensor]:
    """Losses of the head `[b]`, and the number of images that it gets right."""
    logits = self.head.logits(weights, embeddings, labels=labels)
    losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits)
    chosen = tf.argmax(logits, axis=1)
    is_correct = tf.equal(chosen, tf.cast(labels, tf.int64))
    return losses, tf.math.count_nonzero(is_correct)

  @_convert_loops
  def imprint(self, rows: tf.Tensor) -> tf.Tensor:
    """Returns head rows: each class's mean direction in some batches.

    Rows `[K, dim]` of classes that are in none of these batches are kept.
    """
    has_any = self.batches.num_examples > 0
    num_steps = tf.where(has_any, self.config.head_imprint_steps, 0)
    sums = tf.zeros_like(rows)
    for step in tf.range(num_steps):
      embeddings, labels = self.embed_before_epochs(step)
      directions = tf.math.l2_normalize(embeddings, axis=1)
      sums += tf.math.unsorted_segment_sum(
        directions, labels, tf.shape(rows)[0]
      )
    norms = tf.norm(sums, axis=1, keepdims=True)
    directions = tf.math.divide_no_nan(sums, norms)
    return tf.where(norms > 0, directions, rows)

  @_convert_loops
  def embed_first(self, num_steps: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Embeds the examples of the first steps before epoch 0, each once.

    Returns:
      Embeddings `[n, dim]`, and the row of each example among them.
    """
    order = self.batches.order(-1)
    num_steps = tf.minimum(num_steps, self.batches.steps_per_epoch)
    found = tf.TensorArray(
      tf.float32,
      size=num_steps,
      infer_shape=False,
      element_shape=[None, self.backbone.output_shape[-1]],
    )
    for step in tf.range(num_steps):
      images, _ = self.batches.batch(step, order)
      found = found.write(step, self.backbone(images, training=False))
    return found.concat(), tf.math.invert_permutation(order)

  @_convert_loops
  def train_head(self, weights: heads.Weights, optimizer: Any, state: Any):
    """Trains the head alone; returns its weights and its optimizer's state.

    The backbone does not change here, so an image is embedded once, unless
    augmentation changes it.
    """
    batches, config = self.batches, self.config
    num_steps = tf.where(batches.num_examples > 0, config.head_warmup_steps, 0)
    keeps = config.augmentation == "none" and not config.two_views
    if keeps:
      embedded, place = self.embed_first(num_steps)
    for step in tf.range(num_steps):
      if keeps:
        rows = batches.rows(step, batches.order_before_epochs(step))
        labels = batches.labels(rows)
        embeddings = tf.gather(embedded, tf.gather(place, rows))
      else:
        embeddings, labels = self.embed_before_epochs(step)
      with tf.GradientTape(watch_accessed_variables=False) as tape:
        tape.watch(weights)
        losses, _ = self.score(weights, embeddings, labels)
        loss = tf.reduce_mean(losses)
      gradients = tape.gradient(loss, weights)
      state, weights = optimizer.next(state, weights, gradients)
    return weights, state

  @_convert_loops
  def train_both(self, head_weights: heads.Weights, optimizer: Any, state: Any):
    """Trains the backbone, in place, and the head unless it is frozen.

    Args:
      head_weights: The head's weights.
      optimizer: The head's optimizer, with its own learning rate.
      state: The head's optimizer's state.

    Returns:
      The head's weights, the sum of losses and the number correct.
    """
    batches, config = self.batches, self.config
    variables = tuple(self.backbone.trainable_variables)
    of_backbone = config.build_optimizer(factor=self.learning_rate_factor)
    backbone_state = of_backbone.initialize(variables)
    loss_sum = tf.constant(0.0)
    num_correct = tf.constant(0, tf.int64)
    order = batches.order(0)
    for step in tf.range(batches.steps_per_epoch * config.epochs):
      if config.epochs > 1 and tf.equal(step % batches.steps_per_epoch, 0):
        order = batches.order(step // batches.steps_per_epoch)
      images, labels = batches.batch(step, order)
      with tf.GradientTape(watch_accessed_variables=False) as tape:
        tape.watch((variables, head_weights))
        embeddings = self.backbone(images, training=True)
        losses, correct = self.score(head_weights, embeddings, labels)
        loss = tf.reduce_mean(losses)
      gradients = tape.gradient(loss, (variables, head_weights))
      values = tuple(variable.read_value() for variable in variables)
      backbone_state, values = of_backbone.next(
        backbone_state, values, gradients[0]
      )
      for variable, value in zip(variables, values, strict=True):
        variable.assign(value)
      if not config.freeze_head:
        state, head_weights = optimizer.next(state, head_weights, gradients[1])
      loss_sum += tf.reduce_sum(losses)
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

  Call it inside a `tf.function`. While TFF traces, `==` on tensors compares
  identity: comparisons here are spelled `tf.equal`.

  Args:
    backbone: Its trainable variables are updated.
    head: How to apply the head's weights.
    head_weights: First weights of the head.
    examples: Images and labels; labels are rows of the head, in [0, K).
    config: Hyperparameters.
    learning_rate_factor: Multiplies both learning rates, float32 scalar.
    seed: `[2]`, of the order of the examples.

  Returns:
    The trained head's weights, and sums over the examples of all local epochs:
    `loss_sum` (float32), `num_correct` and `num_examples` (int64). Two views of
    an image count as two examples.
  """
  batches = Batches(examples, config=config, seed=seed)
  client = _Client(backbone, head, batches, config, learning_rate_factor)
  if config.head_imprint_steps:
    rows, *others = head_weights
    head_weights = (client.imprint(rows), *others)
  scale = config.head_lr_scale if head.is_trained else 0.0
  optimizer = config.build_optimizer(scale, learning_rate_factor)
  specs = []
  for weight in head_weights:
    # A `tf.TensorSpec` cannot hold a shape that only the client knows.
    spec = types.SimpleNamespace(shape=tf.shape(weight), dtype=weight.dtype)
    specs.append(spec)
  state = optimizer.initialize(tuple(specs))
  if config.head_warmup_steps and head.is_trained:
    head_weights, state = client.train_head(head_weights, optimizer, state)
  head_weights, loss_sum, num_correct = client.train_both(
    head_weights, optimizer, state
  )
  views = config.epochs * (2 if config.two_views else 1)
  return head_weights, {
    "loss_sum": loss_sum,
    "num_correct": num_correct,
    "num_examples": tf.cast(batches.num_examples, tf.int64) * views,
  }
