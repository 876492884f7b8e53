"""Four pooled convolutions with group normalisation, for small grey images.

The backbone of Snell et al., "Prototypical Networks for Few-shot Learning",
NeurIPS 2017, section 3, with wider layers, group normalisation, which looks at
one image at a time, and pooling before normalisation, which halves the time.
"""

from __future__ import annotations

from etils import epy

with epy.lazy_imports():
  import tensorflow as tf

  from tff_fedemb.models import blocks


_CHANNELS = (32, 64, 96, 128)
_WIDE_CHANNELS = (64, 96, 128, 192)


def create_conv4(
  image_shape: tuple[int, int, int],
  *,
  embedding_dim: int = 128,
  wide: bool = False,
) -> tf.keras.Model:
  """Creates the backbone of four convolutions.

  At 28x28x1 and 128 dimensions it has 250,912 parameters, all trainable:
  184,608 in the convolutions, 640 in the normalisation, and 65,664 in the
  embedding layer on 2 x 2 x 128 activations. The wide one has 487,040.

  Args:
    image_shape, embedding_dim: As of `backbones.create_backbone`; height and
      width at least 16.
    wide: Whether there are 1.3 to 2 times as many channels: for training
      without noise.
  """
  return blocks.create_pooled(
    image_shape,
    embedding_dim,
    convolutions=[(n, 3) for n in (_WIDE_CHANNELS if wide else _CHANNELS)],
    name="conv4_wide" if wide else "conv4",
    normalized=True,
  )
