"""A client's training as a TensorFlow Lite file, for phones.

DP-FedEmb's client (`fedemb`): the weights of the backbone, the images of one
user and a fresh head go in, the clipped change of the backbone comes out. The
file has no weights: they come with each round. All operations are built into
TensorFlow Lite.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
import dataclasses
import functools
import hashlib
import tempfile
from typing import Any

import numpy as np
import tensorflow as tf

from tff_fedemb import errors
from tff_fedemb.algorithms import local_training
from tff_fedemb.models import graph_gradients
from tff_fedemb.models import heads
from tff_fedemb.phones import lite_layers

# Names of the inputs and outputs that are no weights of the backbone.
LEARNING_RATE = "learning_rate"
HEAD_NAMES = ("head", "head_bias")
LOSS_SUM = "loss_sum"
NUM_CORRECT = "num_correct"

# The clip norm is reduced by this share, so that rounding does not lengthen an
# honest delta beyond it.
_ROUNDING = 1e-6
_HEADS = (heads.LinearHead, heads.CosineHead, heads.ClassCodesHead)
# Fields of `LocalTraining`, and the only value of each that a file supports.
_ALLOWED = {
  "optimizer": "sgd",
  "head_imprint_steps": 0,
  "augmentation": "none",
  "turned_classes": False,
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class ClientFile:
  """Computation of a client, and the file that it is converted to.

  Privacy:
    Unit: the client.
    Neighbouring relation: zero-out of what the client sends.
    Sensitivity: `clip_norm`, which an honest client keeps to; the server
      enforces it by `deltas.Inbox`.
    DpEvent: the aggregator's.

  Attributes:
    create_backbone_fn: Makes a fresh Keras model.
    head: The head that each client makes and throws away.
    config: Hyperparameters of local training.
    clip_norm: L2 norm to which the file clips the change, all weights together.
    seed: Seed of the run, for simulated clients.
    spec_digest: Digest of the run's spec.

  Raises:
    errors.FieldError: If a file cannot train with this head, or with a field of
      `config`.
  """

  create_backbone_fn: Callable[[], tf.keras.Model]
  head: heads.Head
  config: local_training.ClientTraining
  clip_norm: float
  seed: int
  spec_digest: str

  def __post_init__(self):
    for name, allowed in _ALLOWED.items():
      found = getattr(self.config, name)
      if found != allowed:
        raise errors.FieldError(
          name, f"be {allowed} in a file that trains on phones", found
        )
    has_learned_scale = getattr(self.head, "learned_scale", False)
    if type(self.head) not in _HEADS or has_learned_scale:
      raise errors.FieldError(
        "head",
        "be linear, class_codes, or cosine of a fixed scale in a file that"
        " trains on phones",
        type(self.head).__name__,
      )

  @functools.cached_property
  def backbone(self) -> tf.keras.Model:
    """A model for its names, shapes and layers; its weights are not used.

    It is made once, on the first use.
    """
    return self.create_backbone_fn()

  @functools.cached_property
  def delta_shapes(self) -> dict[str, tuple[int, ...]]:
    """Shapes of the float32 tensors that are sent, in the update's order."""
    trained = self.backbone.trainable_variables
    names = lite_layers.names_of(self.backbone, trained)
    shapes = [tuple(weight.shape) for weight in trained]
    return dict(zip(names, shapes, strict=True))

  @property
  def warm_up_steps(self) -> int:
    """Number of first steps that train the head alone."""
    if self.head.is_trained:
      return self.config.head_warmup_steps
    return 0

  @functools.cached_property
  def _head_shapes(self) -> dict[str, tuple[int, ...]]:
    """Shapes of a class's share of the head's weights, by name.

    Returns:
      For a linear head `{"head": (dim,), "head_bias": ()}`; a head without a
      bias has no `head_bias`.
    """
    dim = self.backbone.output_shape[-1]
    weights = self.head.initialize(1, dim, seed=[0, 0])
    shapes = {}
    for name, weight in zip(HEAD_NAMES, weights, strict=False):
      shapes[name] = tuple(weight.shape[1:])
    return shapes

  def name_inputs(self, weights: Any, round_num: int) -> dict[str, np.ndarray]:
    """Names the values that the server sends in a round.

    The learning rate follows the schedule of the clients' configuration.

    Args:
      weights: The model's `ModelWeights`.
      round_num: The round, from 0.

    Returns:
      All weights and the learning rate, inputs of the signature `train`.
    """
    names = list(self.delta_shapes)
    frozen = self.backbone.non_trainable_variables
    names += lite_layers.names_of(self.backbone, frozen)
    values = list(weights.trainable) + list(weights.non_trainable)
    inputs = dict(zip(names, map(np.asarray, values), strict=True))
    factor = self.config.learning_rate_factor(tf.constant(round_num)).numpy()
    inputs[LEARNING_RATE] = np.float32(self.config.learning_rate) * factor
    return inputs

  @functools.cached_property
  def content(self) -> bytes:
    """The contents of the .tflite file, made once, on the first use.

    It has two signatures. `train` takes weights, images, labels, the order of
    the examples, a head and a learning rate, and returns the clipped delta,
    `loss_sum` and `num_correct`. `embed` takes weights and images, and returns
    unit embeddings.

    Raises:
      errors.FieldError: If the file cannot train a layer.
    """
    specs = {}
    weights = self.backbone.weights
    names = lite_layers.names_of(self.backbone, weights)
    for name, weight in zip(names, weights, strict=True):
      specs[name] = tf.TensorSpec(weight.shape, tf.float32)
    image_shape = self.backbone.input_shape[1:]
    specs["images"] = tf.TensorSpec((None,) + image_shape, tf.uint8)
    embed = _trace(self._embed, specs)
    specs["labels"] = tf.TensorSpec([None], tf.int32)
    specs["order"] = tf.TensorSpec([None, self.config.batch_size], tf.int32)
    for name, shape in self._head_shapes.items():
      specs[name] = tf.TensorSpec((None,) + shape, tf.float32)
    specs[LEARNING_RATE] = tf.TensorSpec([], tf.float32)
    if self.warm_up_steps:
      specs["warm_up"] = specs["order"]
    # Only the signature of a SavedModel keeps the names of inputs and outputs.
    signatures = {"train": _trace(self._train, specs), "embed": embed}
    with tempfile.TemporaryDirectory() as directory:
      tf.saved_model.save(tf.Module(), directory, signatures=signatures)
      converter = tf.lite.TFLiteConverter.from_saved_model(
        directory, signature_keys=list(signatures)
      )
      converter.target_spec.supported_ops = [tf.lite.OpsSet.TFLITE_BUILTINS]
      return converter.convert()

  def describe(self) -> dict[str, Any]:
    """Describes the file, for the card beside it.

    Returns:
      JSON values by name. `may_be_sent` has the shapes of all tensors that may
      leave a phone.
    """
    head_shapes = {}
    for name, shape in self._head_shapes.items():
      head_shapes[name] = ["classes", *shape]
    return {
      "format": "TensorFlow Lite, one round of a client's training",
      "size_bytes": len(self.content),
      "sha256": hashlib.sha256(self.content).hexdigest(),
      "spec_sha256": self.spec_digest,
      "backbone": self.backbone.name,
      "image_shape": list(self.backbone.input_shape[1:]),
      "embedding_dim": self.backbone.output_shape[-1],
      "clip_norm": self.clip_norm,
      "batch_size": self.config.batch_size,
      "local_epochs": self.config.epochs,
      "head_warmup_steps": self.warm_up_steps,
      "head": {
        "kind": heads.HEADS.name_of(self.head),
        **self.head.to_json(),
        "shapes": head_shapes,
      },
      "may_be_sent": {k: list(v) for k, v in self.delta_shapes.items()},
      "must_stay": (
        "images, labels, order, warm_up, head, loss_sum and num_correct"
      ),
    }

  def _embed(
    self, images: tf.Tensor, **weights: tf.Tensor
  ) -> dict[str, tf.Tensor]:
    """The signature `embed`: unit embeddings, `[n, dim]`.

    Args:
      images: uint8 `[n, height, width, channels]`.
      **weights: All weights of the backbone, by name.
    """
    images = tf.cast(images, tf.float32)
    embeddings = lite_layers.run(
      self.backbone, weights, images, is_trained=False
    )
    return {"embeddings": lite_layers.normalize_rows(embeddings)}

  def _train(
    self,
    images: tf.Tensor,
    labels: tf.Tensor,
    order: tf.Tensor,
    learning_rate: tf.Tensor,
    **tensors: tf.Tensor,
  ) -> dict[str, tf.Tensor]:
    """The signature `train`: the clipped delta, and the sums of `_Steps`.

    Args:
      images: uint8 `[n, height, width, channels]`.
      labels: Rows of the head for the images, int32 `[n]`.
      order: Rows of the examples of each step, int32 `[steps, batch]`; -1 is an
        empty place.
      learning_rate: Learning rate of the round, a scalar.
      **tensors: Weights of the backbone and of the head, by name; and
        `warm_up`, like `order`, if the head is first trained alone.

    Returns:
      The weights before minus after training, by name, clipped together to the
      clip norm; `loss_sum`, float32; and `num_correct`, int32.
    """
    head = [tensors.pop(name) for name in HEAD_NAMES if name in tensors]
    warm_up = tensors.pop("warm_up", None)
    steps = _Steps(self, images, labels, learning_rate, tensors, head[0])
    if warm_up is not None:
      _, head = _loop(warm_up, steps.take, [[], head])
    weights = [tensors[name] for name in self.delta_shapes]
    trained, _, loss_sum, num_correct = _loop(
      order, steps.take, [weights, head, 0.0, 0.0]
    )
    delta = []
    squares = 0.0
    for before, after in zip(weights, trained, strict=True):
      change = before - after
      delta.append(change)
      # Summing in two steps rounds less.
      squares += tf.reduce_sum(tf.reduce_sum(change * change, axis=0))
    norm = tf.sqrt(squares)
    # A change that is not finite stays that way, and the server refuses it.
    clip_norm = self.clip_norm * (1.0 - _ROUNDING)
    factor = tf.minimum(clip_norm / tf.maximum(norm, 1e-30), 1.0)
    clipped = [change * factor for change in delta]
    outputs = dict(zip(self.delta_shapes, clipped, strict=True))
    outputs[LOSS_SUM] = loss_sum
    outputs[NUM_CORRECT] = tf.cast(num_correct, tf.int32)
    return outputs


