"""Backbones of pooled convolutions, for small grey images.

LeNet is the variant of LeCun et al. 1998 in Xu et al. 2023.

ConvNet has less than a quarter of LeNet's weights: noise grows with the square
root of the number of noised weights. With tanh, which is bounded, it learns
better under clipping and noise: Papernot et al., "Tempered Sigmoid Activations
for Deep Learning with Differential Privacy", AAAI 2021.

Conv4 is the backbone of Snell et al., "Prototypical Networks for Few-shot
Learning", NeurIPS 2017, section 3, with three changes: wider layers; group
normalisation, which looks at one image at a time; and pooling before
normalisation, which halves the time.

Strided has strides in place of pooling (Springenberg et al., "Striving for
Simplicity: The All Convolutional Net", 2015) and few channels. It takes the
least time and has few weights, for millions of clients.
"""

from __future__ import annotations

from collections.abc import Sequence
import functools

from etils import epy

from tff_fedemb import errors

with epy.lazy_imports():
  import tensorflow as tf

  from tff_fedemb.models import blocks


def _resize(
  image_shape: tuple[int, ...], side: int | None
) -> list[tf.keras.layers.Layer]:
  """Layers that resize images to `side` x `side` pixels; none if not needed.

  `side` of `None` asks for no resizing. Images larger than `side` in both axes
  are averaged, others are interpolated.
  """
  if side is None or tuple(image_shape[:2]) == (side, side):
    return []
  if min(image_shape[:2]) > side:
    return [blocks.AreaResizing(side)]
  return [tf.keras.layers.Resizing(side, side, interpolation="bilinear")]


def _check_sides(image_shape: tuple[int, ...], min_side: int) -> None:
  """Checks height and width, in pixels, of `(height, width, channels)`.

  Raises:
    errors.FieldError: If there are not three axes, or a side is too small.
  """
  if len(image_shape) != 3 or min(image_shape[:2]) < min_side:
    raise errors.FieldError(
      "image_shape",
      f"be (height, width, channels) with height and width at least {min_side}",
      tuple(image_shape),
    )


def create_pooled(
  image_shape: tuple[int, int, int],
  *,
  convolutions: Sequence[tuple[int, int]],
  name: str,
  embedding_dim: int = 128,
  normalized: bool = False,
  activation: str = "relu",
  strided: bool = False,
  side: int | None = None,
) -> tf.keras.Model:
  """Creates convolutions with a max-pooling after each, for small images.

  Each image is standardised by itself. Two or three layers need no
  normalisation between them, and group normalisation takes time.

  Args:
    image_shape: `(height, width, channels)`; height and width at least
      `2 ** len(convolutions)`, or any if `side` is given.
    convolutions: Channels and kernel size of each, from the input on.
    name: Name of the model.
    embedding_dim: Size of an embedding.
    normalized: Whether each has group normalisation in place of a bias. Pooling
      then keeps the last row and column of odd sides, by padding.
    activation: After each pooling, a Keras name; a rising function.
    strided: Whether convolutions have stride 2, and nothing is pooled.
    side: Height and width that images of another size are resized to, so that
      weights fit images of any size; `None` leaves them as they are.

  Returns:
    A Keras model from images `[batch, height, width, channels]` in [0, 255] to
    embeddings `[batch, embedding_dim]`, not normalised. Without `side`, the
    size of its embedding layer grows with the area of the images.

  Raises:
    errors.FieldError: If the images are too small, or do not have three axes.
  """
  _check_sides(image_shape, 1 if side else 2 ** len(convolutions))
  keras = tf.keras.layers
  layers = [
    *_resize(image_shape, side),
    keras.Rescaling(1.0 / 255.0),
    # Each image to mean 0 and deviation 1: ink on white paper and white on
    # black look alike, and the paper does not drown the ink.
    keras.LayerNormalization(axis=[1, 2, 3], center=False, scale=False),
  ]
  for number, (channels, size) in enumerate(convolutions, 1):
    convolution = keras.Conv2D(
      channels,
      size,
      strides=2 if strided else 1,
      padding="same",
      use_bias=not normalized,
      name=f"conv{number}",
    )
    layers.append(convolution)
    if not strided:
      # Pooling before the activation is the same function on a quarter of the
      # numbers, but for the statistics of the normalisation.
      padding = "same" if normalized else "valid"
      layers.append(keras.MaxPool2D(2, padding=padding))
    if normalized:
      groups = blocks.num_groups(channels)
      layers.append(
        blocks.GroupNormalization(groups, epsilon=1e-3, name=f"norm{number}")
      )
    layers.append(keras.Activation(activation))
  layers.append(keras.Flatten())
  return blocks.chain(image_shape, layers, embedding_dim, name=name)


create_lenet = functools.partial(
  create_pooled, name="lenet", convolutions=((32, 5), (64, 5))
)
create_convnet = functools.partial(
  create_pooled, name="convnet", convolutions=((16, 5), (32, 3), (64, 3))
)
create_convnet_tanh = functools.partial(
  create_convnet, name="convnet_tanh", activation="tanh"
)
create_conv4 = functools.partial(
  create_pooled,
  name="conv4",
  convolutions=((32, 3), (64, 3), (96, 3), (128, 3)),
  normalized=True,
)
# For the weights that come with the library, see `starts`.
create_conv4_48 = functools.partial(create_conv4, name="conv4_48", side=48)
# For training without noise.
create_conv4_wide = functools.partial(
  create_conv4,
  name="conv4_wide",
  convolutions=((64, 3), (96, 3), (128, 3), (192, 3)),
)
create_strided = functools.partial(
  create_pooled,
  name="strided",
  convolutions=((12, 5), (24, 3), (48, 3)),
  strided=True,
)
