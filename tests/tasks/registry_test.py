"""Tests of the registry of tasks, and of what every task must be."""

import collections
import pathlib

import numpy as np
import pytest
import tensorflow as tf

from tasks import registry
from tasks import task as task_lib
from tff_fedemb.data import population
from tff_fedemb.evaluation import embedding


def test_every_task_file_is_registered():
  files = pathlib.Path(registry.__file__).parent.glob("[!_]*.py")
  assert {path.stem for path in files} - {"registry", "task"} == set(
      registry.TASKS
  )


def test_unknown_task_is_refused():
  with pytest.raises(ValueError, match=r"task must be one of .* found 'mnist'"):
    registry.create_task("mnist", task_lib.TaskConfig())


@pytest.mark.parametrize("name", sorted(registry.TASKS))
def test_missing_data_are_said_in_one_line(name, tmp_path):
  config = task_lib.TaskConfig(str(tmp_path / "missing"), str(tmp_path / "c"))
  with pytest.raises(ValueError, match="--data_dir") as error:
    registry.create_task(name, config)
  assert "python -m tasks.synthetic --task=emnist" in str(error.value)
  assert str(tmp_path / "missing") in str(error.value)
  assert "\n" not in str(error.value)
  assert not list(tmp_path.iterdir())


def test_default_cache_dir_follows_the_environment(monkeypatch):
  monkeypatch.setenv("XDG_CACHE_HOME", "/somewhere")
  assert task_lib.default_cache_dir() == "/somewhere/tff_fedemb"
  monkeypatch.delenv("XDG_CACHE_HOME")
  monkeypatch.setenv("HOME", "/home/ann")
  assert task_lib.default_cache_dir() == "/home/ann/.cache/tff_fedemb"


def _create_client_dataset(client_id, *, dtype=tf.uint8):
  size = tf.strings.length(client_id)
  return tf.data.Dataset.from_tensors(
      collections.OrderedDict(
          x=tf.zeros([size, 4, 5, 1], dtype), y=tf.zeros([size], tf.int64)
      )
  )


def _create_task(**changes):
  return task_lib.Task(**{
      "name": "tiny",
      "user_meaning": "nobody",
      "train_users": population.Population(3),
      "create_client_dataset": _create_client_dataset,
      "image_shape": (4, 5, 1),
      "num_train_classes": 2,
      "load_images": lambda split: embedding.LabelledImages(
          np.zeros([1, 4, 5, 1], np.uint8), np.zeros([1], np.int64)
      ),
      "split_description": "none",
      **changes,
  })


class TestTask:
  def test_data_set_computation_has_the_example_type(self):
    task = _create_task()
    computation = task.build_dataset_computation()
    assert computation.type_signature.result == task.example_type
    assert str(computation.type_signature.parameter) == "str"

  @pytest.mark.parametrize(
      ("changes", "message"),
      [
          ({"image_shape": (4, 5)}, "image_shape must be three positive"),
          ({"image_shape": (4, 5, 0)}, "image_shape must be three positive"),
          ({"num_train_classes": 0}, "num_train_classes must be at least 1"),
          ({"image_shape": (5, 4, 1)}, "create_client_dataset must yield"),
          (
              {
                  "create_client_dataset": lambda client_id: (
                      _create_client_dataset(client_id, dtype=tf.float32)
                  )
              },
              "create_client_dataset must yield",
          ),
          (
              {"create_client_dataset": lambda _: tf.data.Dataset.range(3)},
              "create_client_dataset must yield",
          ),
      ],
  )
  def test_what_does_not_fit_is_refused(self, changes, message):
    with pytest.raises(ValueError, match=message):
      _create_task(**changes)
