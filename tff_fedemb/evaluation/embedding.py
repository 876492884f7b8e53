"""Embeds labelled images with a backbone."""

import dataclasses

import numpy as np
import tensorflow as tf


@dataclasses.dataclass(frozen=True)
class LabelledImages:
  """Images and their classes.

  Attributes:
    images: uint8 `[n, height, width, channels]`.
    labels: int64 `[n]`.
  """

  images: np.ndarray
  labels: np.ndarray

  def __post_init__(self):
    if self.images.ndim != 4 or self.images.dtype != np.uint8:
      raise ValueError(
          "images must be uint8 [n, height, width, channels], found"
          f" {self.images.dtype} {list(self.images.shape)}."
      )
    if self.labels.shape != self.images.shape[:1]:
      raise ValueError(
          f"labels must be [{len(self.images)}], found"
          f" {list(self.labels.shape)}."
      )

  def subsample(self, max_images: int, *, seed: int = 0) -> "LabelledImages":
    """At most `max_images` of them, drawn without replacement, in order."""
    if len(self.labels) <= max_images:
      return self
    rows = np.random.default_rng(seed).choice(
        len(self.labels), size=max_images, replace=False
    )
    rows.sort()
    return LabelledImages(self.images[rows], self.labels[rows])


def embed(
    backbone: tf.keras.Model, images: np.ndarray, *, batch_size: int = 256
) -> np.ndarray:
  """Embeds images.

  Args:
    backbone: A Keras model from float32 images in [0, 255] to embeddings.
    images: uint8 `[n, height, width, channels]`.
    batch_size: Images embedded at once.

  Returns:
    float32 `[n, dim]`, as the backbone gives them.
  """
  embed_batch = tf.function(
      lambda batch: backbone(tf.cast(batch, tf.float32), training=False),
      input_signature=[tf.TensorSpec([None, *images.shape[1:]], tf.uint8)],
  )
  return np.concatenate([
      embed_batch(images[start : start + batch_size]).numpy()
      for start in range(0, len(images), batch_size)
  ])
