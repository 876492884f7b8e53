"""Tests of the extraction of features, in this process and as run."""

import os
import pathlib
import shutil
import subprocess
import sys

import numpy as np
from PIL import Image
import pytest
from sklearn import datasets
from sklearn.metrics import pairwise
import tensorflow as tf
import tensorflow_datasets as tfds

from experiments import image_sources
from experiments.extraction import extracting
from experiments.extraction import selection
from experiments.extraction import settings
from tasks import registry
from tasks import task as task_lib
from tasks.synthetic import emnist
from tests.data import photo_files
from tff_fedemb.features import feature_files

_ROOT = pathlib.Path(__file__).parents[2]
_TFDS_SHAPE = (4, 3, 3)


def _export(path, shape, scale=1 / 255):
  """Saves a model whose embeddings are the pixels times a number."""

  @tf.function(
    input_signature=[tf.TensorSpec([None, *shape], tf.float32, name="images")]
  )
  def serve(images):
    flat = tf.reshape(images, [-1, int(np.prod(shape))])
    return {"embeddings": scale * flat}

  module = tf.Module()
  module.serve = serve
  tf.saved_model.save(module, os.fspath(path), serve)
  return path


@pytest.fixture(scope="module")
def models(tmp_path_factory):
  directory = tmp_path_factory.mktemp("models")
  return {
    name: _export(directory / name, shape)
    for name, shape in {
      "digits": (8, 8, 1),
      "emnist": (28, 28, 1),
      "small": (4, 3, 3),
      "square": (6, 6, 3),
    }.items()
  }


@pytest.fixture(scope="module")
def emnist_dir(tmp_path_factory):
  directory = tmp_path_factory.mktemp("emnist")
  emnist.write_emnist(directory, num_users=3, seed=1)
  return directory


@pytest.fixture
def folder(tmp_path):
  """Three classes of 5, 2 and 1 images of one colour each."""
  for name, values in {"a": range(5), "b": (10, 11), "c": (20,)}.items():
    (tmp_path / "images" / name).mkdir(parents=True)
    for value in values:
      Image.new("RGB", (5, 5), (value, value, value)).save(
        tmp_path / "images" / name / f"{value}.png"
      )
  return tmp_path / "images"


@pytest.fixture(scope="module")
def tfds_dir(tmp_path_factory):
  """Twelve images of six classes, as TensorFlow Datasets prepares them."""
  directory = tmp_path_factory.mktemp("tfds")
  images = np.random.default_rng(0).integers(0, 256, (12, *_TFDS_SHAPE))
  labels = np.arange(12) // 2
  tfds.dataset_builders.store_as_tfds_dataset(
    name="cifar10",
    version="3.0.2",
    features=tfds.features.FeaturesDict(
      {
        "image": tfds.features.Image(shape=_TFDS_SHAPE, encoding_format="png"),
        "label": tfds.features.ClassLabel(num_classes=6),
      }
    ),
    split_datasets={
      "train": tf.data.Dataset.from_tensor_slices(
        {"image": images.astype(np.uint8), "label": labels}
      )
    },
    data_dir=directory,
  )
  return directory, images.reshape(12, -1), labels


def _extract(**options):
  paths = {
    name: os.fspath(value)
    for name, value in options.items()
    if isinstance(value, os.PathLike)
  }
  extracting.execute(settings.ExtractionConfig(**{**options, **paths}))
  return feature_files.read_features(options["output"])


def _sort(features, *others):
  """Rows in the order of their numbers, and others in the same."""
  order = np.lexsort(np.round(features, 6).T)
  return features[order], *(other[order] for other in others)


