"""Classification heads on top of an embedding, trained and thrown away.

A head is stateless: it says how to make its weights for K classes and how to
turn embeddings into logits with them. K may be a tensor, because a virtual
client learns only from its own data how many classes it holds.

Sources: cosine softmax, Wang et al. 2018 ("CosFace", section 3.1, without
margin); ArcFace, Deng et al. 2019 ("ArcFace: Additive Angular Margin Loss for
Deep Face Recognition", section 3.1); class codes in the manner of the fixed
classifiers of Hoffer et al. 2018 ("Fix your classifier") and Li et al. 2023
("No Fear of Classifier Biases", FedETF); supervised contrast, Khosla et al.
2020.
"""

from __future__ import annotations

import abc
import dataclasses
import math
from typing import Any, ClassVar

from etils import epy

from tff_fedemb import config
from tff_fedemb import registry

with epy.lazy_imports():
  import tensorflow as tf

  from tff_fedemb import split_mix

Weights = tuple[Any, ...]

# Keeps the logarithm of a class without images in the batch finite.
_SMALLEST_SUM = 1e-30


def _random_rows(
  num_classes: int | tf.Tensor, embedding_dim: int, seed: Any
) -> tf.Tensor:
  """Gaussian rows of expected squared norm 1, float32 `[num_classes, dim]`."""
  return tf.random.stateless_normal(
    [num_classes, embedding_dim],
    seed=seed,
    stddev=1.0 / math.sqrt(embedding_dim),
  )


@dataclasses.dataclass(frozen=True, kw_only=True)
class Head(config.Config, abc.ABC):
  """Makes and applies the weights of a classification head.

  A subclass is one entry of `HEADS`; its fields become flags.
  """

  # Whether clients train the weights. If not, they are never sent: server and
  # clients make them where they need them.
  is_trained: ClassVar[bool] = True
  # Whether the first weight has a row for each class whose length does not
  # count, so that it can start as a mean of the class's embeddings.
  has_prototypes: ClassVar[bool] = False

  @abc.abstractmethod
  def initialize(
    self,
    num_classes: int | tf.Tensor,
    embedding_dim: int,
    *,
    seed: Any,
    class_ids: tf.Tensor | None = None,
  ) -> Weights:
    """Makes fresh weights, float32.

    Args:
      num_classes: Number of classes K, a Python integer or a scalar tensor.
      embedding_dim: Size of an embedding.
      seed: Two integers `[2]`; the same seed gives the same weights.
      class_ids: The labels that the K rows are for, as the task has them, int64
        `[K]`; 0 to K - 1 if `None`. Only heads that are not trained look at
        them.

    Returns:
      The weights that `logits` takes. The first one has K rows; a subclass may
      add others, such as a bias.
    """

  @abc.abstractmethod
  def logits(
    self,
    weights: Weights,
    embeddings: tf.Tensor,
    *,
    labels: tf.Tensor | None = None,
  ) -> tf.Tensor:
    """Computes the logits of every class.

    Args:
      weights: The result of `initialize`.
      embeddings: `[batch, dim]`, not normalised.
      labels: The true classes `[batch]`, as rows of the head, in training;
        `None` at inference. Only margin and contrast heads look at them.

    Returns:
      Logits for a softmax cross-entropy, float32 `[batch, K]`.
    """


@dataclasses.dataclass(frozen=True, kw_only=True)
class LinearHead(Head):
  """A dense layer with bias: logits = x W' + b.

  Attributes:
    initial_scale: Expected norm of a fresh row.

  Examples:
    >>> fe.LinearHead(initial_scale=0.05)
    LinearHead(initial_scale=0.05)
  """

  # Embeddings are not normalised here, and the gradients of the first steps
  # flow through the random rows into the backbone: small rows keep their noise
  # out of it.
  initial_scale: float = config.field(
    0.1, minimum=0, flag="head_initial_scale", searchable=True
  )

  def initialize(
    self,
    num_classes: int | tf.Tensor,
    embedding_dim: int,
    *,
    seed: Any,
    class_ids: tf.Tensor | None = None,
  ):
    """Makes rows `[K, dim]` of norm about `initial_scale` and a zero bias."""
    return (
      self.initial_scale * _random_rows(num_classes, embedding_dim, seed),
      tf.zeros([num_classes]),
    )

  def logits(
    self,
    weights: Weights,
    embeddings: tf.Tensor,
    *,
    labels: tf.Tensor | None = None,
  ):
    """Computes x W' + b; `labels` are not used."""
    rows, bias = weights
    return tf.linalg.matmul(embeddings, rows, transpose_b=True) + bias


