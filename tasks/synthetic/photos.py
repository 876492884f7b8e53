"""Folders of photos by user, as people keep them: `<user>/<class>/<n>.jpg`.

Two kinds. In *people* a user is a person with photos of themselves, patterns of
`textures` in place of faces, so that each user has one class of their own, as
in DigiFace-1M (Bae et al., WACV 2023). In *writers* a user photographs notes in
their own hand, a dozen of the 47 characters that EMNIST tells apart (Cohen et
al., 2017, "EMNIST: an extension of MNIST to handwritten letters", balanced) a
few times each. Both vary in colours, light, place and size.
"""

import collections
from collections.abc import Callable, Iterator
import contextlib
import dataclasses
import functools
import json
import pathlib
from typing import Any

import numpy as np
from PIL import Image

from tasks.synthetic import glyphs
from tasks.synthetic import store
from tasks.synthetic import textures
from tff_fedemb.data import tfrecord_files

# Hidden, so that a folder holds nothing but users to whoever lists it.
_GENERATOR_FILE_NAME = ".generator.json"
# Raised whenever the same parameters start to give other data.
_GENERATOR_VERSION = 3
_IMAGES_OF_PERSON = (12, 29)
_CLASSES_OF_WRITER = (8, 17)
_IMAGES_OF_CLASS = (2, 6)
_PERSON_SIDES = (92, 113)
_NOTE_SIDES = (64, 97)
# EMNIST's balanced set: of letters whose small form is like the capital there
# is one class. File systems may not tell "a" from "A", so names are words.
_CLASSES = tuple(
  (label, f"{'digit' if c.isdigit() else 'letter'}_{c.upper()}{suffix}")
  for label, c in enumerate(glyphs.CHARACTERS)
  if not c.islower() or c in "abdefghnqrt"
  for suffix in ("_small" if c.islower() else "",)
)
# Users of galleries and queries come after all that a folder may have.
_FIRST_STRANGER = 1_000_000

# The class and the encoded image.
_Photos = Iterator[tuple[str, bytes]]


def _draw_person(generator: np.random.Generator, name: str) -> _Photos:
  """Photos of one pattern, in another style each."""
  person = int(generator.integers(2**62))
  for number in range(generator.integers(*_IMAGES_OF_PERSON)):
    height, width = map(int, generator.integers(*_PERSON_SIDES, 2))
    picture = textures.draw(
      (height, width, 3), seed=person, class_id=0, user=number, index=0
    )
    yield name, textures.encode_jpeg(picture, generator)


def _draw_note(generator, image, paper, ink) -> np.ndarray:
  """A note with one character on it: uint8 `[side, side, 3]`."""
  side = int(generator.integers(*_NOTE_SIDES))
  margin = int(generator.integers(2, 8))
  padded = np.pad(image, margin, constant_values=1.0)
  # Off the middle by at most half of the margin.
  half = margin // 2
  down, right = generator.integers(-half, half + 1, 2)
  canvas = Image.fromarray(np.roll(padded, (down, right), (0, 1)))
  resized = canvas.resize((side, side), Image.Resampling.BICUBIC)
  written = np.clip(1.0 - np.asarray(resized), 0, 1)[..., np.newaxis]
  return textures.expose(paper + written * (ink - paper), generator)


@functools.cache
def _create_hands():
  # TensorFlow takes seconds to load; a program's help does without it.
  from tasks.synthetic import handwriting

  return handwriting.Handwriting(0)


def _draw_characters(writer: int, labels: np.ndarray) -> np.ndarray:
  """Characters in the hand of a writer: float32 `[n, 28, 28]`, paper is 1."""
  images, _ = _create_hands().draw([writer], [len(labels)], labels=labels)
  return images.numpy()[..., 0] / np.float32(255)


def _draw_writer(generator: np.random.Generator, name: str) -> _Photos:
  """Notes in one hand, with two pens on one kind of paper."""
  del name
  number = int(generator.integers(*_CLASSES_OF_WRITER))
  held = np.sort(generator.choice(len(_CLASSES), number, replace=False))
  held = np.repeat(held, generator.integers(*_IMAGES_OF_CLASS, number))
  paper = textures.pick_colour(generator, 0.14, (0.7, 1.0))
  pens = [
    textures.pick_colour(generator, generator.random(), (0.1, 0.5))
    for _ in range(2)
  ]
  labels = np.array([_CLASSES[index][0] for index in held])
  images = _draw_characters(int(generator.integers(2**62)), labels)
  for index, image in zip(held, images, strict=True):
    note = _draw_note(generator, image, paper, pens[generator.integers(2)])
    yield _CLASSES[index][1], textures.encode_jpeg(note, generator)


