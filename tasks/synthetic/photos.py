"""Made-up patterns (`textures`) in the formats in which photos come.

In *shared* data a user photographs several classes in a style of their own. In
data of *people* every user is a class, and each photo has another style, so
that nobody is known by their colours.
"""

from collections.abc import Callable, Iterable, Iterator
import itertools
import json
import pathlib
from typing import Any

import numpy as np
from PIL import Image

from tasks.synthetic import characters
from tasks.synthetic import shapes
from tasks.synthetic import store
from tasks.synthetic import textures
from tff_fedemb import checks
from tff_fedemb.data import tfrecord_files

# Images of a user who shares classes.
_MIN_IMAGES = 8
_MEAN_IMAGES = 20
_MAX_IMAGES = 40
_TEST_IMAGES = (5, 12)
_SHORT_SIDES = (90, 121)
_ASPECTS = (1.0, 4 / 3, 3 / 2)

_IMAGES_OF_PERSON = (12, 29)
_PERSON_SIDES = (92, 113)
# Number of the first person of galleries and queries, beyond those of any
# folder.
_FIRST_STRANGER = 1_000_000

_START_SIDE = 48
_START_IMAGES = 20

_FACE = (112, 112)
_IMAGES_OF_FACE = 72
_FIRST_OF_5_IMAGES = 100_000
# A part of this many subjects has enough for all three splits of `digiface`.
_MIN_SUBJECTS = 8

# A class and an image of it.
_Photos = Iterable[tuple[int, Image.Image]]


def num_classes(num_users: int) -> int:
  """Returns the number of classes that so many users share.

  Args:
    num_users: Number of users.

  Returns:
    About 5.2 times the square root of it, and at least 6.
  """
  return max(6, round(5.2 * num_users**0.5))


def draw_labels(generator: np.random.Generator, classes: int) -> np.ndarray:
  """Draws the classes of one user's images, uneven in all respects.

  A user prefers a region, a stretch on the ring of all classes, and within it
  a few favourites; some classes are popular with everyone.

  Args:
    generator: Source of randomness.
    classes: Number of classes.

  Returns:
    Classes, sorted, int64 `[images]`, of 8 to 40 images.
  """
  spread = generator.gamma(3.0, (_MEAN_IMAGES - _MIN_IMAGES) / 3)
  num_images = min(_MIN_IMAGES + round(spread), _MAX_IMAGES)
  home = generator.random() * classes
  distance = np.abs(np.arange(classes) - home)
  distance = np.minimum(distance, classes - distance) / classes
  weights = np.exp(-distance / 0.12) + 0.02
  weights *= 1.0 / (1.0 + np.arange(classes) % 5)
  weights *= generator.gamma(0.7, size=classes) + 1e-3
  return np.sort(
    generator.choice(classes, size=num_images, p=weights / weights.sum())
  )


def draw_size(generator: np.random.Generator) -> tuple[int, int]:
  """Draws a height and a width of 90 to 180 pixels, mostly not upright.

  Args:
    generator: Source of randomness.

  Returns:
    Height and width; three in ten are upright.
  """
  short = int(generator.integers(*_SHORT_SIDES))
  long = round(short * generator.choice(_ASPECTS))
  is_upright = generator.random() < 0.3
  return (long, short) if is_upright else (short, long)


def _take_photos(
  generator: np.random.Generator,
  given: store.Config,
  labels: np.ndarray,
  whose: Iterable[tuple[int, int]],
) -> _Photos:
  """Yields photos of classes, each by a user who has a number for it.

  Args:
    generator: Source of randomness.
    given: Arguments of the generator of the data.
    labels: Class of each photo, int64 `[n]`.
    whose: User and number of each photo, as many or more.

  Yields:
    A class and a photo.
  """
  for label, (user, index) in zip(labels.tolist(), whose, strict=False):
    photo = textures.take_photo(
      generator,
      draw_size(generator),
      seed=given.seed,
      class_id=label,
      user=user,
      index=index,
    )
    yield label, photo


def _draw_user(given: store.Config, user: int) -> _Photos:
  """Draws photos of a user who shares classes with others.

  Args:
    given: Arguments of the generator.
    user: Number of the user.
  """
  generator = np.random.default_rng([given.seed, 0, user])
  labels = draw_labels(generator, num_classes(given.num_users))
  whose = zip(itertools.repeat(user), itertools.count(), strict=False)
  return _take_photos(generator, given, labels, whose)


def _draw_test(given: store.Config) -> _Photos:
  """Draws photos of all classes by people who are no users.

  Args:
    given: Arguments of the generator.

  Returns:
    5 to 11 photos of each class, each in another style.
  """
  classes = num_classes(given.num_users)
  generator = np.random.default_rng([given.seed, 1])
  counts = generator.integers(*_TEST_IMAGES, size=classes)
  labels = np.repeat(np.arange(classes), counts)
  whose = ((user, 0) for user in itertools.count(given.num_users))
  return _take_photos(generator, given, labels, whose)


