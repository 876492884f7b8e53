"""Random changes of training images that leave their class as it is.

Characters follow Simard, Steinkraus and Platt, "Best Practices for
Convolutional Neural Networks Applied to Visual Document Analysis", ICDAR 2003,
section 2 (affine part). Photos follow Krizhevsky, Sutskever and Hinton,
"ImageNet Classification with Deep Convolutional Neural Networks", NeurIPS 2012,
section 4.1 (crops and mirror images).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from etils import epy

with epy.lazy_imports():
  import tensorflow as tf


# A function of images `[batch, height, width, channels]` of any numeric type
# and a seed of two integers, `[2]`. It returns float32 images of the same
# shape; the same seed makes the same changes.
Augmentation = Callable[[Any, Any], Any]

# Number of turns by a multiple of 90 degrees.
NUM_TURNS = 4

_MAX_ROTATION = 0.25
_MAX_LOG_SCALE = 0.15
_MAX_SHEAR = 0.15
_MAX_SHIFT = 0.08
_MAX_CROP = 0.2


def _random_affine(images: tf.Tensor, seed: tf.Tensor) -> tf.Tensor:
  """Rotates, scales, shears and shifts each image independently.

  Each amount is uniform, up to 0.25 radians, 15 %, 0.15 and 8 % of a side.
  Pixels from outside an image repeat its edge. Returns float32 images.
  """
  images = tf.cast(images, tf.float32)
  height = images.shape[1]
  width = images.shape[2]
  drawn = tf.random.stateless_uniform([tf.shape(images)[0], 5], seed, -1.0, 1.0)
  angle = _MAX_ROTATION * drawn[:, 0]
  scale = tf.exp(_MAX_LOG_SCALE * drawn[:, 1])
  shear = _MAX_SHEAR * drawn[:, 2]
  shift_x = _MAX_SHIFT * width * drawn[:, 3]
  shift_y = _MAX_SHIFT * height * drawn[:, 4]
  cosine = scale * tf.cos(angle)
  sine = scale * tf.sin(angle)
  # Rows of the map from output to input, about the centre of the image.
  xx = cosine
  xy = shear * cosine - sine
  yx = sine
  yy = shear * sine + cosine
  return _transform(images, ((xx, xy, shift_x), (yx, yy, shift_y)))


def add_turned_classes(
  images: tf.Tensor,
  labels: tf.Tensor,
) -> tuple[tf.Tensor, tf.Tensor]:
  """Adds each image turned by 90, 180 and 270 degrees, as further classes.

  A rotated character counts as another character, which gives four times the
  classes (Santoro et al., "Meta-Learning with Memory-Augmented Neural
  Networks", ICML 2016, section 4.2).

  Args:
    images: `[n, side, side, channels]`.
    labels: `[n]`.

  Returns:
    Images `[4 n, side, side, channels]`, first the upright ones; labels
    `[4 n]`: class c turned by r times 90 degrees is class 4 c + r.
  """
  turned = []
  classes = []
  for turn in range(NUM_TURNS):
    turned.append(tf.image.rot90(images, turn))
    classes.append(NUM_TURNS * labels + turn)
  return tf.concat(turned, 0), tf.concat(classes, 0)


def _random_crop_and_flip(images: tf.Tensor, seed: tf.Tensor) -> tf.Tensor:
  """Crops each image at random, resizes the crop, and mirrors half of them.

  The crop has between 80 % and 100 % of each side, the image's proportions, and
  a uniformly random place. Returns float32 images of the same shape.
  """
  images = tf.cast(images, tf.float32)
  height = images.shape[1]
  width = images.shape[2]
  drawn = tf.random.stateless_uniform([tf.shape(images)[0], 4], seed)
  side = 1.0 - _MAX_CROP * drawn[:, 0]
  # The rest of the image lies before or after the crop.
  spare_x = (1.0 - side) * (width - 1)
  spare_y = (1.0 - side) * (height - 1)
  shift_x = spare_x * (drawn[:, 1] - 0.5)
  shift_y = spare_y * (drawn[:, 2] - 0.5)
  mirror = tf.where(tf.less(drawn[:, 3], 0.5), 1.0, -1.0)
  zero = tf.zeros_like(side)
  rows = (mirror * side, zero, shift_x), (zero, side, shift_y)
  return _transform(images, rows)


def _transform(
  images: tf.Tensor,
  rows: tuple[tuple[tf.Tensor, ...], tuple[tf.Tensor, ...]],
) -> tf.Tensor:
  """Maps each image by an affine map about its centre.

  Args:
    images: float32 `[batch, height, width, channels]`.
    rows: Two rows, for x and for y, that map a pixel's place in the output to
      the place in the input that it is taken from: a factor of x, a factor of y
      and an offset in pixels, `[batch]` each.

  Returns:
    Images of the same shape, interpolated bilinearly; edges are repeated.
  """
  height = images.shape[1]
  width = images.shape[2]
  centre = ((width - 1) / 2.0, (height - 1) / 2.0)
  transforms = []
  for side, (by_x, by_y, added) in zip(centre, rows, strict=True):
    offset = side + added - by_x * centre[0] - by_y * centre[1]
    transforms += [by_x, by_y, offset]
  zero = tf.zeros_like(transforms[0])
  return tf.raw_ops.ImageProjectiveTransformV3(
    images=images,
    transforms=tf.stack(transforms + [zero, zero], axis=1),
    output_shape=[height, width],
    fill_value=0.0,
    interpolation="BILINEAR",
    fill_mode="NEAREST",
  )


# To add an augmentation, write one function and add one line here.
AUGMENTATIONS: dict[str, Augmentation | None] = {
  "none": None,
  "affine": _random_affine,
  "crop_flip": _random_crop_and_flip,
}
