"""Tests of features of data sets that TensorFlow Datasets has prepared."""

import functools
import shutil

import numpy as np
import pytest

from tests.features.extraction import extractions


@pytest.fixture(name="prepared", scope="module")
def _prepared(tmp_path_factory):
  """Twelve images of six classes, as TensorFlow Datasets prepares them."""
  directory = tmp_path_factory.mktemp("tfds")
  images = np.random.default_rng(0).integers(
    0, 256, (12, *extractions.IMAGE_SHAPE)
  )
  labels = np.arange(12) // 2
  extractions.write_tfds(directory, "cifar10", "3.0.2", "train", images, labels)
  return directory, images.reshape(12, -1), labels


@pytest.fixture(name="extract")
def _extract(prepared, tmp_path):
  return functools.partial(
    extractions.extract, tmp_path, tfds="cifar10", data_dir=prepared[0]
  )


def test_prepared_data_set_is_read(extract, prepared, tmp_path):
  model = extractions.export(tmp_path / "model", extractions.IMAGE_SHAPE)
  _, images, labels = prepared
  for options in ({}, {"saved_model": model}):
    found, _ = extract(**options)
    features, found_labels = extractions.sort_rows(found.features, found.labels)
    expected, expected_labels = extractions.sort_rows(images / 255, labels)
    np.testing.assert_allclose(features, expected, atol=1e-6)
    np.testing.assert_array_equal(found_labels, expected_labels)


def test_some_classes_and_another_size(extract):
  found, _ = extract(num_classes=2, image_size=6)
  assert found.features.shape == (4, 6 * 6 * 3)
  assert sorted(found.labels) == [0, 0, 1, 1]


def test_the_latest_version_is_read_if_it_can_be(extract, prepared, tmp_path):
  data = tmp_path / "cifar10"
  for version in ("3.0.2", "10.0.0", "9.0.0"):
    shutil.copytree(prepared[0] / "cifar10" / "3.0.2", data / version)
    if version != "10.0.0":
      (data / version / "features.json").write_text("{")
  assert len(extract(data_dir=tmp_path)[0].labels) == 12
  [path] = (data / "10.0.0").glob("*.tfrecord*")
  path.write_bytes(path.read_bytes()[:-20])
  message = "--tfds must be labelled images, found "
  extractions.check_refused(
    tmp_path, message, tfds="cifar10", data_dir=tmp_path
  )


def test_parts_agree_in_labels(extract, prepared):
  label_of = {
    tuple(row): label for row, label in zip(*prepared[1:], strict=True)
  }
  part, output = extract(tfds_split="train[-3:]")
  rows = np.rint(255 * part.features).astype(int)
  assert [label_of[tuple(row)] for row in rows] == part.labels.tolist()
  assert len(rows) == 3
  assert " of 6 classes have no example" in output


@pytest.mark.parametrize(
  ("options", "message"),
  [
    ({"tfds": "cifar100"}, "nothing is downloaded, found no "),
    ({"data_dir": "none"}, "--tfds must be a data set that is on disk"),
    ({"tfds_split": "foo"}, "Unknown split 'foo'"),
  ],
)
def test_what_is_not_there(prepared, tmp_path, options, message):
  options = {"tfds": "cifar10", "data_dir": prepared[0]} | options
  extractions.check_refused(tmp_path, message, **options)


def test_images_without_labels_are_refused(tmp_path):
  images = np.zeros([2, *extractions.IMAGE_SHAPE])
  extractions.write_tfds(
    tmp_path, "imagenet2012", "5.1.0", "test", images, [0, -1]
  )
  extractions.check_refused(
    tmp_path,
    "--tfds_split must be of images with labels of 0 to 5, found -1 in test",
    tfds="imagenet2012",
    tfds_split="test",
    data_dir=tmp_path,
  )
