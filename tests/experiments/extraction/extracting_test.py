"""Tests of the extraction of features."""

import os

import numpy as np
import pytest
from sklearn import datasets
from sklearn.metrics import pairwise
import tensorflow as tf

from tasks import registry
from tasks import task as task_lib
from tests.data import photo_files
from tests.experiments.extraction import extractions
from tff_fedemb import errors


def test_pixels_are_scikit_learns(tmp_path):
  found = extractions.extract(
    digits=True, embedding="pixels", output=tmp_path / "o.npz"
  )
  digits = datasets.load_digits()
  np.testing.assert_array_equal(
    found.features, (digits.data / 16).astype(np.float32)
  )
  np.testing.assert_array_equal(found.labels, digits.target)
  assert found.users is None


@pytest.mark.parametrize("gamma", [0.1, None])
def test_random_features_are_of_the_gaussian_kernel(tmp_path, gamma):
  num_features = 20_000
  found = extractions.extract(
    digits=True,
    embedding="random_features",
    random_features=num_features,
    gamma=gamma,
    max_images=30,
    output=tmp_path / "o.npz",
  )
  pixels = extractions.extract(
    digits=True, embedding="pixels", max_images=30, output=tmp_path / "p.npz"
  )
  assert found.features.shape == (30, num_features)
  np.testing.assert_array_equal(found.labels, pixels.labels)
  np.testing.assert_allclose(
    np.linalg.norm(found.features, axis=1), 1, atol=1e-6
  )
  kernel = pairwise.rbf_kernel(pixels.features, gamma=gamma or 16 / 64)
  # A mean of 10,000 cosines, standard deviation at most 0.01.
  np.testing.assert_allclose(
    found.features @ found.features.T, kernel, atol=0.06
  )


def test_models_take_digits_of_0_to_255(models, tmp_path):
  options = {"digits": True, "max_images": 40}
  pixels = extractions.extract(
    embedding="pixels", output=tmp_path / "p.npz", **options
  )
  found = extractions.extract(
    saved_model=models["digits"], output=tmp_path / "m.npz", **options
  )
  np.testing.assert_allclose(found.features, pixels.features, atol=0.5 / 255)
  resized = extractions.extract(
    saved_model=models["square"], output=tmp_path / "s.npz", **options
  )
  assert resized.features.shape == (40, 6 * 6 * 3)
  colours = resized.features.reshape(40, 36, 3)
  np.testing.assert_array_equal(colours[..., 0], colours[..., 2])


def test_images_are_resized_and_their_classes_kept(models, folder, tmp_path):
  found = extractions.extract(
    saved_model=models["square"],
    image_folder=folder,
    output=tmp_path / "o.npz",
  )
  assert found.labels.tolist() == [0] * 5 + [1] * 2 + [2]
  values = np.array([*range(5), 10, 11, 20])
  expected = np.tile(values[:, None] / 255, 6 * 6 * 3)
  np.testing.assert_allclose(found.features, expected, atol=1e-6)
  pixels = extractions.extract(
    embedding="pixels",
    image_size=6,
    image_folder=folder,
    output=tmp_path / "p.npz",
  )
  np.testing.assert_allclose(found.features, pixels.features, atol=1e-6)


@pytest.mark.parametrize("split", task_lib.EVALUATION_SPLITS)
def test_held_out_images(models, emnist_dir, tmp_path, split):
  found = extractions.extract(
    saved_model=models["emnist"],
    task="emnist",
    data_dir=emnist_dir,
    split=split,
    output=tmp_path / "o.npz",
  )
  images = registry.create_task(
    "emnist", task_lib.TaskConfig(os.fspath(emnist_dir))
  ).load_images(split)
  np.testing.assert_allclose(
    found.features,
    images.images.reshape(len(images.labels), -1) / 255,
    atol=1e-6,
  )
  # Lower-case letters are 36, 37, ...
  classes = np.unique(images.labels)
  np.testing.assert_array_equal(classes[found.labels], images.labels)
  assert found.users is None


def test_training_images_with_their_users(emnist_dir, tmp_path):
  options = {
    "task": "emnist",
    "data_dir": emnist_dir,
    "split": "train",
    "embedding": "pixels",
  }
  found = extractions.extract(**options, output=tmp_path / "o.npz")
  task = registry.create_task(
    "emnist", task_lib.TaskConfig(os.fspath(emnist_dir))
  )
  users = [task.train_users.user_id(slot) for slot in range(3)]
  start = 0
  for user in users:
    for batch in task.create_client_dataset(tf.constant(user)):
      rows = slice(start, start + len(batch["y"]))
      start = rows.stop
      assert set(found.users[rows]) <= {user}
      np.testing.assert_array_equal(found.labels[rows], batch["y"])
      np.testing.assert_allclose(
        found.features[rows],
        batch["x"].numpy().reshape(-1, 28 * 28) / 255,
        atol=1e-6,
      )
  assert start == len(found.labels) > 100
  # A part of them are the same rows.
  some = extractions.extract(
    **options, num_classes=3, max_images=15, output=tmp_path / "s.tfrecord"
  )
  all_rows = {
    (user, row.tobytes())
    for user, row in zip(found.users, found.features, strict=True)
  }
  assert len(some.labels) == 15
  assert set(some.labels) == {0, 1, 2}
  for user, row in zip(some.users, some.features, strict=True):
    assert (user, row.tobytes()) in all_rows


def test_photos_are_decoded_to_the_models_size(models, tmp_path):
  users = {"11": [0, 4, 4], "7": [1, 2], "20": [3, 3]}
  data = tmp_path / "data" / "gld160k"
  photo_files.write_users(data / "train", users)
  photo_files.write(
    data / "test.tfRecord",
    [(photo_files.encode(i), label) for i, label in enumerate([3, 4])],
  )
  options = {
    "task": "gld",
    "data_dir": tmp_path / "data",
    "cache_dir": tmp_path / "cache",
    "split": "train",
    "output": tmp_path / "o.npz",
  }
  found = extractions.extract(**options, saved_model=models["square"])
  assert found.users.tolist() == ["11"] * 3 + ["20"] * 2 + ["7"] * 2
  assert found.labels.tolist() == [0, 4, 4, 3, 3, 1, 2]
  features = np.array(found.features)
  # An image that begins and ends as a JPEG does, and is none.
  damaged = b"\xff\xd8\xff" + bytes(50) + b"\xff\xd9"
  photo_files.write(
    data / "train" / "20", [(photo_files.encode(0), 3), (damaged, 3)]
  )
  options |= {"embedding": "pixels", "image_size": 6, "overwrite": True}
  with pytest.raises(
    errors.DataError,
    match=r"of user 20 must be an image .*=skip leaves it out",
  ):
    extractions.extract(**options)
  pixels = extractions.extract(**options, on_bad_example="skip")
  # A user of one image is left out with the other.
  assert pixels.users.tolist() == ["11"] * 3 + ["7"] * 2
  np.testing.assert_allclose(
    pixels.features, np.delete(features, [3, 4], axis=0), atol=1e-6
  )


def test_embeddings_must_be_finite(tmp_path):
  extractions.export(tmp_path / "model", (8, 8, 1), float("nan"))
  with pytest.raises(errors.FieldError, match="that are finite"):
    extractions.extract(
      digits=True,
      saved_model=tmp_path / "model",
      output=tmp_path / "o.npz",
    )
  assert os.listdir(tmp_path) == ["model"]