@dataclasses.dataclass(frozen=True)
class Kind:
  """A kind of photos.

  Attributes:
    user: What a user is called, before a number.
    draw: Draws all photos of one user from a generator and the user's name.
    bytes_per_user: About how many bytes these are.
  """

  user: str
  draw: Callable[[np.random.Generator, str], _Photos]
  bytes_per_user: int

  def write(self, output_dir: store.Path, **fields: Any) -> str:
    """Writes `<user>/<class>/<n>.jpg` into a folder, and returns its path.

    A user is the same for a given seed and number however many others there
    are. Fields are those of `store.Config`.

    Raises:
      errors.FieldError: If one of them is out of range.
      errors.DataError: If there is a folder of another making.
    """

    def place(user: int, label: str, number: int) -> str:
      return f"{self._name(user)}/{label}/{number:02d}.jpg"

    given = store.Config(**fields)
    users = range(given.num_users)
    return self._write(output_dir, "users", given, users, place)

  def write_match(self, output_dir: store.Path, **fields: Any) -> str:
    """Writes `gallery/<class>/` and `query/<class>/`, to match one to other.

    They are photos of users that `write` never writes. Every second photo of a
    class is in the gallery, the others in the query; every fifth user is in the
    query alone, and a stranger there if the class is theirs alone. Arguments,
    the answer and what is raised are those of `write`.
    """

    def place(user: int, label: str, number: int) -> str:
      is_known = user % 5 != 4 and number % 2 == 0
      folder = "gallery" if is_known else "query"
      return f"{folder}/{label}/{self._name(user)}_{number:02d}.jpg"

    given = store.Config(**fields)
    users = range(_FIRST_STRANGER, _FIRST_STRANGER + given.num_users)
    return self._write(output_dir, "match", given, users, place)

  def _name(self, user: int) -> str:
    return f"{self.user}_{user:04d}"

  def _write(self, output_dir, part, given, users, place) -> str:
    """Writes photos of some users to where `place` puts each."""
    # It gets its place in its parent when all is complete, and an empty one
    # makes room.
    output_dir = pathlib.Path(output_dir)
    if output_dir.name in ("", ".."):
      output_dir = output_dir.resolve()
    with contextlib.suppress(OSError):
      output_dir.rmdir()
    parameters = given.parameters(_GENERATOR_VERSION)
    parameters["kind"] = f"{self.user} {part}"

    def write(partial, missing):
      (folder,) = missing
      for user in store.progress(users, desc=folder, unit="user"):
        generator = np.random.default_rng([given.seed, user])
        counter: collections.Counter[str] = collections.Counter()
        for label, content in self.draw(generator, self._name(user)):
          path = partial / folder / place(user, label, counter[label])
          counter[label] += 1
          path.parent.mkdir(parents=True, exist_ok=True)
          path.write_bytes(content)
      told = partial / folder / _GENERATOR_FILE_NAME
      told.write_text(json.dumps(parameters))

    (path,) = store.write_missing(
      output_dir.parent,
      {output_dir.name: parameters},
      lambda path: tfrecord_files.read_generator(path, _GENERATOR_FILE_NAME),
      write,
      num_bytes=given.num_users * self.bytes_per_user,
    )
    return path

  def contact_sheet(
    self, output_dir: store.Path, output_png: store.Path
  ) -> None:
    """Draws twelve photos of each of the first eight users, one a row."""
    users = sorted(pathlib.Path(output_dir).glob("[!.]*"))[:8]
    rows = [
      [path.read_bytes() for path in sorted(user.rglob("*.jpg"))[:12]]
      for user in users
    ]
    store.save_sheet(rows, output_png, side=84)


PEOPLE = Kind("person", _draw_person, 60_000)
WRITERS = Kind("writer", _draw_writer, 70_000)
