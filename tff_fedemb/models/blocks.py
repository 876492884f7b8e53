"""Parts of the convolutional backbones: input, normalisation, embedding.

Group normalisation (Wu and He, "Group Normalization", ECCV 2018, section 3)
looks at one image at a time. Batch normalisation would mix the images of a
client and keep statistics of its data outside of what is clipped and noised.
Frozen normalisation keeps the statistics of a pretrained network as constants,
so it does not couple the images either.
"""

from typing import Any

import numpy as np
import tensorflow as tf

from tff_fedemb import errors
from tff_fedemb.models import graph_gradients

_MIN_SIDE, _MAX_SIDE = 28, 224
_MAX_GROUPS = 32
_MIN_CHANNELS_PER_GROUP = 8


def check_image_shape(image_shape: tuple[int, int, int]) -> None:
  """Checks that images are an input of MobileNetV2 and ResNet-50.

  Args:
    image_shape: Height, width and channels.

  Raises:
    errors.FieldError: If there are not three axes, a side is not in [28, 224],
      or there are not 1 or 3 channels.
  """
  if (
    len(image_shape) != 3
    or min(image_shape[:2]) < _MIN_SIDE
    or max(image_shape[:2]) > _MAX_SIDE
    or image_shape[2] not in (1, 3)
  ):
    raise errors.FieldError(
      "image_shape",
      "be (height, width, channels) with height and width from"
      f" {_MIN_SIDE} to {_MAX_SIDE} and 1 or 3 channels",
      tuple(image_shape),
    )


class GroupNormalization(tf.keras.layers.GroupNormalization):
  """Keras' group normalisation with its gradient written out.

  Weights and values are those of Keras; only the gradient is computed
  differently. Keras leaves it to TensorFlow, which multiplies whole maps where
  sums over them are enough. Where only the client knows the batch size,
  TensorFlow also passes over the maps once more for every broadcast. Together
  that took more than a third of a step of MobileNetV2.

  With the mean m and the deviation s of a group of n numbers, and scale and
  offset by channel, y = scale (x - m) / s + offset. From the gradient g of y
  the sums A = sum of g and B = sum of g (x - m) / s over the places of each
  channel give those of offset and scale, and with U = sum of scale A / n and
  V = sum of scale B / n over the channels of the group, the gradient of x is
  (scale g - U - V (x - m) / s) / s.
  """

  def call(self, inputs: tf.Tensor) -> tf.Tensor:
    """Normalises maps.

    Args:
      inputs: `[batch, height, width, channels]`; only the batch size may be
        unknown while tracing.

    Returns:
      Maps of the same shape.

    Raises:
      ValueError: If height, width or channels are not known while tracing.
    """
    return normalize_groups(
      inputs, self.gamma, self.beta, groups=self.groups, epsilon=self.epsilon
    )


def normalize_groups(
  inputs: tf.Tensor,
  scale: tf.Tensor,
  offset: tf.Tensor,
  *,
  groups: int,
  epsilon: float,
) -> tf.Tensor:
  """Normalises maps as `GroupNormalization` does.

  Args:
    inputs: `[batch, height, width, channels]`.
    scale: Factors `[channels]`, applied after normalisation.
    offset: Summands `[channels]`, added after `scale`.
    groups: Number of groups; divides the number of channels.
    epsilon: Added to variances, above 0.

  Returns:
    Maps of the same shape, with a gradient by `inputs`, `scale` and `offset`.

  Raises:
    ValueError: If height, width or channels are not known while tracing.
  """
  if None in inputs.shape[1:] or inputs.shape.rank != 4:
    raise ValueError(
      "inputs must be [batch, height, width, channels], the last three"
      f" known, found {inputs.shape}."
    )
  height, width, channels = inputs.shape[1:]
  per_group = channels // groups
  count = float(height * width * per_group)

  def by_channel(values: tf.Tensor):
    """Reshapes `[batch, channels]` so that it broadcasts over the places."""
    return tf.reshape(values, [-1, 1, 1, channels])

  def sum_places(maps: tf.Tensor):
    """Sums maps over height and width, `[batch, channels]`."""
    if height == width == 1:
      # tf2onnx loses the channels of a sum over places of length 1.
      return tf.reshape(maps, [-1, channels])
    return tf.reduce_sum(maps, axis=[1, 2])

  def sum_group(values: tf.Tensor):
    """Sums over the group of each channel; takes `[batch, channels]`.

    Returns `[batch, 1, 1, channels]`, equal within a group.
    """
    by_group = tf.reshape(values, [-1, groups, per_group])
    sums = tf.reduce_sum(by_group, axis=2)
    return by_channel(tf.repeat(sums, per_group, axis=1))

  @graph_gradients.custom_gradient
  def normalize_maps(maps: tf.Tensor, scale: tf.Tensor, offset: tf.Tensor):
    mean = sum_group(sum_places(maps)) / count
    variance = (
      sum_group(sum_places(tf.math.squared_difference(maps, mean))) / count
    )
    inverse = tf.math.rsqrt(variance + epsilon)
    factor = inverse * scale

    def gradient(upstream: tf.Tensor):
      sum_1 = sum_places(upstream)
      sum_x = by_channel(sum_places(upstream * maps))
      sum_z = (sum_x - mean * by_channel(sum_1)) * inverse
      mean_1 = sum_group(scale * sum_1) / count
      mean_z = sum_group(scale * tf.squeeze(sum_z, [1, 2])) / count
      slope = -mean_z * inverse * inverse
      level = -mean_1 * inverse - slope * mean
      return (
        upstream * factor + (maps * slope + level),
        tf.reduce_sum(sum_z, axis=[0, 1, 2]),
        tf.reduce_sum(sum_1, axis=0),
      )

    return maps * factor + (offset - mean * factor), gradient

  return normalize_maps(inputs, scale, offset)


