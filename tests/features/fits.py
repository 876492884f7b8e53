"""Fits without noise, and what they are fitted to."""

import math

import numpy as np

from tff_fedemb.features import classifier


def fit(method, features, labels, *, num_classes=3, **options):
  """Returns the weights without noise."""
  fitted = classifier.FeatureClassifier(
    method, **{"num_classes": num_classes, "epsilon": math.inf, **options}
  ).fit(features, labels)
  return fitted.coef_


def problem(num, dim, num_classes=3):
  """Returns features and labels of classes that no plane separates."""
  rng = np.random.default_rng(0)
  labels = rng.integers(num_classes, size=num)
  return rng.standard_normal([num, dim]) + np.eye(dim)[labels], labels
