"""Tests of the registry of tasks, and of what every task must be."""

import os
import pathlib

import numpy as np
import pytest

from tasks import registry
from tasks import task_config
from tasks.synthetic import emnist as synthetic_emnist
from tasks.synthetic import registry as synthetic
from tests.tasks import clients
from tests.tasks import trees
from tff_fedemb import errors
from tff_fedemb.spec import task as task_lib


def test_every_task_file_is_registered():
  """A file of a task is one that has a function to create it."""
  files = pathlib.Path(registry.__file__).parent.glob("[!_]*.py")
  names = {
    path.stem
    for path in files
    if f"\ndef create_{path.stem}_task(" in path.read_text()
  }
  assert names == set(task_lib.SOURCES)


def test_a_class_derived_from_a_task_makes_it_too(monkeypatch):
  own = type("Own", (registry.Handwriting,), {})
  monkeypatch.setattr(registry, "Own", own, raising=False)
  task = task_lib.create_task("tasks.registry:Own", num_users=50).create()
  assert len(task.train_users) == 50
  with pytest.raises(errors.FieldError, match="data_dir must be"):
    task_config.PhotosConfig(data_dir="none").create()


def test_unknown_task_is_refused():
  with pytest.raises(ValueError, match=r"task must be one of .* found 'mnist'"):
    task_lib.create_task("mnist")


def test_selection_users_do_not_train(tmp_path):
  number = 2
  synthetic_emnist.write_emnist(tmp_path, num_users=4, examples_per_user=60)

  def create(**options):
    return task_lib.create_task(
      "emnist", data_dir=os.fspath(tmp_path), **options
    ).create()

  everybody, task = create(), create(selection_users=number)
  users = clients.user_ids(task)
  left_out = [u for u in clients.user_ids(everybody) if u not in users]
  assert (len(users), len(left_out)) == (4 - number, number)
  validation = task.load_images("validation")
  read = [clients.read_client(everybody, user) for user in left_out]
  np.testing.assert_array_equal(
    validation.images, np.concatenate([images for images, _ in read])
  )
  np.testing.assert_array_equal(
    validation.labels, np.concatenate([labels for _, labels in read])
  )
  clients.check_counts(task)
  # The test images are as they were, and may be of those who train.
  test = task.load_images("test")
  np.testing.assert_array_equal(
    test.labels, everybody.load_images("test").labels
  )
  assert task.evaluation_on_training_users
  assert task.selection_users == number
  assert f"validation: images of {number} users who do not train" in (
    task.split_description
  )
  assert "no guarantee covers them" in " ".join(task.describe())


def test_selection_users_of_encoded_images(tmp_path):
  trees.write_all(tmp_path)
  config = registry.Photos(
    data_dir=os.fspath(tmp_path),
    cache_dir=os.fspath(tmp_path / ".cache"),
    image_size=trees.SIDE,
    selection_users=1,
  )
  task = config.create()
  validation = task.load_images("validation")
  assert validation.labels.tolist() == [0, 0, 1, 1, 2, 2, 3, 3]
  assert validation.images[:].shape == (8, trees.SIDE, trees.SIDE, 3)
  assert len(clients.user_ids(task)) == 3


def test_somebody_has_to_train():
  def create(selection_users):
    return registry.Handwriting(num_users=4, selection_users=selection_users)

  assert len(create(3).create().train_users) == create(3).num_train_users == 1
  for number in (4, 5):
    with pytest.raises(
      errors.FieldError,
      match=rf"selection_users must be less than .* users, 4, found {number}",
    ):
      create(number)


# Handwriting has no files, and files of tfds have a test of their own.
@pytest.mark.parametrize(
  "name", sorted({*task_lib.SOURCES} - {"handwriting", "tfds"})
)
def test_missing_data_are_said_in_one_line(name, tmp_path):
  config = task_lib.create_task(
    name, data_dir=str(tmp_path / "missing"), cache_dir=str(tmp_path / "c")
  )
  with pytest.raises(ValueError, match="data_dir") as error:
    config.create()
  # The real data of task symbols are Omniglot's.
  source = "omniglot" if name == "symbols" else name
  generator = source if source in synthetic.WRITERS else "emnist"
  assert f"python -m tasks.synthetic --task={generator}" in str(error.value)
  assert str(tmp_path / "missing") in str(error.value)
  assert "\n" not in str(error.value)
  assert not list(tmp_path.iterdir())
