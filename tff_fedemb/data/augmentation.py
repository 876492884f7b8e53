"""Random changes of training images that leave their class as it is.

Simard, Steinkraus and Platt, "Best Practices for Convolutional Neural Networks
Applied to Visual Document Analysis", ICDAR 2003, section 2 (affine part).
"""

from collections.abc import Callable

import tensorflow as tf

Augmentation = Callable[[tf.Tensor, tf.Tensor], tf.Tensor]

_MAX_ROTATION = 0.25
_MAX_LOG_SCALE = 0.15
_MAX_SHEAR = 0.15
_MAX_SHIFT = 0.08


def random_affine(images: tf.Tensor, seed: tf.Tensor) -> tf.Tensor:
  """Turns, scales, shears and shifts each image by itself.

  Up to 0.25 radians, 15 %, 0.15 and 8 % of a side, each uniform; pixels from
  outside of an image are those at its edge.

  Args:
    images: `[batch, height, width, channels]`, any numeric type.
    seed: Two integers `[2]`; the same seed makes the same changes.

  Returns:
    float32 `[batch, height, width, channels]`.
  """
  images = tf.cast(images, tf.float32)
  height, width = images.shape[1], images.shape[2]
  drawn = tf.random.stateless_uniform([tf.shape(images)[0], 5], seed, -1.0, 1.0)
  angle = _MAX_ROTATION * drawn[:, 0]
  scale = tf.exp(_MAX_LOG_SCALE * drawn[:, 1])
  shear = _MAX_SHEAR * drawn[:, 2]
  shift_x = _MAX_SHIFT * width * drawn[:, 3]
  shift_y = _MAX_SHIFT * height * drawn[:, 4]
  cosine, sine = scale * tf.cos(angle), scale * tf.sin(angle)
  # Rows of the map from output to input, about the centre of the image.
  xx, xy = cosine, shear * cosine - sine
  yx, yy = sine, shear * sine + cosine
  centre_x, centre_y = (width - 1) / 2.0, (height - 1) / 2.0
  zero = tf.zeros_like(angle)
  return tf.raw_ops.ImageProjectiveTransformV3(
      images=images,
      transforms=tf.stack(
          [
              xx,
              xy,
              centre_x + shift_x - xx * centre_x - xy * centre_y,
              yx,
              yy,
              centre_y + shift_y - yx * centre_x - yy * centre_y,
              zero,
              zero,
          ],
          axis=1,
      ),
      output_shape=[height, width],
      fill_value=0.0,
      interpolation="BILINEAR",
      fill_mode="NEAREST",
  )


# A new augmentation is one function and one line here.
AUGMENTATIONS: dict[str, Augmentation | None] = {
    "none": None,
    "affine": random_affine,
}


def get_augmentation(name: str) -> Augmentation | None:
  """Looks an augmentation up by name.

  Args:
    name: A key of `AUGMENTATIONS`.

  Returns:
    A function from images and seed to images; `None` for "none".

  Raises:
    ValueError: If the name is unknown.
  """
  if name not in AUGMENTATIONS:
    raise ValueError(
        f"augmentation must be one of {sorted(AUGMENTATIONS)}, found {name!r}."
    )
  return AUGMENTATIONS[name]
