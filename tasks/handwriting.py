"""Handwriting of any number of writers, drawn where it is needed.

A user is a number. TensorFlow operations in the client's own computation draw
the client's images (`tasks.synthetic.handwriting`), the same ones in every
round. Nothing is stored, so ten million users start as fast as a thousand.
Classes are those of EMNIST by writer (`tasks.emnist`).
"""

import functools

import numpy as np
import tensorflow as tf

from tasks import emnist
from tasks import numbered_users
from tasks import task_config
from tasks.synthetic import glyphs
from tasks.synthetic import handwriting
from tff_fedemb import errors
from tff_fedemb.evaluation import embedding
from tff_fedemb.spec import task as task_lib

_SIDE = glyphs.IMAGE_SIZE
_HELD_OUT_WRITERS = 1_000
_HELD_OUT_IMAGES = 20
# Writers whose images are drawn at once.
_DRAWN = 100


@functools.cache
def _load_images(seed: int, split: str) -> embedding.LabelledImages:
  """Draws small letters of the writers who are kept for a split.

  They are drawn once in a process.

  Args:
    seed: Seed of the population.
    split: "validation" or "test".

  Returns:
    20,000 images uint8 `[n, 28, 28, 1]`, with labels in [36, 62).
  """
  writers = handwriting.Handwriting(
    seed, range(emnist.FIRST_HELD_OUT_LABEL, emnist.NUM_LABELS)
  )
  users = numbered_users.held_out(split, _HELD_OUT_WRITERS)
  counts = tf.fill([_DRAWN], _HELD_OUT_IMAGES)
  drawn = [
    writers.draw(some, counts)
    for some in tf.data.Dataset.from_tensor_slices(users).batch(_DRAWN)
  ]
  images, labels = zip(*drawn, strict=True)
  return embedding.LabelledImages(
    np.concatenate(images), np.concatenate(labels)
  )


def create_handwriting_task(
  config: task_config.PopulationConfig,
) -> task_lib.Task:
  """Creates the handwriting task.

  A user is a writer. Training: digits and upper case (36 classes). Held out:
  the 26 lower-case classes of 1,000 writers for validation and 1,000 for test,
  who never train, with 20 images each. They do not depend on the number of
  users.

  Args:
    config: `num_users` is the size of the population, `population_seed` says
      which one. A writer with more than `max_images_per_user` images has the
      first ones.

  Returns:
    A task of grey images `[28, 28, 1]` with 36 training classes. No image is
    stored.

  Raises:
    FieldError: If files are given, or options that only other tasks have.
  """
  config.choose_variant("handwriting", ("all",))
  config.check_no_photo_options("handwriting", _SIDE)
  if config.data_dir is not None:
    raise errors.FieldError(
      "data_dir",
      "not be given for task handwriting",
      repr(config.data_dir),
      "It makes its images itself.",
    )
  writers = handwriting.Handwriting(
    config.population_seed, range(emnist.FIRST_HELD_OUT_LABEL)
  )
  return numbered_users.create_task(
    config,
    count=writers.count_images,
    draw=writers.draw,
    num_held_out=_HELD_OUT_WRITERS * _HELD_OUT_IMAGES,
    name="handwriting",
    user_meaning="a writer",
    image_shape=(_SIDE, _SIDE, 1),
    num_train_classes=emnist.FIRST_HELD_OUT_LABEL,
    load_images=functools.partial(_load_images, config.population_seed),
    split_description=(
      f"{emnist.SPLIT_DESCRIPTION} of writers who never train"
    ),
    default_backbone="convnet",
    class_names=emnist.CLASS_NAMES,
  )
