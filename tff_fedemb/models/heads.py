"""Classification heads on top of an embedding, trained and thrown away.

A head is stateless: it says how to make its weights for K classes and how to
turn embeddings into logits with them. K may be a tensor, because a virtual
client learns only from its own data how many classes it holds.

Sources: cosine softmax, Wang et al. 2018 ("CosFace", section 3.1, without
margin); ArcFace, Deng et al. 2019 ("ArcFace: Additive Angular Margin Loss for
Deep Face Recognition", section 3.1).
"""

import abc
from collections.abc import Callable
import dataclasses
import math

import tensorflow as tf

Weights = tuple[tf.Tensor, ...]


def _check_positive(name: str, value: float) -> None:
  if not value > 0.0:
    raise ValueError(f"{name} must be positive, found {value}.")


def _random_rows(num_classes, embedding_dim: int, seed) -> tf.Tensor:
  """Gaussian rows of expected squared norm one, `[num_classes, dim]`."""
  return tf.random.stateless_normal(
    [num_classes, embedding_dim],
    seed=seed,
    stddev=1.0 / math.sqrt(embedding_dim),
  )


class Head(abc.ABC):
  """How to make and apply the weights of a classification head."""

  @abc.abstractmethod
  def initialize(
    self, num_classes: int | tf.Tensor, embedding_dim: int, *, seed
  ) -> Weights:
    """Makes fresh weights.

    Args:
      num_classes: Number of classes K, a Python integer or a scalar tensor.
      embedding_dim: Size of an embedding.
      seed: Two integers `[2]`; the same seed gives the same weights.

    Returns:
      A tuple of float32 tensors.
    """

  @abc.abstractmethod
  def logits(
    self,
    weights: Weights,
    embeddings: tf.Tensor,
    *,
    labels: tf.Tensor | None = None,
  ) -> tf.Tensor:
    """Scores every class.

    Args:
      weights: What `initialize` made.
      embeddings: `[batch, dim]`, not normalised.
      labels: The true classes `[batch]` in training, `None` at inference. Only
        margin heads look at them.

    Returns:
      Logits `[batch, K]`.
    """


@dataclasses.dataclass(frozen=True)
class LinearHead(Head):
  """A dense layer with bias: logits = x W' + b.

  Attributes:
    initial_scale: Expected norm of a fresh row. Embeddings are not normalised
      here, and the gradients of the first steps flow through the random rows
      into the backbone: small rows keep their noise out of it.
  """

  initial_scale: float = 0.1

  def __post_init__(self):
    if not self.initial_scale >= 0.0:
      raise ValueError(
        f"initial_scale must be at least 0, found {self.initial_scale}."
      )

  def initialize(self, num_classes, embedding_dim, *, seed):
    return (
      self.initial_scale * _random_rows(num_classes, embedding_dim, seed),
      tf.zeros([num_classes]),
    )

  def logits(self, weights, embeddings, *, labels=None):
    del labels
    rows, bias = weights
    return tf.linalg.matmul(embeddings, rows, transpose_b=True) + bias


def _cosines(rows: tf.Tensor, embeddings: tf.Tensor) -> tf.Tensor:
  return tf.linalg.matmul(
    tf.math.l2_normalize(embeddings, axis=1),
    tf.math.l2_normalize(rows, axis=1),
    transpose_b=True,
  )


@dataclasses.dataclass(frozen=True)
class CosineHead(Head):
  """Scaled cosine similarity of the embedding and one row per class.

  Attributes:
    scale: Factor of the cosines, positive; the initial value if learned.
    learned_scale: Whether the scale is a weight, kept positive by training its
      logarithm.
  """

  scale: float = 16.0
  learned_scale: bool = False

  def __post_init__(self):
    _check_positive("scale", self.scale)

  def initialize(self, num_classes, embedding_dim, *, seed):
    rows = _random_rows(num_classes, embedding_dim, seed)
    if not self.learned_scale:
      return (rows,)
    return (rows, tf.constant(math.log(self.scale), tf.float32))

  def logits(self, weights, embeddings, *, labels=None):
    del labels
    scale = tf.exp(weights[1]) if self.learned_scale else self.scale
    return scale * _cosines(weights[0], embeddings)


@dataclasses.dataclass(frozen=True)
class ArcFaceHead(Head):
  """Cosine head with an additive angular margin on the true class.

  The true class scores `scale * cos(angle + margin)`, every other one
  `scale * cos(angle)`. Beyond `pi - margin`, where that would start to grow
  again with the angle, the true class scores
  `scale * (cos(angle) - margin * sin(margin))`, so that the score falls with
  the angle everywhere.

  Attributes:
    scale: Factor of the cosines, positive.
    margin: Angle added, in radians, in [0, pi / 2).
  """

  scale: float = 16.0
  margin: float = 0.3

  def __post_init__(self):
    _check_positive("scale", self.scale)
    if not 0.0 <= self.margin < math.pi / 2:
      raise ValueError(f"margin must be in [0, pi / 2), found {self.margin}.")

  def initialize(self, num_classes, embedding_dim, *, seed):
    return (_random_rows(num_classes, embedding_dim, seed),)

  def logits(self, weights, embeddings, *, labels=None):
    cosines = _cosines(weights[0], embeddings)
    if labels is None:
      return self.scale * cosines
    # The gradient of the square root is infinite at a sine of zero.
    sines = tf.sqrt(tf.maximum(1.0 - tf.square(cosines), 1e-6))
    shifted = cosines * math.cos(self.margin) - sines * math.sin(self.margin)
    with_margin = tf.where(
      cosines > -math.cos(self.margin),
      shifted,
      cosines - self.margin * math.sin(self.margin),
    )
    is_true = tf.one_hot(
      labels, tf.shape(cosines)[1], on_value=True, off_value=False
    )
    return self.scale * tf.where(is_true, with_margin, cosines)


# A new head is one class and one line here.
HEADS: dict[str, Callable[..., Head]] = {
  "linear": LinearHead,
  "cosine": CosineHead,
  "arcface": ArcFaceHead,
}


def create_head(name: str, **options: float) -> Head:
  """Creates a head by name.

  Args:
    name: A key of `HEADS`.
    **options: Fields of that head.

  Returns:
    The head.

  Raises:
    ValueError: If the name is unknown or an option out of its range.
  """
  if name not in HEADS:
    raise ValueError(f"head must be one of {sorted(HEADS)}, found {name!r}.")
  return HEADS[name](**options)
