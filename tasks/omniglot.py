"""Omniglot: one user per handwritten character, alphabet-disjoint.

Lake, Salakhutdinov and Tenenbaum, "Human-level concept learning through
probabilistic program induction", Science 2015. As a benchmark of private
embeddings it stands for data such as DigiFace, where a user is a class.

Reads the official folders or zips (`images_background`, `images_evaluation`)
or a compact `omniglot_background_28.npz`, and keeps a converted copy in the
cache directory, because client data sets are read by user in TensorFlow.
"""

import collections
import dataclasses
import hashlib
import io
import os
import pathlib
import re
import zipfile

import numpy as np
from PIL import Image
import tensorflow as tf
import tqdm

from tasks import task
from tff_fedemb.data import population
from tff_fedemb.data import sqlite_examples
from tff_fedemb.evaluation import embedding

_SIDE = 28
_PARSING_BATCH = 512
_SETS = ("background", "evaluation")
_COMPACT_NAME = "omniglot_background_28.npz"
_IMAGE_NAME = re.compile(r"([^/]+)/character(\d+)/(\d+)_(\d+)\.png$")
# Every fifth alphabet in alphabetical order is held out for test, every tenth
# (from the third) for validation.
_TEST_STRIDE, _TEST_START = 5, 4
_VALIDATION_STRIDE, _VALIDATION_START = 10, 2
_ADVICE = (
    "It must hold images_background.zip (and images_evaluation.zip) of"
    " github.com/brendenlake/omniglot, their unpacked folders, or"
    f" {_COMPACT_NAME}. To try the program on synthetic data instead: python -m"
    " tasks.synthetic --task=emnist --output_dir=DIR, then --task=emnist"
    " --data_dir=DIR."
)


@dataclasses.dataclass(frozen=True)
class _Characters:
  """Images `[n, side, side]` with their alphabets and character numbers."""

  images: np.ndarray
  alphabets: np.ndarray
  characters: np.ndarray


def _decode(name: str, content: bytes) -> np.ndarray:
  try:
    with Image.open(io.BytesIO(content)) as image:
      # The strokes of a 105 x 105 image are one bit each: averaging keeps
      # them, nearest neighbour would tear them.
      grey = image.convert("L").resize((_SIDE, _SIDE), Image.Resampling.BOX)
  except OSError as error:
    raise sqlite_examples.DataError(
        f"{name} must be a PNG image, found: {error}."
    ) from error
  return np.asarray(grey)


def _iterate_files(source: pathlib.Path):
  """Yields names and contents of the PNG files of a zip or a folder."""
  if source.is_dir():
    for path in sorted(source.rglob("*.png")):
      yield path.as_posix(), path.read_bytes()
    return
  try:
    with zipfile.ZipFile(source) as archive:
      for name in sorted(archive.namelist()):
        if name.endswith(".png"):
          yield f"{source}/{name}", archive.read(name)
  except (zipfile.BadZipFile, OSError) as error:
    raise sqlite_examples.DataError(
        f"{source} must be a zip archive, found: {error}. Fetch it again."
    ) from error


def _read_images(source: pathlib.Path) -> _Characters:
  images, alphabets, characters = [], [], []
  for name, content in tqdm.tqdm(
      _iterate_files(source), desc=f"Reading {source.name}", unit=" images"
  ):
    match = _IMAGE_NAME.search(name)
    if match:
      images.append(_decode(name, content))
      alphabets.append(match[1])
      characters.append(f"{match[1]}/character{match[2]}")
  if not images:
    raise sqlite_examples.DataError(
        f"{source} must hold <alphabet>/characterNN/NNNN_DD.png, found no such"
        " file."
    )
  return _Characters(np.stack(images), np.array(alphabets), np.array(characters))


def _read_compact(path: pathlib.Path) -> _Characters:
  try:
    with np.load(path, allow_pickle=False) as arrays:
      images, names = arrays["images"], arrays["alphabets"]
      alphabets = names[arrays["alphabet_id"]]
      characters = arrays["character_id"]
  except (OSError, ValueError, KeyError, zipfile.BadZipFile) as error:
    raise sqlite_examples.DataError(
        f"{path} must be an npz file with images, alphabets, alphabet_id and"
        f" character_id, found: {error}."
    ) from error
  if images.shape[1:] != (_SIDE, _SIDE) or images.dtype != np.uint8:
    raise sqlite_examples.DataError(
        f"{path} must hold images of uint8 [n, {_SIDE}, {_SIDE}], found"
        f" {images.dtype} {list(images.shape)}."
    )
  return _Characters(
      images, alphabets, np.array([f"{c:04}" for c in characters])
  )


def _find_sources(data_dir: str | None) -> dict[str, pathlib.Path]:
  if data_dir is None:
    raise sqlite_examples.DataError(
        f"--data_dir must be given for task omniglot. {_ADVICE}"
    )
  root = pathlib.Path(data_dir)
  sources = {}
  for name in _SETS:
    for path in (root / f"images_{name}", root / f"images_{name}.zip"):
      if path.exists() and name not in sources:
        sources[name] = path
  if "background" not in sources and (root / _COMPACT_NAME).is_file():
    sources["background"] = root / _COMPACT_NAME
  if "background" not in sources:
    raise sqlite_examples.DataError(
        f"--data_dir has no Omniglot images, found {root}. {_ADVICE}"
    )
  return sources


