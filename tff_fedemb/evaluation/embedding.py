"""Embeds labelled images with a backbone.

Images are read, decoded and embedded a batch at a time, so that a held-out set
may be larger than the memory. The embeddings are kept whole, float32
`[n, dim]`.
"""

from collections.abc import Callable
import dataclasses
import math

import numpy as np
import tensorflow as tf

from tff_fedemb import progress as progress_lib
from tff_fedemb.data import encoded_images
from tff_fedemb.data import pipelines

_MAX_BATCH = 256
_PIXELS_OF_BATCH = 32 * 224 * 224


@dataclasses.dataclass(frozen=True)
class LabelledImages:
  """Images and their classes.

  Attributes:
    images: uint8 `[n, height, width, channels]`: an array, or an object that
      reads and decodes when it is indexed. Examples other than images are
      float32 `[n, size]` or `[n, time, channels]`.
    labels: int64 `[n]`.
    num_found: Number of images that this random sample was drawn from; None if
      these are all.

  Raises:
    ValueError: If shapes or the type of the images are others.
  """

  images: np.ndarray | encoded_images.EncodedImages
  labels: np.ndarray
  num_found: int | None = None

  def __post_init__(self):
    """Checks shapes and types, see the class."""
    images = self.images
    dtype = pipelines.dtype_of(self.images.shape[1:])
    is_known = images.ndim in (2, 3, 4) and images.dtype == dtype
    if not is_known or self.labels.shape != images.shape[:1]:
      raise ValueError(
        "images must be uint8 [n, height, width, channels], or float32 [n,"
        " size] or [n, time, channels], with labels [n], found"
        f" {images.dtype} {list(images.shape)}, {list(self.labels.shape)}."
      )

  def subsample(self, max_images: int) -> "LabelledImages":
    """Returns a random sample of at most `max_images`, in order.

    Args:
      max_images: Largest number of images; they are drawn without replacement,
        the same ones in every call.

    Returns:
      The sample, with `num_found`; the same object if it is small enough
      already.
    """
    if len(self.labels) <= max_images:
      return self
    rows = np.random.default_rng(0).choice(
      len(self.labels), size=max_images, replace=False
    )
    rows.sort()
    return LabelledImages(
      self.images.take(rows, axis=0),
      self.labels[rows],
      num_found=self.num_found or len(self.labels),
    )


def batch_size(image_shape: tuple[int, ...]) -> int:
  """Returns how many images to embed at once, to bound the memory.

  Args:
    image_shape: Height, width and channels, or the shape of another example,
      with the channels last.

  Returns:
    256 for up to 79 pixels a side, 32 for 224 pixels, and at least 1.
  """
  num_pixels = math.prod(image_shape[:-1])
  return max(1, min(_MAX_BATCH, _PIXELS_OF_BATCH // num_pixels))


def create_embedder(
  backbone: tf.keras.Model,
) -> Callable[[np.ndarray | encoded_images.EncodedImages], np.ndarray]:
  """Creates a function that embeds images, traced once for all of them.

  Args:
    backbone: A Keras model from float32 images in [0, 255] to embeddings; its
      weights may change between calls.

  Returns:
    A function of images, as in `LabelledImages`, that returns the backbone's
    embeddings, float32 `[n, dim]`, not normalised. It needs at least one image,
    and shows a progress bar on terminals.
  """
  image_shape = tuple(backbone.input_shape[1:])
  size = batch_size(image_shape)
  embed_batch = tf.function(
    lambda batch: backbone(tf.cast(batch, tf.float32), training=False),
    input_signature=[
      tf.TensorSpec((None,) + image_shape, pipelines.dtype_of(image_shape))
    ],
  )

  def embed(
    images: np.ndarray | encoded_images.EncodedImages,
  ) -> np.ndarray:
    embedded = []
    with progress_lib.create_bar(
      "Embedding", unit="images", total=len(images)
    ) as progress:
      for start in range(0, len(images), size):
        batch = images[start : start + size]
        embedded.append(embed_batch(batch).numpy())
        progress.update(len(batch))
    return np.concatenate(embedded)

  return embed
