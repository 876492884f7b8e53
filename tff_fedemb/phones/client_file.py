"""A client's training as a TensorFlow Lite file, for phones.

DP-FedEmb's client (`fedemb`): the weights of the backbone, the images of one
user and a fresh head go in, the clipped change of the backbone comes out. The
weights are no part of the file: they come with each round. All operations are
built in, none is TensorFlow's own.
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
from tff_fedemb.models import heads
from tff_fedemb.phones import lite_layers

# Names of what goes in and out beside the weights.
LEARNING_RATE = "learning_rate"
HEAD_NAMES = ("head", "head_bias")
LOSS_SUM = "loss_sum"
NUM_CORRECT = "num_correct"

# So much is left for rounding, that no honest delta is longer than allowed.
_ROUNDING = 1e-6
_HEADS = (heads.LinearHead, heads.CosineHead, heads.ClassCodesHead)
# Fields of `LocalTraining`, and what each must be here.
_ALLOWED = {
  "optimizer": "sgd",
  "head_imprint_steps": 0,
  "augmentation": "none",
  "turned_classes": False,
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class ClientFile:
  """Computation of a client, before it is converted.

  Attributes:
    create_backbone_fn: Makes a fresh Keras model.
    head: The head that each client makes and throws away.
    config: Hyperparameters of local training.
    clip_norm: L2 norm to which the file clips the change, all weights together.
    seed: Seed of the run, for simulated clients.
    spec_digest: Digest of the run's spec.
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
    if type(self.head) not in _HEADS or getattr(
      self.head, "learned_scale", False
    ):
      raise errors.FieldError(
        "head",
        "be linear, class_codes, or cosine of a fixed scale in a file that"
        " trains on phones",
        type(self.head).__name__,
      )

  @functools.cached_property
  def backbone(self) -> tf.keras.Model:
    """Names, shapes and layers; its weights are of no account."""
    return self.create_backbone_fn()

  @functools.cached_property
  def delta_shapes(self) -> dict[str, tuple[int, ...]]:
    """Shapes of what is sent, float32, by name in the order of the update."""
    return {
      lite_layers.name_of(weight): tuple(weight.shape)
      for weight in self.backbone.trainable_variables
    }

  @property
  def warm_up_steps(self) -> int:
    """Steps that train the head alone."""
    return self.config.head_warmup_steps if self.head.is_trained else 0

  @functools.cached_property
  def _head_shapes(self) -> dict[str, tuple[int, ...]]:
    """Shapes of a class's share of the head's weights, by name."""
    dim = self.backbone.output_shape[-1]
    weights = self.head.initialize(1, dim, seed=[0, 0])
    return {
      name: tuple(weight.shape[1:])
      for name, weight in zip(HEAD_NAMES, weights, strict=False)
    }

  def name_inputs(self, weights: Any, round_num: int) -> dict[str, np.ndarray]:
    """Values that the server sends in a round, by the names of the inputs.

    Args:
      weights: The model's, `ModelWeights`.
      round_num: The round, from 0.
    """
    names = list(self.delta_shapes)
    names += map(lite_layers.name_of, self.backbone.non_trainable_variables)
    values = list(weights.trainable) + list(weights.non_trainable)
    inputs = dict(zip(names, map(np.asarray, values), strict=True))
    factor = self.config.learning_rate_factor(tf.constant(round_num)).numpy()
    inputs[LEARNING_RATE] = np.float32(self.config.learning_rate) * factor
    return inputs

  @functools.cached_property
  def content(self) -> bytes:
    """The contents of the .tflite file.

    Raises:
      errors.FieldError: If a layer cannot be trained so.
    """
    image_shape = self.backbone.input_shape[1:]
    specs = {
      lite_layers.name_of(weight): tf.TensorSpec(weight.shape, tf.float32)
      for weight in self.backbone.weights
    }
    images = tf.TensorSpec((None,) + image_shape, tf.uint8)
    order = tf.TensorSpec([None, self.config.batch_size], tf.int32)
    inputs = {
      "images": images,
      "labels": tf.TensorSpec([None], tf.int32),
      "order": order,
    }
    for name, shape in self._head_shapes.items():
      inputs[name] = tf.TensorSpec((None,) + shape, tf.float32)
    inputs[LEARNING_RATE] = tf.TensorSpec([], tf.float32)
    if self.warm_up_steps:
      inputs["warm_up"] = order
    # The file's own names: only a SavedModel's signature keeps them.
    signatures = {
      "train": _concrete(self._train, {**specs, **inputs}),
      "embed": _concrete(self._embed, {**specs, "images": images}),
    }
    with tempfile.TemporaryDirectory() as directory:
      tf.saved_model.save(tf.Module(), directory, signatures=signatures)
      converter = tf.lite.TFLiteConverter.from_saved_model(
        directory, signature_keys=list(signatures)
      )
      converter.target_spec.supported_ops = [tf.lite.OpsSet.TFLITE_BUILTINS]
      return converter.convert()

  def describe(self) -> dict[str, Any]:
    """Description that goes beside the file, JSON values by name."""
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
      "head": {
        "kind": heads.HEADS.name_of(self.head),
        **self.head.to_json(),
        "shapes": {
          name: ["classes"] + list(shape)
          for name, shape in self._head_shapes.items()
        },
      },
      "may_be_sent": {
        name: list(shape) for name, shape in self.delta_shapes.items()
      },
      "must_stay": "images, labels, order, head, loss_sum and num_correct",
    }

  def _embed(self, images: tf.Tensor, **weights):
    embeddings = lite_layers.run(
      self.backbone, weights, tf.cast(images, tf.float32), is_trained=False
    )
    return {"embeddings": lite_layers.normalize_rows(embeddings)}

  def _train(
    self,
    images: tf.Tensor,
    labels: tf.Tensor,
    order: tf.Tensor,
    learning_rate: tf.Tensor,
    **tensors,
  ):
    """The signature `train`; see `_Steps`."""
    head = [tensors.pop(name) for name in HEAD_NAMES if name in tensors]
    warm_up = tensors.pop("warm_up", None)
    steps = _Steps(self, images, labels, learning_rate, tensors, head[0])
    if warm_up is not None:
      _, head = _loop(warm_up, steps.take, [[], head])
    weights, _, loss_sum, num_correct = _loop(
      order,
      steps.take,
      [[tensors[name] for name in self.delta_shapes], head, 0.0, 0.0],
    )
    trained = dict(zip(self.delta_shapes, weights, strict=True))
    counts = {LOSS_SUM: loss_sum, NUM_CORRECT: tf.cast(num_correct, tf.int32)}
    delta = {name: tensors[name] - trained[name] for name in self.delta_shapes}
    # In two steps, which round less.
    squares = sum(
      tf.reduce_sum(tf.reduce_sum(change * change, axis=0))
      for change in delta.values()
    )
    norm = tf.sqrt(squares)
    # A change that is not finite stays so, and the server refuses it.
    clip_norm = self.clip_norm * (1.0 - _ROUNDING)
    factor = tf.minimum(clip_norm / tf.maximum(norm, 1e-30), 1.0)
    return {name: change * factor for name, change in delta.items()} | counts


