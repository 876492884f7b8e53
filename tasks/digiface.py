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

The published data have no split. Ours is a fixed keyed hash of an identity's
number, not seeded by the user, so that it is the same for everybody.

Users and classes are those that the sources list, before any image is read, so
that what is in one user's images changes no other user's label or slot. A user
without images that can be read remains, and takes part without examples.
"""

import collections
from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Iterator
import hashlib
import pathlib
import shutil
import sqlite3
import sys

import numpy as np
import tensorflow as tf
import tqdm

from tasks import digiface_files
from tasks import task
from tff_fedemb import errors
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
# Part of the name of the converted copy: to be raised when the conversion of
# the same source changes.
_CONVERSION_VERSION = 2
# Identities that a warning names.
_NUM_NAMED = 5


def split_of_subject(subject: int) -> str:
  """The split that an identity is in, for everybody and whatever others are.

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
  if config.task_variant is None and variant not in found:
    variant = "5_images"
  if variant not in found:
    raise errors.DataError(
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
        raise errors.DataError(
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
    raise errors.DataError(
      f"--data_dir must hold at least {_MIN_IDENTITIES} identities for each"
      f" of {', '.join(_SPLITS)}, found {number} for {split}. Add identities:"
      " about one in ten is for validation, and one in ten for test."
    )


def _require_space(
  database: pathlib.Path, identities: Iterable[digiface_files.Identity]
) -> int:
  """Bytes that the converted copy may take, which are there."""
  needed = sum(
    identity.num_bytes + digiface_files.BYTES_PER_IMAGE * len(identity.names)
    for identity in identities
  )
  database.parent.mkdir(parents=True, exist_ok=True)
  free = shutil.disk_usage(database.parent).free
  # Left by a program that was killed; it makes room.
  partial = sqlite_examples.partial_path(database)
  free += partial.stat().st_size if partial.exists() else 0
  if free < needed:
    raise errors.DataError(
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

  The copy is the same whatever the policy: images that are bad are left out and
  noted, and all identities are kept.

  Args:
    sources: What to read.
    database: Where to write.
    policy: Which error to give when too little is left.
  """
  notes: list[tuple[str, str]] = []
  by_split = _list_by_split(sources, notes)

  def create_users(reader, split):
    num_readable = 0
    read = reader.read(by_split[split])
    for number, (subject, contents) in enumerate(read):
      label = number if split == "train" else subject
      yield str(subject), _serialize(label, contents)
      num_readable += bool(contents)
    # Who trains is settled by the list; evaluation needs images.
    if split != "train" and num_readable < _MIN_IDENTITIES:
      _collect_bad_examples(notes, policy).check()
      _require_identities(split, num_readable)

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
    raise errors.DataError(
      f"--cache_dir must be writable, found {database.parent}: {error}."
    ) from error


def _collect_bad_examples(
  notes: Iterable[tuple[str, str]], policy: str
) -> bad_examples.BadExamples:
  collected = bad_examples.BadExamples(policy)
  left_out = ", left out" if collected.skips else ""
  for kind, text in notes:
    if kind == digiface_files.BAD:
      where, _, what = text.partition(": ")
      collected.add(where, what)
    elif kind == digiface_files.NO_IMAGE:
      collected.add(text, f"no image{left_out}")
    elif (
      kind == digiface_files.ONE_IMAGE
      and collected.skips
      and _split_of(text) == "train"
    ):
      collected.add(text, f"one image only{left_out}")
  return collected


def _split_of(name: str) -> str:
  """The split of an identity by its name in a note."""
  return split_of_subject(int(name.rpartition("/")[2]))


def _describe_warnings(
  notes: Iterable[tuple[str, str]], bad: bad_examples.BadExamples
) -> tuple[str, ...]:
  lines = []
  single = {"for training": [], "held out": []}
  for kind, text in notes:
    if kind == digiface_files.WARNING:
      lines.append(text)
    elif kind == digiface_files.ONE_IMAGE:
      if _split_of(text) != "train":
        single["held out"].append(text)
      elif not bad.skips:
        single["for training"].append(text)
  for where, names in single.items():
    if names:
      more = len(names) - _NUM_NAMED
      lines.append(
        f"{len(names)} of the identities {where}"
        f" {'have' if len(names) > 1 else 'has'} one image only:"
        f" {', '.join(names[:_NUM_NAMED])}"
        + (f", and {more} more." if more > 0 else ".")
      )
  return tuple(lines)


def _name_copy(variant: str, sources: list[digiface_files.Source]) -> str:
  fingerprint = digiface_files.fingerprint(sources)
  return f"digiface_{variant}_{_CONVERSION_VERSION}_{fingerprint}.sqlite"


def _tell_copies(database: pathlib.Path, config: task.TaskConfig) -> None:
  """Says where the new copy is, and which others are not used any more."""

  def tell(path):
    return f"{path} ({path.stat().st_size / 1e9:.2f} GB)"

  lines = [f"The converted copy of DigiFace is {tell(database)}."]
  others = set(database.parent.glob("digiface_*.sqlite")) - {database}
  if others:
    found = digiface_files.find_sources(config.data_dir)
    in_use = {_name_copy(part, sources) for part, sources in found.items()}
    everything = [source for sources in found.values() for source in sources]
    in_use.add(_name_copy("all", everything))
    lines += [
      f"{tell(path)} is no longer used by this data, may be removed."
      for path in sorted(others)
      if path.name not in in_use
    ]
  for line in lines:
    print(line, file=sys.stderr)


def _open_converted(
  sources: list[digiface_files.Source], variant: str, config: task.TaskConfig
) -> dict[str, sqlite_examples.SqliteExamples]:
  """The converted copy; made where there is none yet, or a damaged one."""
  cache = pathlib.Path(config.cache_dir or task.default_cache_dir())
  database = cache / _name_copy(variant, sources)

  def open_splits():
    return {
      split: sqlite_examples.SqliteExamples(database, split)
      for split in _SPLITS
    }

  try:
    return open_splits()
  except errors.DataError:
    _convert(sources, database, config.on_bad_example)
  _tell_copies(database, config)
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
  create_client_dataset: Callable[[tf.Tensor], tf.data.Dataset],
  image_shape: tuple[int, int, int],
) -> Callable[[str], list[str]]:
  """Builds the function that names a client's images that cannot be used."""

  def find_bad_examples(client_id):
    lines = []
    for user_id in population.user_ids_of(client_id):
      contents = []
      for batch in create_client_dataset(tf.constant(user_id)):
        contents += batch["x"].numpy().tolist()
      lines += [
        f"subject {user_id} image {row}: not an image"
        for row in encoded_images.find_unreadable(contents, image_shape)
      ]
    return lines

  return find_bad_examples


def create_digiface_task(config: task.TaskConfig) -> task.Task:
  """Creates the DigiFace task.

  A user is an identity. Each identity is in one split, by a fixed keyed hash of
  its number. That is a decision: no seed changes it, so that the split is the
  same for everybody, and an identity stays in its own when more of the data set
  is added.

  Variants: the identities with 72 images each (the default if there are any),
  those with 5, or all.

  Args:
    config: `data_dir` with the images; `cache_dir` for the converted copy, of
      about the size of the images; `image_size` 112 unless it says otherwise.
      Images that cannot be decoded, and identities without any other, are bad
      examples. Users with one image are, too, where bad examples are skipped;
      else they are kept, with a warning.

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
  left_out = []
  if bad.skips:
    left_out = [
      user_id
      for user_id, number in zip(
        examples.user_ids, examples.num_examples, strict=True
      )
      if number == 1
    ]

  def create_client_dataset(client_id):
    dataset = examples.create_dataset(client_id, exclude=left_out)
    return dataset.map(_parse)

  num_held_out = {
    split: np.count_nonzero(splits[split].num_examples)
    for split in ("validation", "test")
  }
  return task.Task(
    name="digiface",
    user_meaning="an identity (a rendered person)",
    # In the order of their numbers, which is the order of the labels.
    train_users=population.Population.from_ids(
      sorted(examples.user_ids, key=int)
    ),
    create_client_dataset=create_client_dataset,
    image_shape=image_shape,
    num_train_classes=len(examples.user_ids),
    load_images=lambda split: _load_images(splits[split], image_shape),
    split_description=(
      f"identities of {variant}, by a fixed keyed hash of the subject"
      f" number: {len(examples.user_ids)} for training,"
      f" {num_held_out['validation']} for validation,"
      f" {num_held_out['test']} for test"
    ),
    default_backbone="resnet50",
    one_class_per_user=True,
    # A user is an identity, and those held out are others.
    evaluation_on_training_users=False,
    decode_images=encoded_images.build_decoder(image_shape),
    bad_examples=bad,
    find_bad_examples=_build_search(create_client_dataset, image_shape),
    warnings=_describe_warnings(notes, bad),
  )