@dataclasses.dataclass(frozen=True, kw_only=True)
class ScaledCosineHead(Head):
  """Base of the heads on cosines: scaled cosine similarity, one row per class.

  The lengths of embeddings and rows do not count: both are L2-normalised first.

  Attributes:
    scale: Factor of the cosines.
  """

  has_prototypes: ClassVar[bool] = True

  scale: float = config.field(16.0, above=0, flag="head_scale", searchable=True)

  def initialize(
    self,
    num_classes: int | tf.Tensor,
    embedding_dim: int,
    *,
    seed: Any,
    class_ids: tf.Tensor | None = None,
  ):
    """Makes random rows `[K, dim]`, the only weight."""
    return (_random_rows(num_classes, embedding_dim, seed),)

  def logits(
    self,
    weights: Weights,
    embeddings: tf.Tensor,
    *,
    labels: tf.Tensor | None = None,
  ):
    """Computes scale times cosine, with the margin if `labels` are given."""
    directions = tf.math.l2_normalize(embeddings, axis=1)
    rows = tf.math.l2_normalize(weights[0], axis=1)
    cosines = tf.linalg.matmul(directions, rows, transpose_b=True)
    if labels is not None:
      cosines = self._add_margin(cosines, labels)
    return self._find_scale(weights) * cosines

  def _find_scale(self, weights: Weights) -> float | tf.Tensor:
    """The factor of the cosines; a subclass may take it from the weights."""
    return self.scale

  def _add_margin(self, cosines: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
    """Lowers the cosines `[batch, K]` of the true classes; here, not at all."""
    return cosines


@dataclasses.dataclass(frozen=True, kw_only=True)
class CosineHead(ScaledCosineHead):
  """Scaled cosine similarity of the embedding and one row per class.

  Attributes:
    scale: Factor of the cosines; where it starts if it is learned.
    learned_scale: Whether the scale is a weight, kept positive by training its
      logarithm.

  Examples:
    >>> fe.CosineHead(scale=16.0, learned_scale=True).learned_scale
    True
  """

  learned_scale: bool = config.field(
    False, flag="head_learned_scale", searchable=True
  )

  def initialize(
    self,
    num_classes: int | tf.Tensor,
    embedding_dim: int,
    *,
    seed: Any,
    class_ids: tf.Tensor | None = None,
  ):
    """Adds the logarithm of the scale, a scalar, if it is learned."""
    weights = super().initialize(num_classes, embedding_dim, seed=seed)
    if not self.learned_scale:
      return weights
    return (*weights, tf.constant(math.log(self.scale), tf.float32))

  def _find_scale(self, weights: Weights) -> float | tf.Tensor:
    """The fixed scale, or the exponential of the trained logarithm."""
    return tf.exp(weights[1]) if self.learned_scale else self.scale


@dataclasses.dataclass(frozen=True, kw_only=True)
class ArcFaceHead(ScaledCosineHead):
  """Cosine head with an additive angular margin on the true class.

  The true class scores `scale * cos(angle + margin)`, every other one
  `scale * cos(angle)`. Beyond `pi - margin`, where that would start to grow
  again with the angle, the true class scores
  `scale * (cos(angle) - margin * sin(margin))`, so that the score falls with
  the angle everywhere.

  Attributes:
    scale: Factor of the cosines.
    margin: Angular margin in radians, less than pi / 2.

  Examples:
    >>> fe.FedEmb(head=fe.ArcFaceHead(scale=16.0, margin=0.2)).head.margin
    0.2
  """

  margin: float = config.field(
    0.3, minimum=0, below=math.pi / 2, flag="head_margin", searchable=True
  )

  def _add_margin(self, cosines: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
    """Adds the angular margin to the true classes' angles, see the class."""
    # The gradient of the square root is infinite at a sine of zero.
    sines = tf.sqrt(tf.maximum(1.0 - tf.square(cosines), 1e-6))
    cosine, sine = math.cos(self.margin), math.sin(self.margin)
    shifted = cosines * cosine - sines * sine
    beyond = cosines - self.margin * sine
    with_margin = tf.where(cosines > -cosine, shifted, beyond)
    is_true = tf.one_hot(
      labels, tf.shape(cosines)[1], on_value=True, off_value=False
    )
    return tf.where(is_true, with_margin, cosines)


def draw_class_codes(class_ids: tf.Tensor, embedding_dim: int) -> tf.Tensor:
  """Draws a random direction for each class, from its number alone.

  The numbers come from a stream of SplitMix64, the same on every device.

  Args:
    class_ids: Any int64 `[K]`.
    embedding_dim: Size of an embedding, 1 or more.

  Returns:
    Unit vectors `[K, embedding_dim]`, float32: normalised Gaussian ones. Equal
    class numbers have equal rows.
  """
  steps = tf.range(1, embedding_dim + 1, dtype=tf.int64)
  gamma = tf.constant(split_mix.GAMMA, tf.uint64)
  steps = tf.bitcast(steps, tf.uint64) * gamma
  starts = split_mix.mix(tf.bitcast(class_ids, tf.uint64))
  bits = split_mix.mix(starts[:, tf.newaxis] + steps)
  # Two uniform numbers of 32 bits, by Box and Muller to a Gaussian one.
  first = tf.bitwise.right_shift(bits, tf.constant(32, tf.uint64))
  lower = tf.constant(2**32 - 1, tf.uint64)
  second = tf.bitwise.bitwise_and(bits, lower)
  uniform = (tf.cast(first, tf.float32) + 1) / 2**32
  radii = tf.sqrt(-2.0 * tf.math.log(uniform))
  angles = 2.0 * math.pi * tf.cast(second, tf.float32) / 2**32
  return tf.math.l2_normalize(radii * tf.cos(angles), axis=1)


@dataclasses.dataclass(frozen=True, kw_only=True)
class ClassCodesHead(ScaledCosineHead):
  """Cosine head whose rows are fixed: a random direction for each class.

  A row is drawn from the class's number alone. It is the same on every client
  and in every round, and is neither trained nor sent. All clients therefore
  pull the images of a class towards one place, where heads of their own would
  pull them anywhere. Learning rate and warm-up of heads have no effect.

  It assumes that a class has the same number everywhere, and that numbers say
  nothing about data: no number may be made from what a user holds.

  Attributes:
    scale: Factor of the cosines.

  Examples:
    >>> fe.ClassCodesHead(scale=10.0).is_trained
    False
  """

  is_trained: ClassVar[bool] = False
  has_prototypes: ClassVar[bool] = False

  scale: float = config.field(10.0, above=0, flag="head_scale", searchable=True)

  def initialize(
    self,
    num_classes: int | tf.Tensor,
    embedding_dim: int,
    *,
    seed: Any,
    class_ids: tf.Tensor | None = None,
  ):
    """Makes the codes of `class_ids`, or of 0 to K - 1; `seed` is not used."""
    if class_ids is None:
      class_ids = tf.range(tf.cast(num_classes, tf.int64))
    return (draw_class_codes(class_ids, embedding_dim),)


def compare_with_others(
  embeddings: tf.Tensor, *, temperature: float
) -> tf.Tensor:
  """Compares each embedding of a batch with all others.

  Args:
    embeddings: `[batch, dim]`, not normalised.
    temperature: Divides the cosines; above 0.

  Returns:
    Cosines over temperature, `[batch, batch]`, with the smallest number of
    their type on the diagonal, so that no embedding finds itself.
  """
  directions = tf.math.l2_normalize(embeddings, axis=1)
  cosines = tf.linalg.matmul(directions, directions, transpose_b=True)
  itself = tf.fill([tf.shape(cosines)[0]], cosines.dtype.min)
  return tf.linalg.set_diag(cosines / temperature, itself)


@dataclasses.dataclass(frozen=True, kw_only=True)
class ContrastHead(Head):
  """The batch's other images in place of rows: supervised contrast.

  An image has to find those of its class among all other images of the batch. A
  class scores the logarithm of the summed `exp(scale * cosine)` with its images
  in the batch, the image itself left out. There is no head to start, to warm up
  or to throw away. An image whose class has no other image in the batch teaches
  nothing, so a batch has to hold several images of each class.

  Source: Khosla et al. 2020, "Supervised Contrastive Learning", section 3.2
  (the loss that sums inside the logarithm).

  Attributes:
    scale: Factor of the cosines, one over the temperature; at most 30, beyond
      which the images that are hardest to find would have no gradient.

  Examples:
    >>> fe.FedEmb(head=fe.ContrastHead(scale=10.0)).head.is_trained
    False
  """

  is_trained: ClassVar[bool] = False

  scale: float = config.field(
    10.0, above=0, maximum=30, flag="head_scale", searchable=True
  )

  def initialize(
    self,
    num_classes: int | tf.Tensor,
    embedding_dim: int,
    *,
    seed: Any,
    class_ids: tf.Tensor | None = None,
  ):
    """Makes zeros `[K, 0]`, which only carry the number of classes."""
    # Empty rows carry the number of classes.
    return (tf.zeros([num_classes, 0]),)

  def logits(
    self,
    weights: Weights,
    embeddings: tf.Tensor,
    *,
    labels: tf.Tensor | None = None,
  ):
    """Scores each class by the batch's other images of it.

    A row is all zeros, and has no gradient, if no other image of the batch has
    its class.

    Raises:
      ValueError: If `labels` is `None`.
    """
    if labels is None:
      raise ValueError("A contrast head compares images whose labels it knows.")
    similar = compare_with_others(embeddings, temperature=1 / self.scale)
    most = tf.stop_gradient(tf.reduce_max(similar, axis=1, keepdims=True))
    of_class = tf.one_hot(labels, tf.shape(weights[0])[0])
    sums = tf.linalg.matmul(tf.exp(similar - most), of_class)
    logits = tf.math.log(tf.maximum(sums, _SMALLEST_SUM))
    others = tf.gather(tf.reduce_sum(of_class, axis=0), labels) - 1.0
    return tf.where(others[:, tf.newaxis] > 0.0, logits, 0.0)


# To add a head, write one class and add one line here; its fields become flags.
HEADS: registry.Registry[Head] = registry.Registry(
  Head,
  {
    "linear": LinearHead,
    "cosine": CosineHead,
    "arcface": ArcFaceHead,
    "class_codes": ClassCodesHead,
    "contrast": ContrastHead,
  },
)
