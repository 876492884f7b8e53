"""LeNet backbone for small grey images (LeCun et al. 1998; Xu et al. 2023).

Two convolutions, two max-poolings and a dense embedding layer.
"""

from __future__ import annotations

from etils import epy

with epy.lazy_imports():
  import tensorflow as tf

  from tff_fedemb.models import blocks


def create_lenet(
  image_shape: tuple[int, int, int], *, embedding_dim: int = 128
) -> tf.keras.Model:
  """Creates the LeNet backbone.

  At 28x28x1 and 128 dimensions it has 453,632 parameters, all trainable: 832
  and 51,264 in the convolutions, and 401,536 in the embedding layer on 7 x 7 x
  64 activations.

  Args:
    image_shape, embedding_dim: As of `backbones.create_backbone`; height and
      width at least 4.
  """
  return blocks.create_pooled(
    image_shape, embedding_dim, convolutions=[(32, 5), (64, 5)], name="lenet"
  )
