"""A small convolutional backbone, for small grey images and much noise.

Noise grows with the square root of the number of weights that are noised: this
one has less than a quarter of LeNet's, and is built like it otherwise. With
tanh, which is bounded, it learns better under clipping and noise: Papernot et
al., "Tempered Sigmoid Activations for Deep Learning with Differential Privacy",
AAAI 2021.
"""

from __future__ import annotations

from etils import epy

with epy.lazy_imports():
  import tensorflow as tf

  from tff_fedemb.models import blocks


def create_convnet(
  image_shape: tuple[int, int, int],
  *,
  embedding_dim: int = 128,
  activation: str = "relu",
) -> tf.keras.Model:
  """Creates the small convolutional backbone.

  At 28x28x1 and 128 dimensions it has 97,408 parameters, all trainable: 416,
  4,640 and 18,496 in the convolutions, and 73,856 in the embedding layer on 3 x
  3 x 64 activations.

  Args:
    image_shape, embedding_dim: As of `backbones.create_backbone`; height and
      width at least 8.
    activation: After each pooling: "relu", or "tanh".
  """
  return blocks.create_pooled(
    image_shape,
    embedding_dim,
    convolutions=[(16, 5), (32, 3), (64, 3)],
    name="convnet" if activation == "relu" else f"convnet_{activation}",
    activation=activation,
  )
