"""A small convolutional backbone, for small grey images and much noise.

Noise grows with the square root of the number of weights that are noised: this
one has less than a quarter of LeNet's. Layers are LeNet's otherwise, see there.
"""

import tensorflow as tf

from tff_fedemb import checks
from tff_fedemb import errors

_MIN_SIDE = 8


def create_convnet(
  image_shape: tuple[int, int, int], *, embedding_dim: int = 128
) -> tf.keras.Model:
  """Creates the small convolutional backbone.

  At 28x28x1 and 128 dimensions it has 97,408 parameters, all trainable: 416,
  4,640 and 18,496 in the convolutions, and 73,856 in the embedding layer on 3 x
  3 x 64 activations.

  Args:
    image_shape, embedding_dim: As of `backbones.create_backbone`; height and
      width at least 8.
  """
  if len(image_shape) != 3 or min(image_shape[:2]) < _MIN_SIDE:
    raise errors.FieldError(
      "image_shape",
      "be (height, width, channels) with height and width at least"
      f" {_MIN_SIDE}",
      tuple(image_shape),
    )
  checks.check_integer("embedding_dim", embedding_dim, minimum=1)
  layers = tf.keras.layers
  stages = []
  for number, (channels, size) in enumerate([(16, 5), (32, 3), (64, 3)], 1):
    stages += [
      layers.Conv2D(channels, size, padding="same", name=f"conv{number}"),
      # Pooling first is the same function on a quarter of the numbers.
      layers.MaxPool2D(2),
      layers.ReLU(),
    ]
  return tf.keras.Sequential(
    [
      layers.InputLayer(input_shape=tuple(image_shape)),
      layers.Rescaling(1.0 / 255.0),
      # Each image to mean 0 and deviation 1, as in LeNet.
      layers.LayerNormalization(axis=[1, 2, 3], center=False, scale=False),
      *stages,
      layers.Flatten(),
      layers.Dense(embedding_dim, name="embedding"),
    ],
    name="convnet",
  )
