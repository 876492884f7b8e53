"""Fits without noise, and what they are fitted to."""

import math

import numpy as np

from tff_fedemb.features import classifier


def fit(method, features, labels, *, num_classes=3, **options):
  """Returns the weights without noise."""
  options = {"num_classes": num_classes, "epsilon": math.inf} | options
  fitted = classifier.FeatureClassifier(method, **options)
  return fitted.fit(features, labels).coef_


def problem(num, dim, num_classes=3):
  """Returns features and labels of classes that no plane separates."""
  rng = np.random.default_rng(0)
  labels = rng.integers(num_classes, size=num)
  return rng.standard_normal([num, dim]) + np.eye(dim)[labels], labels
