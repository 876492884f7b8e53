"""Omniglot: one user per handwritten character, alphabet-disjoint.

Lake, Salakhutdinov and Tenenbaum, "Human-level concept learning through
probabilistic program induction", Science 2015. As a benchmark of private
embeddings it stands for data such as DigiFace, where a user is a class.

Reads the official zips (`images_background.zip`, `images_evaluation.zip`) or a
compact `omniglot_background_28.npz`, and keeps a converted copy in the cache
directory, because client data sets are read by user in TensorFlow.
"""

from __future__ import annotations

import collections
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
import contextlib
import hashlib
import io
import os
import pathlib
import re
import sqlite3
from typing import Any
import urllib.parse
import zipfile

from etils import epy
import numpy as np
from PIL import Image

from tasks import task_config
from tff_fedemb import errors
from tff_fedemb import progress
from tff_fedemb.data import bad_examples
from tff_fedemb.data import population
from tff_fedemb.data import tfrecord_files
from tff_fedemb.spec import task as task_lib

with epy.lazy_imports():
  import tensorflow as tf

  from tasks import emnist
  from tff_fedemb.data import image_folder
  from tff_fedemb.data import sqlite_examples
  from tff_fedemb.evaluation import embedding

_SIDE = 28
# Part of the name of the converted copy. Raise this when the conversion of the
# same source changes.
_CONVERSION_VERSION = 4
_COMPACT_NAME = "omniglot_background_28.npz"
# The first file that exists is read.
_BACKGROUND = ("images_background.zip", _COMPACT_NAME)
_EVALUATION = "images_evaluation.zip"
_IMAGE_NAME = re.compile(r"(^|/)[^/]+/character\d+/\d+_\d+\.png$")
# Every fifth alphabet in alphabetical order is held out for test, every tenth
# (from the third) for validation. Five alphabets are enough for one of each.
_TEST = slice(4, None, 5)
_VALIDATION = slice(2, None, 10)
_MIN_ALPHABETS = 5
# Training alphabets in turn: one half for pretraining, as if it were public,
# and the other for private training.
_HALVES = ("public_half", "private_half")
# The training alphabets only; those at the same places among them are held out,
# so that settings can be chosen without looking at the test set.
_SEARCH = "search"
_VARIANTS = ("all", *_HALVES, _SEARCH)
_ERRORS = (OSError, LookupError, ValueError, *bad_examples.ARCHIVE_ERRORS)
_ADVICE = (
  "It must hold images_background.zip (and images_evaluation.zip) of"
  " github.com/brendenlake/omniglot, or"
  f" {_COMPACT_NAME}. {task_config.advise_synthetic('omniglot')}"
)

# Opens a zip of arrays, and nothing else; NumPy's stub takes no path.
_open_npz: Callable[..., Any] = np.lib.npyio.NpzFile

# Images of each character, by its alphabet and its name.
_Characters = Mapping[tuple[str, str], list[np.ndarray]]


def _read_zip(path: pathlib.Path) -> _Characters:
  """Reads one of the publisher's zips; makes the drawings smaller.

  Args:
    path: The zip.

  Returns:
    Images uint8 `[28, 28]` by the character's alphabet and name.

  Raises:
    errors.DataError: If the zip is damaged, or has no drawings.
  """
  characters = collections.defaultdict(list)
  name = "it"
  try:
    with zipfile.ZipFile(path) as archive:
      names = sorted(filter(_IMAGE_NAME.search, archive.namelist()))
      for name in progress.create_bar(
        f"Reading {path.name}", unit="images", items=names
      ):
        *_, alphabet, character, _ = name.split("/")
        content = io.BytesIO(archive.read(name))
        with Image.open(content, formats=["PNG"]) as image:
          # The strokes of a 105 x 105 image are one bit each: averaging keeps
          # them, nearest neighbour would tear them.
          size = (_SIDE, _SIDE)
          grey = image.convert("L").resize(size, Image.Resampling.BOX)
        key = alphabet, f"{alphabet}/{character}"
        characters[key].append(np.asarray(grey))
  except (*_ERRORS, *image_folder.DAMAGES) as error:
    # Pillow names the buffer that it cannot identify.
    found = str(error).partition(" <")[0]
    raise errors.DataError(
      f"{path} must be a whole zip archive of PNG images, found in {name}:"
      f" {found}. Fetch it again."
    ) from error
  if not characters:
    raise errors.DataError(
      f"{path} must hold <alphabet>/characterNN/NNNN_DD.png, found none."
    )
  return characters