def _trace(
  function: Callable[..., Any],
  specs: Mapping[str, tf.TensorSpec],
) -> Any:
  """Traces a function of named tensors to a concrete function.

  Args:
    function: Takes tensors by keyword.
    specs: Shape and type of each, by name.
  """
  named = {}
  for name, spec in specs.items():
    named[name] = tf.TensorSpec(spec.shape, spec.dtype, name=name)
  return tf.function(function, autograph=False).get_concrete_function(**named)


class _Steps:
  """The steps of a client, in operations that TensorFlow Lite has."""

  def __init__(
    self,
    file: ClientFile,
    images: tf.Tensor,
    labels: tf.Tensor,
    learning_rate: tf.Tensor,
    weights: dict[str, tf.Tensor],
    rows: tf.Tensor,
  ):
    """Initialises the steps.

    Args:
      file: The file that they are part of.
      images: Images of the client, uint8 `[n, height, width, channels]`.
      labels: Rows of the head for them, int32 `[n]`.
      learning_rate: Learning rate of the round, a scalar.
      weights: All weights of the backbone before the first step, by name.
      rows: Rows of the head, `[classes, dim]`.
    """
    self._file = file
    self._images = images
    self._labels = labels
    self._weights = weights
    self._rate = learning_rate
    self._head_rate = learning_rate * 0.0
    if file.head.is_trained:
      self._head_rate = learning_rate * file.config.head_lr_scale
    # 0, 1, ...: the number of each class. `tf.range` would make shapes that are
    # unknown before it runs, and gradients with unknown shapes are slow.
    self._classes = tf.cumsum(rows[:, 0] * 0.0 + 1.0) - 1.0

  def take(
    self,
    places: tf.Tensor,
    weights: list[tf.Tensor],
    head: list[tf.Tensor],
    *counts: tf.Tensor,
  ) -> list[Any]:
    """Trains on a batch.

    Args:
      places: Rows of the examples, int32 `[batch]`; -1 is an empty place.
      weights: Trainable weights of the backbone, in the order of the delta;
        none to train the head alone.
      head: Weights of the head.
      *counts: Sum of losses and number of correct examples so far; or none, to
        count neither.

    Returns:
      The same, after the step.
    """
    images, one_hot, mask = self._read(places)
    named = dict(zip(self._file.delta_shapes, weights, strict=False))
    all_weights = self._weights | named
    with tf.GradientTape(watch_accessed_variables=False) as tape:
      tape.watch((weights, head))
      embeddings = lite_layers.run(
        self._file.backbone, all_weights, images, is_trained=True
      )
      logits = self._logits(head, embeddings)
      loss = _mean_loss(logits, one_hot, mask)
    of_weights, of_head = tape.gradient(loss, (weights, head))
    if not (weights and self._file.config.freeze_head):
      head = _descend(head, of_head, self._head_rate)
    weights = _descend(weights, of_weights, self._rate)
    if not counts:
      return [weights, head]
    loss_sum, num_correct = counts
    loss_sum += loss * tf.reduce_sum(mask)
    found = tf.cast(tf.argmax(logits, 1, tf.int32), tf.float32)
    label = tf.reduce_sum(one_hot * self._classes, axis=1)
    is_correct = tf.cast(tf.equal(found, label), tf.float32)
    num_correct += tf.reduce_sum(is_correct * mask)
    return [weights, head, loss_sum, num_correct]

  def _read(self, places: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """Returns images, labels as one-hot rows, and 1 for each full place.

    Args:
      places: As in `take`. An empty place has the first example, which its 0 in
        the mask keeps out of the loss.

    Returns:
      float32 `[batch, height, width, channels]`, `[batch, classes]`, `[batch]`.
    """
    rows = tf.maximum(places, 0)
    labels = tf.cast(tf.gather(self._labels, rows), tf.float32)
    one_hot = tf.equal(labels[:, tf.newaxis], self._classes[tf.newaxis])
    images = tf.cast(tf.gather(self._images, rows), tf.float32)
    mask = tf.cast(places >= 0, tf.float32)
    return images, tf.cast(one_hot, tf.float32), mask

  def _logits(self, head: list[tf.Tensor], embeddings: tf.Tensor) -> tf.Tensor:
    """Returns the head's logits `[batch, classes]`.

    Args:
      head: Its rows, `[classes, dim]`, and for a linear head its bias
        `[classes]`.
      embeddings: `[batch, dim]`, not normalised.
    """
    rows = head[0]
    if isinstance(self._file.head, heads.ScaledCosineHead):
      # Scale the embeddings, not the logits: the gradient needs a known shape,
      # and the number of classes is unknown.
      scale = self._file.head.scale
      embeddings = scale * lite_layers.normalize_rows(embeddings)
      rows = lite_layers.normalize_rows(rows)
    logits = tf.matmul(embeddings, rows, transpose_b=True)
    if len(head) > 1:
      logits = lite_layers.add_bias(logits, head[1])
    return logits


def _descend(
  weights: list[tf.Tensor],
  gradients: list[tf.Tensor],
  rate: tf.Tensor,
) -> list[tf.Tensor]:
  """Takes a step of gradient descent.

  Args:
    weights: Tensors.
    gradients: Their gradients, in the same order.
    rate: Learning rate, a scalar.
  """
  return [w - rate * g for w, g in zip(weights, gradients, strict=True)]


def _mean_loss(
  logits: tf.Tensor,
  one_hot: tf.Tensor,
  mask: tf.Tensor,
) -> tf.Tensor:
  """Returns the mean softmax cross entropy of the examples in full places.

  The gradient is written out: TensorFlow Lite has none of its own.

  Args:
    logits: `[batch, classes]`.
    one_hot: Labels, float32 `[batch, classes]`.
    mask: 1 for each full place and 0 for others, `[batch]`.

  Returns:
    A scalar; 0 if all places are empty.
  """
  share = (mask / tf.maximum(tf.reduce_sum(mask), 1.0))[:, tf.newaxis]

  @graph_gradients.custom_gradient
  def compute(logits: tf.Tensor):
    shifted = logits - tf.reduce_max(logits, axis=1, keepdims=True)
    powers = tf.exp(shifted)
    sums = tf.reduce_sum(powers, axis=1, keepdims=True)
    own = tf.reduce_sum(shifted * one_hot, axis=1, keepdims=True)
    losses = tf.math.log(sums) - own

    def gradient(upstream: tf.Tensor):
      return upstream * share * (powers / sums - one_hot)

    return tf.reduce_sum(share * losses), gradient

  return compute(logits)


def _loop(
  order: tf.Tensor,
  step: Callable[..., Any],
  values: list[Any],
) -> list[Any]:
  """Takes a step for each row of places; values keep their shapes.

  Args:
    order: Rows of the examples, int32 `[steps, batch]`.
    step: Maps a row of `order` and the values to new values.
    values: Nested tensors before the first step.

  Returns:
    The values after the last step.
  """
  values = tf.nest.map_structure(tf.convert_to_tensor, values)
  shapes = tf.nest.map_structure(lambda value: value.shape, values)

  def is_left(number: tf.Tensor, *values: Any) -> tf.Tensor:
    del values  # The number of steps does not depend on them.
    return number < tf.shape(order)[0]

  def take(number: tf.Tensor, *values: Any) -> tuple[Any, ...]:
    places = tf.gather(order, number)
    return (number + 1, *step(places, *values))

  _, *values = tf.while_loop(
    is_left,
    take,
    (tf.constant(0), *values),
    shape_invariants=(tf.TensorShape([]), *shapes),
  )
  return values
