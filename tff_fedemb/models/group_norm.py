"""Group normalisation whose gradient is written out.

Wu and He, "Group Normalization", ECCV 2018, section 3. The layer is Keras', its
weights and its values too. Keras leaves the gradient to TensorFlow, which
multiplies maps where sums over them are enough, and where a batch's size is
known only to the client handles them once more for every broadcast: that took
more than a third of a step of MobileNetV2.
"""

import tensorflow as tf


class GroupNormalization(tf.keras.layers.GroupNormalization):
  """Keras' layer, for maps whose last axis is that of the channels.

  With the mean m and the deviation s of a group of n numbers, and scale and
  offset by channel, y = scale (x - m) / s + offset. From the gradient g of y
  the sums A = sum of g and B = sum of g (x - m) / s over the places of each
  channel give those of offset and scale, and with U = sum of scale A / n and
  V = sum of scale B / n over the channels of the group, the gradient of x is
  (scale g - U - V (x - m) / s) / s.
  """

  def call(self, inputs: tf.Tensor) -> tf.Tensor:
    """Normalises each group of channels of each image.

    Args:
      inputs: Maps `[batch, height, width, channels]`.

    Returns:
      Maps of the same shape.
    """
    if None in inputs.shape[1:] or inputs.shape.rank != 4:
      raise ValueError(
        "inputs must be [batch, height, width, channels], the last three"
        f" known, found {inputs.shape}."
      )
    height, width, channels = inputs.shape[1:]
    per_group = channels // self.groups
    count = float(height * width * per_group)

    def by_channel(values):
      return tf.reshape(values, [-1, 1, 1, channels])

    def sum_places(maps):
      return tf.reduce_sum(maps, axis=[1, 2])

    def sum_group(values):
      """For each channel `[batch, channels]` the sum over its group."""
      groups = tf.reshape(values, [-1, self.groups, per_group])
      sums = tf.reduce_sum(groups, axis=2)
      return by_channel(tf.repeat(sums, per_group, axis=1))

    @tf.custom_gradient
    def normalize(maps, scale, offset):
      mean = sum_group(sum_places(maps)) / count
      variance = (
        sum_group(sum_places(tf.math.squared_difference(maps, mean))) / count
      )
      inverse = tf.math.rsqrt(variance + self.epsilon)
      factor = inverse * scale

      def gradient(upstream):
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

    return normalize(inputs, self.gamma, self.beta)
