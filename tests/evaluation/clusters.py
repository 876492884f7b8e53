"""Embeddings of classes that are made up."""

import numpy as np


def draw(num_classes, images, *, spread, dim=8):
  """Draws images around a centre of each class, and their labels, in order."""
  generator = np.random.default_rng(0)
  centers = generator.normal(size=(num_classes, 1, dim))
  noise = spread * generator.normal(size=(num_classes, images, dim))
  labels = np.repeat(np.arange(num_classes), images)
  return (centers + noise).reshape(-1, dim), labels
