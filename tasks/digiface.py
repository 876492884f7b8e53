"""DigiFace-1M: rendered faces, one user per identity.

Bae et al., "DigiFace-1M: 1 Million Digital Face Images for Face Recognition",
WACV 2023: 10,000 identities with 72 images each and 100,000 with 5, 112 x 112
in colour. A benchmark of Xu et al., "Learning to Generate Image Embeddings with
User-level Differential Privacy", CVPR 2023, where a user is an identity.

Reads what `python -m binaries.prepare_data` writes, see `prepare.digiface`; of
the publishers' zips or unpacked folders a copy of that kind is made in the
cache directory.
"""

import contextlib
import hashlib
import pathlib
import sys

import numpy as np

from tasks import task_config
from tasks import user_photos
from tasks.prepare import digiface as preparation
from tasks.prepare import output
from tff_fedemb import errors
from tff_fedemb.data import bad_examples
from tff_fedemb.run import task as task_lib

_SIDE = 112
_ADVICE = f"{preparation.ADVICE} {task_config.advise_synthetic('digiface')}"


def _convert(
  job: preparation.Job, config: task_config.TaskConfig
) -> pathlib.Path:
  """The copy of the publishers' files; made where there is none yet."""
  sources = repr(sorted(job.identity["sources"].items()))
  name = f"digiface_{hashlib.sha256(sources.encode()).hexdigest()[:16]}"
  folder = config.cache / name / job.variant
  if output.read_report(folder):
    return folder
  # Messages of the conversion go to standard error. The copy does not depend on
  # the policy: its report lists what was left out.
  with contextlib.redirect_stdout(sys.stderr):
    try:
      output.Preparation(job, folder.parent, "skip").run()
    except OSError as error:
      raise errors.FieldError(
        "cache_dir", "be writable", f"{config.cache}: {error}"
      ) from error
    for other in sorted(config.cache.glob("digiface_*")):
      if other != folder.parent:
        print(f"{other} is of other data or older; remove it if not needed.")
  return folder


def _find_folder(
  config: task_config.TaskConfig,
) -> tuple[pathlib.Path, str, bool]:
  """The prepared files, their variant, and whether they are the task's own."""
  config.choose_variant("digiface", preparation.VARIANTS)
  root = config.require_data_dir("digiface", _ADVICE)
  wanted = config.task_variant
  for variant in preparation.VARIANTS if wanted is None else [wanted]:
    folder = user_photos.find_folder(config, variant, preparation.VARIANTS)
    if folder is not None:
      return folder, variant, False
  job = next(
    preparation.find_jobs(root, wanted, field="data_dir", advice=_ADVICE)
  )
  return _convert(job, config), job.variant, True


def create_digiface_task(config: task_config.TaskConfig) -> task_lib.Task:
  """Creates the DigiFace task.

  A user is an identity. A fixed keyed hash of its number decides its split. No
  seed changes the split, so it is the same for everybody, and an identity keeps
  its split when you add more of the data set.

  Variants: the identities with 72 images each (the default if there are any),
  those with 5, or all.

  Args:
    config: `data_dir` with the prepared files or the publishers'; `cache_dir`
      for the copy of the latter, of about the size of the images; `image_size`
      112 unless it says otherwise. Images that cannot be decoded, and
      identities without any other, are bad examples. Users with one image are,
      too, where bad examples are skipped; else they are kept, with a warning.
  """
  folder, variant, is_copy = _find_folder(config)
  report = output.read_report(folder)
  bad = []
  if is_copy:
    bad = [line.split(": ", 1) for line in report["left_out"]]
    # Those for training have files, which are found to be empty.
    bad += [
      (name, "no image")
      for name in report["without_images"]
      if preparation.split_of_subject(int(name.rpartition("/")[2])) != "train"
    ]
  photos = user_photos.open_photos(
    folder,
    config,
    name=f"digiface_{variant}",
    is_validation=lambda subjects: np.isin(
      [preparation.split_of_subject(subject) for subject in subjects],
      "validation",
    ),
    known_bad=bad,
  )
  num_users = len(photos.train.user_ids)
  num_held_out = {
    split: np.unique(photos.held_out_labels(split)).size
    for split in photos.splits
  }
  preparation.require_identities("data_dir", num_held_out)
  subjects, counts = np.unique(
    photos.held_out_labels("validation", "test"), return_counts=True
  )
  single = subjects[counts == 1]
  return photos.create_task(
    side=config.image_size or _SIDE,
    # Labels are in the order of the users' numbers.
    user_ids=sorted(photos.train.user_ids, key=int),
    warnings=(
      *photos.train.warnings,
      *bad_examples.warn_of(
        f"{single.size} of the identities held out have one image only", single
      ),
    ),
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
