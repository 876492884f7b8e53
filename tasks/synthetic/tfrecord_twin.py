"""Writes users and a test set in the files that TFF keeps of image data.

Those are the folders of `tasks.user_photos`, see `tfrecord_files`; their
pictures are made-up patterns, see `textures`. Each folder says in its
`generator.json` how it was made and how many classes it has, which follows from
the number of users alone.
"""

from collections.abc import Mapping
import dataclasses
import json
import pathlib
from typing import Any

import numpy as np

from tasks.synthetic import store
from tasks.synthetic import textures
from tff_fedemb.data import tfrecord_files

_MIN_IMAGES, _MEAN_IMAGES, _MAX_IMAGES = 8, 20, 40
_TEST_IMAGES = (5, 12)

_SHORT_SIDES = (90, 121)
_ASPECTS = (1.0, 4 / 3, 3 / 2)
_USER_BYTES = 80_000
# Raised whenever the same parameters start to give other data.
_GENERATOR_VERSION = 4

_Records = list[tuple[int, bytes]]


def num_classes(num_users: int) -> int:
  """Number of classes that so many users photograph."""
  return max(6, round(5.2 * num_users**0.5))


def draw_labels(generator: np.random.Generator, classes: int) -> np.ndarray:
  """Classes of one user's images: int64 `[images]`, uneven in all respects.

  A user prefers a region, a stretch on the ring of all classes, and within it
  a few favourites; some classes are popular with everyone.
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


def draw_shape(generator: np.random.Generator) -> tuple[int, int, int]:
  """A shape in colour with sides of 90 to 180 pixels, mostly not upright."""
  short = int(generator.integers(*_SHORT_SIDES))
  long = round(short * generator.choice(_ASPECTS))
  is_upright = generator.random() < 0.3
  return (long, short, 3) if is_upright else (short, long, 3)


@dataclasses.dataclass(frozen=True)
class Twin:
  """A synthetic data set in the format of a real one.

  Attributes:
    name: Of the data.
    folders: Name of each folder, and which part of the users and of the classes
      it holds, in (0, 1].
  """

  name: str
  folders: Mapping[str, float]

  def write(self, output_dir: store.Path, **fields: Any) -> list[str]:
    """Writes the folders, all of them from the same pictures.

    There are some `5 * num_users ** 0.5` classes. A user has a style and 8 to
    40 images, about 20 on average, of several classes. The test set has other
    images of all classes, 5 to 11 of each, in styles of their own. A folder
    that holds a part has the first of the classes, and the users with most
    images of them. Fields are those of `store.Config`; paths are returned.

    Raises:
      errors.FieldError: If one of them is out of range.
      errors.DataError: If there is a folder of another making.
    """
    given = store.Config(**fields)
    classes = num_classes(given.num_users)
    wanted: dict[str, dict[str, Any]] = {
      name: {
        "name": self.name,
        **given.parameters(_GENERATOR_VERSION),
        "num_classes": max(2, round(share * classes)),
      }
      for name, share in self.folders.items()
    }

    def write(partial, missing):
      users, test = _draw_all(given, classes, desc=self.name)
      for name in missing:
        num_kept = max(1, round(self.folders[name] * given.num_users))
        _write_folder(partial / name, wanted[name], users, test, num_kept)

    return store.write_missing(
      output_dir,
      wanted,
      tfrecord_files.read_generator,
      write,
      num_bytes=round(
        given.num_users * sum(self.folders.values()) * _USER_BYTES
      ),
    )

  def contact_sheet(
    self, output_dir: store.Path, output_png: store.Path
  ) -> None:
    """Draws twelve images of each of the ten largest classes, one a row."""
    folder = pathlib.Path(output_dir, next(iter(self.folders)))
    users = sorted((folder / tfrecord_files.TRAIN_FOLDER).iterdir())
    images: dict[int, list[bytes]] = {}
    for path in [folder / tfrecord_files.TEST_FILE_NAME, *users]:
      for label, image in read_records(path):
        images.setdefault(label, []).append(image)
    shown = sorted(images, key=lambda label: (-len(images[label]), label))
    rows = [images[label][:12] for label in sorted(shown[:10])]
    store.save_sheet(rows, output_png, side=70)


def _draw_all(
  given: store.Config, classes: int, *, desc: str
) -> tuple[list[_Records], _Records]:
  """The records of each user, and of the test set."""

  def take(generator, label, **whose):
    picture = textures.draw(
      draw_shape(generator), seed=given.seed, class_id=int(label), **whose
    )
    return int(label), textures.encode_jpeg(picture, generator)

  users = []
  for user in store.progress(range(given.num_users), desc=desc, unit="user"):
    generator = np.random.default_rng([given.seed, 0, user])
    labels = draw_labels(generator, classes)
    users.append(
      [
        take(generator, label, user=user, index=index)
        for index, label in enumerate(labels)
      ]
    )
  generator = np.random.default_rng([given.seed, 1])
  counts = generator.integers(*_TEST_IMAGES, size=classes)
  labels = np.repeat(np.arange(classes), counts)
  test = [
    take(generator, label, user=given.num_users + number, index=0)
    for number, label in enumerate(labels)
  ]
  return users, test


def _write_folder(folder: pathlib.Path, parameters, users, test, num_kept):
  """Writes the first classes, of the users with most images of them."""

  def write(path: pathlib.Path, records: _Records) -> None:
    tfrecord_files.write_records(
      path, (tfrecord_files.serialize_image(x, label) for label, x in records)
    )

  *users, test = (
    [record for record in records if record[0] < parameters["num_classes"]]
    for records in (*users, test)
  )
  train = folder / tfrecord_files.TRAIN_FOLDER
  train.mkdir(parents=True)
  most = sorted(range(len(users)), key=lambda user: -len(users[user]))
  for index, user in enumerate(sorted(most[:num_kept])):
    if len(users[user]) >= 2:
      write(train / str(index), users[user])
  write(folder / tfrecord_files.TEST_FILE_NAME, test)
  told = folder / tfrecord_files.GENERATOR_FILE_NAME
  told.write_text(json.dumps(parameters))


def read_records(path: store.Path) -> _Records:
  """Returns the class and the encoded image of each record of a file."""
  import tensorflow as tf  # Takes seconds to load; only this needs it.

  records = []
  for content in tf.data.TFRecordDataset(str(path)).as_numpy_iterator():
    feature = tf.train.Example.FromString(content).features.feature
    label = feature[tfrecord_files.CLASS_FEATURE].int64_list.value[0]
    image = feature[tfrecord_files.IMAGE_FEATURE].bytes_list.value[0]
    records.append((label, image))
  return records
