"""Shapes with smooth edges, painted on stacks of images.

A shape is the distance of each pixel to its edge, negative inside. Images are
float32 `[3, num, height, width]`, a plane for each channel.
"""

import numpy as np


def cover_of(distance: np.ndarray, scale: float) -> np.ndarray:
  """How much a shape covers each pixel, from the distance to its edge.

  Args:
    distance: Negative inside; changed in place.
    scale: Pixels in a unit of the distance.

  Returns:
    The same array, in [0, 1].
  """
  distance *= -scale
  distance += 0.5
  return np.clip(distance, 0.0, 1.0, out=distance)


def paint(
  image: np.ndarray, cover: np.ndarray, colour: np.ndarray | float
) -> None:
  """Lays a colour on an image in place.

  Args:
    image: float32 `[3, num, side, side]`.
    cover: How much of it, `[num, side, side]` in [0, 1].
    colour: A value for each channel, `[3]` or `[3, num]`, or for all.
  """
  colours = np.asarray(colour, np.float32).T
  colours = np.broadcast_to(colours, image.shape[1::-1])
  for channel, values in zip(image, colours.T, strict=True):
    change = values[:, np.newaxis, np.newaxis] - channel
    change *= cover
    channel += change


def lay_over(image: np.ndarray, cover: np.ndarray, layer: np.ndarray) -> None:
  """Lays a layer on an image in place; changes the layer, too.

  Args:
    image: float32 `[3, num, side, side]`.
    cover: How much of it, `[num, side, side]` in [0, 1].
    layer: Of the image's shape.
  """
  layer -= image
  layer *= cover
  image += layer


def ellipse(
  across: np.ndarray, down: np.ndarray, wide: float, tall: np.ndarray | float
) -> np.ndarray:
  """About the distance to the edge of an ellipse around the origin.

  Args:
    across: Of each pixel.
    down: The same.
    wide: Half width of the ellipse.
    tall: Half height, of all or of each image.

  Returns:
    The distance, negative inside; exact on the edge.
  """
  reach = np.sqrt((across / wide) ** 2 + (down / tall) ** 2)
  reach -= 1.0
  reach *= np.minimum(wide, tall)
  return reach