def _concrete(function: Callable[..., Any], specs: Mapping[str, tf.TensorSpec]):
  named = {
    name: tf.TensorSpec(spec.shape, spec.dtype, name=name)
    for name, spec in specs.items()
  }
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
    self._file = file
    self._images = images
    self._labels = labels
    self._weights = weights
    self._rate = learning_rate
    scale = file.config.head_lr_scale if file.head.is_trained else 0.0
    self._head_rate = learning_rate * scale
    # The number of each class; `tf.range` would make shapes that nobody knows
    # before it runs, and with them slow tensors of every gradient.
    self._classes = tf.cumsum(rows[:, 0] * 0.0 + 1.0) - 1.0

  def take(
    self,
    places: tf.Tensor,
    weights: list[tf.Tensor],
    head: list[tf.Tensor],
    *counts,
  ):
    """Trains on a batch: backbone and head, or without weights the head alone.

    The counts, if there are any, are the sum of losses and the number correct.
    """
    images, one_hot, mask = self._read(places)
    named = dict(zip(self._file.delta_shapes, weights, strict=False))
    with tf.GradientTape(watch_accessed_variables=False) as tape:
      tape.watch((weights, head))
      embeddings = lite_layers.run(
        self._file.backbone, {**self._weights, **named}, images, is_trained=True
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
    found = tf.cast(tf.argmax(logits, 1, tf.int32), tf.float32)
    label = tf.reduce_sum(one_hot * self._classes, axis=1)
    is_correct = tf.cast(tf.equal(found, label), tf.float32)
    return [
      weights,
      head,
      loss_sum + loss * tf.reduce_sum(mask),
      num_correct + tf.reduce_sum(is_correct * mask),
    ]

  def _read(self, places: tf.Tensor):
    """Images of a batch, their labels as one-hot rows, and which there are."""
    rows = tf.maximum(places, 0)
    labels = tf.cast(tf.gather(self._labels, rows), tf.float32)
    one_hot = tf.equal(labels[:, tf.newaxis], self._classes[tf.newaxis])
    return (
      tf.cast(tf.gather(self._images, rows), tf.float32),
      tf.cast(one_hot, tf.float32),
      tf.cast(places >= 0, tf.float32),
    )

  def _logits(self, head: list[tf.Tensor], embeddings: tf.Tensor):
    rows = head[0]
    if isinstance(self._file.head, heads.ScaledCosineHead):
      # Scaled here, where shapes are known: the gradient needs them.
      scale = self._file.head.scale
      embeddings = scale * lite_layers.normalize_rows(embeddings)
      rows = lite_layers.normalize_rows(rows)
    logits = tf.matmul(embeddings, rows, transpose_b=True)
    return lite_layers.add_bias(logits, head[1]) if len(head) > 1 else logits


def _descend(
  weights: list[tf.Tensor],
  gradients: list[tf.Tensor],
  rate: tf.Tensor,
):
  return tf.nest.map_structure(lambda w, g: w - rate * g, weights, gradients)


def _mean_loss(logits: tf.Tensor, one_hot: tf.Tensor, mask: tf.Tensor):
  """Mean softmax cross entropy of the examples that there are."""
  share = (mask / tf.maximum(tf.reduce_sum(mask), 1.0))[:, tf.newaxis]

  @tf.custom_gradient
  def compute(logits: tf.Tensor):
    shifted = logits - tf.reduce_max(logits, axis=1, keepdims=True)
    powers = tf.exp(shifted)
    sums = tf.reduce_sum(powers, axis=1, keepdims=True)
    losses = tf.math.log(sums) - tf.reduce_sum(
      shifted * one_hot, axis=1, keepdims=True
    )

    def gradient(upstream: tf.Tensor):
      return upstream * share * (powers / sums - one_hot)

    return tf.reduce_sum(share * losses), gradient

  return compute(logits)


def _loop(order: tf.Tensor, step: Callable[..., Any], values: list[Any]):
  """Does a step for each row of places; shapes of values stay."""
  values = tf.nest.map_structure(tf.convert_to_tensor, values)
  _, *values = tf.while_loop(
    lambda number, *_: number < tf.shape(order)[0],
    lambda number, *values: (
      number + 1,
      *step(tf.gather(order, number), *values),
    ),
    (tf.constant(0), *values),
    shape_invariants=(
      tf.TensorShape([]),
      *tf.nest.map_structure(lambda value: value.shape, values),
    ),
  )
  return values
