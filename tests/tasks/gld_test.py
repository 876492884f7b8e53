"""Tests of the task of Google Landmarks v2, and of what tasks on photos share.

Those of iNaturalist read files of TFF's own writers.
"""

import numpy as np
import pytest
import tensorflow as tf

from tasks import gld
from tests.data import photo_files
from tests.tasks import clients
from tff_fedemb import errors
from tff_fedemb.data import population

_SIDE = 12
# Labels of each author's photos, and of the test set.
_TRAIN = {"11": [0, 4, 4, 9], "7": [1, 2, 9], "20": [3, 3]}
_TEST = [0, 4, 1, 9, 2, 4, 3]


@pytest.fixture(name="write")
def _write(tmp_path):
  """Writes the files of a variant; every other photo is grey."""

  def write(variant="gld160k", form="JPEG"):
    folder = tmp_path / "data" / variant
    photos = (
      photo_files.encode(i, form, "L" if i % 2 else "RGB") for i in range(99)
    )
    for user_id, labels in _TRAIN.items():
      photo_files.write(
        folder / "train" / user_id, [(next(photos), y) for y in labels]
      )
    photo_files.write(
      folder / "test.tfRecord", [(next(photos), y) for y in _TEST]
    )
    return folder

  return write


@pytest.fixture(name="create")
def _create(tmp_path):
  return clients.creator(gld.create_gld_task, tmp_path, image_size=_SIDE)


def _read_client(task, *users):
  """All images and labels of a virtual client."""
  client_id = population.SEPARATOR.join(users)
  contents, labels = clients.read_client(task, client_id)
  return task.decode_images(tf.constant(contents)).numpy(), labels


def _decode(task, seeds):
  contents = [
    photo_files.encode(seed, mode="L" if seed % 2 else "RGB") for seed in seeds
  ]
  return task.decode_images(tf.constant(contents)).numpy()


@pytest.mark.parametrize("variant", ["gld160k", "gld23k"])
def test_users_and_their_photos(write, create, variant):
  write(variant)
  task = create(task_variant=variant)
  assert task.name == "gld"
  assert "author" in task.user_meaning
  assert task.default_backbone == "mobilenet_v2"
  assert task.image_shape == (_SIDE, _SIDE, 3)
  assert task.num_train_classes == {"gld160k": 2028, "gld23k": 203}[variant]
  assert variant in task.split_description
  assert not task.bad_examples.lines
  assert task.warnings == ()
  assert task.evaluation_on_training_users
  assert clients.user_ids(task) == ["11", "20", "7"]
  images, labels = _read_client(task, "7", "11", "20")
  np.testing.assert_array_equal(labels, [1, 2, 9, 0, 4, 4, 9, 3, 3])
  np.testing.assert_array_equal(
    images, _decode(task, [4, 5, 6, 0, 1, 2, 3, 7, 8])
  )
  # The photos of odd numbers are grey.
  np.testing.assert_array_equal(images[1, ..., :1].repeat(3, -1), images[1])
  assert not np.array_equal(images[0, ..., 0], images[0, ..., 1])


def test_held_out_images(write, create):
  write()
  task = create()
  for split, rows in {"validation": [1, 3, 5], "test": [0, 2, 4, 6]}.items():
    held_out = task.load_images(split)
    np.testing.assert_array_equal(held_out.labels, np.array(_TEST)[rows])
    assert held_out.labels.dtype == np.int64
    np.testing.assert_array_equal(
      held_out.images[:], _decode(task, np.array(rows) + 9)
    )
    some = held_out.subsample(2)
    assert some.images[:].shape == (2, _SIDE, _SIDE, 3)
  clients.check_counts(task)


def test_pngs_and_224_pixels_by_default(write, create):
  write(form="PNG")
  task = create(image_size=None)
  assert not task.bad_examples.lines
  assert task.image_shape == (224, 224, 3)
  assert _read_client(task, "20")[0].shape == (2, 224, 224, 3)