class TestDigits:
  def test_pixels_are_scikit_learns(self, tmp_path):
    found = _extract(digits=True, embedding="pixels", output=tmp_path / "o.npz")
    digits = datasets.load_digits()
    np.testing.assert_array_equal(
      found.features, (digits.data / 16).astype(np.float32)
    )
    np.testing.assert_array_equal(found.labels, digits.target)
    assert found.users is None

  def test_random_features_are_of_the_gaussian_kernel(self, tmp_path):
    num_features = 20_000
    found = _extract(
      digits=True,
      embedding="random_features",
      random_features=num_features,
      gamma=0.1,
      max_images=30,
      output=tmp_path / "o.npz",
    )
    pixels = _extract(
      digits=True,
      embedding="pixels",
      max_images=30,
      output=tmp_path / "p.npz",
    )
    assert found.features.shape == (30, num_features)
    np.testing.assert_array_equal(found.labels, pixels.labels)
    np.testing.assert_allclose(
      np.linalg.norm(found.features, axis=1), 1, atol=1e-6
    )
    kernel = pairwise.rbf_kernel(pixels.features, gamma=0.1)
    # A mean of 10,000 cosines, standard deviation at most 0.01.
    np.testing.assert_allclose(
      found.features @ found.features.T, kernel, atol=0.06
    )

  def test_default_gamma_is_16_over_the_pixels(self, tmp_path):
    options = {
      "digits": True,
      "embedding": "random_features",
      "output": tmp_path / "o.npz",
      "overwrite": True,
    }
    default = _extract(**options)
    for changes, is_same in (
      ({"gamma": 0.25}, True),
      ({"gamma": 0.2}, False),
      ({"seed": 1}, False),
    ):
      other = _extract(**options, **changes)
      assert np.array_equal(default.features, other.features) == is_same

  def test_models_take_digits_of_0_to_255(self, models, tmp_path):
    options = {"digits": True, "max_images": 40}
    pixels = _extract(embedding="pixels", output=tmp_path / "p.npz", **options)
    found = _extract(
      saved_model=models["digits"], output=tmp_path / "m.npz", **options
    )
    np.testing.assert_allclose(found.features, pixels.features, atol=0.5 / 255)
    resized = _extract(
      saved_model=models["square"], output=tmp_path / "s.npz", **options
    )
    assert resized.features.shape == (40, 6 * 6 * 3)
    colours = resized.features.reshape(40, 36, 3)
    np.testing.assert_array_equal(colours[..., 0], colours[..., 2])


