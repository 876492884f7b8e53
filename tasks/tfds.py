"""Images of any data set that TensorFlow Datasets has prepared.

One feature of an example names its user, another its class. The task copies the
images once, as they are encoded, to files below the cache directory and lists
them in a table. It then treats them like your own photos, see `tasks.photos`.
"""

from __future__ import annotations

from collections.abc import Iterator
import dataclasses
import functools
import hashlib
import operator
import pathlib
from typing import Any

from etils import epy
import numpy as np

from tasks import photos
from tasks import task_config
from tff_fedemb import checks
from tff_fedemb import errors
from tff_fedemb import progress as progress_lib
from tff_fedemb import whole_files
from tff_fedemb.data import photo_index
from tff_fedemb.data import tfds_directories
from tff_fedemb.spec import task as task_lib

with epy.lazy_imports():
  import pandas as pd
  import tensorflow_datasets as tfds

_IMAGE = "image"
# Part of a table's digest. Change this when the names of users change.
_NAMES = "quoted"


def _list_features(features: Any, *outer: str) -> dict[str, tuple[Any, ...]]:
  """Lists each feature that holds no others, and the names on the way to it.

  Args:
    features: A `FeaturesDict` of TensorFlow Datasets.
    *outer: Names of the features around it.

  Returns:
    Features and paths, by their path as one name, such as "objects/writer".
  """
  found: dict[str, tuple[Any, ...]] = {}
  for name, feature in features.items():
    path = (*outer, name)
    if isinstance(feature, tfds.features.FeaturesDict):
      found |= _list_features(feature, *path)
    else:
      found["/".join(path)] = feature, path
  return found


def _to_text(feature: Any, value: Any) -> str:
  """Returns the name of a user or a class; "" if there is none.

  Args:
    feature: The feature.
    value: Its value in an example.
  """
  if isinstance(feature, tfds.features.ClassLabel):
    # The number of an image that nobody labelled is -1.
    return feature.int2str(int(value)) if value >= 0 else ""
  if isinstance(value, bytes):
    return value.decode("utf-8", "backslashreplace")
  return str(value)


def _choose_source(info: Any, directory: pathlib.Path) -> tuple[list[str], str]:
  """Chooses the splits of a data set, and its feature of images.

  Args:
    info: Its `DatasetInfo`.
    directory: Its directory, for the error.

  Returns:
    Splits among train, validation and test; and the only feature of images, or
    the one called image.

  Raises:
    FieldError: If there is no such split, or it is unclear which feature.
  """
  images = []
  for name, feature in info.features.items():
    # The files of other types, such as float32, hold bits instead of pixels.
    is_image = isinstance(feature, tfds.features.Image)
    if is_image and feature.np_dtype in (np.uint8, np.uint16):
      images.append(name)
  # Other splits may be parts of these.
  splits = [split for split in photo_index.SPLITS if split in info.splits]
  if not splits or (len(images) != 1 and _IMAGE not in images):
    raise errors.FieldError(
      "tfds_name",
      f"be a data set with a split {', '.join(photo_index.SPLITS)} and one"
      f" image of 8 or 16 bits an example, or one called {_IMAGE}",
      f"splits {', '.join(info.splits)} and images"
      f" {', '.join(images) or 'none'} in {directory}",
    )
  return splits, _IMAGE if _IMAGE in images else images[0]


def _copy(
  directory: pathlib.Path, folder: pathlib.Path, config: task_config.TfdsConfig
) -> Iterator[dict[str, str]]:
  """Copies the images into a folder; yields the rows of their table.

  Args:
    directory: Directory of the data set.
    folder: Gets a folder for each split.
    config: Names of the features of users and classes.

  Yields:
    `image`, a path in the folder, `split`, `label` and `user`.

  Raises:
    FieldError: If the data set has no such features.
  """
  builder = tfds.builder_from_directory(directory)
  features = _list_features(builder.info.features)
  splits, image = _choose_source(builder.info, directory)
  scalars = {
    name: found for name, found in features.items() if found[0].shape == ()
  }
  chosen = {}
  decoded = {image: True}
  for field in ("label", "user"):
    name = getattr(config, f"tfds_{field}") or config.tfds_label
    checks.check_choice(f"tfds_{field}", name, scalars)
    feature, path = scalars[name]
    chosen[field] = feature, path
    decoded[path[0]] = True
  decoding = tfds.decode.PartialDecoding(
    decoded, decoders={image: tfds.decode.SkipDecoding()}
  )
  for split in splits:
    (folder / split).mkdir(exist_ok=True)
    examples = builder.as_dataset(
      split=split, shuffle_files=False, decoders=decoding
    )
    for number, example in enumerate(examples.as_numpy_iterator()):
      name = f"{split}/{number}"
      (folder / name).write_bytes(example[image])
      row = {"image": name, "split": split}
      for field, (feature, path) in chosen.items():
        value = functools.reduce(operator.getitem, path, example)
        row[field] = _to_text(feature, value)
      yield row


