"""Forty people with ten photos each, as folders: how few people fare.

  python -m examples.forty_people OUTPUT_DIR --kind=faces --draw=1

The ORL database of faces has as many. A person is a drawn face, a made-up
pattern, a place in a photograph that scikit-learn brings along, or, with
`--omniglot=NPZ`, a character of Omniglot.
"""

import argparse
from collections.abc import Callable, Iterator
import pathlib

import numpy as np
from PIL import Image
from PIL import ImageDraw
from sklearn import datasets

from tasks.synthetic import textures

_PEOPLE, _PHOTOS = 40, 10
_SIDE = 112
_FACE_SIDE = 200
_PLACE_SIDE = 80
# Standard deviation of pixels.
_PLAIN = 30

_Pen = ImageDraw.ImageDraw


def _photograph(
  rng: np.random.Generator, picture: Image.Image, side: float
) -> Image.Image:
  """Takes a photo of the middle of a picture: turned, shifted and lit."""
  turned = picture.rotate(rng.normal(0, 6), Image.Resampling.BILINEAR)
  left, top = (np.array(picture.size) - side) / 2 + rng.normal(0, 5, 2)
  cropped = turned.transform(
    (_SIDE, _SIDE),
    Image.Transform.EXTENT,
    (left, top, left + side, top + side),
    Image.Resampling.BILINEAR,
  )
  light = rng.uniform(0.6, 1.3) * rng.uniform(0.9, 1.1, 3)
  pixels = np.asarray(cropped) * light + rng.normal(0, 6, (_SIDE, _SIDE, 3))
  return Image.fromarray(np.clip(pixels, 0, 255).astype(np.uint8))


def _draw_character(
  rng: np.random.Generator, drawings: np.ndarray
) -> Iterator[Image.Image]:
  """Ten of drawings uint8 `[drawings, side, side]`, in ink on paper."""
  for grey in rng.choice(drawings, _PHOTOS, replace=False):
    ink, paper = rng.uniform(0, 110, 3), rng.uniform(145, 255, 3)
    pixels = ink + (paper - ink) * (grey[..., np.newaxis] / 255)
    yield Image.fromarray(pixels.astype(np.uint8))


def _draw_texture(rng: np.random.Generator) -> Iterator[Image.Image]:
  """Photos of a pattern: each has another background, light and turn."""
  pattern = int(rng.integers(2**62))
  for photo in range(_PHOTOS):
    yield textures.take_photo(
      rng, (_SIDE, _SIDE), seed=pattern, class_id=0, user=photo, index=0
    )


def _draw_place(
  rng: np.random.Generator, photograph: np.ndarray
) -> Iterator[Image.Image]:
  """Photos of a place, but no plain sky, in uint8 `[height, width, 3]`."""
  margin = 2 * _PLACE_SIDE
  place = np.zeros((margin, margin, 3), np.uint8)
  while place.mean(axis=-1).std() < _PLAIN:
    top = rng.integers(photograph.shape[0] - margin)
    left = rng.integers(photograph.shape[1] - margin)
    place = photograph[top : top + margin, left : left + margin]
  for _ in range(_PHOTOS):
    side = _PLACE_SIDE * rng.uniform(0.8, 1.2)
    yield _photograph(rng, Image.fromarray(place), side)


def _draw_face(rng: np.random.Generator) -> Iterator[Image.Image]:
  """Photos of a face: its measures and colours stay, its mood does not."""
  measures = rng.uniform(-1, 1, 8)
  skin = np.array([225, 180, 150]) * rng.uniform(0.45, 1.05)
  hair = np.array([1.0, 0.85, 0.7]) * rng.uniform(10, 190)
  for _ in range(_PHOTOS):
    wall = tuple(rng.integers(60, 220, 3).tolist())
    picture = Image.new("RGB", (_FACE_SIDE, _FACE_SIDE), wall)
    pen = ImageDraw.Draw(picture)
    gaze = rng.normal(0, 2.5)
    _draw_head(pen, measures, skin, hair)
    _draw_eyes(pen, measures, hair, gaze, rng.uniform(0.5, 1))
    _draw_nose_and_mouth(pen, measures, skin, gaze, rng.normal(0, 5))
    yield _photograph(rng, picture, 0.95 * _FACE_SIDE)


