"""DigiFace-1M: rendered faces, one user per identity.

Bae et al., "DigiFace-1M: 1 Million Digital Face Images for Face Recognition",
WACV 2023: 10,000 identities with 72 images each and 100,000 with 5, 112 x 112
in colour. A benchmark of Xu et al., "Learning to Generate Image Embeddings with
User-level Differential Privacy", CVPR 2023, where a user is an identity.

Reads the official zips as they are (`subjects_0-1999_72_imgs.zip` and so on,
with `<subject id>/<k>.png` inside), or what they unpack to: a folder of the
same name without `.zip`, or the folders `<subject id>` right in the data
directory; in any mixture, and any number of them. Keeps the images, encoded as
they are, in a converted copy in the cache directory, because client data sets
are read by user in TensorFlow.
"""

import collections
from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Iterator
import hashlib
import pathlib
import shutil
import sqlite3

import numpy as np
import tensorflow as tf
import tqdm

from tasks import digiface_files
from tasks import task
from tff_fedemb.data import bad_examples
from tff_fedemb.data import encoded_images
from tff_fedemb.data import population
from tff_fedemb.data import sqlite_examples
from tff_fedemb.evaluation import embedding

_VARIANTS = (*digiface_files.PARTS, "all")
_SPLITS = ("train", "validation", "test")
_MIN_IDENTITIES = 2
# Chosen so that 8 identities from either start are enough for all splits.
_SPLIT_KEY = b"digiface-16701"
# Of the database, beside the image itself: SQLite fills whole pages.
_BYTES_PER_IMAGE = 2_000
# Part of the name of the converted copy: to be raised when the conversion of
# the same source changes.
_CONVERSION_VERSION = 1


def split_of_subject(subject: int) -> str:
  """The split that an identity is in, whatever others there are.

  Args:
    subject: The number of the subject.

  Returns:
    "test" or "validation" with a probability of 1/10 each, else "train".
  """
  digest = hashlib.blake2b(str(subject).encode(), key=_SPLIT_KEY, digest_size=8)
  share = int.from_bytes(digest.digest(), "big") / 2**64
  return "test" if share < 0.1 else "validation" if share < 0.2 else "train"


def _choose_sources(
    config: task.TaskConfig,
) -> tuple[str, list[digiface_files.Source]]:
  """The variant, by default the first that is there, and its sources."""
  variant = config.choose_variant("digiface", _VARIANTS)
  found = digiface_files.find_sources(config.data_dir)
  if variant == "all":
    return variant, [source for part in found.values() for source in part]
  if config.variant is None and variant not in found:
    variant = "5_images"
  if variant not in found:
    raise sqlite_examples.DataError(
        f"--data_dir must hold identities of task_variant={variant}, found only"
        f" {', '.join(found)} in {config.data_dir}. {digiface_files.ADVICE}"
    )
  return variant, found[variant]


def _list_by_split(
    sources: list[digiface_files.Source], notes: list[tuple[str, str]]
) -> dict[str, list[digiface_files.Identity]]:
  """All identities by split, in the order of their numbers."""
  seen: dict[int, digiface_files.Identity] = {}
  for source in sources:
    identities = digiface_files.list_identities(source)
    for line in digiface_files.describe_missing(source, identities):
      notes.append((digiface_files.WARNING, line))
    for identity in identities:
      if identity.subject in seen:
        raise sqlite_examples.DataError(
            f"{source.path} must hold other subjects than"
            f" {seen[identity.subject].source.path}, found {identity.subject}"
            " in both. Keep one of them."
        )
      seen[identity.subject] = identity
  by_split = {split: [] for split in _SPLITS}
  for subject in sorted(seen):
    by_split[split_of_subject(subject)].append(seen[subject])
  for split, identities in by_split.items():
    _require_identities(split, len(identities))
  return by_split


def _require_identities(split: str, number: int) -> None:
  if number < _MIN_IDENTITIES:
    raise sqlite_examples.DataError(
        f"--data_dir must hold at least {_MIN_IDENTITIES} identities for each"
        f" of {', '.join(_SPLITS)}, found {number} for {split}. Add identities:"
        " about one in ten is for validation, and one in ten for test."
    )


def _require_space(
    database: pathlib.Path, identities: Iterable[digiface_files.Identity]
) -> int:
  """Bytes that the converted copy may take, which are there."""
  needed = sum(
      identity.num_bytes + _BYTES_PER_IMAGE * len(identity.names)
      for identity in identities
  )
  database.parent.mkdir(parents=True, exist_ok=True)
  free = shutil.disk_usage(database.parent).free
  if free < needed:
    raise sqlite_examples.DataError(
        f"--cache_dir must have {needed / 1e9:.2f} GB free for the converted"
        f" copy, found {free / 1e9:.2f} GB in {database.parent}."
    )
  return needed


def _serialize(label: int, contents: Iterable[bytes]) -> Iterator[bytes]:
  for content in contents:
    yield sqlite_examples.serialize_example({"image": content, "label": label})


def _convert(
    sources: list[digiface_files.Source],
    database: pathlib.Path,
    policy: str,
) -> None:
  """Writes all splits, one user per identity, as TFF's sqlite format.

  The copy is the same whatever the policy: what is bad is left out and noted.

  Args:
    sources: What to read.
    database: Where to write.
    policy: Which error to give when too little is left.
  """
  notes: list[tuple[str, str]] = []
  by_split = _list_by_split(sources, notes)

  def create_users(reader, split):
    count = 0
    for subject, contents in reader.read(by_split[split]):
      label = count if split == "train" else subject
      yield str(subject), _serialize(label, contents)
      count += 1
    if count < _MIN_IDENTITIES:
      _collect_bad_examples(notes, policy).check()
      _require_identities(split, count)

  identities = [i for split in _SPLITS for i in by_split[split]]
  try:
    needed = _require_space(database, identities)
    with (
        tqdm.tqdm(
            total=sum(len(identity.names) for identity in identities),
            desc=f"Converting DigiFace, {needed / 1e9:.2f} GB",
            unit=" images",
            disable=None,
        ) as progress,
        digiface_files.Reader(notes, progress) as reader,
    ):
      sqlite_examples.write_examples(
          database,
          {split: create_users(reader, split) for split in _SPLITS},
          notes=notes,
      )
  except (OSError, sqlite3.Error) as error:
    raise sqlite_examples.DataError(
        f"--cache_dir must be writable, found {database.parent}: {error}."
    ) from error


