"""Omniglot: one user per handwritten character, alphabet-disjoint.

Lake, Salakhutdinov and Tenenbaum, "Human-level concept learning through
probabilistic program induction", Science 2015. As a benchmark of private
embeddings it stands for data such as DigiFace, where a user is a class.

Reads the official folders or zips (`images_background`, `images_evaluation`)
or a compact `omniglot_background_28.npz`, and keeps a converted copy in the
cache directory, because client data sets are read by user in TensorFlow.
"""

from __future__ import annotations

import collections
from collections.abc import Iterable, Iterator, Sequence
import functools
import hashlib
import io
import os
import pathlib
import re
import sqlite3
import urllib.parse
import zipfile

from etils import epy
import numpy as np
from PIL import Image
import tqdm

from tasks import task_config
from tff_fedemb import errors
from tff_fedemb.data import population
from tff_fedemb.data import reading
from tff_fedemb.data import tfrecord_files
from tff_fedemb.run import task as task_lib

with epy.lazy_imports():
  import tensorflow as tf

  from tff_fedemb.data import image_folder
  from tff_fedemb.data import sqlite_examples
  from tff_fedemb.evaluation import embedding

_SIDE = 28
_SETS = ("background", "evaluation")
# Part of the name of the converted copy: to be raised when the conversion of
# the same source changes.
_CONVERSION_VERSION = 3
_COMPACT_NAME = "omniglot_background_28.npz"
_IMAGE_NAME = re.compile(r"([^/]+)/character(\d+)/(\d+)_(\d+)\.png$")
# Every fifth alphabet in alphabetical order is held out for test, every tenth
# (from the third) for validation. With five there is one of each.
_TEST, _VALIDATION = slice(4, None, 5), slice(2, None, 10)
_MIN_ALPHABETS = 5
# What of the converted copy a split is, without and with the evaluation set.
_PARTS: dict[str, tuple[str, ...]] = {
  "validation": ("validation",),
  "test": ("test",),
}
_PARTS_WITH_EVALUATION: dict[str, tuple[str, ...]] = {
  "validation": ("validation", "test"),
  "test": ("evaluation",),
}
# The training alphabets in turn: for pretraining on one half, as if it were
# public, and private training on the other.
_HALVES = ("public_half", "private_half")
# The training alphabets again, of which those at the same places are held out:
# for settings that are chosen without a look at what is held out otherwise.
_SEARCH = "search"
_PARTS_OF_SEARCH: dict[str, tuple[str, ...]] = {
  split: (f"{_SEARCH}_{split}",) for split in _PARTS
}
_VARIANTS = ("all", *_HALVES, _SEARCH)
_ZIP_ERRORS = (OSError, *reading.ARCHIVE_ERRORS)
_ADVICE = (
  "It must hold images_background.zip (and images_evaluation.zip) of"
  " github.com/brendenlake/omniglot, their unpacked folders, or"
  f" {_COMPACT_NAME}. {task_config.advise_synthetic('omniglot')}"
)


# Alphabet, character and image of one drawing.
_Drawing = tuple[str, str, np.ndarray]


def _decode(name: str, content: bytes) -> np.ndarray:
  try:
    with Image.open(io.BytesIO(content), formats=["PNG"]) as image:
      # The strokes of a 105 x 105 image are one bit each: averaging keeps
      # them, nearest neighbour would tear them.
      grey = image.convert("L").resize((_SIDE, _SIDE), Image.Resampling.BOX)
  except image_folder.DAMAGES as error:
    found = f": {error}"
    if isinstance(error, Image.UnidentifiedImageError):
      found = " something else"
    raise errors.DataError(
      f"{name} must be a PNG image, found{found}. Fetch it again."
    ) from error
  return np.asarray(grey)


def _list_folder(folder: pathlib.Path) -> list[pathlib.Path]:
  return sorted(path for path in folder.rglob("*.png") if path.is_file())


def _iterate_files(source: pathlib.Path) -> Iterator[tuple[str, bytes]]:
  """Yields names and contents of the PNG files of a zip or a folder."""
  progress = functools.partial(
    tqdm.tqdm, desc=f"Reading {source.name}", unit=" images", disable=None
  )
  if source.is_dir():
    for path in progress(list(_list_folder(source))):
      try:
        yield path.as_posix(), path.read_bytes()
      except OSError as error:
        raise reading.create_error(path, error) from error
    return
  try:
    with zipfile.ZipFile(source) as archive:
      names = [name for name in archive.namelist() if name.endswith(".png")]
      for name in progress(sorted(names)):
        yield f"{source}/{name}", archive.read(name)
  except _ZIP_ERRORS as error:
    raise errors.DataError(
      f"{source} must be a zip archive, found: {error}. Fetch it again."
    ) from error


def _read_images(source: pathlib.Path) -> list[_Drawing]:
  drawings = []
  for name, content in _iterate_files(source):
    if match := _IMAGE_NAME.search(name):
      character = f"{match[1]}/character{match[2]}"
      drawings.append((match[1], character, _decode(name, content)))
  if not drawings:
    raise errors.DataError(
      f"{source} must hold <alphabet>/characterNN/NNNN_DD.png, found no such"
      " file."
    )
  return drawings


