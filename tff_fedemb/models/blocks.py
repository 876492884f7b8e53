"""Parts of the convolutional backbones: input, normalisation, embedding.

Wu and He, "Group Normalization", ECCV 2018, section 3, looks at one image at a
time. Batch normalisation would mix the images of a client and keep statistics
of its data outside of what is clipped and noised. With statistics that stay as
a pretrained network had them, it couples nothing.
"""

import tensorflow as tf

from tff_fedemb import errors

_MIN_SIDE, _MAX_SIDE = 28, 224
_MAX_GROUPS = 32
_MIN_CHANNELS_PER_GROUP = 8


def check_image_shape(image_shape: tuple[int, int, int]) -> None:
  """Checks that images are an input of MobileNetV2 and ResNet-50.

  Args:
    image_shape: Height, width and channels.

  Raises:
    errors.FieldError: If a side is not in [28, 224], or there are not 1 or 3
      channels.
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
  """Keras' layer, weights and values, with its gradient written out.

  Keras leaves the gradient to TensorFlow, which multiplies maps where sums over
  them are enough, and where a batch's size is known only to the client handles
  them once more for every broadcast: that took more than a third of a step of
  MobileNetV2.

  With the mean m and the deviation s of a group of n numbers, and scale and
  offset by channel, y = scale (x - m) / s + offset. From the gradient g of y
  the sums A = sum of g and B = sum of g (x - m) / s over the places of each
  channel give those of offset and scale, and with U = sum of scale A / n and
  V = sum of scale B / n over the channels of the group, the gradient of x is
  (scale g - U - V (x - m) / s) / s.
  """

  def call(self, inputs: tf.Tensor) -> tf.Tensor:
    """Normalises maps `[batch, height, width, channels]`."""
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
    scale, offset: `[channels]`.
    groups: Number of groups; divides the number of channels.
    epsilon: Added to variances.

  Returns:
    Maps of the same shape.

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
    return tf.reshape(values, [-1, 1, 1, channels])

  def sum_places(maps: tf.Tensor):
    return tf.reduce_sum(maps, axis=[1, 2])

  def sum_group(values: tf.Tensor):
    """For each channel `[batch, channels]` the sum over its group."""
    by_group = tf.reshape(values, [-1, groups, per_group])
    sums = tf.reduce_sum(by_group, axis=2)
    return by_channel(tf.repeat(sums, per_group, axis=1))

  @tf.custom_gradient
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
    num_channels: Number of channels.

  Returns:
    The largest number that divides the channels and leaves at least 8 of them
    in a group; at most 32, as in Wu and He 2018.
  """
  most = min(_MAX_GROUPS, num_channels // _MIN_CHANNELS_PER_GROUP)
  return next((n for n in range(most, 1, -1) if num_channels % n == 0), 1)


class FrozenNormalization(tf.keras.layers.BatchNormalization):
  """Batch normalisation by constants: an affine map of each channel.

  Mean and variance are those of a pretrained network, in training too, so that
  other images of a batch do not matter. They are not trained; scale and offset
  are.
  """

  def call(self, inputs: tf.Tensor, training: bool | None = None) -> tf.Tensor:
    """Normalises maps `[batch, height, width, channels]`."""
    del training  # The statistics of a batch are never taken.
    return super().call(inputs, training=False)


def normalize(
  x: tf.Tensor, *, name: str, norm: str = "group", epsilon: float = 1e-3
):
  """Normalises maps `[batch, height, width, channels]`.

  Args:
    x: The maps.
    name: Name of the layer.
    norm: "group" or "frozen", as in `backbones.BackboneConfig`.
    epsilon: Added to variances.
  """
  if norm == "frozen":
    return FrozenNormalization(epsilon=epsilon, name=name)(x)
  return GroupNormalization(
    num_groups(x.shape[-1]), epsilon=epsilon, name=name
  )(x)


def chain(
  shape: tuple[int, ...],
  layers: list[tf.keras.layers.Layer],
  embedding_dim: int,
  *,
  name: str,
) -> tf.keras.Model:
  """Creates a chain of layers that ends in an embedding layer.

  Args:
    shape: Shape of an example.
    layers: Layers up to the embedding, which take and make one tensor.
    embedding_dim: Size of an embedding.
    name: Name of the model.
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
    Embeddings `[batch, embedding_dim]`.
  """
  x = tf.keras.layers.GlobalAveragePooling2D()(x)
  return tf.keras.layers.Dense(embedding_dim, name="embedding")(x)