def _read_compact(path: pathlib.Path) -> _Characters:
  """Reads the compact file.

  Args:
    path: An .npz file with `images`, `character_id`, `alphabet_id` and
      `alphabets`.

  Returns:
    Images uint8 `[28, 28]` by the character's alphabet and number.

  Raises:
    errors.DataError: If the file is damaged, or has other arrays.
  """
  names = ("images", "character_id", "alphabet_id", "alphabets")
  characters = collections.defaultdict(list)
  try:
    with _open_npz(path, allow_pickle=False) as found:
      images, numbers, places, alphabets = (found[name] for name in names)
    if (images.shape[1:], images.dtype) != ((_SIDE, _SIDE), np.uint8):
      raise ValueError(f"{images.dtype} {list(images.shape)}")
    for alphabet, number, image in zip(
      alphabets[places].tolist(), numbers, images, strict=True
    ):
      characters[alphabet, f"{number:04}"].append(image)
  except _ERRORS as error:
    raise errors.DataError(
      f"{path} must be an npz file with images uint8 [n, {_SIDE}, {_SIDE}],"
      " character_id [n], alphabet_id [n] and alphabets, found:"
      f" {error}."
    ) from error
  return characters


def _find_sources(root: pathlib.Path) -> list[pathlib.Path]:
  """Finds the background set, and the evaluation set if it is there.

  Args:
    root: Directory of the data.

  Returns:
    One path or two; an official zip comes before the compact file.

  Raises:
    FieldError: If there is no background set.
  """
  background = [root / name for name in _BACKGROUND if (root / name).exists()]
  if not background:
    raise errors.FieldError("data_dir", "hold Omniglot images", root, _ADVICE)
  sources = background[:1]
  evaluation = root / _EVALUATION
  if evaluation.exists():
    sources.append(evaluation)
  return sources


def _hold_out(names: list[str]) -> dict[str, str]:
  """Returns the splits of those sorted alphabets that are held out.

  Args:
    names: Alphabets.

  Returns:
    "test" or "validation" by name. Alphabets that train are not among them.
  """
  return {
    **dict.fromkeys(names[_TEST], "test"),
    **dict.fromkeys(names[_VALIDATION], "validation"),
  }


def split_alphabets(
  background: Collection[str], evaluation: Collection[str] = ()
) -> dict[str, tuple[str, ...]]:
  """Decides which splits each alphabet is in.

  Args:
    background: Alphabets of the background set.
    evaluation: Alphabets of the evaluation set. If there are any, they are the
      test set, and all held-out background alphabets are for validation.

  Returns:
    A held-out split, or "train" and parts of it, by the alphabet's name.
  """
  names = sorted(background)
  held_out = _hold_out(names)
  train = [name for name in names if name not in held_out]
  of_search = _hold_out(train)
  splits: dict[str, tuple[str, ...]] = {
    name: ("validation" if evaluation else split,)
    for name, split in held_out.items()
  }
  for place, name in enumerate(train):
    held = f"{_SEARCH}_{of_search[name]}" if name in of_search else _SEARCH
    splits[name] = ("train", _HALVES[place % 2], held)
  return splits | dict.fromkeys(evaluation, ("test",))


def _fingerprint(sources: Sequence[pathlib.Path]) -> str:
  """Computes a digest of the sources, by their sizes and times, not content.

  Args:
    sources: The files.

  Returns:
    16 hexadecimal digits, which also depend on the version of the conversion.
  """
  digest = hashlib.sha256(repr(_CONVERSION_VERSION).encode())
  for source in map(pathlib.Path.resolve, sources):
    facts = source.stat()
    told = (os.fspath(source), facts.st_size, facts.st_mtime_ns)
    digest.update(repr(told).encode())
  return digest.hexdigest()[:16]


def _read_splits(
  sources: Sequence[pathlib.Path],
) -> Iterator[tuple[str, str, list[bytes]]]:
  """Yields splits with their characters and the images of these.

  Args:
    sources: The files.

  Yields:
    A split, a user, that is a character, and the user's serialised examples.
    Labels count the characters of a split from 0.

  Raises:
    errors.DataError: If a file is damaged, or there are too few alphabets.
  """
  read = []
  alphabets = []
  for path in sources:
    read_file = _read_compact if path.suffix == ".npz" else _read_zip
    characters = read_file(path)
    read.append(characters)
    alphabets.append({alphabet for alphabet, _ in characters})
  splits = _split_sources(sources, alphabets)
  labels: collections.Counter[str] = collections.Counter()
  for characters in read:
    for alphabet, character in sorted(characters, key=lambda key: key[1]):
      # Quotes characters that a virtual client's name cannot hold; names of
      # the official files stay as they are.
      user = urllib.parse.quote(character, safe="/ ()")
      for split in splits[alphabet]:
        examples = []
        features: dict[str, Any] = {"label": labels[split]}
        for image in characters[alphabet, character]:
          features[emnist.PIXEL_BYTES] = image.tobytes()
          examples.append(tfrecord_files.serialize_example(features))
        yield split, user, examples
        labels[split] += 1


def _split_sources(
  sources: Sequence[pathlib.Path], alphabets: Sequence[set[str]]
) -> dict[str, tuple[str, ...]]:
  """Decides the splits of the alphabets of each source; refuses too few.

  Args:
    sources: The files.
    alphabets: Names of the alphabets in each file.

  Returns:
    Splits by alphabet, as `split_alphabets` returns them.

  Raises:
    errors.DataError: If there are fewer than five background alphabets, or an
      alphabet is in both files.
  """
  background, *evaluations = alphabets
  evaluation = set().union(*evaluations)
  if len(background) < _MIN_ALPHABETS:
    raise errors.DataError(
      f"{sources[0]} must hold {_MIN_ALPHABETS} alphabets or more, found"
      f" {len(background)}."
    )
  if both := sorted(background & evaluation):
    raise errors.DataError(
      f"{sources[1]} must hold alphabets that are not in {sources[0]}, found"
      f" {both[0]!r} in both."
    )
  return split_alphabets(background, evaluation)


