"""Writes users and a test set in the files that TFF keeps of image data.

Those are the folders of federated Google Landmarks v2 and federated iNaturalist
(Hsu et al., 2020, "Federated Visual Classification with Real-World Data
Distribution", ECCV), see `tfrecord_layout`. This module writes such folders
from any function that draws a picture of a class. Each says in its
`generator.json` how it was made and how many classes it has, which follows from
the number of users alone.
"""

from collections.abc import Callable
from collections.abc import Mapping
from collections.abc import Sequence
import dataclasses
import io
import json
import os
import pathlib
import shutil

import numpy as np
from PIL import Image
import tqdm

from tasks.synthetic import photo
from tff_fedemb.data import tfrecord_layout

_MIN_IMAGES, _MEAN_IMAGES, _MAX_IMAGES = 8, 20, 40
_TEST_IMAGES = (5, 12)
_SHEET_COLOURS = 256

# Draws a picture of class `class_id`: uint8 `[height, width, 3]`. Whatever is
# the same in all pictures of a class follows from the seed and the class.
Draw = Callable[[np.random.Generator, int, int], np.ndarray]
_Records = list[tuple[int, bytes]]


@dataclasses.dataclass(frozen=True)
class Variant:
  """A data set of its own folder, which holds a part of all users and classes.

  Attributes:
    name: Of the folder.
    share: Part of the users and of the classes that it holds, in (0, 1].
  """

  name: str
  share: float = 1.0

  def __post_init__(self):
    if not 0 < self.share <= 1:
      raise ValueError(f"share must be in (0, 1], found {self.share}")


def num_classes(num_users: int) -> int:
  """Number of classes that so many users photograph."""
  return max(6, round(5.2 * num_users**0.5))


def _num_kept_classes(variant: Variant, num_users: int) -> int:
  """Number of classes, from 0, that a variant holds."""
  return max(2, round(variant.share * num_classes(num_users)))


def _draw_labels(generator: np.random.Generator, classes: int) -> np.ndarray:
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


def _create_records(
  seed: Sequence[int], labels: np.ndarray, draw: Draw
) -> _Records:
  """Labels and JPEGs; `seed` starts with the seed of the classes."""
  generator = np.random.default_rng(np.random.SeedSequence(seed))
  return [
    (
      int(label),
      photo.encode_jpeg(generator, draw(generator, seed[0], int(label))),
    )
    for label in labels
  ]


def _write_records(path: pathlib.Path, records: _Records) -> None:
  # TensorFlow takes seconds to load; `--help` does without it.
  from tff_fedemb.data import tfrecord_writing

  tfrecord_writing.write_records(
    path,
    (
      tfrecord_writing.serialize_image(image, label) for label, image in records
    ),
  )


def _write_variant(
  folder: pathlib.Path,
  share: float,
  kept_classes: int,
  users: Sequence[_Records],
  test: _Records,
) -> None:
  """Writes the part of the data that a variant holds.

  It holds the first of the classes, and the users with most images of them.
  """
  users = [
    [record for record in user if record[0] < kept_classes] for user in users
  ]
  order = sorted(range(len(users)), key=lambda user: -len(users[user]))
  kept_users = sorted(order[: max(1, round(share * len(users)))])
  train = folder / tfrecord_layout.TRAIN_FOLDER
  train.mkdir(parents=True)
  for index, user in enumerate(kept_users):
    if len(users[user]) >= 2:
      _write_records(train / str(index), users[user])
  _write_records(
    folder / tfrecord_layout.TEST_FILE_NAME,
    [x for x in test if x[0] < kept_classes],
  )


def _describe(parameters: Mapping[str, object]) -> str:
  return ", ".join(f"{key}={value}" for key, value in parameters.items())


