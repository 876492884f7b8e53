"""The registry of backbones: Keras models from images to embeddings."""

from collections.abc import Callable

import tensorflow as tf

from tff_fedemb.models import lenet

# A new backbone is one file and one line here.
BACKBONES: dict[str, Callable[..., tf.keras.Model]] = {
    "lenet": lenet.create_lenet,
}


def create_backbone(
    name: str,
    image_shape: tuple[int, int, int],
    *,
    embedding_dim: int = 128,
) -> tf.keras.Model:
  """Creates a backbone by name.

  Args:
    name: A key of `BACKBONES`.
    image_shape: Height, width and channels of an image.
    embedding_dim: Size of the embedding.

  Returns:
    A Keras model from images `[batch, height, width, channels]` in [0, 255]
    to embeddings `[batch, embedding_dim]`, not normalised.

  Raises:
    ValueError: If the name is unknown or the backbone rejects its arguments.
  """
  if name not in BACKBONES:
    raise ValueError(
        f"backbone must be one of {sorted(BACKBONES)}, found {name!r}."
    )
  return BACKBONES[name](image_shape, embedding_dim=embedding_dim)
