"""Tests of features of data sets that TensorFlow Datasets has prepared."""

import os
import shutil

import numpy as np
import pytest

from tests.features.extraction import extractions
from tff_fedemb import errors


@pytest.mark.parametrize("is_model", [False, True])
def test_prepared_data_set_is_read(extract, models, tfds_dir, is_model):
  directory, images, labels = tfds_dir
  options = {"saved_model": models["small"]} if is_model else {}
  found = extract(**options, tfds="cifar10", data_dir=directory)
  features, found_labels = extractions.sort_rows(found.features, found.labels)
  expected, labels = extractions.sort_rows(images / 255, labels)
  np.testing.assert_allclose(features, expected, atol=1e-6)
  np.testing.assert_array_equal(found_labels, labels)


def test_some_classes_and_another_size(extract, models, tfds_dir):
  options = {"tfds": "cifar10", "data_dir": tfds_dir[0], "num_classes": 2}
  found = extract(**options, saved_model=models["square"])
  assert found.features.shape == (4, 6 * 6 * 3)
  assert sorted(found.labels) == [0, 0, 1, 1]
  pixels = extract(**options, image_size=6)
  np.testing.assert_allclose(found.features, pixels.features, atol=1e-6)


def test_the_latest_version_is_read_if_it_can_be(extract, tfds_dir, tmp_path):
  data = tmp_path / "cifar10"
  for version in ("3.0.2", "10.0.0", "9.0.0"):
    shutil.copytree(tfds_dir[0] / "cifar10" / "3.0.2", data / version)
    if version != "10.0.0":
      (data / version / "features.json").write_text("{")
  options = {"tfds": "cifar10", "data_dir": tmp_path}
  assert len(extract(**options).labels) == 12
  [path] = (data / "10.0.0").glob("*.tfrecord*")
  path.write_bytes(path.read_bytes()[:-20])
  with pytest.raises(
    errors.FieldError, match="must be images with labels that can"
  ):
    extract(**options)


def test_parts_agree_in_labels(extract, tfds_dir, capsys):
  label_of = {
    tuple(row): label for row, label in zip(*tfds_dir[1:], strict=True)
  }
  for split in ("train[:3]", "train[-3:]"):
    part = extract(tfds="cifar10", data_dir=tfds_dir[0], tfds_split=split)
    rows = np.rint(255 * part.features).astype(int)
    assert [label_of[tuple(row)] for row in rows] == part.labels.tolist()
    assert len(rows) == 3
    assert " of 6 classes have no example" in capsys.readouterr().out


@pytest.mark.parametrize(
  ("options", "message"),
  [
    ({"tfds": "cifar100"}, "nothing is downloaded, found no .*cifar100"),
    ({"data_dir": "none"}, "tfds must be a data set that is on disk"),
    ({"tfds_split": "foo"}, "Unknown split 'foo'"),
    ({"tfds_split": "train[x"}, "Error parsing split"),
  ],
)
def test_what_is_not_there(extract, tfds_dir, tmp_path, options, message):
  options = {"tfds": "cifar10", "data_dir": tfds_dir[0]} | options
  with pytest.raises(errors.FieldError, match=message):
    extract(**options)
  assert not os.listdir(tmp_path)


def test_images_without_labels_are_refused(extract, tmp_path):
  images = np.zeros([2, *extractions.IMAGE_SHAPE])
  extractions.write_tfds(
    tmp_path / "data", "imagenet2012", "5.1.0", "test", images, [0, -1]
  )
  with pytest.raises(
    errors.FieldError,
    match=r"tfds_split must be of .* labels of 0 to 5, found -1 in test",
  ):
    extract(tfds="imagenet2012", tfds_split="test", data_dir=tmp_path / "data")
  assert os.listdir(tmp_path) == ["data"]
