"""Common code of the tasks on photos by user.

Hsu, Qi and Brown, "Federated Visual Classification with Real-World Data
Distribution", ECCV 2020, split Google Landmarks v2 and iNaturalist 2017 by
user. They are read from the files that TFF (`tff.simulation.datasets.gldv2`,
`inaturalist`) keeps of them; DigiFace is prepared to such files.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
import pathlib
from typing import Any

from etils import epy
import numpy as np

from tasks import task_config
from tff_fedemb import errors
from tff_fedemb.data import bad_examples
from tff_fedemb.data import population
from tff_fedemb.data import tfrecord_files
from tff_fedemb.spec import task as task_lib

with epy.lazy_imports():
  from tff_fedemb.data import encoded_images
  from tff_fedemb.data import tfrecord_examples
  from tff_fedemb.data import tfrecord_index
  from tff_fedemb.evaluation import embedding

_DEFAULT_SIDE = 224
_CHANNELS = 3
_FILES = (f"{tfrecord_files.TRAIN_FOLDER}/", tfrecord_files.TEST_FILE_NAME)


class Photos:
  """The users' photos of a variant, and those of its test file.

  Attributes:
    train: The users who train, and their photos.
    test_path: The test file.
    splits: Rows of the test file's index, by split: "validation" and "test".
    bad: Bad examples, which are left out.
  """

  def __init__(
    self,
    folder: pathlib.Path,
    config: task_config.TaskConfig,
    *,
    name: str,
    is_validation: Callable[[np.ndarray], np.ndarray],
  ):
    """Opens the files of a variant.

    The first time, all files are read to make an index of them, which is kept
    in the cache directory: a minute or two for the 16 GB of GLD v2, then a
    second. Where bad examples are skipped, every image is also decoded once.

    Args:
      folder: Folder with `train/<user id>` and `test.tfRecord`.
      config: The task's.
      name: Beginning of the names of the indices.
      is_validation: Maps labels of the test file, int64 `[n]`, to whether they
        are for validation; the others are for test.

    Raises:
      DataError: If the files are damaged and that is not to be skipped.
    """
    bad = bad_examples.BadExamples(config.on_bad_example)
    self.bad = bad
    self.train = tfrecord_examples.TfRecordExamples(
      folder / tfrecord_files.TRAIN_FOLDER,
      config.cache,
      name=f"{name}_{tfrecord_files.TRAIN_FOLDER}",
      bad=bad,
    )
    self.test_path = path = folder / tfrecord_files.TEST_FILE_NAME
    # Decode all images if bad ones are skipped: an evaluation would fail at an
    # image that cannot be decoded.
    index = tfrecord_index.open_index(
      [path], config.cache, name=f"{name}_test", decode_all=bad.skips
    )
    for where, what in tfrecord_index.describe_faults(index, path.name):
      bad.add(where, what)
    if not (index["record"] >= 0).any():
      bad.add(path.name, "without a whole example")
    bad.check()
    fine = index[index["fault"].isna()]
    chosen = is_validation(fine["label"].to_numpy())
    self.splits = {"validation": fine[chosen], "test": fine[~chosen]}

  def held_out_labels(self, *splits: str) -> np.ndarray:
    """Returns the labels of all images of some splits, int64 `[n]`.

    Args:
      *splits: "validation" or "test"; their labels follow one another.
    """
    return np.concatenate([self.splits[split]["label"] for split in splits])

  def _load(
    self, split: str, image_shape: tuple[int, int, int]
  ) -> embedding.LabelledImages:
    """Returns images of a split, which are read and decoded when indexed.

    Args:
      split: "validation" or "test".
      image_shape: Height, width and channels to decode to.
    """
    rows = self.splits[split]
    images = encoded_images.EncodedImages(
      lambda some: tfrecord_index.read_images(self.test_path, rows.iloc[some]),
      lambda row: f"{self.test_path} record {rows['record'].iloc[row]}",
      len(rows),
      image_shape,
    )
    return embedding.LabelledImages(images, self.held_out_labels(split))

  def create_task(
    self, *, side: int, user_ids: Sequence[str], **facts: Any
  ) -> task_lib.Task:
    """Creates the task on these photos.

    Args:
      side: Side of the images in pixels.
      user_ids: The users, in the order of their slots.
      **facts: Other fields of the task.

    Returns:
      A task of colour images, which clients hold encoded.
    """
    image_shape = (side, side, _CHANNELS)

    def count_images(split: str) -> int:
      if split == "train":
        return len(self.train.labels)
      return len(self.splits[split])

    return task_lib.Task(
      train_users=population.Population.from_ids(user_ids),
      create_client_dataset=self.train.create_dataset,
      image_shape=image_shape,
      load_images=lambda split: self._load(split, image_shape),
      decode_images=encoded_images.build_decoder(image_shape),
      bad_examples=self.bad,
      find_bad_examples=self.train.find_bad_examples,
      count_images=count_images,
      **facts,
    )


def find_folder(
  config: task_config.TaskConfig, variant: str
) -> pathlib.Path | None:
  """Finds the folder of a variant in `data_dir`; None if it is not there.

  Args:
    config: The task's, with a `data_dir`.
    variant: Name of the folder, in lower or upper case.

  Returns:
    The folder, which has `train/` and `test.tfRecord`.
  """
  # TFF writes iNaturalist's folders in lower case and reads them in upper case.
  for name in (variant, variant.upper()):
    folder = pathlib.Path(config.data_dir or "", name)
    train, test = (folder / part for part in _FILES)
    if train.is_dir() and test.is_file():
      return folder
  return None


def _require_folder(
  config: task_config.TaskConfig, name: str, variant: str
) -> pathlib.Path:
  """Finds the folder of a variant; says how to get it if it is not there.

  Args:
    config: Configuration of the task.
    name: Name of the task.
    variant: Name of the folder.

  Raises:
    FieldError: If there is no such folder.
  """
  advice = (
    f"{task_config.advise_preparation(name)}"
    f" {task_config.advise_synthetic(name, num_users=60)}"
  )
  root = config.require_data_dir(name, advice)
  folder = find_folder(config, variant)
  if folder is None:
    parts = [f"{variant}/{part}" for part in _FILES]
    must = f"hold {' and '.join(parts)}"
    raise errors.FieldError("data_dir", must, f"{root} without", advice)
  return folder


def _find_num_classes(folder: pathlib.Path, published: int) -> int:
  """Returns the number of classes; it never depends on the private data.

  Synthetic data, which are public, have a number of their own.

  Args:
    folder: Folder of the variant.
    published: Number of classes of the published data.
  """
  path = folder / tfrecord_files.GENERATOR_FILE_NAME
  return int(tfrecord_files.read_json(path).get("num_classes", published))


def _check_labels(photos: Photos, variant: str, num_classes: int) -> None:
  """Refuses labels of another variant, and a split without images.

  Args:
    photos: The photos.
    variant: Name of the variant, for the error.
    num_classes: Number of its classes.

  Raises:
    DataError: If a label is not in [0, num_classes), or a split is empty.
  """
  test_labels = photos.held_out_labels("validation", "test")
  for labels, name_of_row in (
    (photos.train.labels, photos.train.name_of_row),
    (test_labels, lambda _: str(photos.test_path)),
  ):
    wrong = np.flatnonzero((labels < 0) | (labels >= num_classes))
    if wrong.size:
      row = wrong[0]
      raise errors.DataError(
        f"{name_of_row(row)} must hold classes below {num_classes}, as"
        f" {variant} has, found {labels[row]}."
      )
  if not all(map(len, photos.splits.values())):
    raise errors.DataError(
      f"{photos.test_path} must hold images for validation (class modulo 5 is"
      f" 4) and for test, found classes {np.unique(test_labels).tolist()}."
    )


def create_task(
  config: task_config.TaskConfig,
  *,
  name: str,
  variants: Mapping[str, tuple[int, str]],
) -> task_lib.Task:
  """Creates a task on photos whose users and held-out images share classes.

  The published test set is held out: other images of the same classes. Classes
  whose number modulo 5 is 4 are for validation, the others for test.

  Args:
    config: `data_dir` holds a folder of the variant's name (in lower or upper
      case) with `train/<user id>` and `test.tfRecord`. A `generator.json` in
      it, as `tasks.synthetic` writes, gives its own number of classes.
      `image_size` is 224 by default.
    name: The task's name.
    variants: Its data sets by name, the default first: the number of classes as
      it is published, and what a user is.

  Returns:
    A task of colour images `[side, side, 3]`, whose held-out images may be of
    users who train. The default backbone is mobilenet_v2.

  Raises:
    FieldError: If the files are not there.
    DataError: If they are damaged and that is not to be skipped, or are those
      of another variant.
  """
  variant = config.choose_variant(name, tuple(variants))
  folder = _require_folder(config, name, variant)
  published, user_meaning = variants[variant]
  num_classes = _find_num_classes(folder, published)
  photos = Photos(
    folder,
    config,
    name=variant,
    is_validation=lambda labels: labels % 5 == 4,
  )
  _check_labels(photos, variant, num_classes)
  train = photos.train
  classes = np.unique(train.labels)
  missing = np.setdiff1d(classes, photos.held_out_labels("validation", "test"))
  warnings = bad_examples.warn_of(
    f"{missing.size} of {classes.size} classes of the training set have no"
    " image in the test set, so evaluations say nothing of them",
    missing,
  )
  return photos.create_task(
    side=config.image_size or _DEFAULT_SIDE,
    user_ids=train.user_ids,
    warnings=train.warnings + warnings,
    name=name,
    user_meaning=user_meaning,
    num_train_classes=num_classes,
    split_description=(
      f"{variant}; train: {train.labels.size} images by user; held out is the"
      " published test set, other images of the same classes; validation: its"
      " classes whose number modulo 5 is 4; test: its other classes"
    ),
    default_backbone="mobilenet_v2",
    # The published test sets do not say whose images they are, so they may
    # be of users who train.
    evaluation_on_training_users=True,
    held_out_classes_are_new=False,
  )
