"""What the tasks on photos by user have in common (GLD v2 and iNaturalist).

Hsu, Qi and Brown, "Federated Visual Classification with Real-World Data
Distribution", ECCV 2020, split both data sets by user. They are read from the
files that TFF (`tff.simulation.datasets.gldv2`, `inaturalist`) keeps of them.
"""

from collections.abc import Callable
from collections.abc import Collection
from collections.abc import Mapping
import dataclasses
import os
import pathlib

import numpy as np

from tasks import task
from tff_fedemb import errors
from tff_fedemb.data import bad_examples
from tff_fedemb.data import encoded_images
from tff_fedemb.data import population
from tff_fedemb.data import tfrecord_examples
from tff_fedemb.data import tfrecord_index
from tff_fedemb.data import tfrecord_layout
from tff_fedemb.evaluation import embedding

_DEFAULT_SIDE = 224
_CHANNELS = 3
# Of the classes of the test set, every fifth is for validation.
_VALIDATION_STRIDE, _VALIDATION_START = 5, 4
_NUM_NAMED_CLASSES = 5


@dataclasses.dataclass(frozen=True)
class Variant:
  """One of a task's data sets.

  Attributes:
    num_classes: Labels are in [0, num_classes) as it is published.
    user_meaning: As in `task.Task`.
  """

  num_classes: int
  user_meaning: str


@dataclasses.dataclass(frozen=True)
class _TestSet:
  """The images of the test file that can be used.

  Attributes:
    path: The file.
    index: What is in it.
    rows: int64 `[n]`, the records that can be used.
  """

  path: pathlib.Path
  index: tfrecord_index.RecordIndex
  rows: np.ndarray

  @property
  def labels(self) -> np.ndarray:
    """int64 `[n]`."""
    return self.index.labels[self.rows]

  def load(
    self, split: str, image_shape: tuple[int, int, int]
  ) -> embedding.LabelledImages:
    """The images of a split, which are read and decoded when indexed."""
    rows = self.rows[_is_validation(self.labels) == (split == "validation")]
    images = encoded_images.EncodedImages(
      lambda some: tfrecord_index.read_images(
        self.path, self.index, rows[some]
      ),
      lambda row: f"{self.path} record {rows[row]}",
      rows.size,
      image_shape,
    )
    return embedding.LabelledImages(images, self.index.labels[rows])


def _is_validation(labels: np.ndarray) -> np.ndarray:
  return labels % _VALIDATION_STRIDE == _VALIDATION_START


def _advice(name: str) -> str:
  return (
    f"To get the data: python -m binaries.prepare_data --task={name}; to make"
    f" synthetic data: python -m tasks.synthetic --task={name}"
    " --output_dir=DIR --num_users=60, then use data_dir=DIR."
  )


def _is_variant_folder(folder: pathlib.Path) -> bool:
  return (folder / tfrecord_layout.TRAIN_FOLDER).is_dir() and (
    folder / tfrecord_layout.TEST_FILE_NAME
  ).is_file()


def _find_folder(
  config: task.TaskConfig, name: str, variant: str, variants: Collection[str]
) -> pathlib.Path:
  """The folder of a variant: in `data_dir`, or `data_dir` itself."""
  root = config.require_data_dir(name, _advice(name))
  # TFF writes iNaturalist's folders in lower case and reads them in upper case.
  candidates = [root / variant, root / variant.upper()]
  for folder in candidates:
    if _is_variant_folder(folder):
      return folder
  # Of "." too, and not what a link leads to.
  own_name = os.path.basename(os.path.abspath(root)).lower()
  if _is_variant_folder(root) and own_name not in set(variants) - {variant}:
    if own_name != variant and config.task_variant is None:
      raise errors.FieldError(
        "task_variant",
        "be given when data_dir is itself a folder with"
        f" {tfrecord_layout.TRAIN_FOLDER}/ and"
        f" {tfrecord_layout.TEST_FILE_NAME}",
        f"{root}, whose name is none of {', '.join(variants)}",
      )
    return root
  raise errors.FieldError(
    "data_dir",
    f"hold {variant}/{tfrecord_layout.TRAIN_FOLDER}/ and"
    f" {variant}/{tfrecord_layout.TEST_FILE_NAME}",
    f"{root} without",
    _advice(name),
  )


def _find_num_classes(folder: pathlib.Path, published: int) -> int:
  """Number of classes; never by the data, which are private.

  Synthetic data, which are public, have a number of their own.
  """
  found = tfrecord_layout.read_generator(folder).get("num_classes", published)
  if type(found) is not int or found < 1:
    raise errors.DataError(
      f"{folder / tfrecord_layout.GENERATOR_FILE_NAME} must have a"
      f" num_classes of at least 1, found {found!r}."
    )
  return found


