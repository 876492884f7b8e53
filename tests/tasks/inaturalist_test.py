"""Tests of the task of iNaturalist, on files that are what TFF writes.

`prepare/photo_jobs_test.py` compares these files with those of TFF's writers.
"""

import numpy as np
import pytest
import tensorflow as tf
from tensorflow_federated.python.simulation.datasets import inaturalist as tff

from tasks import inaturalist
from tasks import task_config
from tasks.prepare import photo_jobs
from tests.data import photo_files
from tests.tasks import clients
from tests.tasks.prepare import made_up

_SIDE = 12


@pytest.fixture(name="prepare")
def _prepare(tmp_path, monkeypatch):
  """Prepares the files of a variant, and returns their folder."""

  monkeypatch.setattr(photo_jobs, "KNOWN_MD5", {})

  def prepare(variant):
    made_up.write_inaturalist(tmp_path / "source")
    made_up.prepare_inaturalist(tmp_path / "source", tmp_path / "data", variant)
    return tmp_path / "data" / variant

  return prepare


@pytest.fixture(name="create")
def _create(tmp_path):
  return clients.creator(
    inaturalist.create_inaturalist_task, tmp_path, image_size=_SIDE
  )


# TFF looks for its folders in upper case.
@pytest.mark.parametrize("upper_case", [False, True])
def test_observers_are_users(prepare, create, upper_case):
  folder = prepare("user_120k")
  if upper_case:
    folder.rename(folder.with_name("USER_120K"))
  task = create()
  assert task.name == "inaturalist"
  assert "observer" in task.user_meaning
  assert task.num_train_classes == 1203
  assert len(task.train_users) == 2
  (batch,) = task.create_client_dataset(tf.constant("o2\no1"))
  np.testing.assert_array_equal(batch["y"], [4, 0, 3, 3])
  assert batch["x"].numpy().tolist() == [
    photo_files.encode(image_id) for image_id in ("b2", "d4", "a1", "c3")
  ]
  assert task.load_images("validation").labels.tolist() == [4]
  assert task.load_images("test").labels.tolist() == [3]
  assert task.load_images("test").images[:].shape == (1, _SIDE, _SIDE, 3)


def test_cells_are_users_of_another_kind(prepare, create):
  prepare("geo_1k")
  task = create(task_variant="geo_1k")
  assert "geographic cell" in task.user_meaning
  # The photo whose cell is "NA" is left out.
  assert clients.user_ids(task) == ["g5", "g6"]
  assert clients.read_client(task, "g5")[1].tolist() == [3, 3]


def test_variants_are_those_of_tff():
  for split in tff.INaturalistSplit:
    with pytest.raises(ValueError, match="data_dir must be given"):
      inaturalist.create_inaturalist_task(
        task_config.TaskConfig(task_variant=split.name.lower())
      )