def test_what_is_odd_but_not_bad_is_a_warning(write, create):
  folder = write()
  photo_files.write(folder / "train" / "single", [(photo_files.encode(50), 1)])
  photo_files.write(
    folder / "test.tfRecord",
    [(photo_files.encode(i), label) for i, label in enumerate([0, 4, 1])],
  )
  task = create()
  assert not task.bad_examples.lines
  assert task.warnings == (
    "1 of 4 users have one image only, with nothing to compare it with:"
    " train/single.",
    "3 of 6 classes of the training set have no image in the test set, so"
    " evaluations say nothing of them: 2, 3, 9.",
  )
  assert _read_client(task, "single")[1].tolist() == [1]


def test_synthetic_data_say_their_number_of_classes(write, create):
  path = write() / "generator.json"
  for text, number in (('{"num_classes": 10}', 10), ("[]", 2028)):
    path.write_text(text)
    assert create().num_train_classes == number


class TestBadInput:
  def _damage(self, folder):
    train, whole = folder / "train", photo_files.encode(50)
    photo_files.cut(train / "11")
    (train / "empty").write_bytes(b"")
    photo_files.write(train / "none", [(b"", 1)])
    photo_files.write(train / "single", [(whole, 1)])
    photo_files.write(train / "30", [(whole, 1), (whole[:-30], 1), (whole, 2)])
    # The last one begins and ends as a JPEG does.
    damaged = [(whole[:-30], 4), (whole[:100] + whole[-2:], 9)]
    photo_files.write(
      folder / "test.tfRecord", [(whole, y) for y in [4, 0, 1]] + damaged
    )

  def test_all_are_named_or_left_out(self, write, create):
    self._damage(write())
    message = clients.read_error(create)
    assert "found 6 bad examples: train/11: cut or damaged at byte" in message
    for part in (
      "train/30 record 1: not an image that can be decoded; ",
      "train/empty: no image; train/none record 0: not an image",
      "train/none: no image; and 1 more. on_bad_example=skip",
    ):
      assert part in message
    task = create(on_bad_example="skip")
    assert len(task.bad_examples) == 7
    assert task.bad_examples.lines[2:5] == (
      "train/empty: no image",
      "train/none record 0: not an image that can be decoded",
      "train/none: no image",
    )
    assert "1 of 7 users have one image only" in task.warnings[0]
    assert task.bad_examples.lines[-1] == (
      "test.tfRecord record 4: not an image that can be decoded"
    )
    users = ["11", "20", "30", "7", "empty", "none", "single"]
    assert clients.user_ids(task) == users
    labels = _read_client(task, "single", "30", "empty", "none", "11", "7")[1]
    assert labels.tolist() == [1, 1, 2, 0, 4, 4, 1, 2, 9]
    assert task.load_images("validation").labels.tolist() == [4]
    assert task.load_images("validation").images[:].shape[0] == 1
    assert task.load_images("test").labels.tolist() == [0, 1]
    assert task.find_bad_examples("11\n30\n7") == []

  def test_a_broken_test_image_is_named_when_it_is_needed(self, write, create):
    folder, whole = write(), photo_files.encode(50)
    photo_files.write(
      folder / "test.tfRecord",
      [(whole, 4), (whole, 0), (whole[:100] + whole[-2:], 9)],
    )
    images = create().load_images("validation").images
    message = r"test.tfRecord record 2 must be .* on_bad_example=skip"
    with pytest.raises(errors.DataError, match=message):
      images[:]

  @pytest.mark.parametrize(
    ("name", "label", "message"),
    [
      ("train/11", -1, "11 must hold .* below 203, as gld23k .*found -1"),
      ("test.tfRecord", 203, "d must hold .* below 203, as gld23k .*found 203"),
      ("test.tfRecord", 4, r"for validation .*found classes \[4\]"),
    ],
  )
  def test_labels_that_are_refused(self, write, create, name, label, message):
    photo_files.write(
      write("gld23k") / name, [(photo_files.encode(0), label)] * 2
    )
    with pytest.raises(errors.DataError, match=message):
      create(task_variant="gld23k")


def test_what_is_missing_is_told(write, create):
  write("gld23k")
  (write() / "test.tfRecord").unlink()
  text = clients.read_error(create)
  assert "hold gld160k/train/ and gld160k/test.tfRecord" in text
  assert "python -m binaries.prepare_data --task=gld" in text
  assert "synthetic --task=gld --output_dir=DIR --num_users=60" in text
  text = clients.read_error(create, task_variant="gld1k")
  assert "one of gld160k, gld23k for task gld, found 'gld1k'" in text