class TestSelection:
  def test_classes_are_drawn_and_renumbered_in_order(self, tmp_path):
    found = _extract(
      digits=True,
      embedding="pixels",
      num_classes=4,
      seed=3,
      output=tmp_path / "o.npz",
    )
    digits = datasets.load_digits()
    label_of = {
      tuple((pixels / 16).astype(np.float32)): label
      for pixels, label in zip(digits.data, digits.target, strict=True)
    }
    old = np.array([label_of[tuple(row)] for row in found.features])
    classes = np.unique(old)
    assert len(classes) == 4
    assert classes.tolist() != [0, 1, 2, 3]
    np.testing.assert_array_equal(np.searchsorted(classes, old), found.labels)
    # All of a class, in the order of the source.
    assert len(old) == np.isin(digits.target, classes).sum()
    np.testing.assert_array_equal(
      old, digits.target[np.isin(digits.target, classes)]
    )

  def test_test_share_of_every_class(self, tmp_path, capsys):
    train = _extract(
      digits=True,
      embedding="pixels",
      output=tmp_path / "train.npz",
      test_output=os.fspath(tmp_path / "test.tfrecord"),
      test_share=0.1,
    )
    test = feature_files.read_features(tmp_path / "test.tfrecord")
    sizes = np.bincount(datasets.load_digits().target)
    np.testing.assert_array_equal(np.bincount(test.labels), np.rint(sizes / 10))
    np.testing.assert_array_equal(
      np.bincount(train.labels) + np.bincount(test.labels), sizes
    )
    together, labels = _sort(
      np.concatenate([train.features, test.features]),
      np.concatenate([train.labels, test.labels]),
    )
    expected = datasets.load_digits()
    pixels, targets = _sort(expected.data / 16, expected.target)
    np.testing.assert_allclose(together, pixels, atol=1e-6)
    np.testing.assert_array_equal(labels, targets)
    output = capsys.readouterr().out
    assert f"train.npz: {len(train.labels):,} examples of 10 classes" in output
    assert sorted(os.listdir(tmp_path)) == ["test.tfrecord", "train.npz"]

  @pytest.mark.parametrize(
    ("share", "size", "num_test"),
    [(0.25, 20, 5), (0.01, 20, 1), (0.99, 20, 19), (0.5, 2, 1), (0.9, 2, 1)],
  )
  def test_test_and_train_have_one_at_least(self, share, size, num_test):
    labels = np.repeat([5, 3], size)
    train, test = selection.split_test(labels, share, np.random.default_rng(0))
    assert np.unique(labels[test], return_counts=True)[1].tolist() == [
      num_test,
      num_test,
    ]
    assert sorted([*train, *test]) == list(range(2 * size))

  def test_test_files_need_two_images_of_a_class(
    self, models, folder, tmp_path, capsys
  ):
    options = {
      "saved_model": models["square"],
      "image_folder": folder,
      "output": tmp_path / "train.npz",
      "test_output": tmp_path / "test.npz",
    }
    with pytest.raises(
      ValueError, match=r"--test_output must be .* of class c "
    ):
      _extract(**options)
    with pytest.raises(ValueError, match="--num_classes must be at most 2"):
      _extract(**options, num_classes=3)
    assert os.listdir(tmp_path) == ["images"]
    # Those with two images are drawn.
    train = _extract(**options, num_classes=2)
    assert np.bincount(train.labels).tolist() == [4, 1]
    assert "warning: classes were drawn from 2 of 3, those with 2 images" in (
      capsys.readouterr().out
    )

  def test_classes_are_drawn_from_all_that_the_source_has(self):
    drawn = [
      selection.choose_classes(
        image_sources.ImageSource(
          "images",
          np.array(labels, np.int64),
          lambda rows: iter(()),
          class_labels=np.arange(0, 40, 2),
        ),
        5,
        np.random.default_rng(0),
        min_images=0,
      )
      for labels in ([], [0, 0, 38], list(range(0, 40, 2)))
    ]
    expected = np.random.default_rng(0).choice(20, 5, replace=False)
    for classes in drawn:
      assert classes.labels.tolist() == sorted(2 * expected)
      assert not classes.warnings
      np.testing.assert_array_equal(
        classes.number(classes.labels[[4, 0, 0]]), [4, 0, 0]
      )

  def test_drawn_classes_must_keep_images(self, folder, tmp_path):
    with pytest.raises(
      ValueError,
      match=r"must be as many .* found images of 1 of the 3 drawn",
    ):
      _extract(
        image_folder=folder,
        embedding="pixels",
        image_size=2,
        num_classes=3,
        max_images=1,
        output=tmp_path / "o.npz",
      )
    assert not (tmp_path / "o.npz").exists()


