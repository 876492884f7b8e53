"""Photos of your own users, in folders or listed in a table.

`DIR/<user>/<class>/<image>`, `DIR/<person>/<image>`, or a table of images,
users and labels. The other tasks are published benchmarks; your photos come in
no published form, so the task warns of what is odd about them.
"""

from __future__ import annotations

import os
import pathlib
from typing import Any

from etils import epy
import numpy as np

from tasks import task_config
from tff_fedemb import errors
from tff_fedemb.data import bad_examples
from tff_fedemb.data import population
from tff_fedemb.spec import task as task_lib

with epy.lazy_imports():
  from tff_fedemb.data import encoded_images
  from tff_fedemb.data import photo_index
  from tff_fedemb.data import photo_listing
  from tff_fedemb.evaluation import embedding

_CHANNELS = {"rgb": 3, "grayscale": 1}
# Default sides in pixels, by the smallest number of users that they are for.
# Cards show the side, so it must not depend on how many images users have.
_SIDES = ((100_000, 224), (10_000, 112), (0, 48))
_MAX_LENET_SIDE = 64
# Meaning of a user if the photos are listed in a table.
OWNER = "a value of the table's column user"
# Files and labels by split.
_HeldOut = dict[str, tuple[np.ndarray, np.ndarray]]
_LAYOUT = (
  "It must hold <user>/<class>/<image> or <person>/<image>; a table lists"
  f" images that lie otherwise. {task_config.advise_synthetic('photos')}"
)


def _find_place(config: task_config.PhotosConfig) -> pathlib.Path:
  """Finds the table or the folder.

  Args:
    config: Configuration of the task.

  Raises:
    FieldError: If both are given, or neither, or `data_dir` is no folder.
  """
  if config.table is not None:
    if config.data_dir is not None:
      raise errors.FieldError(
        "table",
        "not be given beside data_dir; its images lie below its own folder",
        config.table,
      )
    return pathlib.Path(config.table)
  root = config.require_data_dir("photos", _LAYOUT)
  if not root.is_dir():
    advice = _LAYOUT
    if root.suffix.lower() in (".csv", ".parquet"):
      advice = f"A table is given as table: table={root}."
    raise errors.FieldError("data_dir", "be a folder", root, advice)
  return root


def create_photos_task(config: task_config.PhotosConfig) -> task_lib.Task:
  """Creates the task of your own photos.

  A public key draws, by their names, 20 % of the classes with two images or
  more for test and 10 % for validation, at least two each; or such shares of
  the users; or the table says which images are held out.

  The first time, the task reads the beginning of each file. If bad examples
  are skipped, it decodes each file.

  Privacy:
    Unit: a user, with all images that the list gives to them; copies of these
      in the places of others are these others'.
    Neighbouring relation: the images in the place of one user are gone; the
      list stays and is taken to be public: who the users are, which classes
      there are, who has an image of a class that trains, and which images have
      several owners (`photo_checks.bound_contributions`). It decides the size
      of the population, of the heads and of the images, and what is left out.
    The content of the images is not public, and decides nothing for others.

  Args:
    config: The folder or the table; `image_size` depends on the number of users
      unless it is given.

  Returns:
    A task whose clients hold encoded images, which are decoded in batches. The
    default backbone is lenet for sides up to 64 pixels, else mobilenet_v2.

  Raises:
    FieldError: If there is no such folder or table, or too few users or
      classes.
    DataError: If photos cannot be used and are not to be skipped.
  """
  config.choose_variant("photos", ("all",))
  place = _find_place(config)
  bad = bad_examples.BadExamples(config.on_bad_example)
  index = photo_listing.open_index(
    place,
    config.cache,
    is_table=config.table is not None,
    hold_out=config.hold_out,
    decode_all=bad.skips,
  )
  facts = index.facts
  for where, what in facts["bad"]:
    bad.add(where, what)
  bad.check()
  side = config.image_size or _choose_side(facts["num_users"])
  image_shape = (side, side, _CHANNELS[config.color_mode or "rgb"])
  held_out = {
    "validation": index.held_out(photo_index.VALIDATION),
    "test": index.held_out(photo_index.TEST),
  }

  def load_images(split: str) -> embedding.LabelledImages:
    return _load(*held_out[split], image_shape)

  def count_images(split: str) -> int:
    if split == "train":
      return facts["num_train_photos"]
    return held_out[split][1].size

  return task_lib.Task(
    name="photos",
    user_meaning=_find_meaning(config, facts),
    train_users=population.Population(facts["num_users"]),
    create_client_dataset=index.create_dataset,
    image_shape=image_shape,
    load_images=load_images,
    split_description=_describe_splits(facts, held_out),
    default_backbone="lenet" if side <= _MAX_LENET_SIDE else "mobilenet_v2",
    decode_images=encoded_images.build_decoder(image_shape),
    bad_examples=bad,
    find_bad_examples=index.find_bad_examples,
    count_images=count_images,
    warnings=tuple(facts["warnings"]),
    class_names=_name_classes(facts, held_out),
    **facts["task"],
  )


def _choose_side(num_users: int) -> int:
  """Returns the default side of images in pixels.

  Args:
    num_users: Number of users, which is public.

  Returns:
    48, 112 from 10,000 users on, or 224 from 100,000 on.
  """
  return next(side for least, side in _SIDES if num_users >= least)


def _find_meaning(
  config: task_config.PhotosConfig, facts: dict[str, Any]
) -> str:
  """Says what a user is.

  Args:
    config: Configuration of the task.
    facts: Facts of the index of the photos.

  Returns:
    The unit of privacy, in a phrase.
  """
  if config.table is not None:
    meaning = OWNER
  elif facts["of_people"]:
    meaning = "a person with a folder of images, who is a class as well"
  else:
    meaning = "the owner of a folder of photos"
  if facts["of_several_owners"]:
    meaning += (
      ", in one place at most; images of several are kept where none of them"
      " has others"
    )
  return meaning


def _name_classes(facts: dict[str, Any], held_out: _HeldOut) -> dict[int, str]:
  """Returns the names of the held-out classes by their labels.

  Args:
    facts: Facts of the index of the photos.
    held_out: Files and labels by split.
  """
  names = {}
  for _, labels in held_out.values():
    for label in np.unique(labels).tolist():
      names[label] = facts["class_names"][label]
  return dict(sorted(names.items()))


def _describe_splits(facts: dict[str, Any], held_out: _HeldOut) -> str:
  """Says in a sentence what is held out.

  Args:
    facts: Facts of the index of the photos.
    held_out: Files and labels by split.
  """
  names = facts["class_names"]
  parts = [
    f"{facts['num_train_photos']:,} images to train on",
    f"{facts['hold_out'].replace('_', ' ')} held out",
  ]
  for split, (_, labels) in held_out.items():
    found = [names[label] for label in np.unique(labels).tolist()]
    parts.append(
      f"{split}: {labels.size:,} images of {len(found):,} of {len(names):,}"
      f" classes ({bad_examples.name_first(found)})"
    )
  return "; ".join(parts)


def _load(
  files: np.ndarray, labels: np.ndarray, image_shape: tuple[int, int, int]
) -> embedding.LabelledImages:
  """Returns held-out images, which are read and decoded when indexed.

  Args:
    files: Paths as bytes, `[n]`.
    labels: int64 `[n]`.
    image_shape: Height, width and channels to decode to.
  """
  images = encoded_images.EncodedImages(
    lambda rows: list(map(bad_examples.read_bytes, files[rows])),
    lambda row: os.fsdecode(files[row]),
    len(files),
    image_shape,
  )
  return embedding.LabelledImages(images, labels)
