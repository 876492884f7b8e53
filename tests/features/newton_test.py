"""Tests of Newton's method."""

import numpy as np
import pytest
from scipy import special
from sklearn import linear_model

from tests.features import fits
from tff_fedemb.features import examples as examples_lib
from tff_fedemb.features import newton

_NUM_CLASSES = 3


# To what float32's sums are rounded, relative to the regularisation.
@pytest.mark.parametrize(
  ("dtype", "tolerance"), [(np.float64, 1e-8), (np.float32, 1e-4)]
)
def test_it_ends_where_scikit_learn_does(monkeypatch, dtype, tolerance):
  # Chunks of other sizes in its two kinds of pass.
  monkeypatch.setattr(examples_lib, "_NUMBERS_OF_CHUNK", 7 * 5)
  features, labels = fits.problem(80, 5)
  method = newton.Newton(
    steps=12, learning_rate=1.0, regularization=0.1, damping=0.0
  )
  weights = fits.fit(method, features.astype(dtype), labels)
  clipped = examples_lib.clip_rows(features, 1.0)
  for label in range(_NUM_CLASSES):
    reference = linear_model.LogisticRegression(
      C=1 / 0.1,
      fit_intercept=False,
      solver="newton-cholesky",
      tol=1e-12,
    ).fit(clipped, labels == label)
    np.testing.assert_allclose(
      weights[label], reference.coef_[0], atol=tolerance
    )


@pytest.mark.parametrize(
  ("hessian_clip_norm", "gradient_clip_norm"), [(0.2, 0.4), (10.0, 10.0)]
)
def test_steps_example_by_example(
  monkeypatch, hessian_clip_norm, gradient_clip_norm
):
  # Two classes at once of three, and chunks of few examples.
  monkeypatch.setattr(newton, "_NUMBERS_OF_HESSIANS", 2 * 4**2)
  monkeypatch.setattr(examples_lib, "_NUMBERS_OF_CHUNK", 3 * (4 + 3))
  # The Hessians of all classes are clipped together, and so are the gradients.
  features, labels = fits.problem(10, 4)
  clipped = examples_lib.clip_rows(features, 1.0)
  expected = np.zeros([_NUM_CLASSES, 4])
  for _ in range(3):
    gradient = np.zeros([_NUM_CLASSES, 4])
    hessians = np.zeros([_NUM_CLASSES, 4, 4])
    for x, y in zip(clipped, labels, strict=True):
      probabilities = special.expit(expected @ x - 0.6)
      is_own = np.eye(_NUM_CLASSES)[y]
      counts = np.where(is_own, 1.0, 0.4)
      one = np.outer(counts * (probabilities - is_own), x)
      gradient += one * min(1, gradient_clip_norm / np.linalg.norm(one))
      curvatures = counts * probabilities * (1 - probabilities)
      all_classes = np.multiply.outer(curvatures, np.outer(x, x))
      norm = np.linalg.norm(all_classes)
      hessians += all_classes * min(1, hessian_clip_norm / norm)
    gradient += 0.3 * expected
    for label in range(_NUM_CLASSES):
      expected[label] -= 0.8 * np.linalg.solve(
        hessians[label] + (0.3 + 0.2) * np.eye(4), gradient[label]
      )
  method = newton.Newton(
    steps=3,
    learning_rate=0.8,
    regularization=0.3,
    damping=0.2,
    logit_bias=-0.6,
    negative_weight=0.4,
    hessian_clip_norm=hessian_clip_norm,
    gradient_clip_norm=gradient_clip_norm,
  )
  weights = fits.fit(method, features, labels)
  np.testing.assert_allclose(weights, expected, rtol=1e-10, atol=1e-12)
