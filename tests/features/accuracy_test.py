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
        registry.METHODS.create(name),
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
@pytest.mark.parametrize(
  ("epsilon", "at_least"),
  [
    (0.1, {}),
    (1.0, {"sgd": 0.84, "least_squares": 0.79, "feature_covariance": 0.84}),
    (8.0, {"newton": 0.84}),
    (math.inf, {"least_squares": 0.9, "feature_covariance": 0.94}),
  ],
)
def test_accuracy(digits, epsilon, at_least):
  names = {"sgd", "feature_covariance", *at_least}
  means = {name: _mean_accuracy(digits, name, epsilon) for name in names}
  assert all(means[name] > bound for name, bound in at_least.items())
  # The covariance does not hurt first order.
  assert means["feature_covariance"] >= means["sgd"] - _TOLERANCE