def _split_of_alphabets(alphabets: list[str]) -> dict[str, str]:
  splits = {}
  for index, alphabet in enumerate(sorted(alphabets)):
    if index % _TEST_STRIDE == _TEST_START:
      splits[alphabet] = "test"
    elif index % _VALIDATION_STRIDE == _VALIDATION_START:
      splits[alphabet] = "validation"
    else:
      splits[alphabet] = "train"
  return splits


def _fingerprint(sources: dict[str, pathlib.Path]) -> str:
  """Changes when a source does; folders count by their path and time."""
  facts = [
      (name, os.fspath(path.resolve()), path.stat().st_size, path.stat().st_mtime)
      for name, path in sorted(sources.items())
  ]
  return hashlib.sha256(repr(facts).encode()).hexdigest()[:16]


def _convert(sources: dict[str, pathlib.Path], database: pathlib.Path) -> None:
  """Writes all splits, one user per character, as TFF's sqlite format."""
  splits = collections.defaultdict(list)
  for name, path in sources.items():
    read = _read_compact if path.suffix == ".npz" else _read_images
    found = read(path)
    if name == "evaluation":
      split_of = dict.fromkeys(found.alphabets, "evaluation")
    else:
      split_of = _split_of_alphabets(sorted(set(found.alphabets)))
    for character in np.unique(found.characters):
      rows = np.flatnonzero(found.characters == character)
      splits[split_of[found.alphabets[rows[0]]]].append(
          (character, found.images[rows])
      )
  sqlite_examples.write_examples(
      database,
      {
          split: (
              (
                  # Quotes cannot stand in a query.
                  character.replace("'", "_"),
                  [
                      sqlite_examples.serialize_example(
                          {"image": image.tobytes(), "label": label}
                      )
                      for image in images
                  ],
              )
              for label, (character, images) in enumerate(users)
          )
          for split, users in splits.items()
      },
  )


def _parse(serialized: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
  features = tf.io.parse_example(
      serialized,
      {
          "image": tf.io.FixedLenFeature([], tf.string),
          "label": tf.io.FixedLenFeature([], tf.int64),
      },
  )
  images = tf.io.decode_raw(
      features["image"], tf.uint8, fixed_length=_SIDE * _SIDE
  )
  return tf.reshape(images, [-1, _SIDE, _SIDE, 1]), features["label"]


def create_omniglot_task(config: task.TaskConfig) -> task.Task:
  """Creates the Omniglot task.

  A user is a character, written by 20 people. Of the alphabets of the
  background set in alphabetical order, the 5th, 10th, 15th ... are held out
  for test and the 3rd, 13th and 23rd for validation; the others train. When
  the official evaluation set is there, it is the test set, and the held-out
  background alphabets are all for validation.

  Args:
    config: `data_dir` with the images; `cache_dir` for the converted copy.

  Returns:
    The task.

  Raises:
    DataError: If the data are missing or damaged.
  """
  sources = _find_sources(config.data_dir)
  cache = pathlib.Path(config.cache_dir or task.default_cache_dir())
  database = cache / f"omniglot_{_fingerprint(sources)}.sqlite"
  if not database.exists():
    try:
      _convert(sources, database)
    except OSError as error:
      raise sqlite_examples.DataError(
          f"--cache_dir must be writable, found {cache}: {error}."
      ) from error
  examples = sqlite_examples.SqliteExamples(database, "train")
  if "evaluation" in sources:
    held_out = {
        "validation": ("validation", "test"),
        "test": ("evaluation",),
    }
    description = "validation: 9 background alphabets; test: evaluation set"
  else:
    held_out = {"validation": ("validation",), "test": ("test",)}
    description = (
        "background alphabets in alphabetical order; test: the 5th, 10th, ...;"
        " validation: the 3rd, 13th, 23rd; train: the others"
    )

  def create_client_dataset(client_id):
    return (
        examples.create_dataset(client_id)
        .batch(_PARSING_BATCH)
        .map(
            lambda serialized: collections.OrderedDict(
                zip("xy", _parse(serialized), strict=True)
            )
        )
    )

  def load_images(split):
    images, labels = [], []
    for part, name in enumerate(held_out[split]):
      batch_images, batch_labels = _parse(
          tf.constant(
              sqlite_examples.SqliteExamples(database, name).read_serialized()
          )
      )
      images.append(batch_images.numpy())
      # Labels count from 0 in every part.
      labels.append(batch_labels.numpy() + part * 100_000)
    return embedding.LabelledImages(
        np.concatenate(images), np.concatenate(labels)
    )

  return task.Task(
      name="omniglot",
      user_meaning="a character (20 drawings)",
      train_users=population.Population.from_ids(examples.user_ids),
      create_client_dataset=create_client_dataset,
      image_shape=(_SIDE, _SIDE, 1),
      num_train_classes=len(examples.user_ids),
      load_images=load_images,
      split_description=description,
  )
