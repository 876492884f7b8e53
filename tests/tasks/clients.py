"""Users, data and errors of a task, for tests."""

import os

import pytest
import tensorflow as tf

from tasks import task_config
from tff_fedemb.data import pipelines
from tff_fedemb.spec import task as task_lib


def creator(
  create_task, directory, config_class=task_config.TaskConfig, **defaults
):
  """Makes a function that creates a task of data below a directory."""

  def create(data="data", **options):
    folders = {"data_dir": directory / data, "cache_dir": directory / "cache"}
    given = {name: os.fspath(path) for name, path in folders.items()}
    return create_task(config_class(**given | defaults | options))

  return create


def user_ids(task):
  return [task.train_users.user_id(i) for i in range(len(task.train_users))]


def read_client(task, client_id):
  """Images, encoded if the task has them so, and labels of a virtual client."""
  batch = pipelines.gather(task.create_client_dataset(tf.constant(client_id)))
  return batch["x"].numpy(), batch["y"].numpy()


def check_counts(task):
  """Checks that what is counted is what is read."""
  users = [read_client(task, user_id)[1] for user_id in user_ids(task)]
  assert task.count_images("train") == sum(map(len, users))
  for split in task_lib.EVALUATION_SPLITS:
    assert task.count_images(split) == len(task.load_images(split).labels)


def read_error(create, *arguments, **options):
  """The one line of a task that cannot be created."""
  with pytest.raises(ValueError) as error:
    create(*arguments, **options)
  assert "\n" not in str(error.value)
  return str(error.value)