def _draw_person(seed: int, user: int) -> Iterator[Image.Image]:
  """Yields photos of one pattern, in another style each.

  Args:
    seed: Seed of all people.
    user: Number of the person.

  Yields:
    12 to 28 photos with sides of 92 to 112 pixels.
  """
  generator = np.random.default_rng([seed, user])
  person = int(generator.integers(2**62))
  for number in range(generator.integers(*_IMAGES_OF_PERSON)):
    height, width = map(int, generator.integers(*_PERSON_SIDES, 2))
    yield textures.take_photo(
      generator,
      (height, width),
      seed=person,
      class_id=0,
      user=number,
      index=0,
    )


# Paths below a folder, and their images.
_Files = Iterator[tuple[str, Image.Image]]


def _place_person(given: store.Config, user: int) -> _Files:
  """`<person>/<person>/<n>.jpg`: a person is their only class."""
  name = f"person_{user:04d}"
  for number, image in enumerate(_draw_person(given.seed, user)):
    yield f"{name}/{name}/{number:02d}.jpg", image


def _place_stranger(given: store.Config, user: int) -> _Files:
  """`gallery/<person>/` and `query/<person>/`, to match one to the other.

  They are people that `_place_person` never draws. Every second photo of a
  person is in the gallery, the others in the query; every fifth person is in
  the query alone, and a stranger there.
  """
  name = f"person_{_FIRST_STRANGER + user:04d}"
  photos = _draw_person(given.seed, _FIRST_STRANGER + user)
  for number, image in enumerate(photos):
    is_known = user % 5 != 4 and number % 2 == 0
    folder = "gallery" if is_known else "query"
    yield f"{folder}/{name}/{name}_{number:02d}.jpg", image


def _place_shared(given: store.Config, user: int) -> _Files:
  """`<user>/<class>/<n>.jpg`, of the users that GLD has."""
  for number, (label, image) in enumerate(_draw_user(given, user)):
    yield f"user_{user:04d}/class_{label:04d}/{number:02d}.jpg", image