def _open_table(config: task_config.TfdsConfig, name: str) -> pathlib.Path:
  """Returns the table of the copied images, which is made once.

  Whether the data changed is judged by the size and time of their
  dataset_info.json, not by their content.

  Args:
    config: Place and features of the data set.
    name: Its name.

  Raises:
    FieldError: If there is no such data set or feature, or the cache cannot be
      written.
    DataError: If the data set cannot be read.
  """
  directory = tfds_directories.find(
    name, config.data_dir, field="tfds_name"
  ).resolve()
  facts = (directory / "dataset_info.json").stat()
  identity = (
    directory,
    facts.st_size,
    facts.st_mtime_ns,
    (_NAMES, config.tfds_user),
    config.tfds_label,
  )
  digest = hashlib.sha256(repr(identity).encode()).hexdigest()
  table = config.cache / f"tfds_{digest[:16]}" / "images.parquet"
  if table.exists():
    return table
  rows = progress_lib.create_bar(
    f"Copying {name} (once)",
    unit="images",
    items=_copy(directory, table.parent, config),
  )
  try:
    with whole_files.caching(table) as partial:
      copied = pd.DataFrame(rows)
      # A bar would separate two owners in the table. Percent signs are quoted
      # too, so that different names stay different users.
      users = copied["user"].str.replace("%", "%25", regex=False)
      copied["user"] = users.str.replace("|", "%7C", regex=False)
      copied.to_parquet(partial)
  except errors.FieldError:
    raise
  # TensorFlow Datasets may raise anything, depending on what is damaged.
  except Exception as error:
    raise errors.DataError(
      f"{directory} must be a data set that can be read, found:"
      f" {errors.first_line(error)}. Have tensorflow_datasets prepare it again."
    ) from error
  return table


def create_tfds_task(config: task_config.TfdsConfig) -> task_lib.Task:
  """Creates the task of a data set that TensorFlow Datasets has prepared.

  The task takes the splits train, validation and test together and holds out
  classes, unless `hold_out` says something else; "split_column" keeps the
  splits, all three of which must then be there. `photos.create_photos_task`
  describes everything else, the privacy too.

  Args:
    config: The data set, and its features. The copy in `cache_dir` takes about
      as much room as the data set.

  Returns:
    The task of photos, called tfds.

  Raises:
    FieldError: If there is no such data set or feature, or there are too few
      users or classes.
    DataError: If it cannot be read, or has images that cannot be used and are
      not to be skipped.
  """
  config.choose_variant("tfds", ("all",))
  name = config.tfds_name
  if name is None:
    raise errors.FieldError(
      "tfds_name",
      "be given for task tfds, the name of a prepared data set in data_dir",
      "none",
    )
  as_photos = task_config.PhotosConfig(
    table=str(_open_table(config, name)),
    cache_dir=config.cache_dir,
    image_size=config.image_size,
    on_bad_example=config.on_bad_example,
    hold_out=config.hold_out or "classes",
    color_mode=config.color_mode,
  )
  try:
    task = photos.create_photos_task(as_photos)
  except errors.FieldError as error:
    if error.name != "table":
      raise
    raise error.renamed("tfds_name") from error
  meaning = f"a class of {name}"
  if config.tfds_user:
    meaning = f"a value of {config.tfds_user} in {name}"
  return dataclasses.replace(
    task,
    name="tfds",
    user_meaning=task.user_meaning.replace(photos.OWNER, meaning),
    split_description=f"{name}; {task.split_description}",
  )
