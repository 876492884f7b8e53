"""Photos of one's own users, in folders or listed in a table.

`DIR/<user>/<class>/<image>`, or a table of images, users and labels. The
published benchmarks are other tasks; this one is for what nobody here has seen,
so that it says what it finds odd.
"""

from collections.abc import Sequence
import hashlib
import os
import pathlib

import numpy as np

from tasks import task
from tff_fedemb import errors
from tff_fedemb.data import bad_examples
from tff_fedemb.data import encoded_images
from tff_fedemb.data import photo_folder
from tff_fedemb.data import photo_index
from tff_fedemb.data import photo_splits
from tff_fedemb.data import population
from tff_fedemb.evaluation import embedding

_CHANNELS = {"rgb": 3, "grayscale": 1}
# Sides by the number of training images from which they are the default.
_SIDES = ((100_000, 224), (10_000, 112), (0, 64))
_LAYOUT = (
  "It must hold <user>/<class>/<image>; a table lists images that lie"
  " otherwise. To try the program on task emnist instead:"
  f" {task.show_command('tasks.synthetic', task='emnist', output_dir='DIR')},"
  " then use DIR as data_dir."
)


def _find_listing(config: task.TaskConfig) -> photo_folder.FolderListing:
  root = config.require_data_dir("photos", _LAYOUT)
  if not root.is_dir():
    raise errors.FieldError("data_dir", "be a folder", root, _LAYOUT)
  return photo_folder.FolderListing(root)


def _describe(
  split: str, names: Sequence[str], labels: np.ndarray, num_all: int
) -> str:
  return (
    f"{split}: {len(names)} of {num_all} classes"
    f" ({bad_examples.name_first(names)}; {labels.size} images)"
  )


def _warn(findings: photo_folder.Findings) -> list[str]:
  return [
    line
    for text, names in findings.odd.items()
    for line in bad_examples.warn_of(text.format(number=len(names)), names)
  ]


def _write_index(
  listing: photo_folder.FolderListing, path: pathlib.Path, hold_out: str
) -> None:
  writer = photo_index.Writer(path, os.fsencode(listing.root))
  try:
    for photos in listing.list_photos():
      writer.add(photos)
    users, classes = writer.names
    columns = writer.columns
    if not len(columns):
      raise errors.FieldError(
        "data_dir", "hold photos", f"none in {listing.root}", _LAYOUT
      )
    assigned = photo_splits.assign(users, classes, columns, hold_out)
    trains = assigned.split_of_photo == photo_index.TRAIN
    pairs = np.unique(columns[trains, :2], axis=0)
    held_out = columns[~trains]
    facts = {
      "num_users": assigned.num_users,
      "num_train_classes": int(np.unique(pairs[:, 1]).size),
      "num_train_photos": int(trains.sum()),
      "num_classes": len(classes),
      "one_class_per_user": len(pairs) == assigned.num_users,
      "evaluation_on_training_users": bool(
        np.isin(held_out[:, 0], pairs[:, 0]).any()
      ),
      "held_out_classes_are_new": not np.isin(
        held_out[:, 1], pairs[:, 1]
      ).any(),
      "bad": listing.findings.bad,
      "warnings": _warn(listing.findings),
    }
    writer.finish(
      slots=assigned.slots,
      labels=assigned.labels,
      splits=assigned.splits,
      split_of_photo=assigned.split_of_photo,
      sources=listing.findings.sources,
      facts=facts,
    )
  finally:
    writer.close()


def _open_index(
  listing: photo_folder.FolderListing, cache: pathlib.Path, hold_out: str
) -> photo_index.PhotoIndex:
  """Opens the index of a listing, made before or now."""
  root = os.fsencode(listing.root)
  identity = repr((photo_index.VERSION, root, hold_out)).encode()
  name = f"photos_{hashlib.sha256(identity).hexdigest()[:16]}"
  for path in sorted(cache.glob(f"{name}_*.sqlite"), reverse=True):
    try:
      index = photo_index.PhotoIndex(path, root)
      if index.is_fresh():
        return index
    except errors.DataError:  # It is damaged.
      continue
  cache.mkdir(parents=True, exist_ok=True)
  partial = cache / f".{name}_{os.getpid()}.partial"
  partial.unlink(missing_ok=True)
  try:
    _write_index(listing, partial, hold_out)
    # Never in the place of one that a program may be training on.
    number = partial.stat().st_mtime_ns
    path = partial.replace(cache / f"{name}_{number}.sqlite")
  finally:
    partial.unlink(missing_ok=True)
  return photo_index.PhotoIndex(path, root)


def create_photos_task(config: task.TaskConfig) -> task.Task:
  """Creates the task of one's own photos.

  Privacy:
    The list of users and of classes is taken to be public: their numbers, and
    which user has an image of a class that trains. What is in the images is
    not, nor how many there are of a user.
  """
  config.choose_variant("photos", ("all",))
  listing = _find_listing(config)
  hold_out = config.hold_out or "classes"
  index = _open_index(listing, config.cache, hold_out)
  facts = index.facts
  bad = bad_examples.BadExamples(config.on_bad_example)
  for where, what in (*facts["bad"], *index.faults()):
    bad.add(where, what)
  bad.check()
  side = config.image_size or next(
    side for least, side in _SIDES if facts["num_train_photos"] >= least
  )
  image_shape = (side, side, _CHANNELS[config.color_mode or "rgb"])

  def load_images(split: str) -> embedding.LabelledImages:
    photos, labels = index.held_out(photo_index.SPLITS.index(split))
    images = encoded_images.EncodedImages(
      lambda rows: index.read(photos[rows]),
      lambda row: index.paths(photos[row : row + 1])[0],
      photos.size,
      image_shape,
    )
    return embedding.LabelledImages(images, labels)

  return task.Task(
    name="photos",
    user_meaning="the owner of a folder of photos",
    train_users=population.Population(facts["num_users"]),
    create_client_dataset=index.create_dataset,
    image_shape=image_shape,
    num_train_classes=facts["num_train_classes"],
    load_images=load_images,
    split_description=_describe_splits(index, hold_out),
    default_backbone="lenet" if side <= 64 else "mobilenet_v2",
    decode_images=encoded_images.build_decoder(image_shape),
    bad_examples=bad,
    find_bad_examples=index.find_bad_examples,
    warnings=tuple(facts["warnings"]),
    **{
      name: facts[name]
      for name in (
        "one_class_per_user",
        "evaluation_on_training_users",
        "held_out_classes_are_new",
      )
    },
  )


def _describe_splits(index: photo_index.PhotoIndex, hold_out: str) -> str:
  parts = [
    f"{index.facts['num_train_photos']} images for training; held out are"
    f" {hold_out.replace('_', ' ')}"
  ]
  for number in (photo_index.VALIDATION, photo_index.TEST):
    _, labels = index.held_out(number)
    names = index.class_names(np.unique(labels))
    parts.append(
      _describe(
        photo_index.SPLITS[number], names, labels, index.facts["num_classes"]
      )
    )
  return "; ".join(parts)
