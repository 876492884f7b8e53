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
def test_it_is_ridge_regression(monkeypatch, dtype):
  # With weights w and targets t, sum w x x' = A_l + alpha G has w = 1 + alpha
  # in the class and alpha outside, and sum w t x = b_l has t = 1 / (1 + alpha)
  # in the class and 0 outside.
  # Chunks of 7 of 101 examples.
  monkeypatch.setattr(examples_lib, "_NUMBERS_OF_CHUNK", 7 * 6)
  features, labels = fits.problem(101, 6, _NUM_CLASSES)
  clipped = examples_lib.clip_rows(features, 1.0)
  features, close = features.astype(dtype), {"atol": _TOLERANCES[dtype]}
  shared = _fit(features, labels, covariance="shared")
  per_class = _fit(
    features, labels, covariance="per_class", background_weight=0.25
  )
  for label in range(_NUM_CLASSES):
    is_class = (labels == label).astype(float)
    expected = _ridge(clipped, is_class)
    np.testing.assert_allclose(shared[label], expected, **close)
    expected = _ridge(clipped, is_class / 1.25, is_class + 0.25)
    np.testing.assert_allclose(per_class[label], expected, **close)


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


def test_sums_of_single_precision_move_by_their_sensitivity():
  # In single precision, steps are twice as wide from 2^14 on: rows of half a
  # step would double the difference that the first row makes.
  features = np.ones([2**14 + 2**10, 1], np.float32)
  features[2**14 :] = 0.51 * 2.0**-9
  sums = []
  for first in (1.0, 0.0):
    features[0] = first
    examples = examples_lib.ClippedExamples(
      features, np.zeros(len(features), int), num_classes=2, clip_norm=1.0
    )
    sums.append(least_squares.add_up(examples)[1][0, 0])
  assert sums[0] - sums[1] == pytest.approx(1.0, abs=1e-9)


@pytest.mark.parametrize(
  ("covariance", "class_covariance", "class_sum", "expected"),
  [
    # 0.5 n C^2 / d, whatever the noise on G.
    ("shared", 0.0, 0.001, 0.5),
    # On a class sum 400 numbers of 2 z, of norm 40 z: 4 C times that.
    ("shared", 0.0, 6.0, 1920.0),
    # The matrix is alpha + 1 / K as large.
    ("per_class", 0.0, 9.0, 0.2),
    # The edge of the noise's spectrum, sqrt(2 d) C^2 z.
    ("per_class", 6.0, 9.0, 480 * math.sqrt(2)),
  ],
)
def test_regularization_grows_with_the_noise(
  covariance, class_covariance, class_sum, expected
):
  size = examples_lib.ProblemSize(100, 400, 4, 2.0)
  method = least_squares.LeastSquares(
    covariance=covariance, relative_regularization=0.5, background_weight=0.15
  )
  noise_multipliers = {
    "covariance": 1e3,
    "class_sum": class_sum,
    "class_covariance": class_covariance,
  }
  resolved = method.resolve(size, noise_multipliers)
  assert resolved.regularization == pytest.approx(expected)


def test_singular_matrices_need_more_regularization():
  with pytest.raises(ValueError, match=r"regularization must .* 1e-300"):
    least_squares.solve(np.ones([2, 2]), np.ones([1, 2]), 1e-300)