def _read_compact(path: pathlib.Path) -> list[_Drawing]:
  expected = (
    f"{path} must be an npz file with images uint8 [n, {_SIDE},"
    f" {_SIDE}], character_id [n], alphabet_id [n] and alphabets"
  )
  try:
    with reading.open_npz(path, allow_pickle=False) as arrays:
      images, characters, alphabets, names = (
        arrays[name]
        for name in ("images", "character_id", "alphabet_id", "alphabets")
      )
  except (*_ZIP_ERRORS, KeyError, ValueError) as error:
    raise errors.DataError(f"{expected}, found: {error}.") from error
  if (images.shape[1:], images.dtype) != ((_SIDE, _SIDE), np.uint8) or any(
    numbers.shape != images.shape[:1] or numbers.dtype.kind not in "iu"
    for numbers in (characters, alphabets)
  ):
    found = [
      f"{array.dtype} {list(array.shape)}"
      for array in (images, characters, alphabets)
    ]
    raise errors.DataError(f"{expected}, found {', '.join(found)}.")
  unknown = alphabets[(alphabets < 0) | (alphabets >= names.size)]
  if unknown.size:
    raise errors.DataError(
      f"{expected}, found alphabet_id {unknown[0]} of {names.size} alphabets."
    )
  return [
    (alphabet, f"{character:04}", image)
    for alphabet, character, image in zip(
      names[alphabets].tolist(), characters, images, strict=True
    )
  ]


def _find_sources(root: pathlib.Path) -> dict[str, pathlib.Path]:
  sources: dict[str, pathlib.Path] = {}
  for name in _SETS:
    files = [f"images_{name}", f"images_{name}.zip"]
    for file in files + [_COMPACT_NAME] * (name == "background"):
      if (root / file).exists():
        sources.setdefault(name, root / file)
  if "background" not in sources:
    raise errors.FieldError("data_dir", "hold Omniglot images", root, _ADVICE)
  return sources


def _splits_of_alphabets(
  alphabets: Iterable[str],
) -> dict[str, tuple[str, ...]]:
  """The splits of each alphabet: a held-out one, or train and parts of it."""
  names = sorted(alphabets)
  held_out = _held_out(names)
  train = [name for name in names if name not in held_out]
  of_search = _held_out(train)
  splits: dict[str, tuple[str, ...]] = {
    name: (split,) for name, split in held_out.items()
  }
  for place, name in enumerate(train):
    held = name in of_search
    parts = _PARTS_OF_SEARCH[of_search[name]] if held else (_SEARCH,)
    splits[name] = ("train", _HALVES[place % 2], *parts)
  return splits


def _held_out(names: Sequence[str]) -> dict[str, str]:
  """Which of sorted alphabets are for test, and which for validation."""
  return {
    **dict.fromkeys(names[_TEST], "test"),
    **dict.fromkeys(names[_VALIDATION], "validation"),
  }


def _fingerprint(sources: dict[str, pathlib.Path]) -> str:
  """Changes when a source does, judged by sizes and times of its files."""
  digest = hashlib.sha256(repr(_CONVERSION_VERSION).encode())
  for name, source in sorted(sources.items()):
    source = source.resolve()
    for path in _list_folder(source) if source.is_dir() else [source]:
      facts = path.stat()
      digest.update(
        repr((name, os.fspath(path), facts.st_size, facts.st_mtime_ns)).encode()
      )
  return digest.hexdigest()[:16]


def _read_splits(
  sources: dict[str, pathlib.Path],
) -> dict[str, list[tuple[str, list[np.ndarray]]]]:
  """Reads the sources: for each split, its characters and their images."""
  splits = collections.defaultdict(list)
  seen: dict[str, pathlib.Path] = {}
  for name, path in sources.items():
    images = collections.defaultdict(list)
    alphabet_of: dict[str, str] = {}
    read = _read_compact if path.suffix == ".npz" else _read_images
    for alphabet, character, image in read(path):
      images[character].append(image)
      if alphabet_of.setdefault(character, alphabet) != alphabet:
        raise errors.DataError(
          f"{path} must hold characters of one alphabet each, found"
          f" {character} in {[alphabet_of[character], alphabet]}."
        )
    alphabets = set(alphabet_of.values())
    splits_of: dict[str, tuple[str, ...]]
    if name == "evaluation":
      splits_of = dict.fromkeys(alphabets, ("evaluation",))
      if both := sorted(alphabets & seen.keys()):
        raise errors.DataError(
          f"{path} must hold alphabets that are not in {seen[both[0]]}, found"
          f" {both[0]!r} in both."
        )
    elif len(alphabets) < _MIN_ALPHABETS:
      raise errors.DataError(
        f"{path} must hold at least {_MIN_ALPHABETS} alphabets, so that some"
        f" can be held out, found {len(alphabets)}."
      )
    else:
      splits_of = _splits_of_alphabets(alphabets)
    seen |= dict.fromkeys(alphabets, path)
    for character in sorted(images):
      for split in splits_of[alphabet_of[character]]:
        splits[split].append((character, images[character]))
  return splits