def _open(sources: Sequence[pathlib.Path], cache: pathlib.Path) -> pathlib.Path:
  """Returns the converted copy, a database with a user per character.

  Args:
    sources: The files.
    cache: Directory of converted copies.

  Raises:
    FieldError: If the copy cannot be written.
    errors.DataError: If a source is damaged.
  """
  database = cache / f"omniglot_{_fingerprint(sources)}.sqlite"
  with contextlib.suppress(errors.DataError):
    sqlite_examples.SqliteExamples(database, "train")
    return database
  # There is no copy yet, or a damaged one.
  rows = list(_read_splits(sources))
  try:
    sqlite_examples.write_examples(database, rows)
  except (OSError, sqlite3.Error) as error:
    raise errors.FieldError(
      "cache_dir", "be writable", f"{database.parent}: {error}"
    ) from error
  return database


def create_omniglot_task(config: task_config.TaskConfig) -> task_lib.Task:
  """Creates the Omniglot task.

  A user is a character, written by 20 people. The alphabets of the background
  set (five or more) are taken in alphabetical order: the 5th, 10th, 15th ...
  are held out for test and the 3rd, 13th and 23rd for validation; the others
  train. When the official evaluation set is there, it is the test set, and the
  held-out background alphabets are all for validation.

  Variants: all training alphabets, or every other one of them, `public_half`
  and `private_half`, with the same held-out alphabets. In `search` the training
  alphabets are all there is, and those at the same places among them are held
  out, so that you can choose settings without looking at the test set.

  Args:
    config: `data_dir` holds the official zips or the compact file; a converted
      copy is kept in `cache_dir`.

  Returns:
    A task of grey images `[28, 28, 1]`; each user has one class.

  Raises:
    FieldError: If there are no such files or too few alphabets, the copy cannot
      be written, or there are options that only other tasks have.
    DataError: If a file is damaged, or has other images.
  """
  variant = config.choose_variant("omniglot", _VARIANTS)
  config.check_no_photo_options("omniglot", _SIDE)
  sources = _find_sources(config.require_data_dir("omniglot", _ADVICE))
  database = _open(sources, config.cache)
  prefix = f"{_SEARCH}_" if variant == _SEARCH else ""
  names = {split: prefix + split for split in task_lib.EVALUATION_SPLITS}
  names["train"] = "train" if variant == "all" else variant
  try:
    splits = {
      split: sqlite_examples.SqliteExamples(database, name)
      for split, name in names.items()
    }
  except errors.DataError as error:
    raise errors.FieldError(
      "task_variant",
      "be another one with fewer than 7 background alphabets: too few train"
      " to hold out some of them",
      variant,
    ) from error

  def parse(serialized: tf.Tensor) -> dict[str, tf.Tensor]:
    images, labels = emnist.parse(serialized, compact=True)
    return collections.OrderedDict(x=images, y=labels)

  def create_client_dataset(client_id: tf.Tensor) -> tf.data.Dataset:
    return splits["train"].create_dataset(client_id).map(parse)

  def load_images(split: str) -> embedding.LabelledImages:
    parsed = parse(tf.constant(splits[split].read_serialized()))
    return embedding.LabelledImages(parsed["x"].numpy(), parsed["y"].numpy())

  return task_lib.Task(
    name="omniglot",
    user_meaning="a character (20 drawings)",
    train_users=population.Population.from_ids(splits["train"].user_ids),
    create_client_dataset=create_client_dataset,
    image_shape=(_SIDE, _SIDE, 1),
    num_train_classes=len(splits["train"].user_ids),
    load_images=load_images,
    count_images=lambda split: splits[split].num_examples,
    split_description=_describe_splits(variant, len(sources) > 1),
    # A user is a character, and those of other alphabets are held out.
    evaluation_on_training_users=False,
    one_class_per_user=True,
  )


def _describe_splits(variant: str, has_evaluation: bool) -> str:
  """Says in a sentence which alphabets are held out.

  Args:
    variant: One of the task's variants.
    has_evaluation: Whether the official evaluation set is there.
  """
  among = "training" if variant == _SEARCH else "background"
  places = (
    "test: the 5th, 10th, ...; validation: the 3rd, 13th, 23rd; train: the"
    " others"
  )
  if has_evaluation and variant != _SEARCH:
    places = (
      "validation: the 3rd, 5th, 10th, 13th, 15th, ...; train: the others;"
      " test: the evaluation set"
    )
  half = {
    "public_half": ", of which the 1st, 3rd, ... alone",
    "private_half": ", of which the 2nd, 4th, ... alone",
  }.get(variant, "")
  return f"{among} alphabets in alphabetical order; {places}{half}"
