"""A fit on features: by a private method, and by the same loop without privacy.

The bare loops are what somebody would write in NumPy who needs this one
classifier of these features: no clipping, no noise, no checks. Features X
`[n, d]` are read from the same file in the same way; weights are `[K, d]` for K
classes.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from scipy import linalg
from scipy import sparse

from benchmarks import feature_cases
from tff_fedemb.features import classifier
from tff_fedemb.features import feature_files
from tff_fedemb.features import registry

EPSILON, DELTA = 1.0, 1e-7
_REGULARIZATION, _LEARNING_RATE = 100.0, 4.0
_CHUNK = 4096


def fit_least_squares(
  features: np.ndarray,
  labels: np.ndarray,
  *,
  num_classes: int,
  regularization: float,
) -> np.ndarray:
  """Returns (X'X + regularization I)^-1 applied to the classes' sums."""
  dim = features.shape[1]
  covariance = np.zeros([dim, dim])
  class_sums = np.zeros([num_classes, dim])
  for start in range(0, len(features), _CHUNK):
    # In a zip they are not aligned, and products of them take twice as long.
    chunk = np.array(features[start : start + _CHUNK])
    covariance += chunk.T @ chunk
    # A tenth of the time of `np.add.at` or of a product with a dense matrix.
    indicator = sparse.csr_matrix(
      (
        np.ones(len(chunk), chunk.dtype),
        (labels[start : start + _CHUNK], np.arange(len(chunk))),
      ),
      shape=(num_classes, len(chunk)),
    )
    class_sums += indicator @ chunk
  covariance[np.diag_indices(dim)] += regularization
  return linalg.solve(covariance, class_sums.T, assume_a="pos").T


def fit_gradients(
  features: np.ndarray,
  labels: np.ndarray,
  *,
  num_classes: int,
  steps: int,
  learning_rate: float,
  regularization: float | None = None,
  momentum: float = 0.9,
) -> np.ndarray:
  """Returns weights of softmax regression after steps on all examples.

  With a regularization, gradients are preconditioned by
  (X'X + regularization I) / n.
  """
  features = np.array(features)
  num_examples, dim = features.shape
  factor = None
  if regularization is not None:
    covariance = (features.T @ features).astype(np.float64)
    covariance[np.diag_indices(dim)] += regularization
    factor = linalg.cho_factor(covariance / num_examples)
  weights = np.zeros([num_classes, dim])
  velocity = np.zeros_like(weights)
  for _ in range(steps):
    gradient = np.zeros_like(weights)
    for start in range(0, num_examples, _CHUNK):
      chunk = features[start : start + _CHUNK]
      residuals = chunk @ weights.T.astype(chunk.dtype)
      residuals -= residuals.max(axis=1, keepdims=True)
      np.exp(residuals, out=residuals)
      residuals /= residuals.sum(axis=1, keepdims=True)
      residuals[np.arange(len(chunk)), labels[start : start + _CHUNK]] -= 1
      gradient += residuals.T @ chunk
    gradient /= num_examples
    if factor is not None:
      gradient = linalg.cho_solve(factor, gradient.T).T
    velocity = momentum * velocity + gradient
    weights = weights - learning_rate * velocity
  return weights


def fit(name: str, path: str, round_num: int) -> classifier.FeatureClassifier:
  """Fits a case to a file with privacy; the number is another each time."""
  data = feature_files.read_features(path)
  method, examples = feature_cases.parse(name)
  return classifier.FeatureClassifier(
    registry.create_method(method, **feature_cases.METHODS[method]),
    num_classes=examples.num_classes,
    epsilon=EPSILON,
    # Each time another one: what is calibrated once is remembered.
    delta=DELTA / (1 + 0.01 * round_num),
    seed=round_num,
  ).fit(data.features, data.labels)


def fit_bare(name: str, path: str) -> np.ndarray:
  """Fits the same weights `[K, d]` without privacy, in a loop of NumPy's."""
  data = feature_files.read_features(path)
  method, examples = feature_cases.parse(name)
  options: dict[str, Any] = {"num_classes": examples.num_classes}
  if method != "sgd":
    options["regularization"] = _REGULARIZATION
  bare_fit: Callable[..., np.ndarray] = fit_least_squares
  if method != "least_squares":
    bare_fit = fit_gradients
    options |= {"steps": feature_cases.STEPS, "learning_rate": _LEARNING_RATE}
  return bare_fit(data.features, data.labels, **options)


def create_round(name: str, runtime: str, path: str) -> Callable[[int], object]:
  """Returns what fits a case, 'private' or 'bare', with the round's number."""
  if runtime == "bare":
    return lambda round_num: fit_bare(name, path)
  return lambda round_num: fit(name, path, round_num)