def _open_test_set(
  path: pathlib.Path,
  cache_dir: pathlib.Path,
  name: str,
  bad: bad_examples.BadExamples,
) -> _TestSet:
  index = tfrecord_index.open_index(
    # An evaluation would not get past one image that cannot be decoded.
    [path],
    cache_dir,
    name=name,
    decode_all=bad.skips,
  )
  for where, what in index.describe_faults(0, path.name):
    bad.add(where, what)
  if not index.labels.size:
    bad.add(path.name, "without a whole example")
  return _TestSet(path, index, np.flatnonzero(index.fine))


def _check_labels(
  labels: np.ndarray,
  name_of_row: Callable[[int], str],
  num_classes: int,
  variant: str,
) -> None:
  wrong = np.flatnonzero((labels < 0) | (labels >= num_classes))
  if wrong.size:
    raise errors.DataError(
      f"{name_of_row(wrong[0])} must hold classes of at least 0 and below"
      f" {num_classes}, as {variant} has, found {labels[wrong[0]]}. It may be"
      " another variant's."
    )


def _warn_of_missing_classes(
  train_classes: np.ndarray, test_classes: np.ndarray
) -> tuple[str, ...]:
  missing = np.setdiff1d(train_classes, test_classes)
  if not missing.size:
    return ()
  named = ", ".join(str(label) for label in missing[:_NUM_NAMED_CLASSES])
  more = ", ..." if missing.size > _NUM_NAMED_CLASSES else ""
  return (
    f"{missing.size} of {train_classes.size} classes of the training set have"
    " no image in the test set, so evaluations say nothing of them: class"
    f" {named}{more}.",
  )


def create_task(
  config: task.TaskConfig, *, name: str, variants: Mapping[str, Variant]
) -> task.Task:
  """Creates a task on photos by user.

  The first time, all files are read to make an index of them, which is kept in
  the cache directory: a minute or two for the 16 GB of GLD v2, then a second.
  Where bad examples are skipped, every image is also decoded once.

  Args:
    config: `data_dir` holds a folder of the variant's name, or is that folder;
      one of any other name needs `variant`. A `generator.json` in it, as
      `tasks.synthetic` writes, gives its own number of classes.
    name: The task's name.
    variants: Its data sets by name, the default first.

  Returns:
    The task.

  Raises:
    ValueError: If the variant is unknown.
    DataError: If the data are missing, or damaged and not to be skipped.
  """
  variant_name = config.choose_variant(name, tuple(variants))
  variant = variants[variant_name]
  folder = _find_folder(config, name, variant_name, variants)
  num_classes = _find_num_classes(folder, variant.num_classes)
  cache_dir = config.cache
  bad = bad_examples.BadExamples(config.on_bad_example)
  train = tfrecord_examples.TfRecordExamples(
    folder / tfrecord_layout.TRAIN_FOLDER,
    cache_dir,
    name=f"{variant_name}_{tfrecord_layout.TRAIN_FOLDER}",
    bad=bad,
  )
  test = _open_test_set(
    folder / tfrecord_layout.TEST_FILE_NAME,
    cache_dir,
    f"{variant_name}_test",
    bad,
  )
  bad.check()
  for labels, name_of_row in (
    (train.labels, train.name_of_row),
    (test.labels, lambda _: str(test.path)),
  ):
    _check_labels(labels, name_of_row, num_classes, variant_name)
  in_validation = _is_validation(test.labels)
  if in_validation.all() or not in_validation.any():
    raise errors.DataError(
      f"{test.path} must hold images for validation (class modulo"
      f" {_VALIDATION_STRIDE} is {_VALIDATION_START}) and for test (the other"
      f" classes), found classes {np.unique(test.labels).tolist()}."
    )
  side = config.image_size or _DEFAULT_SIDE
  image_shape = (side, side, _CHANNELS)
  return task.Task(
    name=name,
    user_meaning=variant.user_meaning,
    train_users=population.Population.from_ids(train.user_ids),
    create_client_dataset=train.create_dataset,
    image_shape=image_shape,
    num_train_classes=num_classes,
    load_images=lambda split: test.load(split, image_shape),
    split_description=(
      f"{variant_name}; train: {train.labels.size} images by user; held out"
      f" is the published test set, other images of the same classes;"
      f" validation: its classes whose number modulo {_VALIDATION_STRIDE}"
      f" is {_VALIDATION_START}; test: its other classes"
    ),
    default_backbone="mobilenet_v2",
    # The published test sets do not say whose images they are, so they may
    # be of users who train.
    evaluation_on_training_users=True,
    held_out_classes_are_new=False,
    decode_images=encoded_images.build_decoder(image_shape),
    bad_examples=bad,
    find_bad_examples=train.find_bad_examples,
    warnings=train.warnings
    + _warn_of_missing_classes(np.unique(train.labels), np.unique(test.labels)),
  )