def _collect_bad_examples(
    notes: Iterable[tuple[str, str]], policy: str
) -> bad_examples.BadExamples:
  collected = bad_examples.BadExamples(policy)
  for kind, text in notes:
    if kind == digiface_files.BAD:
      where, _, what = text.partition(": ")
      collected.add(where, what)
  return collected


def _open_converted(
    sources: list[digiface_files.Source], variant: str, config: task.TaskConfig
) -> dict[str, sqlite_examples.SqliteExamples]:
  """The converted copy; made where there is none yet, or a damaged one."""
  cache = pathlib.Path(config.cache_dir or task.default_cache_dir())
  fingerprint = digiface_files.fingerprint(sources)
  database = (
      cache / f"digiface_{variant}_{_CONVERSION_VERSION}_{fingerprint}.sqlite"
  )

  def open_splits():
    return {
        split: sqlite_examples.SqliteExamples(database, split)
        for split in _SPLITS
    }

  try:
    return open_splits()
  except sqlite_examples.DataError:
    _convert(sources, database, config.on_bad_example)
  return open_splits()


def _parse(serialized: tf.Tensor) -> collections.OrderedDict:
  features = tf.io.parse_example(
      serialized,
      {
          "image": tf.io.FixedLenFeature([], tf.string),
          "label": tf.io.FixedLenFeature([], tf.int64),
      },
  )
  return collections.OrderedDict(x=features["image"], y=features["label"])


def _extract_images(serialized: Iterable[bytes]) -> list[bytes]:
  return [
      tf.train.Example.FromString(example)
      .features.feature["image"]
      .bytes_list.value[0]
      for example in serialized
  ]


def _load_images(
    examples: sqlite_examples.SqliteExamples,
    image_shape: tuple[int, int, int],
) -> embedding.LabelledImages:
  """Held-out images, read when they are asked for; a label is a subject."""
  subjects = np.array([int(user_id) for user_id in examples.user_ids])
  labels = np.repeat(subjects, examples.num_examples)
  return embedding.LabelledImages(
      encoded_images.EncodedImages(
          lambda rows: _extract_images(examples.read_rows(rows)),
          lambda row: f"subject {labels[row]}",
          len(labels),
          image_shape,
      ),
      labels,
  )


def _build_search(
    examples: sqlite_examples.SqliteExamples,
    image_shape: tuple[int, int, int],
) -> Callable[[str], list[str]]:
  """Builds the function that names a client's images that cannot be used."""

  def find_bad_examples(client_id):
    lines = []
    for user_id in population.user_ids_of(client_id):
      contents = []
      for (serialized,) in examples.create_dataset(tf.constant(user_id)):
        contents += _extract_images(serialized.numpy())
      lines += [
          f"subject {user_id} image {row}: not an image"
          for row in encoded_images.find_unreadable(contents, image_shape)
      ]
    return lines

  return find_bad_examples


def create_digiface_task(config: task.TaskConfig) -> task.Task:
  """Creates the DigiFace task.

  A user is an identity. Each identity is in one split, by a keyed hash of its
  number, so that it stays there when more of the data set is added.

  Variants: the identities with 72 images each (the default if there are any),
  those with 5, or all.

  Args:
    config: `data_dir` with the images; `cache_dir` for the converted copy, of
      about the size of the images; `image_size` 112 unless it says otherwise.
      Images that cannot be decoded, and identities with fewer than two, are
      bad examples.

  Returns:
    The task.

  Raises:
    DataError: If the data are missing or damaged.
    ValueError: If there is no such variant.
  """
  variant, sources = _choose_sources(config)
  splits = _open_converted(sources, variant, config)
  examples = splits["train"]
  notes = examples.read_notes()
  bad = _collect_bad_examples(notes, config.on_bad_example)
  bad.check()
  side = config.image_size or digiface_files.SIDE
  image_shape = (side, side, 3)
  return task.Task(
      name="digiface",
      user_meaning="an identity (a rendered person)",
      # In the order of their numbers, which is the order of the labels.
      train_users=population.Population.from_ids(
          sorted(examples.user_ids, key=int)
      ),
      create_client_dataset=lambda client_id: examples.create_dataset(
          client_id
      ).map(_parse),
      image_shape=image_shape,
      num_train_classes=len(examples.user_ids),
      load_images=lambda split: _load_images(splits[split], image_shape),
      split_description=(
          f"identities of {variant}, by a keyed hash of the subject number:"
          f" {len(examples.user_ids)} for training,"
          f" {len(splits['validation'].user_ids)} for validation,"
          f" {len(splits['test'].user_ids)} for test"
      ),
      default_backbone="resnet50",
      one_class_per_user=True,
      # A user is an identity, and those held out are others.
      evaluation_on_training_users=False,
      decode_images=encoded_images.build_decoder(image_shape),
      bad_examples=bad,
      find_bad_examples=_build_search(examples, image_shape),
      warnings=tuple(
          text for kind, text in notes if kind == digiface_files.WARNING
      ),
  )