def _convert(sources: dict[str, pathlib.Path], database: pathlib.Path) -> None:
  """Writes all splits, one user per character, as TFF's sqlite format."""
  rows = (
    (
      split,
      # Without what cannot stand in a virtual client's name; those of the
      # official files stay as they are.
      urllib.parse.quote(character, safe="/ ()"),
      [
        tfrecord_files.serialize_example(
          {"image": image.tobytes(), "label": label}
        )
        for image in images
      ],
    )
    for split, users in _read_splits(sources).items()
    for label, (character, images) in enumerate(users)
  )
  try:
    sqlite_examples.write_examples(database, rows)
  except (OSError, sqlite3.Error) as error:
    raise errors.FieldError(
      "cache_dir", "be writable", f"{database.parent}: {error}"
    ) from error


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


def create_omniglot_task(config: task_config.TaskConfig) -> task_lib.Task:
  """Creates the Omniglot task.

  A user is a character, written by 20 people. Of the alphabets of the
  background set (five or more) in alphabetical order, the 5th, 10th, 15th ...
  are held out for test and the 3rd, 13th and 23rd for validation; the others
  train. When the official evaluation set is there, it is the test set, and the
  held-out background alphabets are all for validation.

  Variants: all training alphabets, or every other one of them, `public_half`
  and `private_half`; what is held out is the same. In `search` the training
  alphabets are all there is, and those at the same places among them are held
  out, for settings that have seen nothing of the test set when they are chosen.
  """
  variant = config.choose_variant("omniglot", _VARIANTS)
  config.check_no_photo_options("omniglot", _SIDE)
  sources = _find_sources(config.require_data_dir("omniglot", _ADVICE))
  database = config.cache / f"omniglot_{_fingerprint(sources)}.sqlite"
  try:
    sqlite_examples.SqliteExamples(database, "train")
  except errors.DataError:  # There is no copy yet, or a damaged one.
    _convert(sources, database)
  examples = sqlite_examples.SqliteExamples(
    database, "train" if variant == "all" else variant
  )

  def create_client_dataset(client_id):
    return examples.create_dataset(client_id).map(
      lambda serialized: collections.OrderedDict(
        zip("xy", _parse(serialized), strict=True)
      )
    )

  has_evaluation = "evaluation" in sources
  parts = _PARTS_WITH_EVALUATION if has_evaluation else _PARTS
  if variant == _SEARCH:
    parts = _PARTS_OF_SEARCH
    _check_search(database)
  return task_lib.Task(
    name="omniglot",
    user_meaning="a character (20 drawings)",
    train_users=population.Population.from_ids(examples.user_ids),
    create_client_dataset=create_client_dataset,
    image_shape=(_SIDE, _SIDE, 1),
    num_train_classes=len(examples.user_ids),
    load_images=lambda split: _load_images(database, parts[split]),
    count_images=lambda split: (
      examples.num_examples
      if split == "train"
      else sum(
        sqlite_examples.SqliteExamples(database, part).num_examples
        for part in parts[split]
      )
    ),
    split_description=_describe_splits(variant, has_evaluation),
    # A user is a character, and those of other alphabets are held out.
    evaluation_on_training_users=False,
    one_class_per_user=True,
  )


def _check_search(database: pathlib.Path) -> None:
  """Refuses a search that would have no alphabet to hold out."""
  try:
    for (part,) in _PARTS_OF_SEARCH.values():
      sqlite_examples.SqliteExamples(database, part)
  except errors.DataError as error:
    raise errors.FieldError(
      "task_variant",
      "be another one with fewer than 7 background alphabets, whose training"
      " alphabets are too few to hold out some",
      _SEARCH,
    ) from error


def _load_images(
  database: pathlib.Path, parts: Iterable[str]
) -> embedding.LabelledImages:
  images, labels = [], []
  for number, part in enumerate(parts):
    read = sqlite_examples.SqliteExamples(database, part).read_serialized()
    part_images, part_labels = _parse(tf.constant(read))
    images.append(part_images.numpy())
    # Labels count from 0 in every part.
    labels.append(part_labels.numpy() + number * 100_000)
  return embedding.LabelledImages(
    np.concatenate(images), np.concatenate(labels)
  )


def _describe_splits(variant: str, has_evaluation: bool) -> str:
  places = (
    "test: the 5th, 10th, ...; validation: the 3rd, 13th, 23rd; train: the"
    " others"
  )
  if has_evaluation and variant != _SEARCH:
    places = (
      "validation: the 3rd, 5th, 10th, 13th, 15th, ...; train: the others;"
      " test: the evaluation set"
    )
  among = "training" if variant == _SEARCH else "background"
  description = f"{among} alphabets in alphabetical order; {places}"
  if variant in _HALVES:
    place = "1st, 3rd" if variant == "public_half" else "2nd, 4th"
    description += f", of which the {place}, ... alone"
  return description
