"""DigiFace-1M: rendered faces, one user per identity.

Bae et al., "DigiFace-1M: 1 Million Digital Face Images for Face Recognition",
WACV 2023: 10,000 identities with 72 images each and 100,000 with 5, 112 x 112
in colour. A benchmark of Xu et al., "Learning to Generate Image Embeddings with
User-level Differential Privacy", CVPR 2023, where a user is an identity.

Reads what `python -m binaries.prepare_data` writes, see `prepare.digiface`.
"""

import pathlib

import numpy as np

from tasks import task_config
from tasks import user_photos
from tasks.prepare import digiface as preparation
from tff_fedemb import errors
from tff_fedemb.data import bad_examples
from tff_fedemb.spec import task as task_lib

_SIDE = 112
_ADVICE = (
  f"{task_config.advise_preparation('digiface')} To make synthetic images for"
  f" it: {task_config.show_command('tasks.synthetic', task='digiface')}."
)


def create_digiface_task(config: task_config.TaskConfig) -> task_lib.Task:
  """Creates the DigiFace task.

  A user is an identity. A fixed keyed hash of its number decides its split. No
  seed changes the split, so it is the same for everybody, and an identity keeps
  its split when you add more of the data set.

  Variants: the identities with 72 images each (the default if there are any),
  those with 5, or all.

  Args:
    config: `data_dir` with the prepared files; `image_size` 112 unless it says
      otherwise. Images that cannot be decoded, and identities without any
      other, are bad examples.

  Returns:
    A task of colour images `[side, side, 3]`, whose training classes are the
    training identities. The default backbone is resnet50.

  Raises:
    FieldError: If there are no prepared files, or too few identities.
    DataError: If files are damaged and that is not to be skipped.
  """
  config.choose_variant("digiface", preparation.VARIANTS)
  variant, folder = _find_folder(config)
  photos = user_photos.Photos(
    folder,
    config,
    name=f"digiface_{variant}",
    is_validation=_are_for_validation,
  )
  num_users = len(photos.train.user_ids)
  num_held_out = {}
  for split in photos.splits:
    num_held_out[split] = np.unique(photos.held_out_labels(split)).size
  preparation.require_identities("data_dir", num_held_out)
  subjects, counts = np.unique(
    photos.held_out_labels("validation", "test"), return_counts=True
  )
  single = subjects[counts == 1]
  warnings = bad_examples.warn_of(
    f"{single.size} of the identities held out have one image only", single
  )
  return photos.create_task(
    side=config.image_size or _SIDE,
    # Labels are in the order of the users' numbers.
    user_ids=sorted(photos.train.user_ids, key=lambda x: (len(x), x)),
    warnings=photos.train.warnings + warnings,
    name="digiface",
    user_meaning="an identity (a rendered person)",
    num_train_classes=num_users,
    split_description=(
      f"identities of {variant}, by a fixed keyed hash of the subject"
      f" number: {num_users} for training, {num_held_out['validation']} for"
      f" validation, {num_held_out['test']} for test"
    ),
    default_backbone="resnet50",
    one_class_per_user=True,
    # A user is an identity, and those held out are others.
    evaluation_on_training_users=False,
  )


def _find_folder(config: task_config.TaskConfig) -> tuple[str, pathlib.Path]:
  """Finds the variant asked for, or the first that is there, and its folder.

  Args:
    config: Configuration of the task.

  Raises:
    FieldError: If no directory is given, or it has no such variant.
  """
  root = config.require_data_dir("digiface", _ADVICE)
  variants: tuple[str, ...] = preparation.VARIANTS
  if config.task_variant is not None:
    variants = (config.task_variant,)
  for variant in variants:
    folder = user_photos.find_folder(config, variant)
    if folder is not None:
      return variant, folder
  must = f"hold prepared images, {' or '.join(variants)}"
  raise errors.FieldError("data_dir", must, root, _ADVICE)


def _are_for_validation(subjects: np.ndarray) -> np.ndarray:
  """Whether held-out subjects are for validation, bool `[n]`.

  Args:
    subjects: Numbers of held-out subjects, int64 `[n]`.
  """
  splits = map(preparation.split_of_subject, subjects)
  return np.array([split == "validation" for split in splits], bool)
