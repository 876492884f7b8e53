"""LeNet backbone for small grey images (LeCun et al. 1998; Xu et al. 2023).

Each image is standardised by itself; then two convolutions, two max-poolings
and a dense embedding layer. Between those there is no normalisation: at this
depth none is needed, and group normalisation doubles the time of a step.
"""

import tensorflow as tf

from tff_fedemb import checks
from tff_fedemb import errors


def create_lenet(
  image_shape: tuple[int, int, int], *, embedding_dim: int = 128
) -> tf.keras.Model:
  """Creates the LeNet backbone.

  At 28x28x1 and 128 dimensions it has 453,632 parameters, all trainable: 832
  and 51,264 in the convolutions, and 401,536 in the embedding layer on 7 x 7 x
  64 activations.

  Args:
    image_shape, embedding_dim: As of `backbones.create_backbone`; height and
      width at least 4.
  """
  if len(image_shape) != 3 or min(image_shape[:2]) < 4:
    raise errors.FieldError(
      "image_shape",
      "be (height, width, channels) with height and width at least 4",
      tuple(image_shape),
    )
  checks.check_integer("embedding_dim", embedding_dim, minimum=1)
  layers = tf.keras.layers
  return tf.keras.Sequential(
    [
      layers.InputLayer(input_shape=tuple(image_shape)),
      layers.Rescaling(1.0 / 255.0),
      # Each image to mean 0 and deviation 1: ink on white paper and white
      # on black look alike, and the paper does not drown the ink.
      layers.LayerNormalization(axis=[1, 2, 3], center=False, scale=False),
      layers.Conv2D(32, 5, padding="same", name="conv1"),
      # Pooling first is the same function on a quarter of the numbers.
      layers.MaxPool2D(2),
      layers.ReLU(),
      layers.Conv2D(64, 5, padding="same", name="conv2"),
      layers.MaxPool2D(2),
      layers.ReLU(),
      layers.Flatten(),
      layers.Dense(embedding_dim, name="embedding"),
    ],
    name="lenet",
  )
