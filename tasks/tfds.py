"""Images of any data set that TensorFlow Datasets has prepared.

One feature of an example says whose it is, another its class. The images are
copied once, as they are encoded, to files below the cache directory and listed
in a table: from there on they are photos of one's own, see `tasks.photos`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
import dataclasses
import functools
import hashlib
import operator
import pathlib
from typing import Any

from etils import epy

from tasks import photos
from tasks import task_config
from tff_fedemb import checks
from tff_fedemb import errors
from tff_fedemb import progress as progress_lib
from tff_fedemb import whole_files
from tff_fedemb.data import photo_index
from tff_fedemb.data import tfds_directories
from tff_fedemb.run import task as task_lib

with epy.lazy_imports():
  import pandas as pd
  import tensorflow_datasets as tfds

_IMAGE = "image"

# Names on the way to a feature, which may have slashes themselves.
_Path = tuple[str, ...]


def _list_features(features: Any, outer: _Path = ()) -> dict[str, _Path]:
  """Names on the way to each feature that holds no others, by its path."""
  found = {}
  for name, feature in features.items():
    path = (*outer, name)
    if isinstance(feature, tfds.features.FeaturesDict):
      found |= _list_features(feature, path)
    else:
      found["/".join(path)] = path
  return found


def _get(values: Any, path: _Path) -> Any:
  return functools.reduce(operator.getitem, path, values)


def _nest(values: Mapping[_Path, Any]) -> dict[str, Any]:
  """Values below each other, as their paths say."""
  nested: dict[str, Any] = {}
  for path, value in values.items():
    inner = functools.reduce(
      lambda outer, name: outer.setdefault(name, {}), path[:-1], nested
    )
    inner[path[-1]] = value
  return nested


class _DataSet:
  """A prepared data set, and which of its features are what."""

  def __init__(self, directory: pathlib.Path, config: task_config.TfdsConfig):
    self._builder = tfds.builder_from_directory(directory)
    self._features = self._builder.info.features
    # Others may be parts of these.
    self._splits = [
      s for s in photo_index.SPLITS if s in self._builder.info.splits
    ]
    if not self._splits:
      raise errors.FieldError(
        "tfds_name",
        f"be a data set with a split {', '.join(photo_index.SPLITS)}",
        f"{', '.join(self._builder.info.splits) or 'none'} in {directory}",
      )
    paths = _list_features(self._features)
    images = {
      name: path
      for name, path in paths.items()
      if isinstance(_get(self._features, path), tfds.features.Image)
    }
    if len(images) != 1 and _IMAGE not in images:
      raise errors.FieldError(
        "tfds_name",
        f"be a data set with one image an example, or one called {_IMAGE}",
        f"{', '.join(images) or 'none'} in {directory}",
      )
    self._image = images.get(_IMAGE) or next(iter(images.values()))
    scalars = {
      name: path
      for name, path in paths.items()
      if _get(self._features, path).shape == ()
    }
    user = config.tfds_user or config.tfds_label
    for field, name in (("tfds_label", config.tfds_label), ("tfds_user", user)):
      checks.check_choice(field, name, scalars)
    self._names = {"user": scalars[user], "label": scalars[config.tfds_label]}

  def _to_text(self, path: _Path, value: Any) -> str:
    """The name that a user or a class has; "" if it has none."""
    feature = _get(self._features, path)
    if isinstance(feature, tfds.features.ClassLabel):
      # Where nobody labelled an image, its number is -1.
      return feature.int2str(int(value)) if value >= 0 else ""
    if isinstance(value, bytes):
      return value.decode("utf-8", "backslashreplace")
    return str(value)

  def copy(self, folder: pathlib.Path) -> Iterator[dict[str, str]]:
    """Copies the images into a folder; yields the rows of their table."""
    paths = [self._image, *self._names.values()]
    decoding = tfds.decode.PartialDecoding(
      _nest(dict.fromkeys(paths, True)),
      decoders=_nest({self._image: tfds.decode.SkipDecoding()}),
    )
    for split in self._splits:
      (folder / split).mkdir(exist_ok=True)
      examples = self._builder.as_dataset(
        split=split, shuffle_files=False, decoders=decoding
      ).as_numpy_iterator()
      for number, example in enumerate(examples):
        image = f"{split}/{number}"
        (folder / image).write_bytes(_get(example, self._image))
        texts = {
          column: self._to_text(path, _get(example, path))
          for column, path in self._names.items()
        }
        yield {"image": image, **texts, "split": split}


def _open_table(config: task_config.TfdsConfig) -> pathlib.Path:
  """The table of the copied images; made where there is none yet."""
  directory = tfds_directories.find(
    config.tfds_name, config.data_dir, field="tfds_name"
  ).resolve()
  facts = (directory / "dataset_info.json").stat()
  identity = (
    *(directory, facts.st_size, facts.st_mtime_ns),
    *(config.tfds_user, config.tfds_label),
  )
  digest = hashlib.sha256(repr(identity).encode()).hexdigest()
  table = config.cache / f"tfds_{digest[:16]}" / "images.parquet"
  try:
    data_set = _DataSet(directory, config)
    if not table.exists():
      with whole_files.caching(table) as partial:
        rows = progress_lib.create_bar(
          f"Copying {config.tfds_name} (once)",
          unit="images",
          items=data_set.copy(table.parent),
        )
        columns = ("image", "user", "label", "split")
        pd.DataFrame(rows, columns=columns).to_parquet(partial)
  except errors.FieldError:
    raise
  # TensorFlow Datasets raises whatever comes of the part that is damaged.
  except Exception as error:
    raise errors.DataError(
      f"{directory} must be a data set that can be read, found:"
      f" {errors.first_line(error)}. Have tensorflow_datasets prepare it again."
    ) from error
  return table


def create_tfds_task(config: task_config.TfdsConfig) -> task_lib.Task:
  """Creates the task of a data set that TensorFlow Datasets has prepared.

  Its splits train, validation and test are taken together, and classes are held
  out, unless `hold_out` says something else; "split_column" keeps the splits,
  of which there must then be all three. Everything else is as of
  `photos.create_photos_task`, the privacy too.

  Args:
    config: The copy in `cache_dir` takes about as much room as the data set.

  Raises:
    FieldError: If there is no such data set or feature, or there are too few
      users or classes.
    DataError: If it cannot be read, or has images that cannot be used and are
      not to be skipped.
  """
  config.choose_variant("tfds", ("all",))
  if config.tfds_name is None:
    raise errors.FieldError(
      "tfds_name",
      "be given for task tfds, the name of a prepared data set in data_dir",
      "none",
    )
  as_photos = task_config.PhotosConfig(
    table=str(_open_table(config)),
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
  return dataclasses.replace(
    task,
    name="tfds",
    user_meaning=(
      f"a value of {config.tfds_user} in {config.tfds_name}"
      if config.tfds_user
      else f"a class of {config.tfds_name}"
    ),
    split_description=f"{config.tfds_name}; {task.split_description}",
  )
