"""The models of the benchmark in PyTorch, and their data.

For frameworks that are measured beside this one, in environments of their own:
imports nothing of this project. Pooling comes before ReLU, as in our models:
the same function in less time. Images are made from the user's number and not
read, also where ours are.
"""

import numpy as np
import torch

_NUM_CLASSES = 36
# Channels and width of the convolutions.
_BACKBONES = {
  "lenet": [(32, 5), (64, 5)],
  "convnet": [(16, 5), (32, 3), (64, 3)],
}


class Model(torch.nn.Module):
  """The same layers as `tff_fedemb.models.blocks`, with a linear head."""

  def __init__(self, backbone: str):
    super().__init__()
    layers: list[torch.nn.Module] = []
    size, channels = 28, 1
    for filters, width in _BACKBONES[backbone]:
      layers += [
        torch.nn.Conv2d(channels, filters, width, padding=width // 2),
        torch.nn.MaxPool2d(2),
        torch.nn.ReLU(),
      ]
      size, channels = size // 2, filters
    self.layers = torch.nn.Sequential(
      *layers,
      torch.nn.Flatten(),
      torch.nn.Linear(size * size * channels, 128),
      torch.nn.Linear(128, _NUM_CLASSES),
    )

  def forward(self, images):
    images = images.float() / 255.0
    return self.layers(torch.nn.functional.layer_norm(images, (1, 28, 28)))

  def loss(self, images, labels):
    self.train()
    return torch.nn.functional.cross_entropy(self(images), labels.long())


def create_model(backbone: str, model_class: type[Model] = Model) -> Model:
  """Creates a model whose layout takes three quarters of the default's time."""
  return model_class(backbone).to(memory_format=torch.channels_last)


def make_examples(user: int, size: int) -> tuple[np.ndarray, np.ndarray]:
  """Makes a user's images uint8 `[size, 1, 28, 28]` and labels `[size]`."""
  random = np.random.default_rng(user)
  images = random.integers(0, 256, (size, 1, 28, 28), np.uint8)
  return images, random.integers(0, _NUM_CLASSES, size)
