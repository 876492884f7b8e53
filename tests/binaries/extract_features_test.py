"""Tests of the program that extracts features, and of the labels it gives."""

import functools
import os

import numpy as np
from PIL import Image
import pytest
from sklearn import datasets
import tensorflow as tf

from tests.data import photo_files
from tests.features import extractions
from tff_fedemb.features import feature_files
from tff_fedemb.spec import task as task_lib

_check_close = functools.partial(np.testing.assert_allclose, atol=1e-6)


@pytest.fixture(name="models", scope="module")
def _models(tmp_path_factory):
  directory = tmp_path_factory.mktemp("models")
  shapes = {"emnist": (28, 28, 1), "square": (6, 6, 3)}
  return {
    name: extractions.export(directory / name, shape)
    for name, shape in shapes.items()
  }


@pytest.fixture(name="folder")
def _folder(tmp_path):
  """Three classes of 5, 2 and 1 images of one colour each."""
  for name, values in {"a": range(5), "b": (10, 11), "c": (20,)}.items():
    (tmp_path / "images" / name).mkdir(parents=True)
    for value in values:
      Image.new("RGB", (5, 5), (value, value, value)).save(
        tmp_path / "images" / name / f"{value}.png"
      )
  return tmp_path / "images"


@pytest.fixture(name="extract")
def _extract(tmp_path):
  return functools.partial(extractions.extract, tmp_path)


@pytest.fixture(name="refuse")
def _refuse(tmp_path):
  return functools.partial(extractions.check_refused, tmp_path)


def test_images_are_resized_and_their_classes_kept(extract, models, folder):
  expected = np.array([*range(5), 10, 11, 20])[:, None] / 255
  for options in ({"saved_model": models["square"]}, {"image_size": 6}):
    found, _ = extract(**options, image_folder=folder)
    assert found.labels.tolist() == [0] * 5 + [1] * 2 + [2]
    _check_close(found.features, np.tile(expected, 6 * 6 * 3))


def _create_emnist(data_dir):
  """Options for EMNIST, and the task."""
  options = {"task": "emnist", "data_dir": data_dir}
  task = task_lib.create_task("emnist", data_dir=os.fspath(data_dir))
  return options, task.create()


def test_held_out_images(extract, models, data_dir):
  options, task = _create_emnist(data_dir)
  found, _ = extract(**options, saved_model=models["emnist"])
  images = task.load_images("test")
  pixels = images.images.reshape(len(images.labels), -1)
  _check_close(found.features, pixels / 255)
  # Lower-case letters are 36, 37, ...
  classes = np.unique(images.labels)
  np.testing.assert_array_equal(classes[found.labels], images.labels)
  assert found.users is None


def test_training_images_with_their_users(extract, data_dir):
  options, task = _create_emnist(data_dir)
  options["split"] = "train"
  found, _ = extract(**options)
  users = map(task.train_users.user_id, range(len(task.train_users)))
  batches = [
    (user, batch)
    for user in users
    for batch in task.create_client_dataset(tf.constant(user))
  ]
  # Classes are numbered among those that have an image.
  classes = np.unique(np.concatenate([batch["y"] for _, batch in batches]))
  start = 0
  for user, batch in batches:
    rows = slice(start, start + len(batch["y"]))
    start = rows.stop
    assert set(found.users[rows]) <= {user}
    np.testing.assert_array_equal(classes[found.labels[rows]], batch["y"])
    pixels = batch["x"].numpy().reshape(-1, 28 * 28)
    _check_close(found.features[rows], pixels / 255)
  assert start == len(found.labels) > 60


def test_photos_are_decoded_to_the_models_size(
  extract, refuse, models, tmp_path
):
  users = {"11": [0, 4, 4], "7": [1, 2], "20": [3, 3]}
  data = tmp_path / "data" / "gld160k"
  photo_files.write_users(data / "train", users)
  photo_files.write(
    data / "test.tfRecord",
    [(photo_files.encode(i), label) for i, label in enumerate([3, 4])],
  )
  options = {"task": "gld", "data_dir": tmp_path / "data", "split": "train"}
  options["cache_dir"] = tmp_path / "cache"
  found, _ = extract(**options, saved_model=models["square"])
  assert found.users.tolist() == ["11"] * 3 + ["20"] * 2 + ["7"] * 2
  assert found.labels.tolist() == [0, 4, 4, 3, 3, 1, 2]
  features = np.array(found.features)
  # An image that begins and ends as a JPEG does, and is none.
  damaged = b"\xff\xd8\xff" + bytes(50) + b"\xff\xd9"
  photo_files.write(
    data / "train" / "20", [(photo_files.encode(0), 3), (damaged, 3)]
  )
  options["image_size"] = 6
  refuse("of user 20 must be an image ", **options)
  pixels, _ = extract(**options, on_bad_example="skip")
  # The other image of the user is the first of all.
  assert pixels.users.tolist() == ["11"] * 3 + ["20"] + ["7"] * 2
  _check_close(pixels.features, features[[0, 1, 2, 0, 5, 6]])


