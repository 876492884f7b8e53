"""What a client adds up over its examples, in TensorFlow.

The same sums as in central fits, in units of one example of full norm: the
statistics of such an example have, stacked, the L2 norm 1. What a client sends
is its mean over examples, of norm at most 1, or its sum, which the aggregator
has to clip.
"""

from __future__ import annotations

from collections.abc import Sequence
import dataclasses
import math

import numpy as np
import tensorflow as tf

from tff_fedemb import config
from tff_fedemb.features import examples as examples_lib
from tff_fedemb.features import losses
from tff_fedemb.features.federated import settings


@dataclasses.dataclass(frozen=True)
class ClientConfig(config.Config):
  """How clients read and weigh their examples.

  Attributes:
    dim: d, numbers of a feature vector.
    num_classes: K; labels are in [0, K).
    clip_norm: C, positive: bound of a feature vector's L2 norm.
    scaling: One of `examples.SCALINGS`.
    example_weighting: 'mean': a client's examples together count as one.
      'sum': each counts as one, until the aggregator clips.
  """

  dim: int = config.field(minimum=1)
  num_classes: int = config.field(minimum=2)
  clip_norm: float = config.field(1.0, above=0)
  scaling: str = config.field("clip", choices=examples_lib.SCALINGS)
  example_weighting: str = config.field(
    "mean", choices=settings.EXAMPLE_WEIGHTINGS
  )

  def scale(self, features: tf.Tensor) -> tf.Tensor:
    """Scales features `[n, d]` to at most, or exactly, norm 1.

    Args:
      features: Finite. Others make the client's statistics not finite, and the
        process sends zeros in their place.

    Returns:
      x / C for each clipped x, float32 `[n, d]`.
    """
    # The square of a large number is infinite in single precision, and what is
    # left of one over it may be zero.
    wide = tf.cast(features, tf.float64)
    divisors = tf.norm(wide, axis=1, keepdims=True)
    if self.scaling == "clip":
      divisors = tf.maximum(divisors, self.clip_norm)
    return tf.cast(tf.math.divide_no_nan(wide, divisors), features.dtype)

  def weigh(
    self, sums: Sequence[tf.Tensor], num_examples: tf.Tensor
  ) -> tuple[tf.Tensor, ...]:
    """Makes what a client sends of sums over its examples.

    Args:
      sums: Any shapes.
      num_examples: Scalar; of none, means are 0.
    """
    if self.example_weighting == "sum":
      return tuple(sums)
    return tuple(
      tf.math.divide_no_nan(total, tf.cast(num_examples, total.dtype))
      for total in sums
    )


@dataclasses.dataclass(frozen=True)
class StatisticsConfig(ClientConfig):
  """Second moments of the features, and if wanted their sums by class.

  The stack (sqrt(s) sum x x' / C^2, sqrt(1 - s) sum by class x / C) is made for
  a single release: noise of standard deviation z on all of it is noise of
  z / sqrt(s) on the one and z / sqrt(1 - s) on the other, as two releases with
  shares s and 1 - s of its zero-concentrated DP would have.

  Privacy:
    Unit: client.
    Neighbouring relation: add or remove one client.
    Sensitivity: 1 in the L2 norm of the whole stack if examples are weighted by
      'mean'; unbounded by 'sum', until the aggregator clips the stack.
    DpEvent: the aggregator's.

  Attributes:
    covariance_share: s, in (0, 1]; at 1 there are no sums by class.
  """

  covariance_share: float = config.field(1.0, above=0, maximum=1)

  @property
  def covariance_weight(self) -> float:
    """sqrt(s)."""
    return math.sqrt(self.covariance_share)

  @property
  def class_sum_weight(self) -> float:
    """sqrt(1 - s)."""
    return math.sqrt(1.0 - self.covariance_share)

  @property
  def shapes(self) -> tuple[tuple[int, ...], ...]:
    """Of the tensors of `add_up`."""
    moments = (packed_size(self.dim),)
    if not self.class_sum_weight:
      return (moments,)
    return (moments, (self.num_classes, self.dim))

  def add_up(
    self, features: tf.Tensor, labels: tf.Tensor
  ) -> tuple[tf.Tensor, ...]:
    """Returns what a client sends.

    Args:
      features: `[n, d]`.
      labels: `[n]`.

    Returns:
      The packed second moments `[d (d + 1) / 2]`, and the sums by class
      `[K, d]` if wanted.
    """
    scaled = self.scale(features)
    moments = tf.matmul(scaled, scaled, transpose_a=True)
    sums = [
      self.covariance_weight
      * pack(tf.ensure_shape(moments, [self.dim, self.dim]))
    ]
    if self.class_sum_weight:
      sums.append(
        self.class_sum_weight
        * tf.math.unsorted_segment_sum(scaled, labels, self.num_classes)
      )
    return self.weigh(sums, tf.size(labels))

  def restore(
    self, released: Sequence[np.ndarray], num_clients: float
  ) -> tuple[np.ndarray, np.ndarray | None]:
    """Makes of a release the sums that central fits work with.

    Args:
      released: The aggregator's result: sums over clients, noised, divided by
        `num_clients`.
      num_clients: The divisor.

    Returns:
      The sum of x x', float64 `[d, d]`, and by class of x, `[K, d]`, or `None`.
    """
    moments = unpack(np.asarray(released[0], np.float64), self.dim)
    covariance = moments * (
      num_clients * self.clip_norm**2 / self.covariance_weight
    )
    if not self.class_sum_weight:
      return covariance, None
    scale = num_clients * self.clip_norm / self.class_sum_weight
    return covariance, np.asarray(released[1], np.float64) * scale


