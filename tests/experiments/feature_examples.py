"""Small files of features, for tests of fits on them."""

import numpy as np


def write(path, *, seed, num_examples=60, dim=4, num_classes=3, num_users=0):
  """Writes clusters of features, longer than 1, and returns what is in them."""
  rng = np.random.default_rng(seed)
  labels = np.arange(num_examples) % num_classes
  features = 3 * np.eye(num_classes, dim)[labels]
  features += rng.normal(size=features.shape)
  arrays = {"features": features.astype(np.float32), "labels": labels}
  if num_users:
    arrays["users"] = np.arange(num_examples) % num_users
  np.savez(path, **arrays)
  return features, labels
