"""Backbones of pooled convolutions, for small grey images.

LeNet is that of LeCun et al. 1998 as Xu et al. 2023 have it.

ConvNet has less than a quarter of its weights: noise grows with the square root
of the number of weights that are noised. With tanh, which is bounded, it learns
better under clipping and noise: Papernot et al., "Tempered Sigmoid Activations
for Deep Learning with Differential Privacy", AAAI 2021.

Conv4 is the backbone of Snell et al., "Prototypical Networks for Few-shot
Learning", NeurIPS 2017, section 3, with wider layers, group normalisation,
which looks at one image at a time, and pooling before normalisation, which
halves the time.
"""

from __future__ import annotations

from collections.abc import Sequence

from etils import epy

from tff_fedemb import checks
from tff_fedemb import errors

with epy.lazy_imports():
  import tensorflow as tf

  from tff_fedemb.models import blocks

_LENET = ((32, 5), (64, 5))
_CONVNET = ((16, 5), (32, 3), (64, 3))
_CONV4 = ((32, 3), (64, 3), (96, 3), (128, 3))
_CONV4_WIDE = ((64, 3), (96, 3), (128, 3), (192, 3))


def create_pooled(
  image_shape: tuple[int, int, int],
  embedding_dim: int,
  *,
  convolutions: Sequence[tuple[int, int]],
  name: str,
  normalized: bool = False,
  activation: str = "relu",
) -> tf.keras.Model:
  """Creates convolutions with a max-pooling after each, for small images.

  Each image is standardised by itself. In two or three layers no normalisation
  between them is needed, and group normalisation takes time.

  Args:
    image_shape: As of `backbones.create_backbone`; height and width at least 2
      for each pooling, multiplied.
    embedding_dim: As of `backbones.create_backbone`.
    convolutions: Channels and kernel size of each.
    name: Name of the model.
    normalized: Whether each has group normalisation in place of a bias; pooling
      then keeps the last row and column of odd sides, by padding.
    activation: After each pooling, a Keras name; a rising function.

  Raises:
    errors.FieldError: If an argument is out of its range.
  """
  min_side = 2 ** len(convolutions)
  if len(image_shape) != 3 or min(image_shape[:2]) < min_side:
    raise errors.FieldError(
      "image_shape",
      f"be (height, width, channels) with height and width at least {min_side}",
      tuple(image_shape),
    )
  checks.check_integer("embedding_dim", embedding_dim, minimum=1)
  layers = tf.keras.layers
  model = tf.keras.Sequential(name=name)
  model.add(layers.InputLayer(input_shape=tuple(image_shape)))
  model.add(layers.Rescaling(1.0 / 255.0))
  # Each image to mean 0 and deviation 1: ink on white paper and white on black
  # look alike, and the paper does not drown the ink.
  model.add(
    layers.LayerNormalization(axis=[1, 2, 3], center=False, scale=False)
  )
  for number, (channels, size) in enumerate(convolutions, 1):
    model.add(
      layers.Conv2D(
        channels,
        size,
        padding="same",
        use_bias=not normalized,
        name=f"conv{number}",
      )
    )
    # Pooling first is the same function on a quarter of the numbers, but for
    # what normalisation takes its statistics of.
    model.add(layers.MaxPool2D(2, padding="same" if normalized else "valid"))
    if normalized:
      model.add(
        blocks.GroupNormalization(
          blocks.num_groups(channels), epsilon=1e-3, name=f"norm{number}"
        )
      )
    model.add(layers.Activation(activation))
  model.add(layers.Flatten())
  model.add(layers.Dense(embedding_dim, name="embedding"))
  return model


def create_lenet(
  image_shape: tuple[int, int, int], *, embedding_dim: int = 128
) -> tf.keras.Model:
  """Creates the LeNet backbone, as `create_pooled`.

  At 28x28x1 and 128 dimensions it has 453,632 parameters, all trainable: 832
  and 51,264 in the convolutions, and 401,536 in the embedding layer on 7 x 7 x
  64 activations.
  """
  return create_pooled(
    image_shape, embedding_dim, convolutions=_LENET, name="lenet"
  )


def create_convnet(
  image_shape: tuple[int, int, int],
  *,
  embedding_dim: int = 128,
  activation: str = "relu",
) -> tf.keras.Model:
  """Creates the small convolutional backbone, as `create_pooled`.

  At 28x28x1 and 128 dimensions it has 97,408 parameters, all trainable: 416,
  4,640 and 18,496 in the convolutions, and 73,856 in the embedding layer on 3 x
  3 x 64 activations.
  """
  return create_pooled(
    image_shape,
    embedding_dim,
    convolutions=_CONVNET,
    name="convnet" if activation == "relu" else f"convnet_{activation}",
    activation=activation,
  )


def create_conv4(
  image_shape: tuple[int, int, int],
  *,
  embedding_dim: int = 128,
  wide: bool = False,
) -> tf.keras.Model:
  """Creates the backbone of four convolutions, as `create_pooled`.

  At 28x28x1 and 128 dimensions it has 250,912 parameters, all trainable:
  184,608 in the convolutions, 640 in the normalisation, and 65,664 in the
  embedding layer on 2 x 2 x 128 activations. The wide one, for training without
  noise, has 487,040.
  """
  return create_pooled(
    image_shape,
    embedding_dim,
    convolutions=_CONV4_WIDE if wide else _CONV4,
    name="conv4_wide" if wide else "conv4",
    normalized=True,
  )