class TestLabels:
  """Labels are the source's, whichever of its images are taken."""

  @pytest.mark.parametrize("num_classes", [0, 7])
  def test_number_of_images_changes_no_label(
    self, tmp_path, capsys, num_classes
  ):
    options = {
      "digits": True,
      "embedding": "pixels",
      "num_classes": num_classes,
      "overwrite": True,
      "output": tmp_path / "o.npz",
    }
    found = _extract(**options)
    label_of = {
      row.tobytes(): label
      for row, label in zip(found.features, found.labels, strict=True)
    }
    assert "warning" not in capsys.readouterr().out
    # The fewest images that have every drawn class, or that lack some.
    some = _extract(**options, max_images=40 if num_classes else 6)
    for row, label in zip(some.features, some.labels, strict=True):
      assert label_of[row.tobytes()] == label
    if not num_classes:
      missing = sorted(set(range(10)) - set(some.labels))
      assert missing and missing[0] < some.labels.max()
      assert (
        f"warning: {len(missing)} of 10 classes have no example: label"
        f" {', '.join(map(str, missing[:5]))}"
      ) in capsys.readouterr().out

  def test_folder_counts_sub_folders(self, folder, tmp_path, capsys):
    (folder / "ab").mkdir()
    (folder / "a" / "0.png").write_text("no picture")
    for value in (10, 11):
      (folder / "b" / f"{value}.png").write_text("no picture")
    options = {
      "image_folder": folder,
      "embedding": "pixels",
      "image_size": 2,
      "output": tmp_path / "o.npz",
      "on_bad_example": "skip",
      "overwrite": True,
    }
    found = _extract(**options)
    # a, ab, b and c.
    assert found.labels.tolist() == [0] * 4 + [3]
    output = capsys.readouterr().out
    assert "warning: 2 of 4 classes have no example: label 1, 2" in output
    assert "3 files could not be read and were skipped: " in output
    for path in folder.glob("*/*.png"):
      path.write_text("no picture")
    before = options["output"].read_bytes()
    with pytest.raises(
      ValueError,
      match="=skip must leave one image or more, found none of 8 that can",
    ):
      _extract(**options)
    assert options["output"].read_bytes() == before

  def test_skipped_images_leave_two_of_a_class(self, folder, tmp_path):
    (folder / "b" / "10.png").write_text("no picture")
    (folder / "c" / "20.png").unlink()
    with pytest.raises(ValueError, match="one image of class b "):
      _extract(
        image_folder=folder,
        embedding="pixels",
        image_size=2,
        output=tmp_path / "o.npz",
        test_output=tmp_path / "t.npz",
        on_bad_example="skip",
      )
    assert os.listdir(tmp_path) == ["images"]

  def test_what_max_images_leaves_is_checked_before(
    self, tmp_path, monkeypatch
  ):
    monkeypatch.setattr(extracting.image_sources, "embed_rows", None)
    options = {
      "digits": True,
      "embedding": "pixels",
      "output": tmp_path / "o.npz",
    }
    with pytest.raises(ValueError, match=r"found .* of the 10"):
      _extract(**options, num_classes=10, max_images=5)
    with pytest.raises(ValueError, match="test_output must be"):
      _extract(**options, test_output=tmp_path / "t.npz", max_images=5)

  def test_parts_of_a_data_set_agree(self, tfds_dir, tmp_path, capsys):
    options = {
      "tfds": "cifar10",
      "data_dir": tfds_dir[0],
      "embedding": "pixels",
      "overwrite": True,
      "output": tmp_path / "o.npz",
    }
    found = _extract(**options)
    label_of = {
      row.tobytes(): label
      for row, label in zip(found.features, found.labels, strict=True)
    }
    capsys.readouterr()
    for split in ("train[:3]", "train[-3:]"):
      part = _extract(**options, tfds_split=split)
      assert len(part.labels) == 3
      for row, label in zip(part.features, part.labels, strict=True):
        assert label_of[row.tobytes()] == label
      assert " of 6 classes have no example" in capsys.readouterr().out


class TestFolder:
  def test_images_are_resized_and_their_classes_kept(
    self, models, folder, tmp_path
  ):
    found = _extract(
      saved_model=models["square"],
      image_folder=folder,
      output=tmp_path / "o.npz",
    )
    assert found.labels.tolist() == [0] * 5 + [1] * 2 + [2]
    values = np.array([*range(5), 10, 11, 20])
    expected = np.tile(values[:, None] / 255, 6 * 6 * 3)
    np.testing.assert_allclose(found.features, expected, atol=1e-6)
    pixels = _extract(
      embedding="pixels",
      image_size=6,
      image_folder=folder,
      output=tmp_path / "p.npz",
    )
    np.testing.assert_allclose(found.features, pixels.features, atol=1e-6)

  def test_bad_example_fails_or_is_skipped(
    self, models, folder, tmp_path, capsys
  ):
    bad = folder / "a" / "2.png"
    bad.write_text("no picture")
    options = {
      "saved_model": models["square"],
      "image_folder": folder,
      "output": tmp_path / "o.npz",
    }
    with pytest.raises(ValueError, match="--on_bad_example=skip"):
      _extract(**options)
    assert not options["output"].exists()
    found = _extract(**options, on_bad_example="skip")
    assert found.labels.tolist() == [0] * 4 + [1] * 2 + [2]
    np.testing.assert_allclose(
      255 * found.features[:, 0], [0, 1, 3, 4, 10, 11, 20], atol=1e-4
    )
    output = capsys.readouterr().out
    assert "1 file could not be read and was skipped: " in output