def num_groups(num_channels: int) -> int:
  """Returns the number of groups that channels are normalised in.

  The deepest maps of a small image are one pixel, where a group of one or two
  channels would be normalised to constants.

  Args:
    num_channels: Number of channels, 1 or more.

  Returns:
    The largest number that divides the channels and leaves at least 8 of them
    in a group; at most 32, as in Wu and He 2018, and at least 1.
  """
  most = min(_MAX_GROUPS, num_channels // _MIN_CHANNELS_PER_GROUP)
  return next((n for n in range(most, 1, -1) if num_channels % n == 0), 1)


class FrozenNormalization(tf.keras.layers.BatchNormalization):
  """Batch normalisation by constants: an affine map of each channel.

  Mean and variance are those of a pretrained network, in training too, so no
  image depends on the others of its batch. Only scale and offset are trained.
  """

  def call(self, inputs: tf.Tensor, training: bool | None = None) -> tf.Tensor:
    """Normalises maps by the stored mean and variance.

    Args:
      inputs: `[batch, height, width, channels]`.
      training: Ignored: the statistics of a batch are never used.

    Returns:
      Maps of the same shape.
    """
    del training  # The statistics of a batch are never taken.
    return super().call(inputs, training=False)


def normalize(
  x: tf.Tensor, *, name: str, norm: str = "group", epsilon: float = 1e-3
):
  """Applies a normalisation layer to maps.

  Args:
    x: Maps `[batch, height, width, channels]`.
    name: Name of the layer.
    norm: "frozen", or else group normalisation, as in
      `backbones.BackboneConfig`.
    epsilon: Added to variances.

  Returns:
    Maps of the same shape.
  """
  if norm == "frozen":
    return FrozenNormalization(epsilon=epsilon, name=name)(x)
  return GroupNormalization(
    num_groups(x.shape[-1]), epsilon=epsilon, name=name
  )(x)


@tf.keras.utils.register_keras_serializable(package="tff_fedemb")
class AreaResizing(tf.keras.layers.Layer):
  """Makes images smaller: each pixel is the mean of those it replaces.

  The same as `tf.image.resize` by areas, whose operation neither TensorFlow
  Lite nor ONNX has, in products with matrices.
  """

  def __init__(self, side: int, **options: Any):
    """Initialises the layer.

    Args:
      side: Height and width to make.
      **options: Options of the base class.
    """
    super().__init__(**options)
    self._side = side

  def get_config(self) -> dict[str, Any]:
    """Returns the layer's options, by which Keras saves and clones models."""
    return {**super().get_config(), "side": self._side}

  def call(self, inputs: tf.Tensor) -> tf.Tensor:
    """Resizes images `[batch, height, width, channels]`."""
    height, width = inputs.shape[1:3]
    # To [batch, height, channels, side], then [batch, channels, side, side].
    columns = _mean_matrix(width, self._side)
    resized = tf.tensordot(inputs, columns, [[2], [0]])
    rows = _mean_matrix(height, self._side)
    resized = tf.tensordot(resized, rows, [[1], [0]])
    return tf.transpose(resized, [0, 3, 2, 1])


def _mean_matrix(before: int, after: int) -> np.ndarray:
  """Share of each pixel of a line, a row each, in those of a shorter line."""
  edges = np.linspace(0, before, after + 1)
  pixels = np.arange(before)[:, np.newaxis]
  starts = np.maximum(edges[:-1], pixels)
  ends = np.minimum(edges[1:], pixels + 1)
  shares = np.maximum(ends - starts, 0) * (after / before)
  return shares.astype(np.float32)


def chain(
  shape: tuple[int, ...],
  layers: list[tf.keras.layers.Layer],
  embedding_dim: int,
  *,
  name: str,
) -> tf.keras.Model:
  """Creates a chain of layers that ends in an embedding layer.

  Args:
    shape: Shape of an example, without the batch.
    layers: Layers up to the embedding, each from one tensor to one tensor; the
      last one yields `[batch, features]`.
    embedding_dim: Size of an embedding.
    name: Name of the model.

  Returns:
    A `tf.keras.Sequential` from examples `[batch, *shape]` to embeddings
    `[batch, embedding_dim]`, not normalised; its last layer is named
    "embedding".
  """
  first = tf.keras.layers.InputLayer(input_shape=tuple(shape))
  last = tf.keras.layers.Dense(embedding_dim, name="embedding")
  return tf.keras.Sequential([first, *layers, last], name=name)


def embed(x: tf.Tensor, embedding_dim: int):
  """Embeds the mean of maps over their places.

  Args:
    x: Maps `[batch, height, width, channels]`.
    embedding_dim: Size of an embedding.

  Returns:
    Embeddings `[batch, embedding_dim]`, not normalised, of a layer named
    "embedding".
  """
  x = tf.keras.layers.GlobalAveragePooling2D()(x)
  return tf.keras.layers.Dense(embedding_dim, name="embedding")(x)
