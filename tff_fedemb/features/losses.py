"""Losses of a linear classifier, and their clipped gradients.

For weights W `[K, d]` and an example x with class y, a loss of the logits W x
has the gradient r x' with residuals r `[K]`: a matrix of rank one, whose norm
is |r| |x|. Clipping an example's gradient therefore needs no memory for it.

The sigmoid loss is one logistic regression per class. With zero weights each of
K classes has probability 1/2, so that the K - 1 other classes dominate the
gradient of an example. A constant bias of all logits, which is not trained,
gives another starting point.
"""

from collections.abc import Iterable
from typing import Any

import numpy as np
from scipy import special

LOSSES = ("softmax", "sigmoid")


def probabilities(logits: np.ndarray, loss: str) -> np.ndarray:
  """Converts logits to probabilities.

  Args:
    logits: `[b, K]`.
    loss: One of `LOSSES`; with softmax the probabilities of a row add up to 1.

  Returns:
    `[b, K]`, of the logits' type.
  """
  if loss == "sigmoid":
    return special.expit(logits)
  # In place, this takes less than half as long as `special.softmax`.
  result = logits - logits.max(axis=1, keepdims=True)
  np.exp(result, out=result)
  result /= result.sum(axis=1, keepdims=True)
  return result


def clipped_gradient(
  weights: np.ndarray,
  features: np.ndarray,
  labels: np.ndarray,
  *,
  loss: str,
  clip_norm: float,
  logit_bias: float = 0.0,
  negative_weight: float = 1.0,
) -> np.ndarray:
  """Adds up the gradients of examples, each clipped as a whole.

  The sum is finite: an example whose logits overflow adds nothing.

  Args:
    weights: `[K, d]`.
    features: `[b, d]`.
    labels: `[b]`, integers in [0, K).
    loss: One of `LOSSES`.
    clip_norm: Bound of the Frobenius norm of one example's gradient, positive.
    logit_bias: Constant that is added to all logits.
    negative_weight: Weight of the classes that an example does not belong to,
      in the sigmoid loss.

  Returns:
    `[K, d]`, of the features' type.
  """
  with np.errstate(over="ignore", invalid="ignore"):
    logits = features @ weights.T.astype(features.dtype)
    if logit_bias:
      logits += logit_bias
    # Residuals, the loss's derivatives by the logits.
    factors = probabilities(logits, loss)
    factors[np.arange(len(labels)), labels] -= 1
    weigh_negatives(factors, labels, negative_weight)
    norms = row_norms(factors) * row_norms(features)
  factors *= clip_scales(norms, clip_norm)[:, None]
  factors[~np.isfinite(norms)] = 0.0
  return factors.T @ features


def weigh_negatives(
  factors: np.ndarray,
  labels: np.ndarray,
  weight: float,
) -> None:
  """Multiplies, in place, the factors of classes other than the labels.

  Args:
    factors: `[b, K]`.
    labels: `[b]`, integers in [0, K).
    weight: The multiplier.
  """
  if weight != 1:
    rows = np.arange(len(labels))
    own = factors[rows, labels]
    factors *= weight
    factors[rows, labels] = own


def total_gradient(
  weights: np.ndarray,
  chunks: Iterable[tuple[np.ndarray, np.ndarray]],
  **options: Any,
) -> np.ndarray:
  """Returns the sum of `clipped_gradient` over chunks of examples.

  Args:
    weights: `[K, d]`.
    chunks: Features `[b, d]` and labels `[b]` of each chunk.
    **options: Those of `clipped_gradient`.

  Returns:
    Float64 `[K, d]`.
  """
  total = np.zeros_like(weights)
  for features, labels in chunks:
    total = total + clipped_gradient(weights, features, labels, **options)
  return total


def row_norms(matrix: np.ndarray) -> np.ndarray:
  """Computes the L2 norms of rows in float64.

  In float32, squares of large and small numbers would over- and underflow.

  Args:
    matrix: `[b, d]`.

  Returns:
    Float64 `[b]`.
  """
  return np.sqrt(np.einsum("ij,ij->i", matrix, matrix, dtype=np.float64))


def clip_scales(norms: np.ndarray, clip_norm: float) -> np.ndarray:
  """Computes the factors that clip contributions to a norm.

  Args:
    norms: Norms of the contributions, `[b]`.
    clip_norm: The bound, positive.

  Returns:
    Factors in [0, 1], `[b]`; 0 if the norm is not finite.
  """
  with np.errstate(divide="ignore", invalid="ignore"):
    scales = np.minimum(clip_norm / norms, 1.0)
  return np.where(np.isfinite(norms), scales, 0.0)
