"""The models of the benchmark in PyTorch, and their data.

For frameworks that are measured beside this one, in environments of their own:
imports nothing of this project, and PyTorch where it is used. Pooling comes
before ReLU, as in our models: the same function in less time. Images are made
from the user's number and not read, also where ours are.
"""

import importlib
from typing import Any

import numpy as np

_NUM_CLASSES = 36
# Channels and width of the convolutions.
_BACKBONES = {
  "lenet": [(32, 5), (64, 5)],
  "convnet": [(16, 5), (32, 3), (64, 3)],
}


def create_layers(backbone: str) -> Any:
  """Creates the layers of `tff_fedemb.models.blocks`, with a linear head.

  Args:
    backbone: A key of `_BACKBONES`.

  Returns:
    A `torch.nn.Sequential` from float32 images in [0, 1] to logits.
  """
  nn = importlib.import_module("torch").nn
  layers = [nn.LayerNorm((1, 28, 28), elementwise_affine=False)]
  size, channels = 28, 1
  for filters, width in _BACKBONES[backbone]:
    layers += [
      nn.Conv2d(channels, filters, width, padding=width // 2),
      nn.MaxPool2d(2),
      nn.ReLU(),
    ]
    size, channels = size // 2, filters
  return nn.Sequential(
    *layers,
    nn.Flatten(),
    nn.Linear(size * size * channels, 128),
    nn.Linear(128, _NUM_CLASSES),
  )


def make_examples(user: int, size: int) -> tuple[np.ndarray, np.ndarray]:
  """Makes a user's images uint8 `[size, 1, 28, 28]` and labels `[size]`."""
  random = np.random.default_rng(user)
  images = random.integers(0, 256, (size, 1, 28, 28), np.uint8)
  return images, random.integers(0, _NUM_CLASSES, size)
