"""Tests of the DigiFace task on files that are prepared from every layout."""

import io

import numpy as np
from PIL import Image
import pytest

from tasks import digiface
from tasks.prepare import digiface as preparation
from tasks.prepare import output
from tests.tasks import clients
from tests.tasks import faces

_CONTENTS = faces.create_contents()
_TRAIN = [s for s in range(8) if preparation.split_of_subject(s) == "train"]


@pytest.fixture
def create(tmp_path):
  return clients.creator(digiface.create_digiface_task, tmp_path)


@pytest.fixture
def prepare(tmp_path):
  """Prepares what lies in a folder, without what is bad."""

  def run(folder, variant=None):
    for job in preparation.create_jobs(folder, variant):
      output.Preparation(job, tmp_path / "data", "skip").run()

  return run


def _decode(content):
  return np.asarray(Image.open(io.BytesIO(content)))


@pytest.mark.parametrize(
  ("write", "variant"),
  [
    (faces.write_subjects, "all"),
    (faces.write_mixture, "5_images"),
    (faces.write_zips, "all"),
  ],
)
def test_every_layout_gives_the_same_users_and_images(
  tmp_path, create, prepare, write, variant
):
  write(tmp_path / "source", _CONTENTS)
  prepare(tmp_path / "source", variant)
  task = create(task_variant=variant)
  subjects = sorted(faces.SUBJECTS.get(variant, _CONTENTS))
  by_split = {
    split: [s for s in subjects if preparation.split_of_subject(s) == split]
    for split in preparation.SPLITS
  }
  assert clients.user_ids(task) == [str(s) for s in by_split["train"]]
  assert task.num_train_classes == len(by_split["train"])
  for label, subject in enumerate(by_split["train"]):
    images, labels = clients.read_client(task, str(subject))
    assert images.tolist() == _CONTENTS[subject]
    assert labels.tolist() == [label] * len(images)
  for split in ("validation", "test"):
    held_out = task.load_images(split)
    np.testing.assert_array_equal(
      held_out.labels, np.repeat(by_split[split], faces.IMAGES)
    )
    np.testing.assert_array_equal(
      held_out.images[:],
      [_decode(c) for subject in by_split[split] for c in _CONTENTS[subject]],
    )
  assert not task.bad_examples.lines
  assert task.warnings == ()
  assert task.image_shape == (112, 112, 3)
  assert task.one_class_per_user and task.held_out_classes_are_new
  assert not task.evaluation_on_training_users
  assert f"{len(by_split['train'])} for training" in task.split_description


class TestBadExamples:
  def _check_clients(self, task, kept):
    """Checks all users, of whom the first has some images."""
    assert clients.user_ids(task) == [str(subject) for subject in _TRAIN]
    for label, subject in enumerate(_TRAIN):
      rows = range(faces.IMAGES) if label else kept
      images, labels = clients.read_client(task, str(subject))
      assert images.tolist() == [_CONTENTS[subject][row] for row in rows]
      assert labels.tolist() == [label] * len(rows)
    everybody = task.train_users.client_id(range(4))
    labels = [0] * len(kept) + [1] * 3 + [2] * 3 + [3] * 3
    assert clients.read_client(task, everybody)[1].tolist() == labels
    assert task.find_bad_examples(everybody) == []

  def test_one_that_cannot_be_decoded(self, tmp_path, create, prepare):
    damage = {"0/1.png": b"no image"}
    faces.write_folders(tmp_path / "zips", _CONTENTS, range(8), damage=damage)
    prepare(tmp_path / "zips")
    assert "train/0 record 1: not an image" in clients.read_error(create)
    task = create(on_bad_example="skip")
    assert len(task.bad_examples) == 1
    self._check_clients(task, (0, 2))

  def test_one_image_is_enough(self, tmp_path, create, prepare):
    damage = {f"{s}/{k}.png": None for s in (0, 2) for k in (1, 2)}
    faces.write_zips(tmp_path / "zips", _CONTENTS, damage=damage)
    prepare(tmp_path / "zips")
    task = create()
    assert not task.bad_examples.lines
    assert task.warnings[0].startswith("1 of 4 users have one image only")
    assert task.warnings[1:] == (
      "1 of the identities held out have one image only: 2.",
    )
    self._check_clients(task, (0,))
    assert np.sum(task.load_images("test").labels == 2) == 1

  def test_a_foreign_file(self, tmp_path, create, prepare):
    faces.write_folders(tmp_path / "zips", _CONTENTS, range(8))
    prepare(tmp_path / "zips")
    foreign = tmp_path / "data" / "72_images" / "train" / "notes.txt"
    foreign.write_text("not a face")
    assert "train/notes.txt: cut or damaged at" in clients.read_error(create)
    task = create(on_bad_example="skip")
    # It comes last, as a user without images.
    *user_ids, last = clients.user_ids(task)
    assert user_ids == [str(subject) for subject in _TRAIN]
    assert clients.read_client(task, last)[1].size == 0
    labels = clients.read_client(task, "\n".join([*user_ids, last]))[1]
    assert labels.tolist() == np.repeat(range(4), faces.IMAGES).tolist()

  def test_too_few_are_left(self, tmp_path, create, prepare):
    # Both identities for test.
    damage = {f"{s}/{k}.png": b"?" for s in (2, 6) for k in range(faces.IMAGES)}
    faces.write_zips(tmp_path / "zips", _CONTENTS, damage=damage)
    prepare(tmp_path / "zips", "72_images")
    assert "found 0 for test" in clients.read_error(
      create, on_bad_example="skip"
    )


def test_missing_data_are_told(tmp_path, create, prepare):
  text = clients.read_error(create)
  assert text.startswith("data_dir must hold prepared images, 72_images or 5_i")
  assert "python -m binaries.prepare_data --task=digiface" in text
  text = clients.read_error(create, task_variant="99_images")
  assert text.startswith("task_variant must be one of 72_images, 5_images, all")
  (tmp_path / "zips").mkdir()
  with pytest.raises(ValueError, match=r"github.com/microsoft/DigiFace1M"):
    prepare(tmp_path / "zips")
  faces.write_folders(tmp_path / "zips", _CONTENTS, [0, 1, 2])
  with pytest.raises(ValueError, match="hold DigiFace images of 5_images"):
    prepare(tmp_path / "zips", "5_images")
  with pytest.raises(ValueError, match="source_dir must hold 2 identities or"):
    prepare(tmp_path / "zips")
  # The data that exist are the default.
  faces.write_folders(tmp_path / "few", _CONTENTS, range(100_000, 100_008))
  prepare(tmp_path / "few")
  assert "5_images" in create().split_description
