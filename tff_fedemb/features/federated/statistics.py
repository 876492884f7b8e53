"""Clients' statistics in a federated fit, and their sums.

They are the statistics of Mehta et al. 2022 (arXiv 2211.13403), with a client's
sum as one contribution: sums that are released once, or a gradient in every
round. They are scaled so that the stacked statistics of one example of full
norm have the L2 norm 1. A client sends the sum over its examples, which the
aggregator has to clip.
"""

import abc
from collections.abc import Sequence
import dataclasses
import math
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from tff_fedemb.algorithms import learning_process
from tff_fedemb.data import pipelines
from tff_fedemb.features import examples as examples_lib
from tff_fedemb.features import gradient_steps


@dataclasses.dataclass(frozen=True)
class ClientConfig(abc.ABC):
  """The statistics that clients add up.

  Privacy:
    Unit: client.
    Neighbouring relation: a client's slot stays empty.
    Sensitivity: unbounded, until the aggregator clips what a client sends.
    DpEvent: the aggregator's.

  Attributes:
    size: Dimension d, number of classes K, and the bound C of a feature
      vector's L2 norm.
  """

  size: examples_lib.ProblemSize

  @property
  @abc.abstractmethod
  def shapes(self) -> tuple[tuple[int, ...], ...]:
    """Shapes of the tensors that a client sends, and of those it receives."""

  @abc.abstractmethod
  def add_up(
    self,
    scaled: tf.Tensor,
    labels: tf.Tensor,
    weights: Sequence[tf.Tensor],
  ) -> Sequence[tf.Tensor]:
    """Returns sums over examples.

    Args:
      scaled: x / C `[n, d]` for clipped features x.
      labels: `[n]`, integers in [0, K).
      weights: Tensors that the client received, of `shapes`.

    Returns:
      Tensors of `shapes`.
    """

  def send(
    self,
    features: tf.Tensor,
    labels: tf.Tensor,
    weights: Sequence[tf.Tensor] = (),
  ) -> tuple[tf.Tensor, ...]:
    """Returns what a client sends, zeros if it has no examples.

    Args:
      features: `[n, d]`, not clipped yet.
      labels: `[n]`, integers in [0, K).
      weights: Tensors that it received, of `shapes`.

    Returns:
      Tensors of `shapes`.
    """
    sums = self.add_up(self.scale(features), labels, weights)
    return tuple(map(tf.ensure_shape, sums, self.shapes))

  def scale(self, features: tf.Tensor) -> tf.Tensor:
    """Returns x / C for each clipped x of features.

    If features are not finite, neither are the client's statistics, and the
    process sends zeros in their place.

    Args:
      features: `[n, d]`.

    Returns:
      `[n, d]` of norm 1 at most, of the features' type.
    """
    # In single precision, the square of a large number is infinite, and the
    # inverse of one may be zero.
    wide = tf.cast(features, tf.float64)
    norms = tf.norm(wide, axis=1, keepdims=True)
    scaled = wide / tf.maximum(norms, self.size.clip_norm)
    return tf.cast(scaled, features.dtype)


@dataclasses.dataclass(frozen=True)
class StatisticsConfig(ClientConfig):
  """Second moments of the features, and optionally their sums by class.

  The stack (sqrt(s) sum x x' / C^2, sqrt(1 - s) sum by class x / C) is released
  at once. Noise of standard deviation z on the stack is noise of z / sqrt(s) on
  the second moments and z / sqrt(1 - s) on the sums, as in two releases with
  shares s and 1 - s of its zero-concentrated DP.

  Privacy:
    As `ClientConfig`, of the whole stack.

  Attributes:
    covariance_share: s, in (0, 1]; at 1 there are no sums by class.
  """

  covariance_share: float = 1.0

  @property
  def _factors(self) -> tuple[float, float]:
    """Factors of the second moments and of the sums by class."""
    share = self.covariance_share
    return math.sqrt(share), math.sqrt(1.0 - share)

  @property
  def shapes(self) -> tuple[tuple[int, ...], ...]:
    """Packed second moments `[d (d + 1) / 2]`, then sums `[K, d]` if any."""
    moments = (packed_size(self.size.dim),)
    if self.covariance_share == 1:
      return (moments,)
    return (moments, (self.size.num_classes, self.size.dim))

  def add_up(
    self,
    scaled: tf.Tensor,
    labels: tf.Tensor,
    weights: Sequence[tf.Tensor],
  ) -> Sequence[tf.Tensor]:
    """Adds up the scaled stack; `weights` are not used."""
    del weights  # These statistics need none.
    of_moments, of_sums = self._factors
    moments = tf.matmul(scaled, scaled, transpose_a=True)
    sums = [of_moments * pack(moments, self.size.dim)]
    if of_sums:
      class_sums = tf.math.unsorted_segment_sum(
        scaled, labels, self.size.num_classes
      )
      sums.append(of_sums * class_sums)
    return sums

  def restore(
    self,
    released: Sequence[np.ndarray],
    num_clients: float,
  ) -> tuple[np.ndarray, ...]:
    """Converts a release to the sums that central fits work with.

    Args:
      released: The aggregator's result: noised sums over clients, divided by
        their number.
      num_clients: That number.

    Returns:
      The sum of x x', float64 `[d, d]`; then the sums of x by class, float64
      `[K, d]`, if there are any.
    """
    of_moments, of_sums = self._factors
    moments = unpack(np.asarray(released[0], np.float64), self.size.dim)
    covariance = moments * (num_clients * self.size.clip_norm**2 / of_moments)
    if not of_sums:
      return (covariance,)
    scale = num_clients * self.size.clip_norm / of_sums
    return covariance, np.asarray(released[1], np.float64) * scale