def write(
  output_dir: str | os.PathLike[str],
  variants: Sequence[Variant],
  draw: Draw,
  *,
  name: str,
  version: int,
  num_users: int,
  seed: int,
) -> list[str]:
  """Writes the variants' folders, all of them from the same pictures.

  A user has 8 to 40 images, about 20 on average, of several classes. The test
  set has other images of all classes, 5 to 11 of each. Folders appear under
  their names only when they are complete.

  Args:
    output_dir: Directory of the folders, created if missing.
    variants: The folders to write.
    draw: Draws a picture, see `Draw`.
    name: Of the data, for messages and the progress bar.
    version: Of `draw`, raised whenever it starts to draw other pictures.
    num_users: Number of users, at least 1.
    seed: Seed of all randomness, at least 0.

  Returns:
    The paths of the folders. Those made with the same arguments are kept.

  Raises:
    ValueError: If an argument is out of range.
    FileExistsError: If a folder exists and was made with other arguments, or
      not by this function.
    OSError: If `output_dir` cannot be created or written.
  """
  for argument, value, least in (
    ("num_users", num_users, 1),
    ("seed", seed, 0),
  ):
    if value < least:
      raise ValueError(f"{argument} must be at least {least}, found {value}")
  parameters = {
    "name": name,
    "generator_version": version,
    "num_users": num_users,
    "seed": seed,
  }
  output_dir = pathlib.Path(output_dir)
  if output_dir.exists() and not output_dir.is_dir():
    raise NotADirectoryError(f"output_dir must be a directory: {output_dir}")
  output_dir.mkdir(parents=True, exist_ok=True)
  paths = [output_dir / variant.name for variant in variants]
  existing = [path for path in paths if path.exists()]
  parameters_of = {
    path: {**parameters, "num_classes": _num_kept_classes(variant, num_users)}
    for path, variant in zip(paths, variants, strict=True)
  }
  for path in existing:
    found = tfrecord_layout.read_generator(path)
    if found != parameters_of[path]:
      raise FileExistsError(
        f"{path} must be absent or made with"
        f" {_describe(parameters_of[path])}, found"
        f" {_describe(found) if found else 'a folder from elsewhere'}"
      )
  if len(existing) == len(paths):
    for path in paths:
      print(f"{path} is there already, made with the same parameters; kept")
    return [str(path) for path in paths]

  partial = output_dir / f".{name}.{os.getpid()}.partial"
  try:
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir()
    classes = num_classes(num_users)
    users = []
    for user in tqdm.trange(num_users, desc=name, unit="user", disable=None):
      labels = _draw_labels(
        np.random.default_rng(np.random.SeedSequence([seed, 0, user])),
        classes,
      )
      users.append(_create_records((seed, 1, user), labels, draw))
    counts = np.random.default_rng(np.random.SeedSequence([seed, 2])).integers(
      *_TEST_IMAGES, size=classes
    )
    labels = np.repeat(np.arange(classes), counts)
    test = _create_records((seed, 3), labels, draw)
    for variant, path in zip(variants, paths, strict=True):
      if path not in existing:
        folder = partial / variant.name
        kept_classes = _num_kept_classes(variant, num_users)
        _write_variant(folder, variant.share, kept_classes, users, test)
        (folder / tfrecord_layout.GENERATOR_FILE_NAME).write_text(
          json.dumps(parameters_of[path])
        )
        os.replace(folder, path)
        print(f"Wrote {path}")
  finally:
    shutil.rmtree(partial, ignore_errors=True)
  return [str(path) for path in paths]


def read_records(path: str | os.PathLike[str]) -> list[tuple[int, bytes]]:
  """Returns the class and the encoded image of each record of a file."""
  # TensorFlow takes seconds to load; `--help` does without it.
  import tensorflow as tf

  records = []
  for content in tf.data.TFRecordDataset(str(path)).as_numpy_iterator():
    feature = tf.train.Example.FromString(content).features.feature
    records.append(
      (
        feature[tfrecord_layout.CLASS_FEATURE].int64_list.value[0],
        feature[tfrecord_layout.IMAGE_FEATURE].bytes_list.value[0],
      )
    )
  return records


def contact_sheet(
  folder: str | os.PathLike[str],
  output_png: str | os.PathLike[str],
  *,
  num_classes: int = 10,
  num_columns: int = 12,
  cell: int = 70,
) -> None:
  """Draws one row a class, with images of different users and the test set.

  Args:
    folder: A variant's folder, generated or real.
    output_png: Where to write the picture.
    num_classes: Number of classes to show, those with most images.
    num_columns: Number of images a class.
    cell: Side of an image on the sheet, in pixels.
  """
  folder = pathlib.Path(folder)
  files = sorted((folder / tfrecord_layout.TRAIN_FOLDER).iterdir())
  by_class: dict[int, list[bytes]] = {}
  for path in [folder / tfrecord_layout.TEST_FILE_NAME, *files]:
    for label, image in read_records(path):
      by_class.setdefault(label, []).append(image)
  shown = sorted(by_class, key=lambda label: (-len(by_class[label]), label))
  shown = sorted(shown[:num_classes])
  sheet = Image.new(
    "RGB", (num_columns * (cell + 2), len(shown) * (cell + 2)), "white"
  )
  for row, label in enumerate(shown):
    for column, image in enumerate(by_class[label][:num_columns]):
      picture = Image.open(io.BytesIO(image)).convert("RGB")
      picture.thumbnail((cell, cell), Image.Resampling.LANCZOS)
      width, height = picture.size
      sheet.paste(
        picture,
        (
          column * (cell + 2) + 1 + (cell - width) // 2,
          row * (cell + 2) + 1 + (cell - height) // 2,
        ),
      )
  # Only a palette that is given is dithered.
  palette = sheet.quantize(_SHEET_COLOURS)
  sheet.quantize(palette=palette).save(output_png, optimize=True)
