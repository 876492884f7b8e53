"""Tests of features of data sets that TensorFlow Datasets has prepared."""

import functools

from etils import epy
import numpy as np
import pytest
import tensorflow as tf

from tests.features import extractions

# Importing it takes two seconds, which not every process of the tests needs.
with epy.lazy_imports():
  import tensorflow_datasets as tfds

_SHAPE = (4, 3, 3)


def _write(directory, name, version, split, images, labels):
  """Writes images of six classes as TensorFlow Datasets prepares them."""
  image = tfds.features.Image(shape=_SHAPE, encoding_format="png")
  label = tfds.features.ClassLabel(num_classes=6)
  examples = {"image": images.astype(np.uint8), "label": np.array(labels)}
  tfds.dataset_builders.store_as_tfds_dataset(
    name=name,
    version=version,
    features=tfds.features.FeaturesDict({"image": image, "label": label}),
    split_datasets={split: tf.data.Dataset.from_tensor_slices(examples)},
    data_dir=directory,
  )


@pytest.fixture(name="prepared", scope="module")
def _prepared(tmp_path_factory):
  """Twelve images of six classes."""
  directory = tmp_path_factory.mktemp("tfds")
  images = np.random.default_rng(0).integers(0, 256, (12, *_SHAPE))
  labels = np.arange(12) // 2
  _write(directory, "cifar10", "3.0.2", "train", images, labels)
  _write(directory, "imagenet2012", "5.1.0", "test", images[:2], [0, -1])
  return directory, {
    tuple(x.ravel()): y for x, y in zip(images, labels, strict=True)
  }


@pytest.fixture(name="extract")
def _extract(prepared, tmp_path):
  return functools.partial(
    extractions.extract, tmp_path, tfds="cifar10", data_dir=prepared[0]
  )


def test_prepared_data_set_is_read(extract, prepared, tmp_path):
  model = extractions.export(tmp_path / "model", _SHAPE)
  for options in ({}, {"saved_model": model}):
    found, _ = extract(**options)
    rows = map(tuple, np.rint(255 * found.features).astype(int))
    assert dict(zip(rows, found.labels, strict=True)) == prepared[1]
    assert len(found.labels) == 12


def test_some_classes_and_another_size(extract):
  found, _ = extract(num_classes=2, image_size=6)
  assert found.features.shape == (4, 6 * 6 * 3)
  assert sorted(found.labels) == [0, 0, 1, 1]


def test_parts_agree_in_labels(extract, prepared):
  part, output = extract(tfds_split="train[-3:]")
  rows = np.rint(255 * part.features).astype(int)
  assert [prepared[1][tuple(row)] for row in rows] == part.labels.tolist()
  assert len(rows) == 3
  assert " of 6 classes have no example" in output


@pytest.mark.parametrize(
  ("options", "message"),
  [
    ({"tfds": "cifar100"}, "nothing is downloaded, found no "),
    ({"data_dir": "none"}, "--tfds must be a data set that is on disk"),
    ({"tfds_split": "foo"}, "Unknown split 'foo'"),
    (
      {"tfds": "imagenet2012", "tfds_split": "test"},
      "by tfds_split test: some have no label",
    ),
  ],
)
def test_what_is_not_there(prepared, tmp_path, options, message):
  options = {"tfds": "cifar10", "data_dir": prepared[0]} | options
  extractions.check_refused(tmp_path, message, **options)
