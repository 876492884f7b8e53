"""What the convolutional backbones share: input, normalisation, embedding.

Source of the normalisation: Wu and He 2018 ("Group Normalization"). It looks
at one image at a time. Batch normalisation would mix the images of a client
and keep statistics of its data outside of what is clipped and noised.
"""

import tensorflow as tf

from tff_fedemb import checks
from tff_fedemb import errors
from tff_fedemb.models import group_norm

MIN_SIDE, MAX_SIDE = 28, 224
_MAX_GROUPS = 32
_MIN_CHANNELS_PER_GROUP = 8


def check_arguments(
  image_shape: tuple[int, int, int], embedding_dim: int
) -> None:
  """Checks what a convolutional backbone is created with.

  Raises:
    errors.FieldError: If one is out of its range.
  """
  if (
    len(image_shape) != 3
    or min(image_shape[:2]) < MIN_SIDE
    or max(image_shape[:2]) > MAX_SIDE
    or image_shape[2] not in (1, 3)
  ):
    raise errors.FieldError(
      "image_shape",
      "be (height, width, channels) with height and width from"
      f" {MIN_SIDE} to {MAX_SIDE} and 1 or 3 channels",
      tuple(image_shape),
    )
  checks.check_integer("embedding_dim", embedding_dim, minimum=1)


def num_groups(num_channels: int) -> int:
  """Number of groups that channels are normalised in.

  The most groups, at most 32 as Wu and He 2018 have them, that divide the
  channels and leave at least 8 of them in each. The deepest maps of a small
  image are one pixel: a group of one or two channels would be normalised to
  constants there.
  """
  most = min(_MAX_GROUPS, num_channels // _MIN_CHANNELS_PER_GROUP)
  return next((n for n in range(most, 1, -1) if num_channels % n == 0), 1)


def normalize(x, *, name: str, epsilon: float = 1e-3):
  """Normalises maps `[batch, height, width, channels]` in groups."""
  return group_norm.GroupNormalization(
    num_groups(x.shape[-1]), epsilon=epsilon, name=name
  )(x)


def embed(x, embedding_dim: int):
  """Averages maps `[batch, height, width, channels]`, and embeds that."""
  x = tf.keras.layers.GlobalAveragePooling2D()(x)
  return tf.keras.layers.Dense(embedding_dim, name="embedding")(x)