def _draw_head(
  pen: _Pen, measures: np.ndarray, skin: np.ndarray, hair: np.ndarray
) -> None:
  width, height = 55 + 9 * measures[0], 72 + 8 * measures[1]
  _fill_ellipse(pen, (100, 92), (width + 9, height + 6), hair)
  _fill_ellipse(pen, (100, 105), (width, height), skin)
  fringe = 75 + 18 * measures[2]
  pen.chord((100 - width, 30, 100 + width, fringe), 180, 360, _rgb(hair))


def _draw_eyes(
  pen: _Pen, measures: np.ndarray, hair: np.ndarray, gaze: float, open_: float
) -> None:
  size = 7 + 2 * measures[3]
  y = 83 - 4 * measures[5]
  for side in (-1, 1):
    x = 100 + side * (24 + 5 * measures[4])
    _fill_ellipse(pen, (x, 98), (1.4 * size, open_ * size), np.full(3, 245))
    _fill_ellipse(pen, (x + gaze, 98), (4.5, 4.5 * open_), hair / 2)
    slope = 3 * measures[5] * side
    brow = (x - 12, y + slope, x + 12, y - slope)
    pen.line(brow, _rgb(hair / 2), width=5)


def _draw_nose_and_mouth(
  pen: _Pen, measures: np.ndarray, skin: np.ndarray, gaze: float, smile: float
) -> None:
  tip = 120 + 5 * measures[6]
  nose = ((100, 100), (100 + gaze, tip), (92, tip))
  pen.line(nose, _rgb(0.75 * skin), width=4)
  half = 20 + 7 * measures[7]
  edges = sorted((145 - smile, 151 + smile))
  mouth = (100 - half, edges[0], 100 + half, edges[1])
  pen.ellipse(mouth, _rgb(skin * (0.85, 0.5, 0.5)))


def _fill_ellipse(
  pen: _Pen,
  middle: tuple[float, float],
  radii: tuple[float, float],
  colour: np.ndarray,
) -> None:
  x, y = middle
  width, height = radii
  box = (x - width, y - height, x + width, y + height)
  pen.ellipse(box, _rgb(colour))


def _rgb(colour: np.ndarray) -> tuple[int, ...]:
  return tuple(np.clip(colour, 0, 255).astype(int).tolist())


def _draw_people(
  rng: np.random.Generator, kind: str, omniglot: str
) -> Iterator[Iterator[Image.Image]]:
  """The photos of each of forty people."""
  if kind == "characters":
    with np.load(omniglot) as data:
      images, characters = data["images"], data["character_id"]
    people = rng.choice(np.unique(characters), _PEOPLE, replace=False)
    for person in people:
      yield _draw_character(rng, images[characters == person])
  elif kind == "places":
    photographs = datasets.load_sample_images().images
    for person in range(_PEOPLE):
      yield _draw_place(rng, photographs[person % len(photographs)])
  else:
    draw: Callable = _draw_face if kind == "faces" else _draw_texture
    for _ in range(_PEOPLE):
      yield draw(rng)


def main(argv: list[str] | None = None) -> None:
  """Writes `OUTPUT_DIR/person_<n>/<n>.png` of the draw of a number."""
  parser = argparse.ArgumentParser(description=__doc__)
  parser.add_argument("output_dir")
  kinds = ["characters", "faces", "places", "textures"]
  parser.add_argument("--kind", choices=kinds, default="faces")
  parser.add_argument("--draw", type=int, default=1)
  parser.add_argument("--grey", action="store_true")
  parser.add_argument("--omniglot", metavar="NPZ", default="")
  asked = parser.parse_args(argv)
  if asked.kind == "characters" and not asked.omniglot:
    parser.error("--kind=characters needs --omniglot=NPZ")
  rng = np.random.default_rng([1000, asked.draw])
  people = _draw_people(rng, asked.kind, asked.omniglot)
  for person, photos in enumerate(people):
    folder = pathlib.Path(asked.output_dir, f"person_{person:02d}")
    folder.mkdir(parents=True)
    for number, photo in enumerate(photos):
      photo = photo.convert("L") if asked.grey else photo
      # Packing takes as long as drawing at the usual level.
      photo.save(folder / f"{number:02d}.png", compress_level=1)


if __name__ == "__main__":
  main()
