"""Losses of a linear classifier, and their clipped gradients.

For weights W `[K, d]` and an example x with class y, a loss of the logits W x
has the gradient r x' with residuals r `[K]`: a matrix of rank one, whose norm
is |r| |x|. Clipping an example's gradient therefore takes no memory for it.
"""

import numpy as np
from scipy import special

LOSSES = ('softmax', 'sigmoid')


def probabilities(logits: np.ndarray, loss: str) -> np.ndarray:
  """Returns the probabilities `[b, K]` that logits `[b, K]` stand for."""
  if loss == 'sigmoid':
    return special.expit(logits)
  # In place: less than half the time of `special.softmax`.
  result = logits - logits.max(axis=1, keepdims=True)
  np.exp(result, out=result)
  result /= result.sum(axis=1, keepdims=True)
  return result


def residuals(
    weights: np.ndarray, features: np.ndarray, labels: np.ndarray, loss: str
) -> np.ndarray:
  """Derivatives of the loss by the logits, `[b, K]`.

  Args:
    weights: `[K, d]`.
    features: `[b, d]`.
    labels: `[b]`.
    loss: One of `LOSSES`.
  """
  result = probabilities(features @ weights.T.astype(features.dtype), loss)
  result[np.arange(len(labels)), labels] -= 1
  return result


def clipped_gradient(
    weights: np.ndarray,
    features: np.ndarray,
    labels: np.ndarray,
    *,
    loss: str,
    clip_norm: float,
) -> np.ndarray:
  """Sum over examples of gradients `[K, d]`, each clipped as a whole.

  Args:
    weights: `[K, d]`.
    features: `[b, d]`.
    labels: `[b]`.
    loss: One of `LOSSES`.
    clip_norm: Bound of the Frobenius norm of one example's gradient.
  """
  factors = residuals(weights, features, labels, loss)
  norms = _row_norms(factors) * _row_norms(features)
  with np.errstate(divide='ignore'):
    scales = np.minimum(clip_norm / norms, 1)
  factors *= scales[:, None]
  return factors.T @ features


def _row_norms(matrix: np.ndarray) -> np.ndarray:
  # As `np.linalg.norm` sums, which takes two copies more.
  return np.sqrt(np.square(matrix).sum(axis=1))