def test_embeddings_must_be_finite(refuse, folder, tmp_path):
  model = extractions.export(tmp_path / "model", (8, 8, 1), float("nan"))
  refuse("that are finite", image_folder=folder, saved_model=model)


def test_classes_are_drawn_and_renumbered_in_order(extract, tmp_path):
  options = {"digits": True, "num_classes": 7, "seed": 3}
  found, _ = extract(**options)
  digits = datasets.load_digits()
  label_of = {
    tuple((pixels / 16).astype(np.float32)): label
    for pixels, label in zip(digits.data, digits.target, strict=True)
  }
  old = np.array([label_of[tuple(row)] for row in found.features])
  classes = np.unique(old)
  assert len(classes) == 7
  assert classes.tolist() != list(range(7))
  np.testing.assert_array_equal(np.searchsorted(classes, old), found.labels)
  # All of a class, in the order of the source.
  all_of_them = digits.target[np.isin(digits.target, classes)]
  np.testing.assert_array_equal(old, all_of_them)
  # How many images there are changes no label.
  some, output = extract(**options, max_images=5, output=tmp_path / "some.npz")
  old = [label_of[tuple(row)] for row in some.features]
  assert classes[some.labels].tolist() == old
  missing = sorted(set(range(7)) - set(some.labels))
  assert (
    f"warning: {len(missing)} of 7 classes have no example, of labels:"
    f" {', '.join(map(str, missing[:5]))}"
  ) in output


def test_test_share_of_every_class(extract, tmp_path):
  test_path = tmp_path / "test.npz"
  train, output = extract(digits=True, test_output=test_path, test_share=0.1)
  test = feature_files.read_features(test_path)
  sizes = np.bincount(datasets.load_digits().target)
  np.testing.assert_array_equal(np.bincount(test.labels), np.rint(sizes / 10))
  assert len(train.labels) + len(test.labels) == 1797
  rows = {row.tobytes() for row in (*train.features, *test.features)}
  assert len(rows) == 1797
  assert f"o.npz: {len(train.labels):,} examples of 10 classes, 64" in output


def test_one_image_of_a_class_is_not_tested(extract, refuse, folder, tmp_path):
  options = {"image_folder": folder, "image_size": 2}
  options["test_output"] = tmp_path / "test.npz"
  for test_share, in_train, in_test in (
    (None, [4, 1, 1], [1, 1]),
    (0.99, [1, 1, 1], [4, 1]),
  ):
    train, _ = extract(**options, test_share=test_share)
    assert np.bincount(train.labels).tolist() == in_train
    test = feature_files.read_features(options["test_output"])
    assert np.bincount(test.labels).tolist() == in_test
  refuse("--test_output must be of classes of two", **options, max_images=1)
  refuse("--num_classes must be at most 3, all", **options, num_classes=4)


def test_folder_counts_sub_folders(extract, refuse, folder):
  (folder / "ab").mkdir()
  for name in ("a/0", "b/10", "b/11"):
    (folder / f"{name}.png").write_text("no picture")
  options = {"image_folder": folder, "image_size": 2}
  refuse("on_bad_example=skip", **options)
  options["on_bad_example"] = "skip"
  # a, ab, b and c.
  found, output = extract(**options)
  assert found.labels.tolist() == [0] * 4 + [3]
  assert "warning: 2 of 4 classes have no example, of labels: 1, 2" in output
  assert "warning: skipped 3 unreadable files: " in output
  for path in folder.glob("*/*.png"):
    path.write_text("no picture")
  refuse("must have one that can be read, found none of 8", **options)


@pytest.mark.parametrize(
  ("options", "message"),
  [
    ({"task": "emnist"}, "one of them, found task and digits"),
    ({"data_dir": "d"}, "--data_dir must be given with task or tfds only"),
    ({"cache_dir": "c"}, "--cache_dir must be set with task only, found c"),
    ({"embedding": None}, "--saved_model must be given, or application or emb"),
    ({"application": "m"}, "--image_size must be given with application, or "),
    ({"num_classes": 1}, "--num_classes must be an integer of at least 2, fou"),
    ({"image_size": 8}, "--image_size must be given with another source only"),
    ({"saved_model": "m", "embedding": None}, "--digits must be given with e"),
    ({"digits": None, "image_folder": "f"}, "--image_size must be given with"),
  ],
)
def test_mistakes(refuse, options, message):
  refuse(message, **{"digits": True} | options)