@dataclasses.dataclass(frozen=True)
class GradientConfig(ClientConfig):
  """Gradients of a linear classifier, each example's clipped as a whole.

  Privacy:
    As `StatisticsConfig`, of each gradient.

  Attributes:
    loss: One of `losses.LOSSES`.
    gradient_clip_norm: c, positive: bound of an example's gradient; what
      clients send is in units of it.
  """

  loss: str = config.field("softmax", choices=losses.LOSSES)
  gradient_clip_norm: float = config.field(1.0, above=0)

  def add_up(
    self, weights: tf.Tensor, features: tf.Tensor, labels: tf.Tensor
  ) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """Returns what a client sends, and how well it was classified.

    Args:
      weights: `[K, d]`.
      features: `[n, d]`.
      labels: `[n]`.

    Returns:
      The gradient `[K, d]`, the sum of the examples' losses, and the number of
      those classified correctly, int64.
    """
    clipped = self.clip_norm * self.scale(features)
    logits = tf.matmul(clipped, weights, transpose_b=True)
    targets = tf.one_hot(labels, self.num_classes, dtype=logits.dtype)
    if self.loss == "softmax":
      probabilities = tf.nn.softmax(logits)
      values = tf.nn.softmax_cross_entropy_with_logits(targets, logits)
    else:
      probabilities = tf.sigmoid(logits)
      values = tf.reduce_sum(
        tf.nn.sigmoid_cross_entropy_with_logits(targets, logits), axis=1
      )
    residuals = probabilities - targets
    # A gradient is of rank one: its norm takes no gradient.
    norms = tf.norm(residuals, axis=1) * tf.norm(clipped, axis=1)
    scales = 1.0 / tf.maximum(norms, self.gradient_clip_norm)
    gradient = tf.matmul(
      residuals * scales[:, tf.newaxis], clipped, transpose_a=True
    )
    hits = tf.equal(tf.argmax(logits, axis=1, output_type=labels.dtype), labels)
    (sent,) = self.weigh([gradient], tf.size(labels))
    return (
      tf.ensure_shape(sent, [self.num_classes, self.dim]),
      tf.reduce_sum(values),
      tf.math.count_nonzero(hits),
    )


# Symmetric matrices as vectors of half as many numbers: the upper triangle row
# by row, with what is off the diagonal times sqrt(2). The L2 norm of the vector
# is the Frobenius norm of the matrix. Independent noise on the vector is, on
# the matrix, that of `noise.Release.add_symmetric_noise`.
def packed_size(dim: int) -> int:
  """Returns d (d + 1) / 2: numbers of a packed `[d, d]` matrix."""
  return dim * (dim + 1) // 2


def pack(matrix: tf.Tensor) -> tf.Tensor:
  """Packs a symmetric matrix.

  Args:
    matrix: `[d, d]`, d known when tracing; what is below the diagonal is not
      read.

  Returns:
    `[d (d + 1) / 2]`.
  """
  dim = matrix.shape[0]
  scaled = tf.linalg.set_diag(
    math.sqrt(2.0) * matrix, tf.linalg.diag_part(matrix)
  )
  # Made on the spot: a constant of indices would be in every copy of the graph.
  is_upper = tf.linalg.band_part(tf.ones([dim, dim], tf.bool), 0, -1)
  return tf.ensure_shape(tf.boolean_mask(scaled, is_upper), [packed_size(dim)])


def unpack(vector: np.ndarray, dim: int) -> np.ndarray:
  """Inverse of `pack`.

  Args:
    vector: `[d (d + 1) / 2]`.
    dim: d.

  Returns:
    The symmetric matrix, float64 `[d, d]`.
  """
  upper = np.zeros([dim, dim])
  upper[np.triu_indices(dim)] = vector
  matrix = (upper + upper.T) / math.sqrt(2.0)
  matrix[np.diag_indices(dim)] = np.diagonal(upper)
  return matrix
