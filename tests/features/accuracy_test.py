"""Accuracies of private fits on scikit-learn's digits."""

import math

import numpy as np
import pytest
from sklearn import datasets
from sklearn import model_selection

from tff_fedemb.features import classifier
from tff_fedemb.features import registry


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
  train_features, test_features, train_labels, test_labels = digits
  method = registry.METHODS.create(name)
  accuracies = []
  for seed in range(5):
    fitted = classifier.FeatureClassifier(
      method, num_classes=10, epsilon=epsilon, delta=1e-4, seed=seed
    ).fit(train_features, train_labels)
    accuracies.append(fitted.score(test_features, test_labels))
  assert np.mean(accuracies) > at_least
