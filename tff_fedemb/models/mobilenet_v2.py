"""MobileNetV2 backbone (Sandler et al. 2018, table 2).

Inverted residuals: a 1x1 convolution widens the maps, a 3x3 depthwise one
filters them, and a linear 1x1 one narrows them again. Group normalisation (Wu
and He 2018) replaces the paper's batch normalisation, unless you ask for frozen
statistics of a pretrained network.

Names and kernels of the convolutions, the range of the pixels and the padding
of the maps are those of `tf.keras.applications.MobileNetV2`, so its ImageNet
weights fit.
"""

from __future__ import annotations

import functools

from etils import epy

with epy.lazy_imports():
  import tensorflow as tf

  from tff_fedemb.models import blocks


# Channels, number of blocks, stride of the first block; table 2 of the paper.
_STAGES = (
  (16, 1, 1),
  (24, 2, 2),
  (32, 3, 2),
  (64, 4, 2),
  (96, 3, 1),
  (160, 3, 2),
  (320, 1, 1),
)
_EXPANSION = 6


def _scale_channels(num_channels: float, width_multiplier: float) -> int:
  """The multiple of 8 nearest to the product, at least 8 and 90 % of it."""
  wanted = num_channels * width_multiplier
  rounded = max(8, int(wanted + 4) // 8 * 8)
  return rounded + 8 if rounded < 0.9 * wanted else rounded


def _convolve(
  x: tf.Tensor,
  *arguments,
  name: str,
  norm: str,
  relu: str = "",
  depthwise: bool = False,
):
  """Convolution and normalisation, and a ReLU6 if it has a name.

  Args:
    x: Maps `[batch, height, width, channels]`.
    *arguments: Number of channels unless it is depthwise, side of the kernel,
      and stride, 1 by default.
    name: Name of the convolution; the normalisation is `<name>_norm`.
    norm: See `blocks.normalize`.
    relu: Name of the ReLU; empty for none.
    depthwise: Whether each channel is filtered by itself.

  Returns:
    Maps with the height and width divided by the stride, rounded up.
  """
  layers = tf.keras.layers
  layer = layers.DepthwiseConv2D if depthwise else layers.Conv2D
  x = layer(*arguments, padding="same", use_bias=False, name=name)(x)
  x = blocks.normalize(x, name=f"{name}_norm", norm=norm)
  return layers.ReLU(6.0, name=relu)(x) if relu else x


def _apply_inverted_residual(
  x: tf.Tensor,
  num_channels: int,
  *,
  stride: int,
  expand: bool,
  name: str,
  norm: str,
):
  """Applies one block to maps `[batch, height, width, channels]`.

  The result has `num_channels`. The input is added to it if stride and number
  of channels leave the shape as it was. `expand` widens by `_EXPANSION` first.
  """
  inputs = x
  convolve = functools.partial(_convolve, norm=norm)
  if expand:
    wide, expanded = _EXPANSION * x.shape[-1], f"{name}_expand"
    x = convolve(x, wide, 1, name=expanded, relu=f"{expanded}_relu")
  filtered = f"{name}_depthwise"
  x = convolve(
    x, 3, stride, name=filtered, relu=f"{filtered}_relu", depthwise=True
  )
  x = convolve(x, num_channels, 1, name=f"{name}_project")
  if stride == 1 and inputs.shape[-1] == num_channels:
    x = tf.keras.layers.Add(name=f"{name}_add")([inputs, x])
  return x


def create_mobilenet_v2(
  image_shape: tuple[int, int, int],
  *,
  embedding_dim: int = 128,
  width_multiplier: float = 1.0,
  stages: tuple[tuple[int, int, int], ...] = _STAGES,
  last_channels: int = 1280,
  norm: str = "group",
  name: str = "mobilenet_v2",
) -> tf.keras.Model:
  """Creates the MobileNetV2 backbone.

  With 3 channels, width 1 and 128 dimensions it has 2,387,840 parameters:
  2,189,760 in convolutions, 34,112 in normalisation and 163,968 in the
  embedding layer. With grey images it has 576 fewer.

  Args:
    image_shape: `(height, width, channels)`, sides in [28, 224], 1 or 3
      channels.
    embedding_dim: Size of an embedding.
    width_multiplier: Factor of the numbers of channels, in (0, 2]. Results are
      rounded to multiples of 8.
    stages: Rows of table 2 of the paper: channels, number of blocks, stride of
      the first block.
    last_channels: Channels of the last convolution; `width_multiplier` only
      raises it (section 3.4).
    norm: "group" or "frozen", see `backbones.BackboneConfig`.
    name: Name of the model.

  Returns:
    A Keras model from images `[batch, height, width, channels]` in [0, 255],
    which it rescales to [-1, 1], to embeddings `[batch, embedding_dim]`, not
    normalised.

  Raises:
    errors.FieldError: If the shape is out of range.
  """
  blocks.check_image_shape(image_shape)
  layers = tf.keras.layers
  inputs = layers.Input(tuple(image_shape))
  x = layers.Rescaling(1.0 / 127.5, offset=-1.0)(inputs)
  first = _scale_channels(32, width_multiplier)
  x = _convolve(x, first, 3, 2, name="Conv1", norm=norm, relu="Conv1_relu")
  index = 0
  for channels, num_blocks, first_stride in stages:
    for position in range(num_blocks):
      x = _apply_inverted_residual(
        x,
        _scale_channels(channels, width_multiplier),
        stride=1 if position else first_stride,
        expand=index > 0,
        name=f"block_{index}" if index else "expanded_conv",
        norm=norm,
      )
      index += 1
  # Section 3.4: a narrow network keeps its wide last layer.
  last = _scale_channels(last_channels, max(1.0, width_multiplier))
  x = _convolve(x, last, 1, name="Conv_1", norm=norm, relu="out_relu")
  return tf.keras.Model(inputs, blocks.embed(x, embedding_dim), name=name)


# For tests and for trying things out: narrower, with one block per stage.
create_mobilenet_v2_small = functools.partial(
  create_mobilenet_v2,
  width_multiplier=0.35,
  stages=tuple((channels, 1, stride) for channels, _, stride in _STAGES),
  last_channels=256,
  name="mobilenet_v2_small",
)
