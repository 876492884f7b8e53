"""Tests of least squares."""

import math

import numpy as np
import pytest
from sklearn import linear_model

from tests.features import fits
from tff_fedemb.features import examples as examples_lib
from tff_fedemb.features import least_squares

_LAMBDA = 0.7
_NUM_CLASSES = 4
# Sums of float32 are to 1e-7 of their largest term; the solution loses the
# condition of the matrix, here below 100.
_TOLERANCES = {np.float64: 1e-6, np.float32: 2e-5}


def _fit(features, labels, **hyperparameters):
  method = least_squares.LeastSquares(regularization=_LAMBDA, **hyperparameters)
  return fits.fit(method, features, labels, num_classes=_NUM_CLASSES)


def _ridge(features, targets, weights=None):
  ridge = linear_model.Ridge(alpha=_LAMBDA, fit_intercept=False)
  return ridge.fit(features, targets, weights).coef_


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_shared_is_ridge_regression(monkeypatch, dtype):
  # Chunks of 7 of 101 examples.
  monkeypatch.setattr(examples_lib, "_NUMBERS_OF_CHUNK", 7 * 6)
  features, labels = fits.problem(101, 6, _NUM_CLASSES)
  expected = _ridge(
    examples_lib.clip_rows(features, 1.0), np.eye(_NUM_CLASSES)[labels]
  )
  weights = _fit(features.astype(dtype), labels, covariance="shared")
  np.testing.assert_allclose(weights, expected, atol=_TOLERANCES[dtype])


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_per_class_is_weighted_ridge_regression(monkeypatch, dtype):
  # With weights w and targets t, sum w x x' = A_l + alpha G has w = 1 + alpha
  # in the class and alpha outside, and sum w t x = b_l has t = 1 / (1 + alpha)
  # in the class and 0 outside.
  monkeypatch.setattr(examples_lib, "_NUMBERS_OF_CHUNK", 7 * 6)
  features, labels = fits.problem(101, 6, _NUM_CLASSES)
  clipped = examples_lib.clip_rows(features, 1.0)
  weights = _fit(
    features.astype(dtype),
    labels,
    covariance="per_class",
    background_weight=0.25,
  )
  for label in range(_NUM_CLASSES):
    is_class = (labels == label).astype(float)
    expected = _ridge(clipped, is_class / 1.25, is_class + 0.25)
    np.testing.assert_allclose(
      weights[label], expected, atol=_TOLERANCES[dtype]
    )


@pytest.mark.parametrize("covariance", least_squares.COVARIANCES)
def test_a_class_may_have_no_examples(covariance):
  features, labels = fits.problem(101, 6, _NUM_CLASSES)
  # Neither the last nor one in between.
  labels = np.array([0, 2, 0, 2])[labels]
  method = least_squares.LeastSquares(covariance=covariance)
  # With noise, and without.
  for epsilon in (0.1, 1.0, math.inf):
    weights = fits.fit(
      method,
      features,
      labels,
      num_classes=_NUM_CLASSES,
      epsilon=epsilon,
      delta=1e-5,
      seed=0,
    )
    assert np.isfinite(weights).all()
    assert (weights[[1, 3]] == 0).all() == (epsilon == math.inf)
  assert (np.abs(weights[[0, 2]]).max(axis=1) > 0.1).all()


def test_regularization_grows_with_the_noise():
  size = examples_lib.ProblemSize(100, 400, 4, 2.0)

  def regularization(covariance, **noise_multipliers):
    method = least_squares.LeastSquares(
      covariance=covariance, relative_regularization=0.5, background_weight=0.15
    )
    return method.resolve(
      size, {"covariance": 1e3, "class_sum": 0.0, **noise_multipliers}
    ).regularization

  # 0.5 n C^2 / d, whatever the noise on G.
  assert regularization("shared") == pytest.approx(0.5)
  # On a class sum 400 numbers of 2 z, of norm 40 z: 4 C times that.
  assert regularization("shared", class_sum=0.001) == 0.5
  assert regularization("shared", class_sum=3.0) == pytest.approx(960.0)
  assert regularization("shared", class_sum=6.0) == pytest.approx(1920.0)
  # The matrix is alpha + 1 / K as large.
  assert regularization(
    "per_class", class_covariance=0.0, class_sum=9.0
  ) == pytest.approx(0.2)
  # The edge of the noise's spectrum, sqrt(2 d) C^2 z.
  root = math.sqrt(2)
  for noise_multiplier, expected in ((3.0, 240 * root), (6.0, 480 * root)):
    assert regularization(
      "per_class", class_covariance=noise_multiplier, class_sum=9.0
    ) == pytest.approx(expected)


def test_singular_matrices_need_more_regularization():
  with pytest.raises(ValueError, match=r"regularization must .* 1e-300"):
    least_squares.solve(np.ones([2, 2]), np.ones([1, 2]), 1e-300)
