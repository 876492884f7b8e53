"""Tests of the task of iNaturalist, on files of TFF's own writers."""

import os

import numpy as np
import pytest
import tensorflow as tf
from tensorflow_federated.python.simulation.datasets import inaturalist as tff

from tasks import inaturalist
from tasks import task_config
from tests.data import photo_files
from tests.tasks import clients
from tests.tasks.prepare import made_up

_SIDE = 12
# For each photo its observer, its cell and its class.
_TRAIN = [
  ("5", "cell9", 1202),
  ("5", "cell9", 0),
  ("5", "NA", 4),
  ("31", "cell2", 4),
  ("31", "cell2", 1),
]
_TEST = [0, 4, 1, 1202]


@pytest.fixture(name="write")
def _write(tmp_path):
  """Has TFF write the files of a split."""

  def write(split):
    images = tmp_path / "images"
    images.mkdir(exist_ok=True)
    for i in range(len(_TRAIN) + len(_TEST)):
      (images / f"{i:02}a.jpg").write_bytes(photo_files.encode(i))
    image_map = tff._generate_image_map(os.fspath(images))
    cache = os.fspath(tmp_path / "data")
    geo = split.name.lower() if split.name.startswith("GEO") else "geo_100"
    tff._create_train_data_files(
      image_map,
      cache,
      split,
      made_up.write_table(
        tmp_path / "train.csv",
        ["user_120k", geo, "image_id", "class"],
        [(u, g, f"{i:02}a", y) for i, (u, g, y) in enumerate(_TRAIN)],
      ),
    )
    tff._create_test_data_file(
      image_map,
      cache,
      split,
      made_up.write_table(
        tmp_path / "test.csv",
        ["image_id", "class"],
        [(f"{i + len(_TRAIN):02}a", y) for i, y in enumerate(_TEST)],
      ),
    )
    return tmp_path / "data" / split.name.lower()

  return write


@pytest.fixture(name="create")
def _create(tmp_path):
  return clients.creator(
    inaturalist.create_inaturalist_task, tmp_path, image_size=_SIDE
  )


@pytest.mark.parametrize("upper_case", [False, True])
def test_reads_what_tff_writes(write, create, upper_case):
  folder = write(tff.INaturalistSplit.USER_120K)
  if upper_case:
    folder.rename(folder.with_name("USER_120K"))
  task = create()
  assert task.name == "inaturalist"
  assert "observer" in task.user_meaning
  assert task.num_train_classes == 1203
  assert len(task.train_users) == 2
  (batch,) = task.create_client_dataset(tf.constant("5\n31"))
  np.testing.assert_array_equal(batch["y"], [1202, 0, 4, 4, 1])
  assert batch["x"].numpy().tolist() == [
    photo_files.encode(i) for i in range(5)
  ]
  assert task.load_images("validation").labels.tolist() == [4]
  assert task.load_images("test").labels.tolist() == [0, 1, 1202]
  assert task.load_images("test").images[:].shape == (3, _SIDE, _SIDE, 3)


@pytest.mark.parametrize(
  "split", [tff.INaturalistSplit.GEO_100, tff.INaturalistSplit.GEO_30K]
)
def test_cells_are_users_of_another_kind(write, create, split):
  write(split)
  task = create(task_variant=split.name.lower())
  assert "geographic cell" in task.user_meaning
  # TFF leaves out the photo whose cell is "NA".
  assert clients.user_ids(task) == ["cell2", "cell9"]
  (batch,) = task.create_client_dataset(tf.constant("cell9"))
  np.testing.assert_array_equal(batch["y"], [1202, 0])


def test_variants_are_those_of_tff():
  for split in tff.INaturalistSplit:
    with pytest.raises(ValueError, match="data_dir must be given"):
      inaturalist.create_inaturalist_task(
        task_config.TaskConfig(task_variant=split.name.lower())
      )
