"""Symbols of any number of users, a class each, drawn where they are needed.

A user is a number, and their one class is a symbol of pen strokes of their own,
which only they hold. TensorFlow operations in the client's own computation draw
its images (`tasks.synthetic.strokes`), the same ones in every round. This is
the setting that Xu et al. 2023 made DP-FedEmb for: as many classes as users,
and millions of both.
"""

import dataclasses
import functools

import numpy as np
import tensorflow as tf

from tasks import numbered_users
from tasks import omniglot
from tasks import task_config
from tasks.synthetic import strokes
from tff_fedemb.evaluation import embedding
from tff_fedemb.spec import task as task_lib

_HELD_OUT_SYMBOLS = 1_000
_HELD_OUT_IMAGES = 10


@functools.cache
def _draw_held_out(seed: int, split: str) -> embedding.LabelledImages:
  """Draws images of the symbols that are kept for a split.

  They are drawn once in a process.

  Args:
    seed: Seed of the population.
    split: "validation" or "test".

  Returns:
    10,000 images uint8 `[n, 28, 28, 1]` of 1,000 symbols, with labels from 0.
  """
  images = strokes.Symbols(seed).draw(
    numbered_users.held_out(split, _HELD_OUT_SYMBOLS),
    tf.fill([_HELD_OUT_SYMBOLS], _HELD_OUT_IMAGES),
  )
  labels = np.repeat(np.arange(_HELD_OUT_SYMBOLS), _HELD_OUT_IMAGES)
  return embedding.LabelledImages(images.numpy(), labels)


def create_symbols_task(config: task_config.PopulationConfig) -> task_lib.Task:
  """Creates the task of symbols.

  A user is a symbol, of which there are about eight images. Held out: 1,000
  symbols of users who never train, ten images of each, for validation, and as
  many others for test. They do not depend on the number of users. With Omniglot
  in `data_dir`, the test set is the real drawings of its test alphabets instead
  (`tasks.omniglot`).

  Args:
    config: `num_users` is the size of the population, `population_seed` says
      which one. A symbol with more than `max_images_per_user` images has the
      first ones.

  Returns:
    A task of grey images `[28, 28, 1]` with as many classes as users. No image
    is stored.

  Raises:
    FieldError: If there are options that only other tasks have, or there is no
      Omniglot in `data_dir`.
  """
  config.choose_variant("symbols", ("all",))
  config.check_no_photo_options("symbols", strokes.SIDE)
  symbols = strokes.Symbols(config.population_seed)

  def draw(users: tf.Tensor, counts: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    return symbols.draw(users, counts), tf.repeat(users, counts)

  task = numbered_users.create_task(
    config,
    count=symbols.count_images,
    draw=draw,
    num_held_out=_HELD_OUT_SYMBOLS * _HELD_OUT_IMAGES,
    name="symbols",
    user_meaning="a symbol",
    image_shape=(strokes.SIDE, strokes.SIDE, 1),
    num_train_classes=config.num_users,
    load_images=functools.partial(_draw_held_out, config.population_seed),
    split_description="validation and test: symbols of users who never train",
    default_backbone="strided",
    one_class_per_user=True,
  )
  return task if config.data_dir is None else _test_on_omniglot(task, config)


def _test_on_omniglot(
  task: task_lib.Task, config: task_config.PopulationConfig
) -> task_lib.Task:
  """Replaces the test set by the test alphabets of Omniglot in `data_dir`.

  Args:
    task: The task of symbols.
    config: Its configuration, with a `data_dir`.

  Raises:
    FieldError: If there is no Omniglot in it.
    DataError: If its files are damaged.
  """
  real = omniglot.create_omniglot_task(
    task_config.TaskConfig(data_dir=config.data_dir, cache_dir=config.cache_dir)
  )

  def choose(split: str) -> task_lib.Task:
    return real if split == "test" else task

  return dataclasses.replace(
    task,
    load_images=lambda split: choose(split).load_images(split),
    count_images=lambda split: choose(split).count_images(split),
    split_description=(
      "validation: symbols of users who never train; test: drawings of"
      " Omniglot's test alphabets"
    ),
  )