@dataclasses.dataclass(frozen=True)
class GradientConfig(ClientConfig):
  """Gradients of a linear classifier, each example's clipped as a whole.

  Privacy:
    As `ClientConfig`, of each gradient.

  Attributes:
    method: Its loss, bias of logits, and bound of an example's gradient, which
      is the unit of the clients' sums.
  """

  method: gradient_steps.GradientMethod

  @property
  def shapes(self) -> tuple[tuple[int, ...], ...]:
    """Shape `[K, d]` of the gradient, and of the weights at which it is."""
    return ((self.size.num_classes, self.size.dim),)

  def add_up(
    self,
    scaled: tf.Tensor,
    labels: tf.Tensor,
    weights: Sequence[tf.Tensor],
  ) -> Sequence[tf.Tensor]:
    """Adds up clipped gradients at the received weights.

    They are in units of the method's `gradient_clip_norm`: each has norm 1 at
    most.
    """
    clipped = self.size.clip_norm * scaled
    logits = tf.matmul(clipped, weights[0], transpose_b=True)
    logits += self.method.logit_bias
    activation = tf.sigmoid
    if self.method.loss == "softmax":
      activation = tf.nn.softmax
    one_hot = tf.one_hot(labels, self.size.num_classes, dtype=logits.dtype)
    residuals = activation(logits) - one_hot
    # A gradient has rank one: its norm is that of two vectors.
    norms = tf.norm(residuals, axis=1) * tf.norm(clipped, axis=1)
    scales = 1.0 / tf.maximum(norms, self.method.gradient_clip_norm)
    factors = residuals * scales[:, tf.newaxis]
    return [tf.matmul(factors, clipped, transpose_a=True)]


class _TakeUpdate(tff.learning.optimizers.Optimizer):
  """An optimizer that replaces the weights by the update."""

  def initialize(self, specs: Any) -> Any:
    """Keeps no state."""
    return ()

  def next(self, state: Any, weights: Any, gradients: Any) -> tuple[Any, Any]:
    """Returns the update, named `gradients` by TFF, as the new weights."""
    return state, gradients


def build_process(
  config: ClientConfig,
  *,
  aggregator: tff.aggregators.UnweightedAggregationFactory,
) -> tff.learning.templates.LearningProcess:
  """Builds the process whose rounds make releases.

  Its trainable model weights are zeros at first. Each round sends them to the
  clients and replaces them by the aggregator's result. The process is composed
  as for the training of embeddings (`algorithms.learning_process`).

  Privacy:
    Unit: one client, a user.
    Neighbouring relation: zero-out of what one client sends, or adding or
      removing the client where all clients take part in a round.
    Sensitivity: the clip norm that the aggregator enforces on all tensors of a
      client together.
    DpEvent: the aggregator's.
    Not covered: the metrics (counts of examples and classes).

  Args:
    config: Statistics of the clients.
    aggregator: Clips, sums and noises, all tensors together.

  Returns:
    A process whose `next` takes batches `OrderedDict(x=float32 [b, d],
    y=int64 [b])` of each client. Loss and accuracy among its metrics are 0.
  """

  def create_weights() -> tff.learning.models.ModelWeights:
    zeros = tuple(map(tf.zeros, config.shapes))
    return tff.learning.models.ModelWeights(zeros, ())

  def client_update(
    weights: tff.learning.models.ModelWeights,
    dataset: tf.data.Dataset,
    round_num: tf.Tensor,
  ) -> learning_process.ClientUpdate:
    del round_num
    examples = pipelines.gather(dataset)
    labels = examples["y"]
    return learning_process.ClientUpdate(
      config.send(examples["x"], labels, weights.trainable),
      num_examples=tf.size(labels, tf.int64),
      num_classes=tf.size(tf.unique(labels).y),
    )

  return learning_process.build_learning_process(
    create_weights,
    client_update,
    example_type=learning_process.build_example_type(
      (config.size.dim,), tf.float32
    ),
    aggregator=aggregator,
    server_optimizer=_TakeUpdate(),
  )


# Symmetric matrices as vectors of half as many numbers: the upper triangle row
# by row, with the numbers off the diagonal times sqrt(2). The L2 norm of the
# vector is the Frobenius norm of the matrix. Independent noise on the vector
# is, on the matrix, that of `noise.Release.add_symmetric_noise`.
def packed_size(dim: int) -> int:
  """Returns d (d + 1) / 2: numbers of a packed `[d, d]` matrix.

  Args:
    dim: d, at least 1.
  """
  return dim * (dim + 1) // 2


def pack(matrix: tf.Tensor, dim: int) -> tf.Tensor:
  """Packs a symmetric matrix.

  Args:
    matrix: `[d, d]`; numbers below the diagonal are not read.
    dim: d, as TensorFlow may not know the matrix's shape yet.

  Returns:
    `[d (d + 1) / 2]`.
  """
  diagonal = tf.linalg.diag_part(matrix)
  scaled = tf.linalg.set_diag(math.sqrt(2.0) * matrix, diagonal)
  # Computed in the graph: a constant of indices would be in all its copies.
  is_upper = tf.linalg.band_part(tf.ones([dim, dim], tf.bool), 0, -1)
  return tf.boolean_mask(scaled, is_upper)


def unpack(vector: np.ndarray, dim: int) -> np.ndarray:
  """Unpacks a symmetric matrix, the inverse of `pack`.

  Args:
    vector: `[d (d + 1) / 2]`.
    dim: d.

  Returns:
    Float64 `[d, d]`.
  """
  upper = np.zeros([dim, dim])
  upper[np.triu_indices(dim)] = vector
  matrix = (upper + upper.T) / math.sqrt(2.0)
  matrix[np.diag_indices(dim)] = np.diagonal(upper)
  return matrix
