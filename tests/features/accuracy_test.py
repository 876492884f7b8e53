"""Accuracies of private fits on scikit-learn's digits."""

import math

import numpy as np
import pytest
from sklearn import datasets
from sklearn import model_selection

from tff_fedemb.features import classifier
from tff_fedemb.features import registry

_SEEDS = range(5)
# Two standard errors of the difference, noise being the same for both.
_TOLERANCE = 0.02


@pytest.fixture(name="digits", scope="module")
def fixture_digits():
  digits = datasets.load_digits()
  return model_selection.train_test_split(
    (digits.data / 16).astype(np.float32),
    digits.target,
    test_size=0.25,
    stratify=digits.target,
    random_state=0,
  )


def _mean_accuracy(digits, name, epsilon):
  train_features, test_features, train_labels, test_labels = digits
  return np.mean(
    [
      classifier.FeatureClassifier(
        registry.create_method(name),
        num_classes=10,
        epsilon=epsilon,
        delta=1e-4,
        seed=seed,
      )
      .fit(train_features, train_labels)
      .score(test_features, test_labels)
      for seed in _SEEDS
    ]
  )


@pytest.mark.slow
@pytest.mark.parametrize("epsilon", [0.1, 0.5, 1.0, 2.0, 4.0, 8.0, math.inf])
def test_covariance_does_not_hurt_first_order(digits, epsilon):
  first_order = _mean_accuracy(digits, "sgd", epsilon)
  preconditioned = _mean_accuracy(digits, "feature_covariance", epsilon)
  assert preconditioned >= first_order - _TOLERANCE


@pytest.mark.slow
@pytest.mark.parametrize(
  ("name", "epsilon", "at_least"),
  [
    ("sgd", 1.0, 0.84),
    ("least_squares", 1.0, 0.79),
    ("feature_covariance", 1.0, 0.84),
    ("newton", 8.0, 0.84),
    ("least_squares", math.inf, 0.9),
    ("feature_covariance", math.inf, 0.94),
  ],
)
def test_accuracy(digits, name, epsilon, at_least):
  assert _mean_accuracy(digits, name, epsilon) > at_least
