"""ResNet backbones (He et al. 2015, table 1).

Bottleneck blocks: a 1x1 convolution narrows the maps, a 3x3 one filters them
and a 1x1 one widens them again. Group normalisation (Wu and He 2018) replaces
the paper's batch normalisation, unless you ask for frozen statistics of a
pretrained network. Every scale starts at 1, so that pretrained convolutions
have an effect in the first step.

Convolutions have the names, kernels, biases, strides and padding of
`tf.keras.applications.ResNet50`. Pixels are treated alike as well: in the order
blue, green, red, less ImageNet's mean colour, and not scaled. So its ImageNet
weights fit. The scale does not matter to training from scratch, because the
first normalisation removes it.
"""

from __future__ import annotations

import functools

from etils import epy

with epy.lazy_imports():
  import tensorflow as tf

  from tff_fedemb.models import blocks


# Mean of ImageNet's blue, green and red (`preprocess_input`, mode "caffe").
_MEAN_COLOUR = (103.939, 116.779, 123.68)
_EPSILON = 1.001e-5
_WIDENING = 4


def _convolve(
  x: tf.Tensor,
  num_channels: int,
  kernel_size: int,
  *,
  name: str,
  norm: str,
  **options,
):
  """Convolution and normalisation, `<name>_conv` and `<name>_norm`.

  Takes and returns maps `[batch, height, width, channels]`; `options` are those
  of `tf.keras.layers.Conv2D`.
  """
  # The convolution keeps its bias: unlike normalisation by channel, that of
  # groups does not remove it.
  x = tf.keras.layers.Conv2D(
    num_channels, kernel_size, name=f"{name}_conv", **options
  )(x)
  return blocks.normalize(x, name=f"{name}_norm", norm=norm, epsilon=_EPSILON)


def _apply_bottleneck(
  x: tf.Tensor, width: int, *, stride: int, first: bool, name: str, norm: str
):
  """Applies one block to maps `[batch, height, width, channels]`.

  The result has `_WIDENING * width` channels. `first` puts a convolution into
  the shortcut, which a change of shape needs.
  """
  layers = tf.keras.layers
  convolve = functools.partial(_convolve, norm=norm)
  shortcut = x
  if first:
    shortcut = convolve(
      x, _WIDENING * width, 1, strides=stride, name=f"{name}_0"
    )
  x = convolve(x, width, 1, strides=stride, name=f"{name}_1")
  x = layers.ReLU(name=f"{name}_1_relu")(x)
  x = convolve(x, width, 3, padding="same", name=f"{name}_2")
  x = layers.ReLU(name=f"{name}_2_relu")(x)
  x = convolve(x, _WIDENING * width, 1, name=f"{name}_3")
  x = layers.Add(name=f"{name}_add")([shortcut, x])
  return layers.ReLU(name=f"{name}_out")(x)


def create_resnet50(
  image_shape: tuple[int, int, int],
  *,
  embedding_dim: int = 128,
  width: int = 64,
  num_blocks: tuple[int, int, int, int] = (3, 4, 6, 3),
  norm: str = "group",
  name: str = "resnet50",
) -> tf.keras.Model:
  """Creates the ResNet-50 backbone.

  With 3 channels and 128 dimensions it has 23,796,864 parameters: 23,481,472
  in convolutions, 53,120 in normalisation and 262,272 in the embedding layer.
  With grey images it has 6,272 fewer.

  Args:
    image_shape: `(height, width, channels)`, sides in [28, 224], 1 or 3
      channels (red, green, blue).
    embedding_dim: Size of an embedding.
    width: Channels of the first convolution; each stage doubles it.
    num_blocks: Number of blocks of each of the four stages.
    norm: "group" or "frozen", see `backbones.BackboneConfig`.
    name: Name of the model.

  Returns:
    A Keras model from images `[batch, height, width, channels]` in [0, 255] to
    embeddings `[batch, embedding_dim]`, not normalised.

  Raises:
    errors.FieldError: If the shape is out of range.
  """
  blocks.check_image_shape(image_shape)
  layers = tf.keras.layers
  inputs = layers.Input(tuple(image_shape))
  x = inputs
  mean = list(_MEAN_COLOUR)
  if image_shape[2] == 1:
    mean = [sum(mean) / len(mean)]
  else:
    x = tf.reverse(x, axis=[-1])
  x = layers.Rescaling(1.0, offset=[-value for value in mean])(x)
  x = layers.ZeroPadding2D(3, name="conv1_pad")(x)
  x = _convolve(x, width, 7, strides=2, name="conv1", norm=norm)
  x = layers.ReLU(name="conv1_relu")(x)
  x = layers.ZeroPadding2D(1, name="pool1_pad")(x)
  x = layers.MaxPooling2D(3, strides=2, name="pool1_pool")(x)
  for stage, blocks_in_stage in enumerate(num_blocks):
    for block in range(blocks_in_stage):
      x = _apply_bottleneck(
        x,
        width * 2**stage,
        stride=2 if stage and not block else 1,
        first=not block,
        name=f"conv{stage + 2}_block{block + 1}",
        norm=norm,
      )
  return tf.keras.Model(inputs, blocks.embed(x, embedding_dim), name=name)


# For tests and for trying things out: a quarter of the width, one block per
# stage.
create_resnet_small = functools.partial(
  create_resnet50, width=16, num_blocks=(1, 1, 1, 1), name="resnet_small"
)