def _place_face(given: store.Config, user: int) -> _Files:
  """`<subject id>/<k>.png` as in DigiFace-1M (Bae et al., WACV 2023).

  About three quarters of the people have 72 images and subject numbers from 0
  on, the others 5 images and numbers from 100,000 on; with fewer than 16
  people, all have 72.
  """
  few = max(given.num_users // 4, _MIN_SUBJECTS)
  many = given.num_users - few
  if many < _MIN_SUBJECTS:
    many = given.num_users
  subject = user
  count = _IMAGES_OF_FACE
  if user >= many:
    subject = _FIRST_OF_5_IMAGES + user - many
    count = 5
  for number in range(count):
    pixels = textures.draw(
      _FACE, seed=given.seed, class_id=subject, user=number, index=number
    )
    yield f"{subject}/{number}.png", Image.fromarray(pixels)


def _place_start(given: store.Config, user: int) -> _Files:
  """`<person>/<n>.png`, to pretrain on: half are strokes.

  Args:
    given: Arguments of the generator.
    user: Number of the user; every fourth is a texture, and another fourth a
      thing.
  """
  draw = (
    _draw_stroke_photos,
    _draw_texture_photos,
    _draw_stroke_photos,
    _draw_shape_photos,
  )[user % 4]
  for number, pixels in enumerate(draw(given.seed, user)):
    yield f"person_{user:05d}/{number:02d}.png", Image.fromarray(pixels)


def _draw_stroke_photos(seed: int, user: int) -> Iterator[np.ndarray]:
  """Yields images of one symbol; a camera took half of them."""
  generator = np.random.default_rng([seed, user])
  size = (_START_SIDE, _START_SIDE)
  for drawing in characters.draw_images(seed, user):
    grey = Image.fromarray(drawing).resize(size, Image.Resampling.BILINEAR)
    pixels = _colour(generator, np.asarray(grey))
    yield _expose_half(generator, pixels)


def _draw_texture_photos(seed: int, user: int) -> Iterator[np.ndarray]:
  """Yields images of one texture; a camera took half of them."""
  generator = np.random.default_rng([seed, user])
  size = (_START_SIDE, _START_SIDE)
  for number in range(_START_IMAGES):
    pixels = textures.draw(
      size, seed=seed, class_id=user, user=number, index=number
    )
    yield _expose_half(generator, pixels)


def _draw_shape_photos(seed: int, user: int) -> Iterator[np.ndarray]:
  """Yields images of one thing, of which neighbours are a family."""
  for number in range(_START_IMAGES):
    yield shapes.draw(_START_SIDE, seed=seed, thing=user // 4, index=number)


def _expose_half(
  generator: np.random.Generator, pixels: np.ndarray
) -> np.ndarray:
  """Lights, tints and blurs half of all images.

  Args:
    generator: Source of randomness.
    pixels: uint8 `[height, width, 3]`.

  Returns:
    An image of the same shape.
  """
  if generator.random() < 0.5:
    return pixels
  return shapes.expose(generator, Image.fromarray(pixels))


def _colour(generator: np.random.Generator, grey: np.ndarray) -> np.ndarray:
  """Colours half of all drawings, three in ten of these light on dark.

  Args:
    generator: Source of randomness.
    grey: uint8 `[height, width]`, paper 255.

  Returns:
    uint8 `[height, width, 3]`.
  """
  ink = np.zeros(3)
  paper = np.ones(3)
  if generator.random() < 0.5:
    ink = generator.uniform(0, 0.5, 3)
    paper = generator.uniform(0.5, 1, 3)
    if generator.random() < 0.3:
      ink, paper = paper, ink
  share = grey[..., np.newaxis] / 255
  return (255 * (ink + (paper - ink) * share)).astype(np.uint8)


# Layouts of a user's photos, by name.
FOLDERS: dict[str, Callable[[store.Config, int], _Files]] = {
  "digiface": _place_face,
  "photos": _place_person,
  "photos_match": _place_stranger,
  "photos_start": _place_start,
  "photos_shared": _place_shared,
}


def write_folders(output_dir: store.Path, *, name: str, **fields: Any) -> None:
  """Writes folders of images.

  A user is the same for a given seed, and so is a person however many others
  there are.

  Args:
    output_dir: The folder.
    name: "digiface": `<subject id>/<k>.png`; "photos":
      `<person>/<person>/<n>.jpg`; "photos_match": `gallery/<person>/` and
      `query/<person>/` of other people, of whom every fifth is in the query
      alone; "photos_shared": `<user>/<class>/<n>.jpg` of users who share
      classes; "photos_start": `<person>/<n>.png` of strokes, textures and
      shapes, to pretrain on.
    **fields: Those of `store.Config`.

  Raises:
    errors.FieldError: If one of them is out of range; there can be at most
      100,000 users.
    errors.DataError: If the folder holds something else.
  """
  given = store.Config(**fields)
  checks.check_integer(
    "num_users", given.num_users, minimum=1, maximum=_FIRST_OF_5_IMAGES
  )

  def write(folder: pathlib.Path) -> None:
    for user in store.show_progress(given.num_users):
      for path, image in FOLDERS[name](given, user):
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(textures.encode(image, path))

  store.write_data(output_dir, given, write, name=name)


def _write_records(
  folder: pathlib.Path,
  users: list[list[tuple[int, bytes]]],
  test: list[tuple[int, bytes]],
  *,
  share: float,
) -> None:
  """Writes a share of the classes, and of the users those with most images.

  Args:
    folder: Folder of the variant, which does not exist.
    users: Classes and encoded images of each user.
    test: Classes and encoded images of the test set.
    share: Share of classes and users, in (0, 1]. Users with fewer than two
      images of the classes have no file.
  """
  all_classes = num_classes(len(users))
  classes = max(2, round(share * all_classes))

  def select(records: list[tuple[int, bytes]]) -> list[tuple[int, bytes]]:
    return [(label, x) for label, x in records if label < classes]

  def write(path: pathlib.Path, records: list[tuple[int, bytes]]) -> None:
    tfrecord_files.write_records(
      path, (tfrecord_files.serialize_image(x, label) for label, x in records)
    )

  users = list(map(select, users))
  train = folder / tfrecord_files.TRAIN_FOLDER
  train.mkdir(parents=True)
  most = sorted(range(len(users)), key=lambda user: -len(users[user]))
  num_kept = max(1, round(share * len(users)))
  kept = sorted(most[:num_kept])
  for index, user in enumerate(kept):
    if len(users[user]) >= 2:
      write(train / str(index), users[user])
  write(folder / tfrecord_files.TEST_FILE_NAME, select(test))
  told = folder / tfrecord_files.GENERATOR_FILE_NAME
  told.write_text(json.dumps({"num_classes": classes}))


# The folders of a benchmark, and the share of the users and classes of each.
# TensorFlow Federated 0.87 writes iNaturalist's users to `user_120k/` (and
# looks for them in `USER_120K/`, where most systems have nothing).
BENCHMARKS = {
  "gld": {"gld160k": 1.0, "gld23k": 0.5},
  "inaturalist": {"user_120k": 1.0},
}


def write_benchmark(
  output_dir: store.Path, *, name: str, **fields: Any
) -> None:
  """Writes a benchmark by user in TFF's files, see `tfrecord_files`.

  There are some `5 * num_users ** 0.5` classes. A user has a style and 8 to 40
  images, about 20 on average, of several classes. The test set has other images
  of all classes, 5 to 11 of each, in styles of their own. A folder that has a
  share has the first of the classes, and the users with most images of them. It
  says its number of classes in its `generator.json`.

  Args:
    output_dir: The folder.
    name: "gld" or "inaturalist".
    **fields: Those of `store.Config`.

  Raises:
    errors.FieldError: If one of them is out of range.
    errors.DataError: If the folder holds something else.
  """
  given = store.Config(**fields)

  def encode(photos: _Photos) -> list[tuple[int, bytes]]:
    return [(label, textures.encode(image)) for label, image in photos]

  def write(root: pathlib.Path) -> None:
    users = []
    for user in store.show_progress(given.num_users):
      users.append(encode(_draw_user(given, user)))
    test = encode(_draw_test(given))
    for folder, share in BENCHMARKS[name].items():
      _write_records(root / folder, users, test, share=share)

  store.write_data(output_dir, given, write, name=name)