class TestTask:
  @pytest.mark.parametrize("split", task_lib.EVALUATION_SPLITS)
  def test_held_out_images(self, models, emnist_dir, tmp_path, split):
    found = _extract(
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

  def test_training_images_with_their_users(self, emnist_dir, tmp_path):
    options = {
      "task": "emnist",
      "data_dir": emnist_dir,
      "split": "train",
      "embedding": "pixels",
    }
    found = _extract(**options, output=tmp_path / "o.npz")
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
    some = _extract(
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

  def test_photos_are_decoded_to_the_models_size(self, models, tmp_path):
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
    found = _extract(**options, saved_model=models["square"])
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
      ValueError,
      match=r"found 1 bad example: 20: not an image .*=skip leaves out",
    ):
      _extract(**options)
    pixels = _extract(**options, on_bad_example="skip")
    # A user of one image is left out with the other.
    assert pixels.users.tolist() == ["11"] * 3 + ["7"] * 2
    np.testing.assert_allclose(
      pixels.features, np.delete(features, [3, 4], axis=0), atol=1e-6
    )

  def test_image_sizes_must_agree(self, models, emnist_dir, tmp_path):
    with pytest.raises(ValueError, match=r"of \[28, 28, 1\], the"):
      _extract(
        saved_model=models["square"],
        task="emnist",
        data_dir=emnist_dir,
        output=tmp_path / "o.npz",
      )


class TestTfds:
  @pytest.mark.parametrize("embedding", ["pixels", "small"])
  def test_prepared_data_set_is_read(
    self, models, tfds_dir, tmp_path, embedding
  ):
    directory, images, labels = tfds_dir
    options = {"embedding": "pixels"}
    if embedding in models:
      options = {"saved_model": models[embedding]}
    found = _extract(
      **options, tfds="cifar10", data_dir=directory, output=tmp_path / "o.npz"
    )
    features, found_labels = _sort(found.features, found.labels)
    expected, labels = _sort(images / 255, labels)
    np.testing.assert_allclose(features, expected, atol=1e-6)
    np.testing.assert_array_equal(found_labels, labels)

  def test_some_classes_and_another_size(self, models, tfds_dir, tmp_path):
    options = {
      "tfds": "cifar10",
      "data_dir": tfds_dir[0],
      "num_classes": 2,
      "overwrite": True,
      "output": tmp_path / "o.npz",
    }
    found = _extract(**options, saved_model=models["square"])
    assert found.features.shape == (4, 6 * 6 * 3)
    assert sorted(found.labels) == [0, 0, 1, 1]
    pixels = _extract(**options, embedding="pixels", image_size=6)
    np.testing.assert_allclose(found.features, pixels.features, atol=1e-6)

  def test_the_latest_version_is_read(self, tfds_dir, tmp_path):
    for version in ("3.0.2", "10.0.0", "9.0.0"):
      shutil.copytree(
        tfds_dir[0] / "cifar10" / "3.0.2", tmp_path / "cifar10" / version
      )
    for version in ("3.0.2", "9.0.0"):
      (tmp_path / "cifar10" / version / "features.json").write_text("{")
    found = _extract(
      tfds="cifar10",
      data_dir=tmp_path,
      embedding="pixels",
      output=tmp_path / "o.npz",
    )
    assert len(found.labels) == 12

  @pytest.mark.parametrize(
    ("options", "message"),
    [
      ({"tfds": "cifar100"}, "nothing is downloaded: found no .*cifar100"),
      ({"data_dir": "none"}, "--tfds must be a data set that is on disk"),
      ({"tfds_split": "foo"}, "Unknown split 'foo'"),
      ({"tfds_split": "train[x"}, "Error parsing split"),
    ],
  )
  def test_what_is_not_there(self, tfds_dir, tmp_path, options, message):
    options = {"tfds": "cifar10", "data_dir": tfds_dir[0]} | options
    with pytest.raises(ValueError, match=message):
      _extract(embedding="pixels", output=tmp_path / "o.npz", **options)
    assert not os.listdir(tmp_path)

  def test_images_without_labels_are_refused(self, tmp_path):
    tfds.dataset_builders.store_as_tfds_dataset(
      name="imagenet2012",
      version="5.1.0",
      features=tfds.features.FeaturesDict(
        {
          "image": tfds.features.Image(
            shape=_TFDS_SHAPE, encoding_format="png"
          ),
          "label": tfds.features.ClassLabel(num_classes=6),
        }
      ),
      split_datasets={
        "test": tf.data.Dataset.from_tensor_slices(
          {
            "image": np.zeros([2, *_TFDS_SHAPE], np.uint8),
            "label": np.array([0, -1]),
          }
        )
      },
      data_dir=tmp_path / "data",
    )
    with pytest.raises(
      ValueError,
      match=r"--tfds_split must be of .* labels of 0 to 5, found -1 in test",
    ):
      _extract(
        tfds="imagenet2012",
        tfds_split="test",
        data_dir=tmp_path / "data",
        embedding="pixels",
        output=tmp_path / "o.npz",
      )
    assert os.listdir(tmp_path) == ["data"]

  def test_damaged_data_are_said(self, tfds_dir, tmp_path):
    shutil.copytree(tfds_dir[0] / "cifar10", tmp_path / "cifar10")
    [path] = (tmp_path / "cifar10" / "3.0.2").glob("*.tfrecord*")
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(ValueError, match="must be images with labels that can"):
      _extract(
        tfds="cifar10",
        data_dir=tmp_path,
        embedding="pixels",
        output=tmp_path / "o.npz",
      )


class TestMistakes:
  @pytest.mark.parametrize(
    ("options", "message"),
    [
      ({"output": None}, "output must be given"),
      ({"output": "o.csv"}, "output must end with .npz or .tfrecord"),
      ({"test_output": "t"}, "test_output must end with .npz"),
      ({"test_output": ""}, "test_output must end with .*, found ''"),
      ({"digits": False}, "one of them, found none"),
      ({"task": "emnist"}, "one of them, found --task and --digits"),
      ({"data_dir": "d"}, "data_dir must be given with --task or --tfds"),
      ({"task_variant": "v"}, "task_variant must be given with --task"),
      ({"embedding": None}, "one of the two, found neither"),
      ({"saved_model": "m"}, "one of the two, found both"),
      ({"embedding": "hog"}, "embedding must be one of .* found 'hog'"),
      ({"split": "all"}, "split must be one of .'train', 'val.* 'all'"),
      ({"digits": False, "tfds": "svhn"}, "tfds must be one of .* 'svhn'"),
      ({"on_bad_example": "ask"}, "on_bad_example must be one of"),
      ({"num_classes": 1}, "num_classes must be at least 2, or 0, found 1"),
      ({"num_classes": -2}, "num_classes must be at least 2, or 0"),
      ({"max_images": -1}, "max_images must be at least 0, found -1"),
      ({"seed": -1}, "seed must be at least 0"),
      ({"random_features": 7}, "random_features must be even"),
      ({"random_features": 0}, "random_features must be even, positive"),
      ({"random_features": 2 * 10**9}, "at most 65536, found 2000000000"),
      ({"gamma": 0.0}, "gamma must be positive and at most 1e.06, found 0"),
      ({"gamma": float("nan")}, "gamma must be positive .* found nan"),
      ({"gamma": 1e308}, r"gamma must be .* at most .* found 1e\+308"),
      ({"test_share": 1.0}, "test_share must be between 0 and 1"),
      ({"test_share": 0.5}, "test_share must be given with --test_output"),
      ({"split": "test"}, "split must be given with --task only"),
      ({"tfds_split": "t"}, "tfds_split must be given with --tfds only"),
      ({"cache_dir": "c"}, "cache_dir must be given with --task only"),
      ({"gamma": 1.0}, "gamma must be given with --embedding=random_feat"),
      ({"random_features": 2}, "must be given with --embedding=random_fea"),
      ({"image_size": 8}, "image_size must not be given with"),
      ({"digits": False, "image_folder": "f"}, "image_size must be given"),
      (
        {"digits": False, "image_folder": "f", "image_size": 30_000},
        "image_size must be at most 4096, found 30000",
      ),
    ],
  )
  def test_flags_that_do_not_fit(self, options, message):
    flags = {"output": "o.npz", "digits": True, "embedding": "pixels"}
    with pytest.raises(ValueError, match=message):
      settings.ExtractionConfig(**flags | options)

  @pytest.mark.parametrize("name", ["output", "test_output"])
  def test_files_are_overwritten_on_demand_only(self, tmp_path, name):
    options = {"output": tmp_path / "o.npz", "test_output": tmp_path / "t.npz"}
    options[name].write_text("precious")
    with pytest.raises(ValueError, match=f"{name} must be a"):
      _extract(digits=True, embedding="pixels", **options)
    assert os.listdir(tmp_path) == [options[name].name]
    _extract(digits=True, embedding="pixels", overwrite=True, **options)

  def test_defaults_are_set_where_they_apply(self):
    flags = {"output": "o.npz", "digits": True, "embedding": "pixels"}
    config = settings.ExtractionConfig(**flags)
    assert config.test_share is None and config.random_features is None
    flags |= {"embedding": "random_features", "test_output": "t.npz"}
    config = settings.ExtractionConfig(**flags)
    assert (config.test_share, config.random_features) == (0.25, 512)
    assert config.split is None and config.tfds_split is None

  def test_one_file_by_two_ways_is_refused(self, tmp_path):
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    with pytest.raises(
      ValueError,
      match="test_output must be another file than --output, found",
    ):
      _extract(
        digits=True,
        embedding="pixels",
        output=tmp_path / "real" / "o.npz",
        test_output=tmp_path / "link" / "o.npz",
      )
    assert not os.listdir(tmp_path / "real")

  def test_failed_write_leaves_nothing(self, tmp_path, monkeypatch):
    write = feature_files.write_features

    def fail_second(path, feature_set):
      if "t.npz" in os.fspath(path):
        raise OSError(28, "No space left on device")
      write(path, feature_set)

    monkeypatch.setattr(extracting.feature_files, "write_features", fail_second)
    with pytest.raises(ValueError, match="No space left"):
      _extract(
        digits=True,
        embedding="pixels",
        output=tmp_path / "o.npz",
        test_output=tmp_path / "t.npz",
      )
    assert not os.listdir(tmp_path)

  def test_embeddings_must_be_finite(self, tmp_path):
    _export(tmp_path / "model", (8, 8, 1), float("nan"))
    with pytest.raises(ValueError, match="that are finite"):
      _extract(
        digits=True,
        saved_model=tmp_path / "model",
        output=tmp_path / "o.npz",
      )
    assert os.listdir(tmp_path) == ["model"]

  def test_embeddings_must_fit_into_memory(self, tmp_path, monkeypatch):
    def fail(images, largest_value):
      raise MemoryError

    monkeypatch.setattr(extracting.embeddings_lib, "embed_pixels", fail)
    with pytest.raises(
      ValueError,
      match=r"--embedding must give .* fit into memory, found .* 1,797",
    ):
      _extract(digits=True, embedding="pixels", output=tmp_path / "o.npz")


def test_command_line(tmp_path):
  finished = subprocess.run(
    [
      sys.executable,
      "-m",
      "binaries.extract_features",
      "--digits",
      "--embedding=pixels",
      f"--output={tmp_path / 'o.npz'}",
    ],
    cwd=_ROOT,
    capture_output=True,
    text=True,
    check=False,
    env={k: v for k, v in os.environ.items() if k != "TF_CPP_MIN_LOG_LEVEL"},
  )
  assert finished.returncode == 0
  assert not finished.stderr
  assert "1,797 examples of 10 classes, 64 numbers each" in finished.stdout
