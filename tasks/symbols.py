"""Symbols of any number of users, a class each, drawn where they are needed.

A user is a number, and their one class is a symbol of pen strokes of their own,
which only they hold. TensorFlow operations in the client's own computation draw
its images (`tasks.synthetic.strokes`), the same ones in every round. This is
the setting that Xu et al. 2023 made DP-FedEmb for: as many classes as users,
and millions of both.
"""

import collections
import functools

import numpy as np
import tensorflow as tf

from tasks import numbered_users
from tasks import omniglot
from tasks import task_config
from tasks.synthetic import strokes
from tff_fedemb.data import population
from tff_fedemb.evaluation import embedding
from tff_fedemb.spec import task as task_lib

_HELD_OUT_SYMBOLS = 1_000
_HELD_OUT_IMAGES = 10


@functools.cache
def _draw_held_out(seed: int, split: str) -> embedding.LabelledImages:
  """Images of the symbols that are kept for a split."""
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
  many others for test, the same ones whatever the number of users. With
  Omniglot in `data_dir`, the test set is the real drawings of its test
  alphabets instead (`tasks.omniglot`).

  Args:
    config: `num_users` is the size of the population, `population_seed` says
      which one, and `max_images_per_user` cuts off those who have more images.

  Raises:
    FieldError: If there are options that other tasks have.
  """
  config.choose_variant("symbols", ("all",))
  config.check_no_photo_options("symbols", strokes.SIDE)
  num_users = config.num_users
  seed = config.population_seed
  symbols = strokes.Symbols(seed)
  real = None
  if config.data_dir is not None:
    real = omniglot.create_omniglot_task(
      task_config.TaskConfig(
        data_dir=config.data_dir, cache_dir=config.cache_dir
      )
    )

  def count(users):
    return symbols.count_images(users, config.max_images_per_user)

  def create_client_dataset(client_id):
    # Pinned to the CPU: the work is small.
    with tf.device("/CPU:0"):
      users = numbered_users.parse(client_id)
      counts = count(users)
      images = symbols.draw(users, counts)
      labels = tf.repeat(users, counts)
    return tf.data.Dataset.from_tensors(
      collections.OrderedDict(x=images, y=labels)
    )

  def load_images(split):
    if split == "test" and real is not None:
      return real.load_images(split)
    return _draw_held_out(seed, split)

  def count_images(split):
    if split == "train":
      return numbered_users.count_images(count, num_users)
    if split == "test" and real is not None:
      return real.count_images(split)
    return _HELD_OUT_SYMBOLS * _HELD_OUT_IMAGES

  held_out = "validation and test: symbols of users who never train"
  if real is not None:
    held_out = (
      "validation: symbols of users who never train; test: drawings of"
      " Omniglot's test alphabets"
    )
  return task_lib.Task(
    name="symbols",
    user_meaning="a symbol",
    train_users=population.Population(num_users),
    create_client_dataset=create_client_dataset,
    image_shape=(strokes.SIDE, strokes.SIDE, 1),
    num_train_classes=num_users,
    load_images=load_images,
    count_images=count_images,
    split_description=held_out,
    default_backbone="strided",
    evaluation_on_training_users=False,
    one_class_per_user=True,
  )
