"""Made-up things: a body with parts upon it, as a camera sees them.

A thing is a body and a few smaller parts, ellipses, boxes and triangles, most
of them in pairs, each in its colour and at its depth. Every picture of it is
moved, turned, scaled and lit differently, before another background; the parts
move a little, those at another depth more, and a blur and noise come last. A
network that tells things apart has to compare parts and their places, as it
must for faces. Random pictures teach a network something about real images:
Baradad et al. 2021, "Learning to See by Looking at Noise".
"""

from typing import NamedTuple

import numpy as np
from PIL import Image
from PIL import ImageDraw
from PIL import ImageFilter

from tasks.synthetic import textures

# Pictures are drawn larger, so that edges are smooth.
_OVERSAMPLING = 2
_CORNERS = (3, 4, 24)
_PAIRED = 0.6
_SYMMETRIC = 0.7
# Radii of the body and of its parts, in halves of the picture's side.
_BODY = (0.5, 0.85)
_PART = (0.05, 0.35)
_NUM_PARTS = (3, 9)
# Things of a family differ a little, as people do: standard deviations of the
# logarithms of sizes, of places, and of colours.
_FAMILY = 8
_OWN_SIZE = 0.25
_OWN_PLACE = 0.07
_OWN_COLOUR = 20
# Standard deviations of a picture: of shifts, of the logarithm of the size, of
# the turn in radians, of the view from the side and from above, and of what a
# part does alone.
_SHIFT = 0.08
_SIZE = 0.12
_TURN = 0.14
_VIEW = 0.06
_ALONE = 0.015
_GREY = 0.25
_BLURRED = 0.4


class _Part(NamedTuple):
  """A shape: its outline `[corners, 2]`, depth, and colour `[3]`."""

  outline: np.ndarray
  depth: float
  colour: np.ndarray


def _draw_outline(
  generator: np.random.Generator, radii: tuple[float, float]
) -> np.ndarray:
  """Draws a triangle, a box or an ellipse around 0, `[corners, 2]`.

  Args:
    generator: Source of randomness.
    radii: Range of the radii, in halves of the picture's side.
  """
  corners = generator.choice(_CORNERS, p=(0.2, 0.25, 0.55))
  points = _circle(corners) * generator.uniform(*radii, 2)
  return _turn(points, generator.normal(0, 0.5))


def _circle(corners: int) -> np.ndarray:
  """Returns the corners of a regular polygon, `[corners, 2]`."""
  angles = 2 * np.pi * (np.arange(corners) + 0.5) / corners
  return np.stack([np.cos(angles), np.sin(angles)], -1)


def _turn(points: np.ndarray, angle: float) -> np.ndarray:
  """Turns points `[n, 2]` around 0 by an angle in radians."""
  cosine, sine = np.cos(angle), np.sin(angle)
  return points @ np.array([[cosine, sine], [-sine, cosine]])


def _draw_thing(seed: int, thing: int) -> list[_Part]:
  """Draws a thing, from the back to the front.

  Args:
    seed: Seed of all things.
    thing: Number of the thing; eight in a row are a family.

  Returns:
    The body, and its parts.
  """
  family = np.random.default_rng([seed, thing // _FAMILY, 0])
  own = np.random.default_rng([seed, thing, 1])
  tint = family.uniform(40, 230, 3) + own.normal(0, _OWN_COLOUR, 3)
  radii = family.uniform(*_BODY, 2)
  body = _circle(32) * radii * np.exp(own.normal(0, 0.5 * _OWN_SIZE, 2))
  parts = [_Part(body, 0.0, tint)]
  is_symmetric = family.random() < _SYMMETRIC
  for _ in range(family.integers(*_NUM_PARTS)):
    outline = _draw_outline(family, _PART)
    outline *= np.exp(own.normal(0, _OWN_SIZE, 2))
    middle = family.uniform(-0.75, 0.75, 2) * radii
    middle += own.normal(0, _OWN_PLACE, 2)
    colour = tint + family.normal(0, 60, 3) + own.normal(0, _OWN_COLOUR, 3)
    depth = family.uniform(-1, 1.5)
    is_paired = family.random() < _PAIRED
    if is_symmetric and not is_paired:
      middle[0] = 0
    parts.append(_Part(outline + middle, depth, colour))
    if is_paired:
      shift = family.normal(0, 0.15, 2) * (not is_symmetric)
      mirrored = (outline + middle) * (-1, 1) + shift
      parts.append(_Part(mirrored, depth, colour))
  return parts


def draw(size: int, *, seed: int, thing: int, index: int) -> np.ndarray:
  """Draws a picture of a thing, the same for the same arguments.

  Args:
    size: Height and width in pixels.
    seed: Seed of all things, at least 0 as are the others.
    thing: Number of the thing.
    index: Number of the picture.

  Returns:
    uint8 `[size, size, 3]`.
  """
  parts = _draw_thing(seed, thing)
  own = np.random.default_rng([seed, thing, 2, index])
  picture = _draw_background(own, _OVERSAMPLING * size)
  pen = ImageDraw.Draw(picture)
  scale = 0.85 * np.exp(own.normal(0, _SIZE))
  angle = own.normal(0, _TURN)
  shift = own.normal(0, _SHIFT, 2)
  view = own.normal(0, _VIEW, 2)
  for part in parts:
    moved = part.outline + view * part.depth + own.normal(0, _ALONE, 2)
    placed = scale * _turn(moved, angle) + shift
    points = (placed + 1) * _OVERSAMPLING * size / 2
    pen.polygon(list(map(tuple, points.tolist())), fill=_rgb(part.colour))
  return expose(own, picture.resize((size, size), Image.Resampling.BOX))


def _draw_background(generator: np.random.Generator, side: int) -> Image.Image:
  """Draws a wall with something on it that has no meaning.

  Args:
    generator: Source of randomness.
    side: Height and width in pixels.
  """
  picture = Image.new("RGB", (side, side), _rgb(generator.uniform(0, 255, 3)))
  pen = ImageDraw.Draw(picture)
  for _ in range(generator.integers(0, 5)):
    outline = _draw_outline(generator, (0.2, 0.9))
    points = (outline + generator.uniform(-1, 1, 2) + 1) * side / 2
    colour = _rgb(generator.uniform(0, 255, 3))
    pen.polygon(list(map(tuple, points.tolist())), fill=colour)
  return picture


def _rgb(colour: np.ndarray) -> tuple[int, ...]:
  """Returns a colour as Pillow takes it, clipped to [0, 255]."""
  return tuple(np.clip(colour, 0, 255).astype(int).tolist())


def expose(generator: np.random.Generator, picture: Image.Image) -> np.ndarray:
  """Takes a picture as a camera does: lit from a side, tinted, blurred, noisy.

  Args:
    generator: Source of randomness.
    picture: The picture, in colour.

  Returns:
    uint8 `[height, width, 3]`; a quarter of all are grey.
  """
  if generator.random() < _BLURRED:
    radius = generator.uniform(0.3, 1.2)
    picture = picture.filter(ImageFilter.GaussianBlur(radius))
  pixels = np.asarray(picture, np.float32)
  height, width, _ = pixels.shape
  light = textures.light(generator, height, width)
  tint = generator.uniform(0.6, 1.3) * generator.uniform(0.9, 1.1, 3)
  pixels = pixels * light * tint
  pixels += generator.normal(0, generator.uniform(0, 8), pixels.shape)
  if generator.random() < _GREY:
    pixels[...] = pixels.mean(axis=-1, keepdims=True)
  return np.clip(pixels, 0, 255).astype(np.uint8)
